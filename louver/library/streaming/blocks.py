"""Transposable masks on a GPU: `louver.formats.transposable`, block by block, on planes of four rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.formats.dtypes import ElementType
from louver.formats.transposable import INFINITE, SCALE, SIDE, best, number
from louver.isa.floating import Sign
from louver.isa.scalar import Binary
from louver.library.streaming.lanes import Byte, Lanes, assemble, numbers
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Reg


@dataclass(frozen=True, slots=True)
class _Sum:
    """A part of a block's mask, and its score."""

    k: KernelBuilder
    score: Reg
    mask: Reg | int

    def add(self, other: _Sum) -> _Sum:
        score = self.k.add_f32(self.score, other.score)
        if isinstance(self.mask, int) and isinstance(other.mask, int):
            return _Sum(self.k, score, self.mask | other.mask)
        return _Sum(self.k, score, self.k.or_(self.mask, other.mask))

    def larger(self, other: _Sum) -> _Sum:
        k = self.k
        second = k.setp("gt", "f32", other.score, self.score)
        return _Sum(k, k.selp(other.score, self.score, second), k.selp(other.mask, self.mask, second))


def kept_in_blocks(lanes: Lanes, element: ElementType, rows: Sequence[Sequence[Reg]]) -> list[list[Reg]]:
    """Masks of the planes of four rows: the transposable ones of as many blocks as a register has elements."""
    k, size = lanes.k, lanes.bits // 8
    sizes = [[_sizes(lanes, element, plane) for plane in row] for row in rows]
    masks: list[Reg] = []
    for block in range(lanes.count):
        elements = [
            [_Sum(k, of_plane[block], number(row, column)) for column, of_plane in enumerate(of_row)]
            for row, of_row in enumerate(sizes)
        ]
        masks.append(k.mov(best(elements, _Sum.add, _Sum.larger).mask))
    # The upper and the lower half of each mask, a byte, in the elements of a register of their own.
    places: list[list[Byte]] = [[(mask, half) for mask in masks for _ in range(size)] for half in range(2)]
    halves = assemble(k, places)
    return [
        [lanes.spread(k.shl(halves[row // 2], lanes.bits - 1 - SIDE * (row % 2) - column)) for column in range(SIDE)]
        for row in range(SIDE)
    ]


def _sizes(lanes: Lanes, element: ElementType, plane: Reg) -> list[Reg]:
    """The summands of a score for the elements of a plane, f32 each."""
    k = lanes.k
    found: list[Reg] = []
    for value in numbers(lanes, element, plane):
        size, bounded = k.regs("f32", 2)
        k.emit(Sign("abs", "f32"), size, value)
        k.emit(Binary("min", "f32"), bounded, k.mul_f32(size, SCALE), INFINITE)
        found.append(bounded)
    return found
