"""Maps elementwise steps of `louver.isa.elementwise` to operations of MLIR, and back."""

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
from louver.isa.rule import RuleError

_CLASSES: dict[str, type[Operation]] = {op.name: op for op in (*ARITH.operations, *math.Math.operations)}

STEP_OPERATIONS: dict[str, type[Operation]] = {
    name: _CLASSES[step.operation] for name, step in ELEMENTWISE_STEPS.items() if step.operation in _CLASSES
}
"""The operation of each step, without the functions of libdevice."""

INTEGER_OPERATIONS: dict[str, type[Operation]] = {
    "add": arith.AddiOp,
    "subtract": arith.SubiOp,
    "multiply": arith.MuliOp,
}
"""The operations of the steps for integers, which wrap."""

_STEPS: dict[type[Operation], str] = {
    op: name for table in (STEP_OPERATIONS, INTEGER_OPERATIONS) for name, op in table.items()
}


def step_of(op: Operation) -> str | None:
    """The step of an operation on floats or integers; None for other operations."""
    return op.symbol.data if isinstance(op, ExternElementwiseOp) else _STEPS.get(type(op))


_CHOICES: dict[str, str] = {choice.predicate: name for name, choice in CHOICES.items()}


_OPPOSITES = {"une": "oeq", "ule": "ogt", "ult": "oge", "uge": "olt", "ugt": "ole"}
"""For each comparison that is true for NaN, the comparison that is its opposite."""


_OF_INTEGERS = {"eq": "oeq", "ne": "une", "slt": "olt", "sle": "ole", "sgt": "ogt", "sge": "oge"}
"""For each comparison of integers, the comparison of floats that represent them exactly."""


def choice_of(comparison: CmpfOp | CmpiOp, select: SelectOp) -> tuple[str, tuple[SSAValue, ...]] | None:
    """The choice of `louver.isa.elementwise.CHOICES` that comparison and select form, and its operands; None if there
    is none.

    A comparison that is true for NaN is replaced by its opposite, with exchanged values. Signed integers are compared
    as floats, which represent them exactly.
    """
    predicate, numbers = comparison.name_of_predicate, (select.lhs, select.rhs)
    if isinstance(comparison, CmpiOp):
        predicate = _OF_INTEGERS.get(predicate, "")
    if predicate in _OPPOSITES:
        predicate, numbers = _OPPOSITES[predicate], (select.rhs, select.lhs)
    name = _CHOICES.get(predicate)
    return None if name is None else (name, (comparison.lhs, comparison.rhs, *numbers))


def apply_step(step: str, *operands: SSAValue) -> Operation:
    """The operation that applies a step to scalars or tensors of one type. `INTEGER_OPERATIONS` has those for integers.

    For a choice, two operations are made, and the last one is returned. An implicit builder must insert them.
    """
    if step in CHOICES:
        a, b, x, y = operands
        return SelectOp(CmpfOp(a, b, CHOICES[step].predicate).result, x, y)
    whole = isinstance(element_of(operands[0].type), IntegerType)
    made = (INTEGER_OPERATIONS if whole else STEP_OPERATIONS).get(step)
    if whole and made is None:
        raise RuleError(
            f"integers take the steps {', '.join(INTEGER_OPERATIONS)}, got {step}: convert them to f32 first"
        )
    return ExternElementwiseOp(step, operands) if made is None else cast(Any, made)(*operands)
