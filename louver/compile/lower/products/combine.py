"""Combines the sums of ranges of K.

Each range writes its sums to the workspace. The last one to finish adds all of them in order. Each warpgroup combines
its rows alone. The order in the workspace is that of registers: [cut tile][part][warpgroup][register / 4][thread]. So a
lane moves 16 bytes at a time, and a warp 512.
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
"""For each type of sums: the instruction that adds a register, and its neutral element.

For floats it is -0.0, because -0.0 + 0.0 is 0.0.
"""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a thread's sums of a part. It has `width` registers every `step` bytes from `address` on."""

    address: Reg
    width: int

    @property
    def step(self) -> int:
        """Bytes that a warpgroup moves at a time."""
        return WORD_BYTES * self.width * WARPGROUP_THREADS


def combine(low: Lowering, op: ops.CombineOp) -> None:
    """Run the region for a whole tile, and for the last range to finish of a tile that is cut."""
    k = low.k
    complete = ranges.is_whole(low, low.walk.tile)
    with k.if_(complete, negated=True, uniform=True):
        _meet_others(low, op, complete)
    with k.if_(complete, uniform=True):
        low.lower_block(op.body.block)


def _meet_others(low: Lowering, op: ops.CombineOp, complete: Reg) -> None:
    """Write the sums of a range.

    If the range is the last to finish of its tile, set `complete` and read the sums of all ranges. The atomic of one
    thread orders all accesses of the warpgroup, because barriers surround it. A relaxed atomic with fences on both
    sides would wait for memory twice.
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
    """The place of the thread's sums of a part. part: its number among the parts of all cut tiles."""
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
    """Add the sums of all parts in order. Several parts are read at a time if a part has few registers."""
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
    """Read the sums of part `part + ahead`. If that part does not exist, the result is the neutral element."""
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
