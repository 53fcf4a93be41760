"""Squares of 8 × 8 elements, 2:4 along both axes: their kept elements as bits, as codes and as stored values.

Bits: two registers of four rows each. Byte r is row r of the four rows, and its bit c is element c.
Codes: two registers of four rows each. Byte r has the two 4-bit codes of row r, in the layout of a byte of indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from louver.formats.dtypes import ElementType
from louver.formats.select import INFINITE, SCALE, SIDE, best
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


SQUARE = 2 * SIDE
"""Rows and columns of a square."""

NOTHING = 0x33
"""Codes of two groups without elements, for `bits_of`."""

Words = Sequence[Reg]
"""A row of a square, or a group of a row, in memory order."""

Bits = tuple[Reg, Reg]
"""The bits of rows 0 to 3, and of rows 4 to 7."""


def kept(lanes: Lanes, element: ElementType, rows: Sequence[Words]) -> Bits:
    """The bits of the elements that the transposable masks of a square's four blocks keep."""
    k, wide = lanes.k, SIDE // lanes.count
    halves: list[Reg] = []
    for top in (0, SIDE):
        masks: list[Reg] = []
        for left in (0, 1):
            words = [row[left * wide : (left + 1) * wide] for row in rows[top : top + SIDE]]
            sizes = bound(
                k, element, [[value for word in row for value in scaled(lanes, element, word)] for row in words]
            )
            masks.append(best_mask(k, sizes, lambda row, column, left=left: 1 << SQUARE * row + SIDE * left + column))
        halves.append(k.or_(*masks))
    return halves[0], halves[1]


def has_zero(lanes: Lanes, rows: Sequence[Words]) -> Reg:
    """Whether some element is +0.0. A borrow from a +0.0 can also mark its neighbour; the result is the same."""
    k = lanes.k
    found = k.mov(0)
    for word in (word for row in rows for word in row):
        found = k.logic(lambda a, b, c: a & ~b | c, k.sub(word, lanes.each(1)), word, found)
    return k.setp("ne", "u32", k.and_(found, lanes.top), 0)


