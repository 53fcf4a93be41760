"""Lowers arithmetic on pairs of f16 or bf16 in one register. The results are the same, with half as many instructions.

A sum or product of two such numbers that is rounded to f32 and then to 16 bits equals the result of a single rounding: f32 has
more than twice their digits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, IntegerType
from xdsl.ir import Block, Operation

from louver.compile.lower.tiles.packing import pack_elements
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.ir import arith as ours
from louver.ir.elementwise import step_of
from louver.ir.tile import FpToFpOp, element_name
from louver.ir.tile.types import element_of
from louver.isa.bits import PermuteBytes
from louver.isa.convert import Fp8, Half, HalfPairFromFp8
from louver.isa.packed import PackedBinary, PackedOp
from louver.isa.targets import FP8
from louver.ptx.module import Reg

PairStep: TypeAlias = Callable[[Reg, Reg], Reg]
"""Computes a pair of two pairs."""

PACKED_STEPS: dict[str, PackedOp] = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "maximum_number": "max",
    "minimum_number": "min",
}
"""Steps of `louver.isa.elementwise` with instructions for pairs."""

WHOLE = 0x6400_6400
"""Two f16 of value 1024. An 8-bit integer in their last bits adds its value."""

SIGNED = 0x0080_0080
"""Added to `WHOLE`, it gives two f16 of value 1152. A signed integer with a flipped sign bit is 128 larger."""


def paired(low: Lowering, op: Operation, columns: Sequence[Registers]) -> Registers | None:
    """The results of an operation on a tile of f16 or bf16; None if elements are not in pairs.

    columns: the elements of each operand.
    """
    count, element = len(columns[0]) if columns else 0, element_of(op.results[0].type)
    if count % 2 or not isinstance(element, Float16Type | BFloat16Type):
        return None
    pairs = [[column[first : first + 2] for column in columns] for first in range(0, count, 2)]
    half: Half = "f16" if isinstance(element, Float16Type) else "bf16"
    if isinstance(op, arith.TruncFOp):
        words = _rounded(low, op, pairs, half)
    elif isinstance(op, ours.SIToFPOp | ours.UIToFPOp):
        words = _converted(low, op, pairs) if half == "f16" else None
    elif isinstance(op, FpToFpOp):
        words = _widened(low, op, pairs) if half == "f16" else None
    else:
        words = _computed(low, op, pairs, half)
    if words is None:
        return None
    found: list[Reg] = []
    for word in words:
        found += split_pair(low, word)
    return tuple(found)


def _computed(low: Lowering, op: Operation, pairs: Sequence[Sequence[Registers]], type_: Half) -> list[Reg] | None:
    """Compute steps on pairs, if at least one operand is in pairs. To pack the others takes one instruction for two elements."""
    step = PACKED_STEPS.get(step_of(op) or "")
    if step is None or not low.provides(PackedBinary(step, type_)):
        return None
    if not all(any(each in low.packed for each in pair) for pair in pairs):
        return None
    known: dict[Registers, Reg] = {}
    for each in (each for pair in pairs for each in pair):
        if each not in known:
            known[each] = pack_elements(low, each, 2)
    return [low.emit(PackedBinary(step, type_), *(known[each] for each in pair)) for pair in pairs]


def pair_step(low: Lowering, op: Operation | Block | None) -> PairStep | None:
    """An operation of two elements as one of two pairs; None if the target has no instruction for it."""
    if not isinstance(op, Operation) or len(op.results) != 1:
        return None
    element = element_of(op.results[0].type)
    if not isinstance(element, Float16Type | BFloat16Type):
        return None
    step, half = PACKED_STEPS.get(step_of(op) or ""), "f16" if isinstance(element, Float16Type) else "bf16"
    if step is None or not low.provides(PackedBinary(step, half)):
        return None
    return functools.partial(low.emit, PackedBinary(step, half))


def split_pair(low: Lowering, word: Reg) -> Registers:
    """The elements of a pair."""
    halves = low.k.halves(word)
    low.packed[halves] = word
    return halves


def _rounded(low: Lowering, op: arith.TruncFOp, pairs: Sequence[Sequence[Registers]], half: Half) -> list[Reg] | None:
    """Round pairs of f32 that the kernel computes with. A rounding of one element takes eight times as long; those of elements
    that are packed next are joined by the assembler.
    """
    users = [use.operation for use in op.result.uses]
    if not isinstance(element_of(op.input.type), Float32Type) or not any(
        step_of(each) in PACKED_STEPS for each in users
    ):
        return None
    return [low.k.pair_from_f32(half, one, other) for ((one, other),) in pairs]


def _widened(low: Lowering, op: FpToFpOp, pairs: Sequence[Sequence[Registers]]) -> list[Reg] | None:
    """Convert pairs of 8-bit floats that are in one register."""
    name = cast(Fp8, element_name(element_of(op.src.type)))
    if name not in FP8 or not low.provides(HalfPairFromFp8(name)):
        return None
    found: list[Reg] = []
    for ((one, other),) in pairs:
        if one not in low.bytes or other not in low.bytes or low.bytes[one].word != low.bytes[other].word:
            return None
        first, second = low.bytes[one], low.bytes[other]
        if first.number % 2 == 0 and second.number == first.number + 1:
            together = low.k.halves(first.word)[first.number // 2]
        else:
            selector = second.number << 4 | first.number
            together = low.k.low_half(low.emit(PermuteBytes(), first.word, first.word, selector))
        found.append(low.emit(HalfPairFromFp8(name), together))
    return found


def _converted(low: Lowering, op: Operation, pairs: Sequence[Sequence[Registers]]) -> list[Reg] | None:
    """Convert pairs of 8-bit integers that are in one register."""
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
        # The upper byte of each half is the upper byte of f16 1024: byte 1 of the second register.
        selector = 0x5050 | second.number << 8 | first.number
        word, extra = (first.flipped, WHOLE + SIGNED) if signed else (first.word, WHOLE)
        whole = low.emit(PermuteBytes(), word, low.constant(WHOLE, "b32"), selector)
        found.append(low.emit(PackedBinary("sub", "f16"), whole, low.constant(extra, "b32")))
    return found
