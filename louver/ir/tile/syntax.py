"""Syntax of Triton that several operations share, as directives for assembly formats of xDSL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerAttr, IntegerType, StringAttr, i1, i64
from xdsl.dialects.utils import get_dynamic_index_list, print_dynamic_index_list, split_dynamic_index_list
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    OptionalOperandVariable,
    ParsingState,
    PrintingState,
    TypeDirective,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.types import DescriptorType, PointerType, as_tensor, loaded_type, tensor_like

Index: TypeAlias = SSAValue | int
"""An entry of an index list: a value, as Triton prints it, or a literal, as in simplified IR."""

Literals: TypeAlias = DenseArrayBase[IntegerType]
"""The literal entries of an index list, with a marker for each entry that is a value."""


def split_indices(entries: Sequence[Index]) -> tuple[list[SSAValue], Literals]:
    """The values of an index list, and its literals with markers in their places."""
    literals, values = split_dynamic_index_list(entries, DYNAMIC_INDEX)
    return values, DenseArrayBase.from_list(i64, literals)


def join_indices(values: Sequence[SSAValue], literals: Literals) -> tuple[Index, ...]:
    """The entries of an index list in order."""
    return tuple(get_dynamic_index_list(literals.get_values(), values, DYNAMIC_INDEX))


def verify_indices(what: str, values: Sequence[SSAValue], literals: Literals, rank: int) -> None:
    """Raise VerifyException unless the list has `rank` entries, and a value for each marker."""
    markers = sum(literal == DYNAMIC_INDEX for literal in literals.get_values())
    count = len(literals) - markers + len(values)
    if markers != len(values) or count != rank:
        raise VerifyException(f"{what} must have an entry for each of {rank} dimensions, got {count}")


@irdl_custom_directive
class Indices(CustomDirective):
    """`[%a, 3, %b]`. The name of the list and `=` may come before it, as in simplified IR."""

    values: VariadicOperandVariable
    literals: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        if parser.parse_optional_keyword(self.values.name):
            parser.parse_punctuation("=")
        entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_index(parser))
        self.values.set(state, [entry for entry in entries if not isinstance(entry, int)])
        literals = [entry if isinstance(entry, int) else DYNAMIC_INDEX for entry in entries]
        self.literals.set(state, DenseArrayBase.from_list(i64, literals))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        literals = cast(Literals, self.literals.get(op))
        print_dynamic_index_list(printer, DYNAMIC_INDEX, self.values.get(op), literals.get_values())


def _parse_index(parser: Parser) -> int | UnresolvedOperand:
    operand = parser.parse_optional_unresolved_operand()
    return parser.parse_integer(allow_boolean=False) if operand is None else operand


class _Stripped(CustomDirective):
    """A type without its name, such as `<f16>` for `!tt.ptr<f16>`. The full form is read too."""

    KIND: ClassVar[type[ParametrizedAttribute]]
    type_: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.type_.set(state, [parse_stripped(parser, self.KIND)])

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        cast(ParametrizedAttribute, self.type_.get(op)[0]).print_parameters(printer)


def parse_stripped(parser: Parser, kind: type[ParametrizedAttribute]) -> Attribute:
    """Parse `<…>` or `!name<…>` as a type of this kind."""
    start = parser.pos
    full = parser.parse_optional_type()
    if full is None:
        return kind.new(kind.parse_parameters(parser))
    if not isinstance(full, kind):
        parser.raise_error(f"expected !{kind.name}<…>, got {full}", start, parser.pos)
    return full


@irdl_custom_directive
class StrippedPointer(_Stripped):
    """A pointer type as `<f16>`."""

    KIND: ClassVar[type[ParametrizedAttribute]] = PointerType
    type_: TypeDirective


@irdl_custom_directive
class StrippedDescriptor(_Stripped):
    """A descriptor type as `<tensor<…>>`."""

    KIND: ClassVar[type[ParametrizedAttribute]] = DescriptorType
    type_: TypeDirective


@irdl_custom_directive
class BlockPointer(_Stripped):
    """The stripped result type of a block pointer. The type of the base follows from it."""

    KIND: ClassVar[type[ParametrizedAttribute]] = PointerType
    type_: TypeDirective
    base: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        start = parser.pos
        result = cast(PointerType, parse_stripped(parser, PointerType))
        block = as_tensor(result.pointee)
        if block is None:
            parser.raise_error(f"expected a pointer to a tile, got {result}", start, parser.pos)
        self.type_.set(state, [result])
        self.base.set(state, [PointerType(block.element_type, block.encoding)])


@irdl_custom_directive
class SamePointer(_Stripped):
    """The stripped pointer type that result and operand share."""

    KIND: ClassVar[type[ParametrizedAttribute]] = PointerType
    type_: TypeDirective
    operand: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        pointer = parse_stripped(parser, PointerType)
        self.type_.set(state, [pointer])
        self.operand.set(state, [pointer])


@irdl_custom_directive
class Word(CustomDirective):
    """A bare identifier, stored as a string attribute."""

    word: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.word.set(state, StringAttr(parser.parse_identifier()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        printer.print_string(cast(StringAttr, self.word.get(op)).data)

    def is_present(self, op: IRDLOperation) -> bool:
        return self.word.is_present(op)

    def is_anchorable(self) -> bool:
        return True


AXES = "xyz"
"""The axes of the grid of programs."""


@irdl_custom_directive
class Axis(CustomDirective):
    """An axis of the grid, stored as its number."""

    axis: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        word = parser.parse_identifier()
        if word not in tuple(AXES):
            parser.raise_error(f"an axis of the grid is one of {', '.join(AXES)}, got {word!r}")
        self.axis.set(state, IntegerAttr(AXES.index(word), 32))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        printer.print_string(AXES[cast("IntegerAttr[IntegerType]", self.axis.get(op)).value.data])


@irdl_custom_directive
class LoadType(CustomDirective):
    """The type of the pointer. The types of result, mask and fill value follow from it."""

    pointer: TypeDirective
    result: TypeDirective
    mask: TypeDirective
    other: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        pointer, loaded = _parse_pointer(parser)
        self.pointer.set(state, [pointer])
        self.result.set(state, [loaded])
        _set_optional(state, self.mask, mask_type(loaded))
        _set_optional(state, self.other, fill_type(loaded))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        self.pointer.print(printer, state, op)


@irdl_custom_directive
class StoreType(CustomDirective):
    """The type of the pointer. The types of the stored value and of the mask follow from it."""

    pointer: TypeDirective
    value: TypeDirective
    mask: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        pointer, stored = _parse_pointer(parser)
        self.pointer.set(state, [pointer])
        self.value.set(state, [stored])
        _set_optional(state, self.mask, mask_type(stored))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        self.pointer.print(printer, state, op)


def _set_optional(state: ParsingState, directive: TypeDirective, type_: Attribute) -> None:
    """Set the type of an optional operand if the text had one."""
    operand = cast(OptionalOperandVariable, directive.inner)
    directive.set(state, [type_] if state.operands[operand.index] else [])


def _parse_pointer(parser: Parser) -> tuple[Attribute, Attribute]:
    """Parse the type of a pointer. Returns it with the type that is loaded or stored through it."""
    start = parser.pos
    pointer = parser.parse_type()
    try:
        return pointer, loaded_type(pointer)
    except VerifyException as error:
        parser.raise_error(str(error), start, parser.pos)


def fill_type(value: Attribute) -> Attribute:
    """The type of the fill value of a load: the type of `value` without a sparse encoding."""
    if tensor := as_tensor(value):
        return tensor_like(tensor, tensor.element_type)
    return value


def mask_type(value: Attribute) -> Attribute:
    """The type of a mask for `value`: i1, or a tensor of i1 in its shape."""
    if tensor := as_tensor(value):
        return tensor_like(tensor, i1)
    return i1
