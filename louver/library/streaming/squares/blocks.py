"""Transposable masks of blocks on a GPU, by the code of `louver.formats.transposable`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from louver.formats.dtypes import ElementType
from louver.formats.transposable import INFINITE, SCALE, best
from louver.isa.floating import Sign
from louver.isa.scalar import Binary
from louver.library.streaming.lanes import Lanes, numbers
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Reg

WIDE: Final = ("f32", "tf32", "bf16")
"""Types whose sums can overflow f32, so their elements are scaled as on the host. Elements of other types are not
scaled. Their sums are all 256 times as large as on the host, which changes no comparison.
"""


@dataclass(frozen=True, slots=True)
class _Sum:
    """A part of the mask of a block, and its score."""

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


def best_mask(k: KernelBuilder, sizes: Sequence[Sequence[Reg]], place: Callable[[int, int], int]) -> Reg:
    """The transposable mask of a block.

    sizes: magnitudes of the elements, by row and column.
    place: the bit of each element in the mask, by row and column.
    """
    elements = [[_Sum(k, size, place(row, column)) for column, size in enumerate(of)] for row, of in enumerate(sizes)]
    return k.mov(best(elements, _Sum.add, _Sum.larger).mask)


def scaled(lanes: Lanes, element: ElementType, word: Reg) -> list[Reg]:
    """The elements of a register as f32, scaled for types in `WIDE`. `bound` makes the summands of scores from them."""
    values = numbers(lanes, element, word)
    return [lanes.k.mul_f32(value, SCALE) for value in values] if element.name in WIDE else values


def bound(k: KernelBuilder, element: ElementType, block: Sequence[Sequence[Reg]]) -> list[list[Reg]]:
    """The summands of the scores of a block. Infinities and NaNs become finite, in a branch that only blocks with such
    elements take.
    """
    every = [value for row in block for value in row]
    if element.floating:
        total = _size(k, every[0])
        for value in every[1:]:
            total = k.add_f32(total, _size(k, value))
        with k.if_(k.setp("lt", "f32", total, inf), negated=True):
            for value in every:
                k.emit(Binary("min", "f32"), value, _size(k, value), INFINITE)
    # Magnitudes are computed after the branch, so that the assembler folds them into the additions.
    return [[_size(k, value) for value in row] for row in block]


def _size(k: KernelBuilder, value: Reg) -> Reg:
    size = k.reg("f32")
    k.emit(Sign("abs", "f32"), size, value)
    return size
