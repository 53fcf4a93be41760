"""Ways between registers and shared memory: the elements of one instruction, and its turns of the banks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from louver.ir.tile.layout import LANE_BITS, Layout, Steps, Vector
from louver.isa.instruction import LANES
from louver.isa.swizzle import BANK_LINE, CHUNK

WORD = 4
"""Bytes of a bank, and of a register that holds several elements."""

SCHEDULERS = 4
"""Instructions that are issued in a turn of the banks."""

MATRIX_BITS = 3
"""Of the number of a row of a matrix, or of a chunk's element of 16 bits: 8 of each."""

MOST_MATRICES_BITS = LANE_BITS - MATRIX_BITS
"""Of the number of a matrix among those that one instruction moves."""


class Memory(Protocol):
    """A tile in shared memory, in elements of `size` bytes."""

    @property
    def size(self) -> int:
        """Bytes of an element."""
        ...

    def offset(self, place: Vector) -> int:
        """Bytes before an element. Linear over bits: where places share no bit, that of their sum is the exclusive or."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """The way in which a warp moves its registers of a tile.

    inside: steps of the elements that are neighbours in memory (`matrices`: in a register), the nearest first. matrices: by `ldmatrix`
    or `stmatrix`; else each thread gives the address of its own elements. transposed: of each matrix. rows: steps of the number of a
    matrix's row. at_once: steps of the number of a matrix among those of one instruction.
    """

    inside: Steps
    matrices: bool = False
    transposed: bool = False
    rows: Steps = ()
    at_once: Steps = ()

    def lanes(self, layout: Layout) -> Steps:
        """Steps of the bits of a lane's number, for the address that the lane gives."""
        if not self.matrices:
            return layout.lane
        none = (0,) * len(layout.shape)
        given = (*self.rows, *self.at_once)
        return (*given, *[none] * (LANE_BITS - len(given)))

    def rest(self, layout: Layout, apart: Steps = ()) -> Steps:
        """Steps of the number of an instruction: of the registers that it does not move. apart: steps that are not counted."""
        return tuple(step for step in layout.register if step not in (*self.inside, *self.at_once, *apart))

    def bytes(self, size: int) -> int:
        """Bytes at the address of each lane."""
        return CHUNK if self.matrices else size << len(self.inside)

    def turns(self, layout: Layout, memory: Memory, apart: Steps = ()) -> int:
        """Turns of the banks for all registers of a warp."""
        offsets = [0]
        for step in self.lanes(layout):
            weight = memory.offset(step)
            offsets += [offset ^ weight for offset in offsets]
        if self.matrices:
            offsets = offsets[: 1 << (MATRIX_BITS + len(self.at_once))]
        return bank_turns(offsets, self.bytes(memory.size)) << len(self.rest(layout, apart))

    def cost(self, layout: Layout, memory: Memory, apart: Steps = ()) -> float:
        """Turns of the banks, and instructions as so many: accesses, and moves where a thread's neighbours are others in its registers."""
        count = 1 << len(self.rest(layout, apart))
        words = 1 << len(self.at_once) if self.matrices else self.bytes(memory.size) // WORD
        moved = count * words if self.inside != layout.register[: len(self.inside)] else 0
        return self.turns(layout, memory, apart) + (count + moved) / SCHEDULERS


def bank_turns(offsets: Sequence[int], width: int) -> int:
    """The number of turns in which the banks are read or written for an access. offsets: of each lane's `width` bytes.

    As many lanes as fill all banks take part in a turn; a bank gives one word in it, to all lanes that want this word.
    """
    together, total = min(LANES, BANK_LINE // width), 0
    for first in range(0, len(offsets), together):
        banks: dict[int, set[int]] = {}
        for offset in offsets[first : first + together]:
            for word in range(offset // WORD, (offset + width - 1) // WORD + 1):
                banks.setdefault(word % (BANK_LINE // WORD), set()).add(word)
        total += max(map(len, banks.values()))
    return total


def ways(layout: Layout, memory: Memory, apart: Steps = (), *, matrices: bool = True) -> list[Way]:
    """The ways between a layout and memory. apart: steps of registers that are moved at another time. matrices: whether there are such."""
    at = {memory.offset(step): step for step in (*layout.register, *layout.thread) if any(step) and step not in apart}
    chunk: list[Vector] = []
    while memory.size << len(chunk) < CHUNK and memory.size << len(chunk) in at:
        chunk.append(at[memory.size << len(chunk)])
    count = next((index for index, step in enumerate(chunk) if step not in layout.register), len(chunk))
    found = [Way(tuple(chunk[:count]))]
    if not matrices or memory.size << len(chunk) < CHUNK or memory.size > WORD:
        return found
    bits = (WORD // memory.size).bit_length() - 1
    if count >= bits and layout.lane[:2] == tuple(chunk[bits:]):
        found.append(_matrices(layout, tuple(chunk[:bits]), layout.lane[2:], apart, transposed=False))
    inside = next((step for step in layout.register if step not in apart), None)
    if memory.size == 2 and layout.lane[2:] == tuple(chunk) and inside is not None:
        found.append(_matrices(layout, (inside,), (inside, *layout.lane[:2]), apart, transposed=True))
    return found


def _matrices(layout: Layout, inside: Steps, rows: Steps, apart: Steps, *, transposed: bool) -> Way:
    rest = [step for step in layout.register if step not in (*inside, *apart)]
    return Way(inside, True, transposed, rows, tuple(rest[:MOST_MATRICES_BITS]))


def best_way(layout: Layout, memory: Memory, apart: Steps = (), *, matrices: bool = True) -> Way:
    """The cheapest way."""
    return min(ways(layout, memory, apart, matrices=matrices), key=lambda way: way.cost(layout, memory, apart))


def sums(steps: Iterable[Vector], first: Vector) -> list[Vector]:
    """The places of a number's values, whose bits have these steps, in order, from a first one on."""
    found = [first]
    for step in steps:
        found += [tuple(a + b for a, b in zip(place, step, strict=True)) for place in found]
    return found
