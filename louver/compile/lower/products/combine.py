"""Sums of ranges of K: written to the workspace by each, read and added in order by the last one to come.

A warpgroup combines its rows by itself. Its sums lie in the workspace as in its registers, so that a lane moves 16 bytes at a time and
a warp 512: [cut tile][part][warpgroup][register / 4][thread].
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.compile.lower.products import ranges
from louver.compile.lower.products.stages import meet
from louver.compile.lower.products.state import Lowering
from louver.compile.plan.layout import parts_together
from louver.ir.sched import ops
from louver.isa.instruction import Instruction
from louver.isa.memory import AtomicUpdate, Store
from louver.isa.packed import PackedBinary
from louver.isa.scalar import Binary
from louver.isa.sync import BarrierAny
from louver.isa.targets import WARPGROUP_THREADS
from louver.ptx.module import Address, Imm, Reg

WORD_BYTES = 4

ADD: dict[str, tuple[Instruction, Imm]] = {
    "f32": (Binary("add", "f32"), Imm(-0.0)),
    "s32": (Binary("add", "u32"), Imm(0)),
    "f16": (PackedBinary("add", "f16"), Imm(0x80008000)),
}
"""By the type of sums: how a register of them is added, and what changes nothing when it is added: -0.0, since -0.0 + 0.0 is 0.0."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a thread's sums of a part: `address`, and every `step` bytes as many registers as `width`."""

    address: Reg
    width: int

    @property
    def step(self) -> int:
        """Bytes that a warpgroup moves at a time."""
        return WORD_BYTES * self.width * WARPGROUP_THREADS


def combine(low: Lowering, op: ops.CombineOp) -> None:
    """Run the region for a whole tile, and for the last range of a tile that is cut."""
    k = low.k
    complete = ranges.is_whole(low, low.walk.tile)
    with k.if_(complete, negated=True, uniform=True):
        _meet_others(low, op, complete)
    with k.if_(complete, uniform=True):
        low.lower_block(op.body.block)


def _meet_others(low: Lowering, op: ops.CombineOp, complete: Reg) -> None:
    """Write a range's sums; where it is the last one of its tile, which `complete` says then, read those of all of them.

    One thread's atomic orders the warpgroup's accesses: a thread that sees those behind it sees those before its barriers. Fences on both
    sides of a relaxed one would wait for memory twice.
    """
    k, parts = low.k, low.sizes["parts"]
    tile, part = ranges.cut_of(low, low.walk.tile)
    if low.cluster > 1:
        tile = k.mad_lo(tile, low.cluster, low.named["rank"])
    sums = [register for block in low.sums for register in block]
    thread = k.and_(low.named["tid"], WARPGROUP_THREADS - 1)
    first = k.mul_lo(tile, parts)
    _write(low, _place(low, op, k.add(first, part), thread, len(sums)), sums)
    meet(low)
    last = k.sub(parts, 1)
    before = k.mov(parts)
    with k.if_(k.setp("eq", "u32", thread, 0)):
        counter = k.mad_wide(k.mad_lo(tile, low.warpgroups, low.warpgroup), WORD_BYTES, low.register(op.counters))
        k.emit(AtomicUpdate("inc", "u32", returns=True, order="acq_rel"), before, Address(counter), last)
    meet(low, BarrierAny, complete, k.setp("eq", "u32", before, last))
    with k.if_(complete, uniform=True):
        _read(low, _place(low, op, first, thread, len(sums)), sums)


def _place(low: Lowering, op: ops.CombineOp, part: Reg, thread: Reg, registers: int) -> _Place:
    """The place of the thread's sums of part number `part`, of all cut tiles."""
    k = low.k
    width = 4 if registers % 4 == 0 else 2
    index = k.mad_lo(part, low.warpgroups, low.warpgroup)
    start = k.mad_wide(index, WORD_BYTES * registers * WARPGROUP_THREADS, low.register(op.workspace))
    return _Place(k.mad_wide(thread, WORD_BYTES * width, start), width)


def _write(low: Lowering, place: _Place, sums: list[Reg]) -> None:
    for number, index in enumerate(range(0, len(sums), place.width)):
        store = Store("global", sums[0].type, 4 if place.width == 4 else 2)
        low.k.emit(store, Address(place.address, number * place.step), tuple(sums[index : index + place.width]))


def _read(low: Lowering, place: _Place, sums: list[Reg]) -> None:
    """Add the sums of all parts, from the first on, several at a time where registers are few."""
    k, parts = low.k, low.sizes["parts"]
    add, nothing = ADD[low.kernel.unit.d]
    together = parts_together(len(sums))
    stride = low.warpgroups * len(sums) // place.width * place.step
    for register in sums:
        k.mov(nothing, into=register)
    address, part = k.mov(place.address), k.mov(0)
    with k.loop(uniform=True) as loop:
        held = [_part(low, _Place(address, place.width), part, ahead, stride, sums) for ahead in range(together)]
        for found in held:
            for total, addend in zip(sums, found, strict=True):
                k.emit(add, total, total, addend)
        k.add(address, together * stride, into=address)
        k.add(part, together, into=part)
        loop.repeat_if(k.setp("lt", "u32", part, parts))


def _part(low: Lowering, place: _Place, part: Reg, ahead: int, stride: int, sums: list[Reg]) -> list[Reg]:
    """The sums of the part that is `ahead` of one that there is; where there is none, what changes nothing."""
    k = low.k
    found, guard = k.regs(sums[0].type, len(sums)), None
    if ahead:
        guard = k.setp("lt", "u32", k.add(part, ahead), low.sizes["parts"])
        for register in found:
            k.mov(ADD[low.kernel.unit.d][1], into=register)
    for number, index in enumerate(range(0, len(sums), place.width)):
        at = Address(place.address, ahead * stride + number * place.step)
        k.load_global(found[index : index + place.width], at, guard=guard)
    return found
