"""Layouts: the place of an element is the sum of steps, one for each bit that is set in the numbers of register, lane
and warp.

The numbers of elements, warps and registers are powers of two. Each bit of a register, lane or warp number moves along
one dimension by a power of two, or not at all. If it does not move, these lanes or warps hold the same elements. For
example, the mma accumulators of a 16×16 tile in one warp have these steps:

    register  (0, 1) (8, 0) (0, 8)           lane  (0, 2) (0, 4) (1, 0) (2, 0) (4, 0)           warp

So register 3 of lane 5 holds row 8 + 1 and column 1 + 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias

from louver.isa.rule import RuleError

Vector: TypeAlias = tuple[int, ...]
"""A place in a tile, or a step between places, in elements along each dimension."""

Steps: TypeAlias = tuple[Vector, ...]
"""The step of each bit of a number, the lowest bit first."""

LANE_BITS = 5
"""Bits of a lane number."""


@dataclass(frozen=True)
class Layout:
    """A tile of `shape` in registers. register, lane, warp: the steps of the numbers of register, lane and warp.

    Raises ValueError unless every element has a place, and the registers of a thread have different elements.
    """

    shape: Vector
    register: Steps
    lane: Steps
    warp: Steps

    def __post_init__(self) -> None:
        if any(size < 1 or size & (size - 1) for size in self.shape):
            raise RuleError(f"the sizes of a tile are powers of two, got {list(self.shape)}")
        if len(self.lane) != LANE_BITS:
            raise RuleError(f"a lane's number has {LANE_BITS} bits, got {len(self.lane)} steps")
        moving = [step for step in self._steps if any(step)]
        if any(len(step) != len(self.shape) or sum(map(bool, step)) > 1 for step in self._steps):
            raise RuleError(f"a step is along one dimension of {len(self.shape)}, got {list(self._steps)}")
        if sum(any(step) for step in self.register) != len(self.register):
            raise RuleError(f"each register of a thread holds another element, got the steps {list(self.register)}")
        wanted = {
            tuple(1 << bit if dimension == axis else 0 for axis in range(len(self.shape)))
            for dimension, size in enumerate(self.shape)
            for bit in range(size.bit_length() - 1)
        }
        if len(set(moving)) != len(moving) or set(moving) != wanted:
            raise RuleError(f"the steps reach each element of {list(self.shape)} once, got {moving}")

    @classmethod
    def within(
        cls, shape: Sequence[int], register: Iterable[Vector], lane: Iterable[Vector], warp: Iterable[Vector]
    ) -> Layout:
        """The layout for a tile of `shape` from the steps for a larger tile.

        Steps outside the tile, and repeated steps, do not move.
        """
        seen: set[Vector] = set()

        def inside(step: Vector) -> Vector:
            leaves = any(by >= size for by, size in zip(step, shape, strict=True))
            if leaves or step in seen:
                return (0,) * len(step)
            seen.add(step)
            return step

        registers = tuple(step for step in map(inside, register) if any(step))
        return cls(tuple(shape), registers, tuple(map(inside, lane)), tuple(map(inside, warp)))

    @property
    def _steps(self) -> Steps:
        return self.register + self.lane + self.warp

    @property
    def warps(self) -> int:
        """Warps that hold the tile."""
        return 1 << len(self.warp)

    @property
    def size(self) -> int:
        """Elements of the tile."""
        return prod(self.shape)

    @property
    def thread(self) -> Steps:
        """The steps of a thread number in its CTA: the steps of lane and warp."""
        return self.lane + self.warp

    @property
    def repeats(self) -> tuple[int, ...]:
        """The bits of a thread number that do not change the elements that the thread holds."""
        return tuple(bit for bit, step in enumerate(self.thread) if not any(step))

    @cached_property
    def registers(self) -> tuple[Vector, ...]:
        """The element of each register of thread 0. For another thread, the steps of its number are added."""
        found: list[Vector] = [(0,) * len(self.shape)]
        for step in self.register:
            found += [tuple(a + b for a, b in zip(place, step, strict=True)) for place in found]
        return tuple(found)

    def of_thread(self, thread: int) -> Vector:
        """The element of a thread's register 0."""
        taken = [step for bit, step in enumerate(self.thread) if thread >> bit & 1]
        return tuple(sum(along) for along in zip((0,) * len(self.shape), *taken, strict=True))

    def register_of(self, place: Vector) -> int:
        """The register of thread 0 that holds an element. The element must be one of `registers`."""
        return self.registers.index(place)

    def permuted(self, order: Sequence[int]) -> Layout:
        """The layout with dimension order[i] as dimension i."""

        def turn(vector: Vector) -> Vector:
            return tuple(vector[dimension] for dimension in order)

        return self._mapped(turn, turn(self.shape))

    def reshaped(self, shape: Sequence[int]) -> Layout:
        """The layout of the same elements, in row-major order, in another shape."""
        old, new = _pitches(self.shape), _pitches(shape)

        def move(vector: Vector) -> Vector:
            flat = sum(a * b for a, b in zip(vector, old, strict=True))
            return tuple(flat // pitch % size for pitch, size in zip(new, shape, strict=True))

        return self._mapped(move, tuple(shape))

    def paired(self) -> Layout:
        """The layout with a further last dimension of two elements, in neighbouring registers of a thread."""
        zero = (0,) * len(self.shape)
        return Layout((*self.shape, 2), ((*zero, 1), *widened(self.register)), widened(self.lane), widened(self.warp))

    def _mapped(self, change: Callable[[Vector], Vector], shape: Vector) -> Layout:
        register, lane, warp = (
            tuple(change(step) for step in steps) for steps in (self.register, self.lane, self.warp)
        )
        return Layout(shape, register, lane, warp)


def widened(steps: Sequence[Vector]) -> Steps:
    """The steps with a further last dimension, along which none of them goes."""
    return tuple((*step, 0) for step in steps)


def _pitches(shape: Sequence[int]) -> Vector:
    return tuple(prod(shape[dimension + 1 :]) for dimension in range(len(shape)))
