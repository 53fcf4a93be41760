"""Arithmetic on pairs of f16 in one register: the same results by half as many instructions.

Rounding a sum or product of two f16 to f32 first and then to f16 gives the same result as rounding once.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import Float16Type, IntegerType
from xdsl.ir import Operation

from louver.compile.lower.tiles.packing import pack_elements
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.ir import arith as ours
from louver.ir.elementwise import step_of
from louver.ir.tile.types import element_of
from louver.isa.bits import PermuteBytes
from louver.isa.packed import PackedBinary, PackedOp
from louver.ptx.module import Reg

PACKED_STEPS: dict[str, PackedOp] = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "maximum_number": "max",
    "minimum_number": "min",
}
"""Steps of `louver.isa.elementwise` that are done on pairs."""

WHOLE = 0x6400_6400
"""The f16 1024 twice, whose last bits count ones: they take an integer of 8 bits."""

SIGNED = 0x0080_0080
"""The number that makes 1152 of it: integers with a sign are 128 more where their signs are flipped."""


def paired(low: Lowering, op: Operation, columns: Sequence[Registers]) -> Registers | None:
    """The results of an operation on a tile of f16; None where elements are not in pairs. columns: its operands, element by element."""
    count = len(columns[0]) if columns else 0
    if count % 2 or not isinstance(element_of(op.results[0].type), Float16Type):
        return None
    pairs = [[column[first : first + 2] for column in columns] for first in range(0, count, 2)]
    words = _converted(low, op, pairs) if isinstance(op, ours.SIToFPOp | ours.UIToFPOp) else _computed(low, op, pairs)
    if words is None:
        return None
    found: list[Reg] = []
    for word in words:
        halves = low.k.halves(word)
        low.packed[halves] = word
        found += halves
    return tuple(found)


def _computed(low: Lowering, op: Operation, pairs: Sequence[Sequence[Registers]]) -> list[Reg] | None:
    """Pairs of sums, products and the like, where an operand is in pairs and others are too, or are the same twice."""
    step = PACKED_STEPS.get(step_of(op) or "")
    if step is None:
        return None
    for pair in pairs:
        together = [each in low.packed for each in pair]
        if not any(together) or not all(
            known or each[0] == each[1] for known, each in zip(together, pair, strict=True)
        ):
            return None
    known: dict[Registers, Reg] = {}
    for each in (each for pair in pairs for each in pair):
        if each not in known:
            known[each] = pack_elements(low, each, 2)
    return [low.emit(PackedBinary(step, "f16"), *(known[each] for each in pair)) for pair in pairs]


def _converted(low: Lowering, op: Operation, pairs: Sequence[Sequence[Registers]]) -> list[Reg] | None:
    """Pairs of integers of 8 bits that are in one register."""
    if not isinstance(element_of(op.operands[0].type), IntegerType) or any(
        each not in low.bytes for pair in pairs for each in pair[0]
    ):
        return None
    signed = isinstance(op, ours.SIToFPOp)
    found: list[Reg] = []
    for ((one, other),) in pairs:
        first, second = low.bytes[one], low.bytes[other]
        if first.word != second.word:
            return None
        # The upper byte of each half is that of 1024, byte 1 of the second register.
        selector = 0x5050 | second.number << 8 | first.number
        word, extra = (first.flipped, WHOLE + SIGNED) if signed else (first.word, WHOLE)
        whole = low.emit(PermuteBytes(), word, low.constant(WHOLE, "b32"), selector)
        found.append(low.emit(PackedBinary("sub", "f16"), whole, low.constant(extra, "b32")))
    return found
