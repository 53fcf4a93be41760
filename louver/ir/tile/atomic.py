"""Operations on memory that no other program sees half done."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile import syntax
from louver.ir.tile.types import loaded_type

KINDS = ("and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "xchg")
"""What an atomic operation does to memory. Source: Triton's RMWOp."""


@irdl_op_definition
class AtomicRMWOp(IRDLOperation):
    """Read, change by `value`, and write, element by element where the mask holds; gives what was there before."""

    name = "tt.atomic_rmw"
    kind = prop_def(StringAttr)
    sem = prop_def(StringAttr)
    scope = prop_def(StringAttr)
    ptr = operand_def()
    value = operand_def()
    mask = opt_operand_def()
    result = result_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        properties = {name: StringAttr(_word(parser)) for name in ("kind", "sem", "scope")}
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        parser.parse_punctuation("->")
        result = parser.parse_type()
        values = parser.resolve_operands(operands, types, parser.pos)
        return cls.build(
            operands=[values[0], values[1], values[2:]],
            properties=properties,
            attributes=attributes,
            result_types=[result],
        )

    def print(self, printer: Printer) -> None:
        for word in (self.kind, self.sem, self.scope):
            printer.print_string(f" {word.data},")
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : (")
        printer.print_list(self.operands, lambda operand: printer.print_attribute(operand.type))
        printer.print_string(") -> ")
        printer.print_attribute(self.result.type)

    def verify_(self) -> None:
        if self.kind.data not in KINDS:
            raise VerifyException(f"an atomic operation is one of {', '.join(KINDS)}, got {self.kind.data}")
        stored = loaded_type(self.ptr.type)
        for value in (self.value, self.result):
            if value.type != stored:
                raise VerifyException(f"an atomic operation through {self.ptr.type} is on {stored}, got {value.type}")
        mask: SSAValue | None = self.mask
        if mask is not None and mask.type != syntax.mask_type(stored):
            raise VerifyException(f"the mask of {self.name} must be {syntax.mask_type(stored)}, got {mask.type}")


def _word(parser: Parser) -> str:
    word = parser.parse_identifier()
    parser.parse_punctuation(",")
    return word
