"""The facts about a call that passes assume, and that the launch must check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.ir.polynomial import Size
from louver.isa.rule import RuleError


@dataclass(frozen=True, slots=True)
class Split:
    """The split of K over the user's programs.

    They are numbered along an axis of the grid, and add their parts of the sum.

    axis: the axis of the grid.
    programs: the required number of programs; `polynomial.programs` if any number is right; None for chunks.
    chunk: elements of a chunk; None without chunks. All chunks together must cover K.
    multiple: a chunk must be a multiple of it.
    """

    axis: int
    programs: Size | None
    chunk: Size | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        if (self.programs is None) == (self.chunk is None):
            raise RuleError(f"K is split among programs or into chunks, got {self.programs} and {self.chunk}")


@dataclass(frozen=True, slots=True)
class SparseView:
    """A kernel's description of a sparse argument.

    columns: dense elements of a row that are read, from the first one on.
    sizes: sizes of the other dimensions: matrices, if there is a batch, and rows. The first one is None if the kernel
    has no bound for it that a launch can compute.
    strides: dense elements between neighbours along the same dimensions.
    """

    argument: str
    columns: Size
    sizes: tuple[Size | None, ...]
    strides: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class DenseView:
    """The sizes and strides of all dimensions of a dense argument, in elements, from descriptors and masks of a kernel."""

    argument: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a kernel reads a sparse argument.

    of: whether `end` counts columns of each row, or rows.
    end: the end of the elements that are read.
    counts: numbers of programs and loop steps on which the end depends. If one is 0, nothing is read.
    in_branch: whether the end may not be reached: a branch reads, or a loop may end earlier by a number that no launch
        knows.
    held: the rows of a matrix of a batch, whose next rows are the next matrix's; None for those of the tensor.
    """

    argument: str
    of: Literal["columns", "rows"]
    end: Size
    counts: tuple[Size, ...] = ()
    in_branch: bool = False
    held: Size | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """Facts about a call.

    equal: pairs of sizes that must be equal. Descriptors of the caller have separate sizes.
    at_most: sizes, each with its largest value. The kernel processes no more.
    multiples: arguments, each with a number that must divide it. The kernel stores whole tiles without a mask, or
    sparse tiles begin where metadata can be read.
    whole_rows: sizes of 0 or more, each with the rows (or columns) of a tile, which must divide it. Rows that wrap at it (`%`), or
    parts of a matrix that are so far apart or begin there, are then whole tiles; else the kernel that computes addresses is right.
    steps: sizes, each with the step of a loop. It is at most one step, or whole steps: the kernel masks the lanes of a tile once,
    for all steps.
    divisors: arguments, each with a number. A kernel that knows that an argument is a multiple of it is better, so it is compiled for
    a call in which it is: one quotient serves a tile, or two steps of K are taken at once.
    positive: arguments that must be above 0. They are sizes and addresses of arrays that the kernel compares with 0 in
    a branch.
    programs: how the user's programs number the tiles of a product, see below.
    guarded: whether programs without a tile do nothing.
    whole_batch: whether programs number the tiles of all matrices of a batch together. Else an axis of the grid has the matrices.
    split: how programs share K; None if each sums all of K.
    rows_apart: sparse arguments, each with the stride of rows of the dense tensor [K, N].
    whole: sparse arguments, each with a stride and the number that must divide it.
    reaches: how far sparse arguments are read.
    views, dense_views: the sizes of arguments in a kernel of register tiles. For a product, the operands contain them.

    Values of `programs`:

    - None: the grid has one program for each tile.
    - 0: programs process tiles at a distance of the number of programs. Any grid is right.
    - n: programs process tiles at a distance of n. The grid has n programs, or one for each tile.
    """

    equal: tuple[tuple[Size, Size], ...] = ()
    at_most: tuple[tuple[Size, int], ...] = ()
    multiples: tuple[tuple[str, int], ...] = ()
    whole_rows: tuple[tuple[Size, int], ...] = ()
    steps: tuple[tuple[Size, int], ...] = ()
    divisors: tuple[tuple[str, int], ...] = ()
    positive: tuple[str, ...] = ()
    programs: int | None = None
    guarded: bool = False
    whole_batch: bool = False
    split: Split | None = None
    rows_apart: tuple[tuple[str, Size], ...] = ()
    whole: tuple[tuple[str, Size, Size], ...] = ()
    reaches: tuple[Reach, ...] = ()
    views: tuple[SparseView, ...] = ()
    dense_views: tuple[DenseView, ...] = ()


NO_CONDITIONS = Conditions()
"""Conditions that every call fulfils."""
