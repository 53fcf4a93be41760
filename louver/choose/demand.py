"""The properties of a product that decide about its schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.compile.plan.layout import BLOCK_ROWS
from louver.compile.plan.schedule import gathers, steps_of
from louver.formats.dtypes import element_type
from louver.formats.lists import PICKERS
from louver.formats.pattern import Pattern
from louver.frontend.problem import Problem
from louver.ir.product import (
    LoadMatrix,
    LoadVector,
    ProductNest,
    Selection,
    Unit,
    selection_of,
    turns,
    unit_of,
    walk,
)

TILE_K = {32: 32, 16: 64, 8: 128}
"""Dense K elements of a stage, by bits of an element: 64 bytes of a row of stored values, 128 of the dense operand."""

MOST_READS = 3
"""Most vectors that an epilogue of lean tiles may read, for lack of registers. C counts as this many."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The properties of a product that decide about its schedule.

    a, b, out: element types of the operands and the output.
    b_major: the contiguous dimension of b.
    pattern: the sparsity pattern of a; None for a dense a.
    accumulator: element type of the sums.
    promoted: whether sums of 8-bit floats are added to other sums in f32.
    transposed: whether the output is stored transposed.
    gated: whether the output has half of the product's rows.
    step: K elements that a stage usually holds.
    reads: vectors that the epilogue reads. C counts as `MOST_READS`.
    dependent: as in `louver.plan`.
    """

    a: str
    b: str
    b_major: Literal["k", "mn"]
    pattern: str | None
    accumulator: str
    promoted: bool
    out: str
    transposed: bool
    gated: bool
    step: int
    reads: int
    dependent: bool = False

    @property
    def selection(self) -> Selection:
        """The way in which a selects rows of b."""
        return selection_of(self.pattern)

    @property
    def picks(self) -> bool:
        """Whether threads can pick rows of b from a stage."""
        return self.unit == "fma" and self.together(PICKERS)

    def together(self, rows: int) -> bool:
        """Whether any `rows` rows of a that start at a multiple of `rows` are in one window."""
        return self.pattern is not None and Pattern.parse(self.pattern).length % rows == 0

    def depth(self, k: int, metadata: str = "global") -> int:
        """Rows of b that each row of a is multiplied with.

        For a list that covers several windows, it is the expected number of rows that these keep.
        """
        if self.pattern is None or not self.selection.indexed:
            return k
        pattern = Pattern.parse(self.pattern)
        if not gathers(self.pattern, metadata):
            return pattern.groups(k) * pattern.n
        # The rows of a tile are one window's, or the tile has one block of rows: see `TileShape.takes`.
        windows = -(-BLOCK_ROWS // pattern.length) if pattern.length % BLOCK_ROWS else 1
        if self.selection.lifted:
            return pattern.groups(k) * pattern.shared * windows
        return round(pattern.groups(k) * pattern.m * pattern.kept_by(windows))

    @property
    def unit(self) -> Unit:
        """The multiplier of the product."""
        return unit_of(self.pattern, self.a)

    @property
    def turns(self) -> bool:
        """Whether rows of b are gathered, and transposed on their way."""
        return turns(self.pattern, self.b)

    @property
    def sums(self) -> Literal["plain", "promoted", "f16"]:
        """The kind of sums, which decides how many registers they take."""
        return "promoted" if self.promoted else "f16" if self.accumulator == "f16" else "plain"

    @classmethod
    def of_problem(cls, problem: Problem, *, dependent: bool = False) -> Demand:
        """The demand of a product of the library."""
        epilogue = problem.epilogue
        vectors = (problem.bias, epilogue.dense_bias, epilogue.scale == "row", epilogue.dense_scale == "column")
        return cls(
            problem.a,
            problem.b,
            "k" if problem.b_layout == "k_major" else "mn",
            problem.pattern,
            problem.accumulator,
            problem.accumulate == "promoted",
            problem.out,
            problem.kind == "linear",
            epilogue.gated,
            TILE_K[element_type(problem.b).bits],
            sum(map(bool, vectors)) + MOST_READS * (epilogue.c is not None),
            dependent,
        )

    @classmethod
    def of_nest(cls, nest: ProductNest) -> Demand:
        """The demand of a user's kernel.

        If its sums are promoted more often than once in the library's step, it takes the shortest step.
        """
        step = TILE_K[element_type(nest.b.element).bits]
        nodes = set(walk(nest.epilogue))
        return cls(
            nest.a.element,
            nest.b.element,
            "k" if nest.b.k_major else "mn",
            nest.a.pattern,
            nest.accumulator,
            nest.promoted is not None,
            nest.store.element,
            nest.store.transposed,
            nest.gated,
            steps_of(nest.a.element)[0] if nest.promoted is not None and nest.promoted < step else step,
            sum(MOST_READS if isinstance(each, LoadMatrix) else isinstance(each, LoadVector) for each in nodes),
        )
