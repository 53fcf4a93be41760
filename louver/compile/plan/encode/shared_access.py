"""Describes how a warp moves a tile between registers and shared memory: the elements of one instruction, and its cost.

Costs are in turns of the banks. In a turn each bank of shared memory reads or writes one word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from louver.ir.tile.layout import LANE_BITS, Layout, Steps, Vector
from louver.isa.instruction import LANES
from louver.isa.swizzle import BANK_LINE, CHUNK

WORD = 4
"""Bytes of a word of a bank, and of a register."""

SCHEDULERS = 4
"""Instructions that are issued in a turn of the banks."""

MATRIX_BITS = 3
"""Bits of a row number: a matrix has 8 rows. Also bits of the number of a 16-bit element in a chunk."""

MOST_MATRICES_BITS = LANE_BITS - MATRIX_BITS
"""Bits of the number of a matrix: one instruction moves at most four."""


class Memory(Protocol):
    """A tile in shared memory, in elements of `size` bytes."""

    @property
    def size(self) -> int:
        """Bytes of an element."""
        ...

    def offset(self, place: Vector) -> int:
        """The offset of an element in bytes.

        It is linear over bits: if two places share no bit, the offset of their sum is the exclusive or of their
        offsets.
        """
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """The way in which a warp moves its registers of a tile.

    inside: steps of the elements that are neighbours in memory, nearest first. With `matrices`, steps of the elements
    in a register.
    matrices: whether `ldmatrix` or `stmatrix` moves them. Else each thread gives the address of its own elements.
    transposed: whether each matrix is transposed.
    rows: steps of the row number of a matrix.
    at_once: steps of the number of a matrix in one instruction.
    """

    inside: Steps
    matrices: bool = False
    transposed: bool = False
    rows: Steps = ()
    at_once: Steps = ()

    def lanes(self, layout: Layout) -> Steps:
        """For each bit of a lane's number, the step of the address that the lane gives."""
        if not self.matrices:
            return layout.lane
        none = (0,) * len(layout.shape)
        given = (*self.rows, *self.at_once)
        return (*given, *[none] * (LANE_BITS - len(given)))

    def rest(self, layout: Layout, apart: Steps = ()) -> Steps:
        """Steps of the number of an instruction: steps of registers that one instruction does not move, without
        `apart`.
        """
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
        """The cost in turns of the banks.

        It includes instructions: accesses, and moves if neighbours in memory are not neighbours in registers.
        """
        count = 1 << len(self.rest(layout, apart))
        words = 1 << len(self.at_once) if self.matrices else self.bytes(memory.size) // WORD
        moved = count * words if self.inside != layout.register[: len(self.inside)] else 0
        return self.turns(layout, memory, apart) + (count + moved) / SCHEDULERS


def bank_turns(offsets: Sequence[int], width: int) -> int:
    """The number of turns of the banks that an access takes.

    offsets: the offset of each lane's `width` bytes. A turn serves at most as many lanes as fill all banks. In a turn a
    bank reads or writes one word, for all lanes that access this word.
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
    """The ways between a layout and memory.

    apart: steps of registers that are moved in other parts.
    matrices: whether the target has matrix instructions for it.
    """
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
    """The places of all sums of these steps, beginning at `first`, in the order of a binary number with a bit for each
    step.
    """
    found = [first]
    for step in steps:
        found += [tuple(a + b for a, b in zip(place, step, strict=True)) for place in found]
    return found
