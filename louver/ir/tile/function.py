"""Functions, and the program numbers of the grid."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import (
    I32,
    ArrayAttr,
    BytesAttr,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    i32,
)
from xdsl.dialects.utils import print_func_op_like
from xdsl.ir import Attribute, Block, Region, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile import syntax

_RESERVED = ("sym_name", "function_type", "sym_visibility", "arg_attrs")

NAME = "louver.name"
"""The attribute with the exact name of an argument. It is printed only if the printed argument has another name."""

_FOREIGN, _NUMBERS = re.compile(r"[^A-Za-z0-9_$.-]"), re.compile(r"(_\d+)+$")
"""Characters that name hints cannot have, and the suffix that xDSL drops with each copy of a hint."""


@irdl_op_definition
class FuncOp(IRDLOperation):
    """A function. A public function is a kernel, which runs once for each program of a grid."""

    name = "tt.func"
    sym_name = prop_def(SymbolNameConstraint())
    function_type = prop_def(FunctionType)
    sym_visibility = opt_prop_def(StringAttr)
    arg_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    body = region_def()
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(
        self,
        name: str,
        function_type: FunctionType,
        body: Region,
        visibility: StringAttr | None = None,
        *,
        arg_attrs: ArrayAttr[DictionaryAttr] | None = None,
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        properties: dict[str, Attribute | None] = {
            "sym_name": StringAttr(name),
            "function_type": function_type,
            "sym_visibility": visibility,
            "arg_attrs": arg_attrs,
        }
        super().__init__(properties=properties, regions=[body], attributes=attributes or {})

    @classmethod
    def kernel(cls, name: str, arguments: dict[str, Attribute]) -> Self:
        """A public function with an empty body and named arguments. name: an MLIR identifier."""
        block = Block(arg_types=list(arguments.values()))
        signature = FunctionType.from_lists(list(arguments.values()), [])
        function = cls(name, signature, Region(block), StringAttr("public"))
        function.name_arguments(dict(enumerate(arguments)))
        return function

    @property
    def argument_attributes(self) -> list[dict[str, Attribute]]:
        """A copy of the attributes of each argument. Assign it to change them."""
        if self.arg_attrs is None:
            return [{} for _ in self.function_type.inputs]
        return [dict(each.data) for each in self.arg_attrs]

    @argument_attributes.setter
    def argument_attributes(self, attributes: Sequence[Mapping[str, Attribute]]) -> None:
        self.arg_attrs = ArrayAttr([DictionaryAttr(each) for each in attributes]) if any(attributes) else None

    @property
    def argument_names(self) -> dict[SSAValue, str]:
        """The exact name of each argument, without duplicates. The fourth argument is `arg3` if it has no name.

        Name hints are not exact: xDSL drops `_1` of `alpha_1`, and accepts only ASCII.
        """
        return dict(zip(self.body.block.args, self._names(), strict=True))

    def _names(self) -> list[str]:
        found = [attributes.get(NAME) for attributes in self.argument_attributes]
        return [f"arg{index}" if each is None else text_of(each) for index, each in enumerate(found)]

    def name_arguments(self, names: Mapping[int, str]) -> None:
        """Name arguments. names: names by the index of the argument."""
        attributes = self.argument_attributes
        for index, name in names.items():
            attributes[index][NAME] = StringAttr(name)
            self.body.block.args[index].name_hint = _NUMBERS.sub("_", _FOREIGN.sub("_", name))
        self.argument_attributes = attributes

    def take_types(self) -> None:
        """Update the type of the function after the arguments of its block have changed."""
        self.function_type = FunctionType.from_lists(list(self.body.block.arg_types), list(self.function_type.outputs))

    @property
    def is_public(self) -> bool:
        """Whether the function is a kernel."""
        return self.sym_visibility is None or self.sym_visibility.data == "public"

    def verify_(self) -> None:
        block = self.body.blocks.first
        if block is not None and tuple(block.arg_types) != self.function_type.inputs.data:
            raise VerifyException(
                f"the entry block's arguments have the function's types, {self.function_type.inputs}, "
                f"got {ArrayAttr(block.arg_types)}"
            )
        names = self._names()
        if len(set(names)) < len(names):
            raise VerifyException(f"arguments have one name each, got {', '.join(names)}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        visibility = parser.parse_optional_visibility_keyword()
        name = parser.parse_symbol_name().data
        found = parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_argument(parser))
        outputs: list[TypeAttribute] = []
        if parser.parse_optional_punctuation("->"):
            several = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
            outputs = [parser.parse_type()] if several is None else several
        extra = parser.parse_optional_attr_dict_with_keyword(_RESERVED)
        arguments = [argument for argument, _, _ in found if argument is not None]
        body = parser.parse_optional_region(arguments or None) or Region()
        function = cls(
            name,
            FunctionType.from_lists([type_ for _, type_, _ in found], outputs),
            body,
            visibility,
            attributes=None if extra is None else dict(extra.data),
        )
        function.argument_attributes = [attributes for _, _, attributes in found]
        return function

    def print(self, printer: Printer) -> None:
        if self.sym_visibility is not None:
            printer.print_string(f" {self.sym_visibility.data}")
        print_func_op_like(
            printer,
            self.sym_name,
            self.function_type,
            self.body,
            self.attributes,
            arg_attrs=self._said(),
            reserved_attr_names=_RESERVED,
        )

    def _said(self) -> ArrayAttr[DictionaryAttr] | None:
        """The attributes of arguments to print. A name is left out if the printed argument has it."""
        if self.arg_attrs is None or not self.body.blocks:
            return self.arg_attrs
        said: list[DictionaryAttr] = []
        printed: set[str | None] = set()
        for argument, attributes in zip(self.body.block.args, self.argument_attributes, strict=True):
            if argument.name_hint not in printed and attributes.get(NAME) == StringAttr(argument.name_hint or ""):
                del attributes[NAME]
            printed.add(argument.name_hint)
            said.append(DictionaryAttr(attributes))
        return ArrayAttr(said)


def text_of(attribute: Attribute) -> str:
    """The text of a string attribute. Text beyond ASCII is read back as bytes."""
    match attribute:
        case StringAttr():
            return attribute.data
        case BytesAttr():
            return attribute.data.decode()
        case _:
            raise VerifyException(f"a name is a string, got {attribute}")


def free_name(name: str, taken: Collection[str]) -> str:
    """A similar name that no argument has. Names in Python do not end in an apostrophe, so one is added."""
    while name in taken:
        name += "'"
    return name


def _parse_argument(parser: Parser) -> tuple[Parser.Argument | None, Attribute, dict[str, Attribute]]:
    """Parse an argument (None in a declaration), its type and its attributes.

    A name in the text that is not a number becomes its name.
    """
    argument = parser.parse_optional_argument()
    type_ = parser.parse_type() if argument is None else argument.type
    attributes = parser.parse_optional_dictionary_attr_dict()
    location = parser.parse_optional_location()
    if argument is not None:
        argument.location = location
        name = argument.name.text.removeprefix("%")
        if not name.isdecimal():
            attributes.setdefault(NAME, StringAttr(name))
    return argument, type_, attributes


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a function."""

    name = "tt.return"
    srcs = var_operand_def()
    traits = traits_def(HasParent(FuncOp), IsTerminator())
    assembly_format = "attr-dict ($srcs^ `:` type($srcs))?"

    def __init__(self, *srcs: SSAValue) -> None:
        super().__init__(operands=[srcs])

    def verify_(self) -> None:
        function = self.parent_op()
        if isinstance(function, FuncOp) and tuple(self.srcs.types) != function.function_type.outputs.data:
            raise VerifyException(
                f"the returned values have the function's result types, {function.function_type.outputs}, "
                f"got {ArrayAttr(self.srcs.types)}"
            )


class _GridOp(IRDLOperation):
    axis = prop_def(IntegerAttr[I32])
    result = result_def(i32)
    traits = traits_def(Pure())
    custom_directives = (syntax.Axis,)
    assembly_format = "custom<Axis>($axis) attr-dict `:` type($result)"

    def __init__(self, axis: int) -> None:
        super().__init__(properties={"axis": IntegerAttr(axis, 32)}, result_types=[i32])

    def verify_(self) -> None:
        if not 0 <= self.axis.value.data < len(syntax.AXES):
            raise VerifyException(f"an axis of the grid is 0, 1 or 2, got {self.axis.value.data}")


@irdl_op_definition
class GetProgramIdOp(_GridOp):
    """The program's position along an axis of the grid."""

    name = "tt.get_program_id"


@irdl_op_definition
class GetNumProgramsOp(_GridOp):
    """The grid's size along an axis, in programs."""

    name = "tt.get_num_programs"
