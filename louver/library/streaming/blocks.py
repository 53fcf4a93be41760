"""Transposable masks on a GPU: `louver.formats.transposable`, block by block, on planes of four rows."""

from __future__ import annotations

from collections.abc import Sequence

from louver.formats.dtypes import ElementType
from louver.formats.transposable import INFINITE, PAIRS, SCALE, SIDE, WAYS, Half, half_mask
from louver.isa.bits import ExtractField
from louver.isa.convert import HalfPairFromFp8, IntegerToF32
from louver.isa.floating import Sign
from louver.isa.move import Bitcast
from louver.isa.scalar import Binary
from louver.library.streaming.lanes import Byte, Lanes, assemble
from louver.ptx.core import Number
from louver.ptx.module import Reg


def kept_in_blocks(lanes: Lanes, element: ElementType, rows: Sequence[Sequence[Reg]]) -> list[list[Reg]]:
    """Masks of the planes of four rows: the transposable ones of as many blocks as a register has elements."""
    k = lanes.k
    sizes = [[_sizes(lanes, element, plane) for plane in row] for row in rows]
    halves: tuple[list[Reg], list[Reg]] = ([], [])
    for block in range(lanes.count):
        for half, kept in zip(halves, _search(lanes, [[plane[block] for plane in row] for row in sizes]), strict=True):
            half.append(kept)
    upper, lower = (_side_by_side(lanes, half) for half in halves)
    return [
        [
            lanes.spread(k.shl(lower if row >= 2 else upper, lanes.bits - 1 - SIDE * (row % 2) - column))
            for column in range(SIDE)
        ]
        for row in range(SIDE)
    ]


def _side_by_side(lanes: Lanes, numbers: Sequence[Reg]) -> Reg:
    """Numbers of 8 bits, one in each element."""
    size = lanes.bits // 8
    places: list[Byte] = [(number, byte) for number in numbers for byte in range(size)]
    return assemble(lanes.k, [places])[0]


def _sizes(lanes: Lanes, element: ElementType, plane: Reg) -> list[Reg]:
    """What the elements of a plane add to a score, f32 each."""
    k = lanes.k
    found: list[Reg] = []
    for number in _numbers(lanes, element, plane):
        size = k.reg("f32")
        k.emit(Sign("abs", "f32"), size, number)
        scaled, bounded = k.mul_f32(size, SCALE), k.reg("f32")
        k.emit(Binary("min", "f32"), bounded, scaled, INFINITE)
        found.append(bounded)
    return found


def _numbers(lanes: Lanes, element: ElementType, plane: Reg) -> list[Reg]:
    k = lanes.k
    match element.name:
        case "f16" | "bf16":
            return [k.to_f32(element.name, half) for half in k.halves(plane)]
        case "e4m3" | "e5m2":
            pairs = k.regs("b32", 2)
            for pair, half in zip(pairs, k.halves(plane), strict=True):
                k.emit(HalfPairFromFp8(element.name), pair, half)
            return [k.to_f32("f16", half) for pair in pairs for half in k.halves(pair)]
        case "s8" | "u8":
            kind = "s32" if element.name == "s8" else "u32"
            found = k.regs("f32", lanes.count)
            for place, number in enumerate(found):
                whole = k.reg("b32")
                k.emit(ExtractField(kind), whole, plane, 8 * place, 8)
                k.emit(IntegerToF32(kind), number, whole)
            return found
        case _:
            number = k.reg("f32")
            k.emit(Bitcast("f32"), number, plane)
            return [number]


def _search(lanes: Lanes, sizes: Sequence[Sequence[Reg]]) -> tuple[Reg, Reg]:
    """The mask of a block as numbers of its upper and its lower half, see `half_mask`. sizes: of its four rows."""
    k = lanes.k
    sums = [[k.add_f32(row[i], row[j]) for i, j in PAIRS] for row in sizes]
    best: tuple[Reg, Number, Number] | None = None
    for uppers, lowers in WAYS:
        above, upper = _best(lanes, uppers, sums[0], sums[1])
        below, lower = _best(lanes, lowers, sums[2], sums[3])
        total = k.add_f32(above, below)
        best = (total, upper, lower) if best is None else _larger(lanes, (total, upper, lower), best)
    assert best is not None
    _, upper, lower = best
    return k.mov(upper), k.mov(lower)


def _larger(
    lanes: Lanes, new: tuple[Reg, Number, Number], old: tuple[Reg, Number, Number]
) -> tuple[Reg, Number, Number]:
    k = lanes.k
    larger = k.setp("gt", "f32", new[0], old[0])
    return k.selp(new[0], old[0], larger), k.selp(new[1], old[1], larger), k.selp(new[2], old[2], larger)


def _best(lanes: Lanes, halves: Sequence[Half], first: Sequence[Reg], second: Sequence[Reg]) -> tuple[Reg, Number]:
    """The largest sum of the halves, and its number."""
    k = lanes.k
    largest: Reg | None = None
    kept: Number = half_mask(halves[0])
    for half in halves:
        total = k.add_f32(first[half[0]], second[half[1]])
        if largest is None:
            largest = total
        else:
            larger = k.setp("gt", "f32", total, largest)
            largest, kept = k.selp(total, largest, larger), k.selp(half_mask(half), kept, larger)
    assert largest is not None
    return largest, kept