def masked(lanes: Lanes, rows: Sequence[Words], bits: Bits) -> list[list[Reg]]:
    """The rows, with +0.0 for each element whose bit is not set."""
    k, count = lanes.k, lanes.count
    # A multiplication by `spread` moves bit j of a word's bits to the lowest bit of element j.
    spread = sum(1 << place * (lanes.bits - 1) for place in range(count))
    found: list[list[Reg]] = []
    for row, words in enumerate(rows):
        found.append([])
        for number, word in enumerate(words):
            own = k.and_(k.shr(bits[row // SIDE], SQUARE * (row % SIDE) + number * count), (1 << count) - 1)
            ones = k.and_(k.mul_lo(own, spread), lanes.each(1)) if count > 1 else own
            found[-1].append(k.and_(word, k.mul_lo(ones, (1 << lanes.bits) - 1)))
    return found


def nonzero(lanes: Lanes, rows: Sequence[Words]) -> Bits:
    """The bits of the elements that are not +0.0."""
    k = lanes.k
    halves: list[Reg] = []
    for top in (0, SIDE):
        found = k.mov(0)
        for row, words in enumerate(rows[top : top + SIDE]):
            for column in range(SQUARE):
                own = (1 << lanes.bits) - 1 << lanes.bits * (column % lanes.count)
                some = k.setp("ne", "u32", k.and_(words[column // lanes.count], own), 0)
                found = k.or_(found, k.selp(1 << SQUARE * row + column, 0, some))
        halves.append(found)
    return halves[0], halves[1]


def turned(k: KernelBuilder, bits: Bits) -> Bits:
    """The bits of the transposed square: three steps, each of which exchanges a digit of the row with one of the
    column.
    """
    upper, lower = (_exchanged(k, _exchanged(k, x, 7, 0x00AA00AA), 14, 0x0000CCCC) for x in bits)
    low = 0x0F0F0F0F
    return (
        k.logic(lambda a, b, c: a & c | b & ~c, upper, k.shl(lower, 4), low),
        k.logic(lambda a, b, c: a & c | b & ~c, k.shr(upper, 4), lower, low),
    )


def _exchanged(k: KernelBuilder, x: Reg, apart: int, low: int) -> Reg:
    """x with each bit of the mask `low` exchanged with the bit `apart` places above it."""
    moved = k.logic(lambda a, b, c: (a ^ b) & c, x, k.shr(x, apart), low)
    return k.logic(lambda a, b, c: a ^ b ^ c, x, moved, k.shl(moved, apart))


def filled(k: KernelBuilder, bits: Reg) -> Reg:
    """The bits, with exactly two of each four bits set: if fewer are set, the lowest others are added."""
    for _ in range(2):
        pairs = k.add(k.and_(bits, 0x55555555), k.and_(k.shr(bits, 1), 0x55555555))
        counts = k.add(k.and_(pairs, 0x33333333), k.and_(k.shr(pairs, 2), 0x33333333))
        missing = k.logic(lambda a, b, c: ~a & b, k.shr(counts, 1), 0x11111111, 0)
        # The addition carries over the ones below the lowest zero, and so sets that zero.
        bits = k.or_(bits, k.add(bits, missing))
    return bits


def codes(k: KernelBuilder, bits: Reg) -> Reg:
    """The code of each four bits, two of which are set: the place of the lower set bit, plus 4 times the upper."""
    below, above = k.shr(bits, 1), k.shl(bits, 1)
    # Bit 0 of a code: the lower place is 1. Bit 2: the upper place is 1 or 3.
    even = k.logic(lambda a, b, c: c & ~a & b | ~c & (~a | b), bits, below, 0x11111111)
    # Bit 1 of a code: the lower place is 2. Bit 3: the upper place is 2 or 3.
    odd = k.logic(lambda a, b, c: c & ~a & ~b | ~c & (a | b), bits, above, 0x22222222)
    return k.logic(lambda a, b, c: a & c | b & ~c, even, odd, 0x55555555)


def bits_of(k: KernelBuilder, codes: Reg) -> Reg:
    """The bits of the elements of each code: the inverse of `codes`. Those of `NOTHING` are no elements."""
    first, second, third, fourth = (k.and_(k.shr(codes, bit) if bit else codes, 0x11111111) for bit in range(4))
    # The lower place is `first` + 2 · `second`, the upper one `third` + 2 · `fourth`.
    none = k.logic(lambda a, b, c: ~a & ~b & c, first, second, 0x11111111)
    one = k.logic(lambda a, b, c: a & ~b | c, first, second, k.logic(lambda a, b, c: a & ~b, third, fourth, 0))
    two = k.logic(lambda a, b, c: ~a & b | c, first, second, k.logic(lambda a, b, c: ~a & b, third, fourth, 0))
    three = k.and_(third, fourth)
    return k.or_(k.or_(none, k.shl(one, 1)), k.or_(k.shl(two, 2), k.shl(three, 3)))


def expanded(lanes: Lanes, words: Words, codes: Reg, row: int) -> list[Reg]:
    """The words of a row of a square with its stored values. row: of the four rows of the codes."""
    k, found = lanes.k, list[Reg]()
    for group in (0, 1):
        place = SQUARE * row + SIDE * group
        lower, upper = (k.and_(k.shr(codes, place + bit) if place + bit else codes, 3) for bit in (0, 2))
        if lanes.bits == 32:
            a, b = words[2 * group : 2 * group + 2]
            for element in range(SIDE):
                one, other = (k.setp("eq", "u32", at, element) for at in (lower, upper))
                found.append(k.selp(a, k.selp(b, 0, other), one))
            continue
        # A selector of bytes for each element: those of its value, or of a zero.
        size = lanes.bits // 8
        first, second = (
            (0x76543210 >> 4 * size * (2 * group * (size == 1) + at)) & (1 << 4 * size) - 1 for at in (0, 1)
        )
        zero = 0x44444444 & (1 << 4 * size) - 1
        width = size.bit_length() + 1
        picked = k.xor(k.shl(first ^ zero, k.shl(lower, width)), k.shl(second ^ zero, k.shl(upper, width)))
        picked = k.xor(picked, 0x44444444)
        word = words[group * size // 2]
        found += [k.permute(word, 0, k.shr(picked, 16 * half) if half else picked) for half in range(size)]
    return found


def columns(lanes: Lanes, rows: Sequence[Words]) -> list[list[Reg]]:
    """The columns of a square, each as words of the elements from row 0 down."""
    found: list[list[Reg]] = [[] for _ in range(SQUARE)]
    for top in range(0, SQUARE, lanes.count):
        for number, words in enumerate(zip(*rows[top : top + lanes.count], strict=True)):
            for place, word in enumerate(lanes.planes(words, lanes.count)):
                found[number * lanes.count + place].append(word)
    return found


def stored(lanes: Lanes, rows: Sequence[Words], codes: Reg) -> list[list[Reg]]:
    """The stored values of four rows of a square, selected by the codes of these rows."""
    return {8: _stored_bytes, 16: _stored_halves, 32: _stored_words}[lanes.bits](lanes.k, rows, codes)


def _stored_bytes(k: KernelBuilder, rows: Sequence[Words], codes: Reg) -> list[list[Reg]]:
    found: list[list[Reg]] = []
    for pair in (0, 2):
        # The codes of a row become four selectors of bytes: two for the row's first word, and two for its second word.
        places = k.permute(codes, 0, pair | 4 << 4 | pair + 1 << 8 | 4 << 12)
        places = k.logic(lambda a, b, c: (a | b) & c, places, k.shl(places, 4), 0x0F0F0F0F)
        places = k.logic(lambda a, b, c: (a | b) & c, places, k.shl(places, 2), 0x33333333)
        places = k.or_(places, 0x44004400)
        (a, b), (c, d) = rows[pair : pair + 2]
        found += [[k.permute(a, b, places)], [k.permute(c, d, k.shr(places, 16))]]
    return found


def _stored_halves(k: KernelBuilder, rows: Sequence[Words], codes: Reg) -> list[list[Reg]]:
    table = k.mov(0x76543210)
    lower, upper = k.and_(codes, 0x77777777), k.and_(k.shr(codes, 2), 0x77777777)
    found: list[list[Reg]] = [[] for _ in rows]
    for half in (0, 1):
        # The selectors of the two bytes of each place. Bit 2 belongs to another place, and does not change the result.
        first, second = (k.permute(table, table, k.shr(places, 16) if half else places) for places in (lower, upper))
        for number in range(4):
            row, group = 2 * half + number // 2, number % 2
            low, high = rows[row][2 * group : 2 * group + 2]
            found[row].append(k.permute(low, high, k.permute(first, second, number | 4 + number << 4)))
    return found


def _stored_words(k: KernelBuilder, rows: Sequence[Words], codes: Reg) -> list[list[Reg]]:
    found: list[list[Reg]] = []
    for row, words in enumerate(rows):
        values: list[Reg] = []
        for group in (0, 1):
            a, b, c, d = words[SIDE * group : SIDE * group + SIDE]
            at = SQUARE * row + SIDE * group
            bits = [k.setp("ne", "u32", k.and_(codes, 1 << at + bit), 0) for bit in range(4)]
            values.append(k.selp(c, k.selp(b, a, bits[0]), bits[1]))
            values.append(k.selp(k.selp(d, c, bits[2]), b, bits[3]))
        found.append(values)
    return found
