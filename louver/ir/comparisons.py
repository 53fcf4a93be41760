"""MLIR's comparisons and selects (`arith.cmpi`, `arith.cmpf`, `arith.select`) of scalars and tensors.

Those of xDSL accept only scalars.
"""

from __future__ import annotations

from typing import ClassVar, Self

from xdsl.dialects.arith import floatingPointLike, signlessIntegerLike
from xdsl.dialects.builtin import IntegerAttr, IntegerType, i1
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.types import as_tensor, tensor_like

INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
FLOAT_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip
"""Predicates in the order of their numbers in MLIR.

For floats with a NaN operand, `o` predicates are false and `u` predicates are true.
"""


def truth_type(type_: Attribute) -> Attribute:
    """The result type of a comparison: i1, or for a tensor a tensor of i1 of the same shape."""
    tensor = as_tensor(type_)
    return i1 if tensor is None else tensor_like(tensor, i1)


class _Comparison(IRDLOperation):
    PREDICATES: ClassVar[tuple[str, ...]]
    predicate = prop_def(IntegerAttr[IntegerType])
    result = result_def(signlessIntegerLike)
    traits = traits_def(Pure())

    def __init__(self, lhs: SSAValue, rhs: SSAValue, predicate: str) -> None:
        number = IntegerAttr(self.PREDICATES.index(predicate), 64)
        super().__init__(operands=[lhs, rhs], properties={"predicate": number}, result_types=[truth_type(lhs.type)])

    @property
    def name_of_predicate(self) -> str:
        """The predicate, such as "slt" or "oge"."""
        return self.PREDICATES[self.predicate.value.data]

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        word = parser.parse_identifier()
        if word not in cls.PREDICATES:
            parser.raise_error(f"a predicate of {cls.name} is one of {', '.join(cls.PREDICATES)}, got {word!r}")
        parser.parse_punctuation(",")
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        one, other = parser.resolve_operands([lhs, rhs], [type_, type_], parser.pos)
        made = cls(one, other, word)
        made.attributes = attributes
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.name_of_predicate}, ")
        printer.print_operand(self.operands[0])
        printer.print_string(", ")
        printer.print_operand(self.operands[1])
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operands[0].type)

    def verify_(self) -> None:
        if self.results[0].type != truth_type(self.operands[0].type):
            raise VerifyException(f"{self.name} gives {truth_type(self.operands[0].type)}, got {self.results[0].type}")


@irdl_op_definition
class CmpiOp(_Comparison):
    """A comparison of integers. `s` predicates read them as signed, `u` predicates as unsigned."""

    name = "arith.cmpi"
    PREDICATES: ClassVar[tuple[str, ...]] = INTEGER_PREDICATES
    T: ClassVar = VarConstraint("T", signlessIntegerLike)
    lhs = operand_def(T)
    rhs = operand_def(T)


@irdl_op_definition
class CmpfOp(_Comparison):
    """A comparison of floating-point numbers."""

    name = "arith.cmpf"
    PREDICATES: ClassVar[tuple[str, ...]] = FLOAT_PREDICATES
    T: ClassVar = VarConstraint("T", floatingPointLike)
    lhs = operand_def(T)
    rhs = operand_def(T)


@irdl_op_definition
class SelectOp(IRDLOperation):
    """`lhs` if `cond` is true, else `rhs`. The condition is one i1, or a tensor of i1 in the shape of the operands."""

    name = "arith.select"
    T: ClassVar = VarConstraint("T", AnyAttr())
    cond = operand_def(signlessIntegerLike)
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())

    def __init__(self, cond: SSAValue, lhs: SSAValue, rhs: SSAValue) -> None:
        super().__init__(operands=[cond, lhs, rhs], result_types=[lhs.type])

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands = [parser.parse_unresolved_operand()]
        for _ in range(2):
            parser.parse_punctuation(",")
            operands.append(parser.parse_unresolved_operand())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        condition, type_ = i1, parser.parse_type()
        if parser.parse_optional_punctuation(","):
            condition, type_ = type_, parser.parse_type()
        chosen = parser.resolve_operands(operands, [condition, type_, type_], parser.pos)
        made = cls(*chosen)
        made.attributes = attributes
        return made

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        if self.cond.type != i1:
            printer.print_attribute(self.cond.type)
            printer.print_string(", ")
        printer.print_attribute(self.result.type)

    def verify_(self) -> None:
        if self.cond.type not in (i1, truth_type(self.result.type)):
            raise VerifyException(
                f"a choice between {self.result.type} needs a condition of i1 or {truth_type(self.result.type)}, "
                f"got {self.cond.type}"
            )
