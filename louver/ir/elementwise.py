"""Elementwise steps as MLIR's operations: the table of `louver.isa.elementwise`, looked up both ways."""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Operation, SSAValue

from louver.ir.arith import ARITH
from louver.ir.comparisons import CmpfOp, CmpiOp, SelectOp
from louver.ir.tile import ExternElementwiseOp
from louver.ir.tile.types import element_of
from louver.isa.elementwise import CHOICES, ELEMENTWISE_STEPS

_CLASSES: dict[str, type[Operation]] = {op.name: op for op in (*ARITH.operations, *math.Math.operations)}

STEP_OPERATIONS: dict[str, type[Operation]] = {
    name: _CLASSES[step.operation] for name, step in ELEMENTWISE_STEPS.items() if step.operation in _CLASSES
}
"""The operation of each step that is not a function of libdevice."""

_STEPS: dict[type[Operation], str] = {op: name for name, op in STEP_OPERATIONS.items()}


def step_of(op: Operation) -> str | None:
    """The step that an operation on floats, or a sum of integers, is; None for any other operation."""
    if isinstance(op, ExternElementwiseOp):
        return op.symbol.data
    return "add" if isinstance(op, arith.AddiOp) else _STEPS.get(type(op))


_CHOICES: dict[str, str] = {choice.predicate: name for name, choice in CHOICES.items()}


_OPPOSITES = {"une": "oeq", "ule": "ogt", "ult": "oge", "uge": "olt", "ugt": "ole"}
"""For each comparison that holds where an operand is NaN, the one that holds exactly where it does not."""


_OF_INTEGERS = {"eq": "oeq", "ne": "une", "slt": "olt", "sle": "ole", "sgt": "ogt", "sge": "oge"}
"""Comparisons of integers as those of floats that hold the same numbers exactly."""


def choice_of(comparison: CmpfOp | CmpiOp, select: SelectOp) -> tuple[str, tuple[SSAValue, ...]] | None:
    """The choice (of `louver.isa.elementwise.CHOICES`) that both make together, and its operands; None if there is no such.

    A comparison that holds for NaN is its opposite, with the numbers to choose from exchanged. Signed integers are compared as the
    floats that they are exactly.
    """
    predicate, numbers = comparison.name_of_predicate, (select.lhs, select.rhs)
    if isinstance(comparison, CmpiOp):
        predicate = _OF_INTEGERS.get(predicate, "")
    if predicate in _OPPOSITES:
        predicate, numbers = _OPPOSITES[predicate], (select.rhs, select.lhs)
    name = _CHOICES.get(predicate)
    return None if name is None else (name, (comparison.lhs, comparison.rhs, *numbers))


def apply_step(step: str, *operands: SSAValue) -> Operation:
    """The operation that applies a step to scalars or tensors of one type. Integers are only added.

    A choice makes two operations, of which the last is returned: call it where an implicit builder inserts them.
    """
    if step in CHOICES:
        a, b, x, y = operands
        return SelectOp(CmpfOp(a, b, CHOICES[step].predicate).result, x, y)
    if not _is_integer(operands[0]):
        made = STEP_OPERATIONS.get(step)
        return ExternElementwiseOp(step, operands) if made is None else cast(Any, made)(*operands)
    if step != "add":
        raise ValueError(f"integers are added only, got {step}: convert them to f32 first")
    one, other = operands
    return arith.AddiOp(one, other)


def _is_integer(value: SSAValue) -> bool:
    return isinstance(element_of(value.type), IntegerType)
