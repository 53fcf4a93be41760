"""Selects the kept elements of groups, by counts of smaller ones, and assigns slots, by conditions and masks on planes
(`louver.library.streaming.lanes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from louver.formats.dtypes import ElementType
from louver.isa.convert import Half
from louver.library.streaming.lanes import Lanes
from louver.ptx.arithmetic import Number
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Reg

Table = Callable[[int, int, int], int]


@dataclass(slots=True, eq=False)
class Bit:
    """A bitwise function of at most three other bits, or a register. The instruction is emitted at the first use of
    `register`.

    negated: the bit is the complement of `register`. A function that reads it applies the negation in its table.
    """

    k: KernelBuilder
    function: Table = lambda a, b, c: a
    inputs: tuple[Bit, ...] = ()
    made: Reg | None = None
    negated: bool = False

    @property
    def register(self) -> Reg:
        """The register of the bit, without the negation."""
        if self.made is None:
            registers = [bit.register for bit in self.inputs]
            negated = [bit.negated for bit in self.inputs]

            def table(a: int, b: int, c: int) -> int:
                given = [~bits if no else bits for bits, no in zip((a, b, c), negated, strict=False)]
                return self.function(*given, *[0] * (3 - len(given)))

            self.made = self.k.logic(table, *registers, *[0] * (3 - len(registers)))
        return self.made


def holds(k: KernelBuilder, condition: Reg) -> Bit:
    """The bit of a condition."""
    return Bit(k, made=condition)


def fails(k: KernelBuilder, condition: Reg) -> Bit:
    """The bit of the opposite of a condition."""
    return Bit(k, made=condition, negated=True)


def digits(k: KernelBuilder, bits: Sequence[Bit]) -> list[Bit]:
    """The binary digits of the number of set bits, the lowest first."""
    found: list[Bit] = []
    column = list(bits)
    while column:
        carries: list[Bit] = []
        while len(column) > 1:
            some = tuple(column[:3])
            column[:3] = [Bit(k, lambda a, b, c: a ^ b ^ c, some)]
            carries.append(Bit(k, lambda a, b, c: a & b | b & c | c & a, some))
        found.append(column[0])
        column = carries
    return found


def at_least(k: KernelBuilder, bits: Sequence[Bit], least: int) -> Reg:
    """Whether at least `least` of the bits are set. least: from 1 to the number of bits."""
    found: Bit | None = None
    for place, digit in enumerate(digits(k, bits)):
        # `found`: whether the number of the digits so far is at least that of `least`; None if it always is.
        if least >> place & 1:
            found = digit if found is None else Bit(k, lambda a, b, c: a & b, (digit, found))
        elif found is not None:
            found = Bit(k, lambda a, b, c: a | b, (digit, found))
    assert found is not None
    return k.xor(found.register, 0xFFFFFFFF) if found.negated else found.register


def exactly(k: KernelBuilder, digits: Sequence[Bit], count: int, among: int) -> Reg:
    """The bits of the constant `among` at which the number with these digits is `count`."""
    found = Bit(k, made=k.mov(among))
    for place in range(0, len(digits), 2):
        some = digits[place : place + 2]
        wanted = [count >> place + at & 1 for at in range(len(some))]

        def table(a: int, b: int, c: int, wanted: Sequence[int] = wanted) -> int:
            result = a
            for bits, one in zip((b, c), wanted, strict=False):
                result &= bits if one else ~bits
            return result

        found = Bit(k, table, (found, *some))
    return found.register


Before = Callable[[int, int], Reg]
"""The condition that element i comes before element j, for i < j. If it is false, j comes before i."""


def first(lanes: Lanes, m: int, n: int, before: Before) -> list[Reg]:
    """Masks of the first n of m elements, in the order of `before`."""
    k = lanes.k
    pairs = {(i, j): before(i, j) for i in range(m) for j in range(i + 1, m)}
    masks: list[Reg] = []
    for i in range(m):
        wins: list[Bit] = [holds(k, pairs[i, j]) for j in range(i + 1, m)] + [fails(k, pairs[j, i]) for j in range(i)]
        masks.append(lanes.spread(at_least(k, wins, m - n)))
    return masks


def largest(lanes: Lanes, element: ElementType, planes: Sequence[Reg], n: int, *, positive: bool = False) -> list[Reg]:
    """Masks of the n elements with the largest magnitudes, in the order of `louver.formats.select`.

    positive: whether no element has its sign bit set.
    """
    keys = [_magnitude(lanes, element, plane, positive=positive) for plane in planes]
    pairs = lanes.at_least(keys, whole=not element.floating)
    return first(lanes, len(planes), n, lambda i, j: pairs[i, j])


def _magnitude(lanes: Lanes, element: ElementType, plane: Reg, *, positive: bool) -> Reg:
    k = lanes.k
    if element.floating:
        size = plane if positive else k.and_(plane, lanes.low)
        if element.bits == 16:
            # The lesser of NaN and infinity is infinity.
            return k.packed("min", cast("Half", element.name), size, k.mov(lanes.each(element.largest_magnitude)))
        spare = element.magnitude_mask - element.largest_magnitude
        if not spare:
            return size
        # Infinity and NaN differ only in the mantissa, which is 0 for infinity. Clearing the mantissa makes them equal.
        above = lanes.spread(k.add(size, lanes.each(spare)))
        return k.logic(lambda a, b, c: a & ~(b & c), size, above, lanes.each(spare))
    if element.name == "u8":
        return plane
    negative = lanes.spread(plane)
    return k.add(k.xor(plane, negative), k.and_(negative, lanes.each(1)))


def spared(lanes: Lanes, marks: Sequence[Reg], n: int) -> list[Reg]:
    """Masks of n elements: those with a mark, then the lowest others. marks: conditions, of which at most n hold."""
    k = lanes.k
    masks: list[Reg] = []
    for i, mark in enumerate(marks):
        if i < n:
            # Fewer than n elements are before i. So i is kept unless too many marked elements follow.
            behind = at_least(k, [holds(k, other) for other in marks[i + 1 :]], n - i)
            mark = k.logic(lambda a, b, c: a | ~b, mark, behind, 0)
        masks.append(lanes.spread(mark))
    return masks


def marked(lanes: Lanes, planes: Sequence[Reg]) -> list[Reg]:
    """Conditions: some bit of the element is set, so it is not +0.0."""
    return [lanes.k.or_(lanes.nonzero(plane), plane) for plane in planes]


def slots(lanes: Lanes, masks: Sequence[Reg], n: int) -> Iterator[dict[int, Reg]]:
    """For each slot of a group, the masks of the elements that it may hold, by element. Exactly one of the masks is
    set.

    masks: masks of the kept elements, of which there are n.
    """
    k, spare = lanes.k, len(masks) - n
    left = list(masks)
    for slot in range(n):
        yield {i: left[i] for i in range(slot, slot + spare + 1)}
        if slot == n - 1:
            return
        # The candidates for the next slot are the kept elements after this slot's element.
        seen = left[slot]
        for i in range(slot + 1, slot + spare + 1):
            behind = k.and_(left[i], seen)
            seen = k.or_(seen, left[i])
            left[i] = behind


def pick(lanes: Lanes, candidates: dict[int, Reg], things: Sequence[Number]) -> Number:
    """The item of the element whose mask is set. If no other mask is set, it is that of the last candidate."""
    *others, last = candidates
    found: Number = things[last]
    for i in reversed(others):
        found = lanes.k.logic(lambda a, b, c: a & b | ~a & c, candidates[i], things[i], found)
    return found
