"""Chooses elements of an access that move together: neighbours in memory, at an aligned address, with equal masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.compile.lower.tiles.state import Lowering
from louver.isa.memory import MAX_BYTES
from louver.ptx.module import Address, Reg

FARTHEST = 1 << 20
"""Limit in bytes of the offset from a register to an address. Smaller offsets fit an instruction."""


@dataclass(frozen=True, slots=True)
class Access:
    """One access. elements: the numbers of the registers that it moves, in memory order. mask: its condition."""

    address: Address
    elements: tuple[int, ...]
    mask: Reg | None


def accesses(
    low: Lowering, pointers: Sequence[Reg], masks: Sequence[Reg | None], size: int, most: int = MAX_BYTES
) -> list[Access]:
    """The accesses that move each element once.

    size: bytes of an element. most: the largest number of bytes of an access.

    Their order is that of their first registers.
    """
    places = [base_of(low, pointer) for pointer in pointers]
    where = {place: number for number, place in reversed(list(enumerate(places)))}
    taken: set[int] = set()
    found: list[Access] = []
    for number, (base, offset) in enumerate(places):
        if number in taken:
            continue
        group = (number,)
        count = most // size
        while count > 1 and len(group) == 1:
            first = offset - offset % (count * size)
            wanted = [where.get((base, first + size * each)) for each in range(count)]
            whole = [each for each in wanted if each is not None and each not in taken]
            aligned = low.known.facts_of(base).multiple % (count * size) == 0
            if aligned and len(whole) == count and number in whole and _as_one(low, [masks[e] for e in whole], count):
                group = tuple(whole)
            count //= 2
        taken.update(group)
        found.append(Access(Address(base, places[group[0]][1]), group, masks[group[0]]))
    return found


def base_of(low: Lowering, pointer: Reg) -> tuple[Reg, int]:
    """The base register and the offset of an address. Several addresses share a base register."""
    known = low.known.sum_of(pointer)
    near = known.base is not None and 0 <= known.constant < FARTHEST
    return (known.base, known.constant) if near and known.base is not None else (pointer, 0)


def _as_one(low: Lowering, masks: Sequence[Reg | None], count: int) -> bool:
    """Whether these conditions are always equal, by the way in which they are computed."""
    if len(set(masks)) == 1:
        return True
    tests = [None if mask is None else low.tests.get(mask) for mask in masks]
    first = tests[0]
    if first is None or any(test is None or test.name != first.name for test in tests):
        return False
    columns = list(zip(*(test.operands for test in tests if test is not None), strict=True))
    if first.name in ("and", "or"):
        return all(_as_one(low, column, count) for column in columns)
    # The block begins at a multiple of its length. So a bound that is also a multiple is above all of it or none of it.
    moving, fixed = columns if first.name[-2:] in ("lt", "ge") else reversed(columns)
    compares = first.name[-2:] in ("lt", "ge", "gt", "le")
    return compares and len(set(fixed)) == 1 and _divides(low, fixed[0], count) and _in_one_block(low, moving, count)


def _divides(low: Lowering, register: Reg, count: int) -> bool:
    return low.known.facts_of(register).multiple % count == 0


def _in_one_block(low: Lowering, registers: Sequence[Reg], count: int) -> bool:
    """Whether integers are in one aligned block of `count` integers."""
    sums = [low.known.sum_of(register) for register in registers]
    base = sums[0].base
    if any(each.base != base for each in sums) or (base is not None and not _divides(low, base, count)):
        return False
    return len({each.constant // count for each in sums}) == 1
