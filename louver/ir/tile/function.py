"""Functions, and which program of the grid runs."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import (
    I32,
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    i32,
)
from xdsl.dialects.utils import parse_func_op_like, print_func_op_like
from xdsl.ir import Attribute, Block, Region, SSAValue
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

_RESERVED = ("sym_name", "function_type", "sym_visibility", "arg_attrs", "res_attrs")


@irdl_op_definition
class FuncOp(IRDLOperation):
    """A function; a public one is a kernel, run once for each program of a grid."""

    name = "tt.func"
    sym_name = prop_def(SymbolNameConstraint())
    function_type = prop_def(FunctionType)
    sym_visibility = opt_prop_def(StringAttr)
    arg_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    res_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
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
        res_attrs: ArrayAttr[DictionaryAttr] | None = None,
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        properties: dict[str, Attribute | None] = {
            "sym_name": StringAttr(name),
            "function_type": function_type,
            "sym_visibility": visibility,
            "arg_attrs": arg_attrs,
            "res_attrs": res_attrs,
        }
        super().__init__(properties=properties, regions=[body], attributes=attributes or {})

    @classmethod
    def kernel(cls, name: str, arguments: dict[str, Attribute]) -> Self:
        """A public function with an empty body and named arguments; `name` and argument names are MLIR identifiers."""
        block = Block(arg_types=list(arguments.values()))
        for argument, hint in zip(block.args, arguments, strict=True):
            argument.name_hint = hint
        signature = FunctionType.from_lists(list(arguments.values()), [])
        return cls(name, signature, Region(block), StringAttr("public"))

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

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        visibility = parser.parse_optional_visibility_keyword()
        name, inputs, outputs, body, extra, arg_attrs, res_attrs = parse_func_op_like(
            parser, reserved_attr_names=_RESERVED
        )
        return cls(
            name,
            FunctionType.from_lists(inputs, outputs),
            body,
            visibility,
            arg_attrs=arg_attrs,
            res_attrs=res_attrs,
            attributes=None if extra is None else dict(extra.data),
        )

    def print(self, printer: Printer) -> None:
        if self.sym_visibility is not None:
            printer.print_string(f" {self.sym_visibility.data}")
        print_func_op_like(
            printer,
            self.sym_name,
            self.function_type,
            self.body,
            self.attributes,
            arg_attrs=self.arg_attrs,
            res_attrs=self.res_attrs,
            reserved_attr_names=_RESERVED,
        )


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
