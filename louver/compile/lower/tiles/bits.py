"""Keeps conditions that a loop does not change as bits of registers. A thread has only seven predicates.

A bit is tested by one instruction, as a single comparison takes. So only conditions that join others become bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Block, Operation, SSAValue

from louver.compile.lower.tiles.state import Lowering
from louver.ir.tile.types import as_tensor
from louver.isa.instruction import REGISTER_BITS
from louver.ptx.module import Reg

FEWEST = 3
"""Conditions of a tile that are kept as bits. Fewer stay in predicates."""

WORD = REGISTER_BITS["b32"]


def keep_bits(low: Lowering, loop: scf.ForOp) -> list[SSAValue]:
    """Put into registers what a loop reads of conditions that are computed before it. Returns their tiles."""
    inside = {id(op) for op in loop.walk()}
    read = dict.fromkeys(each for op in loop.body.walk() for each in op.operands)
    found = [each for each in read if _is_condition(each) and id(_maker(each)) not in inside]
    for value in found:
        conditions = list(dict.fromkeys(low.values[value]))
        joins = any(each in low.tests and low.tests[each].name in ("and", "or") for each in conditions)
        if value not in low.bits and joins and len(conditions) >= FEWEST:
            low.bits[value] = [_packed(low, conditions[at : at + WORD]) for at in range(0, len(conditions), WORD)]
    return [each for each in found if each in low.bits]


def test_bits(low: Lowering, values: Sequence[SSAValue]) -> None:
    """Test the bits of conditions. A later pass removes unused ones, and moves the others to their first reader."""
    for value in values:
        words, tested = low.bits[value], dict[Reg, Reg]()
        for at, condition in enumerate(dict.fromkeys(low.values[value])):
            bit = low.k.and_(words[at // WORD], 1 << at % WORD)
            tested[condition] = low.k.setp("ne", "u32", bit, 0)
            if condition in low.tests:
                low.tests[tested[condition]] = low.tests[condition]
        low.values[value] = tuple(tested[each] for each in low.values[value])


def _is_condition(value: SSAValue) -> bool:
    tensor = as_tensor(value.type)
    return tensor is not None and tensor.element_type == IntegerType(1)


def _maker(value: SSAValue) -> Operation | None:
    """The operation that computes a value, or that passes it to its region."""
    return value.owner.parent_op() if isinstance(value.owner, Block) else value.owner


def _packed(low: Lowering, conditions: Sequence[Reg]) -> Reg:
    word = low.k.selp(1, 0, conditions[0])
    for at, condition in enumerate(conditions[1:], 1):
        word = low.k.or_(word, low.k.selp(1 << at, 0, condition))
    return word
