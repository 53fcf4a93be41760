"""The facts of a call that passes assume, and that its launch must check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.ir.polynomial import Size


@dataclass(frozen=True, slots=True)
class Split:
    """The split of K over the user's programs: along an axis of the grid they are numbered, and what they add up is the sum.

    axis: the grid's. programs: how many there must be, or as many as there are (`polynomial.programs`) for any number; None where it
    is for the chunks to say: `chunk` elements each, together all of K, and each a multiple of `multiple`.
    """

    axis: int
    programs: Size | None
    chunk: Size | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        if (self.programs is None) == (self.chunk is None):
            raise ValueError(f"K is split among programs or into chunks, got {self.programs} and {self.chunk}")


@dataclass(frozen=True, slots=True)
class SparseView:
    """A kernel's description of a sparse argument.

    columns: dense elements of a row that are read, from the first on. sizes: of the other dimensions: matrices, where there is a
    batch, and rows. The first one is None where the kernel does not bound it, or by a number that no launch knows. strides: dense
    elements between neighbours along the same dimensions.
    """

    argument: str
    columns: Size
    sizes: tuple[Size | None, ...]
    strides: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class DenseView:
    """The sizes and strides of all dimensions of a dense argument, in elements, as a kernel's descriptors and masks say them."""

    argument: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """The number of elements of each row, or of rows, of a sparse argument that a kernel reads. counts: programs and steps of loops that the
    end grows with: where there is none of one, nothing is read.
    """

    argument: str
    of: Literal["columns", "rows"]
    end: Size
    counts: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class Conditions:
    """Facts of a call.

    equal: pairs of sizes that are equal: descriptors that come as arguments have sizes of their own. at_most: sizes that are no larger
    than a number: the kernel goes through so much and no further. multiples: arguments that are multiples of a number: the kernel stores
    whole tiles, unmasked, or sparse tiles begin where metadata can be read. positive: arguments above 0: sizes, and addresses of arrays,
    for which the kernel has a branch if they are 0. programs: how the user's programs number the tiles of a product. None: the grid has
    one program for each tile. 0: programs go from tile to tile, whatever their number. n: by n tiles, so that the grid has n programs, or
    one a tile. guarded: programs that have no tile do nothing. split: how programs share K, None where each sums all of it.
    rows_apart: sparse arguments whose dense rows, [K, N], are so far apart. whole: sparse arguments, a stride of theirs, and what it is a
    multiple of. reaches: how far sparse arguments are read. views,
    dense_views: what register tiles say of arguments; a product says it by its operands.
    """

    equal: tuple[tuple[Size, Size], ...] = ()
    at_most: tuple[tuple[Size, int], ...] = ()
    multiples: tuple[tuple[str, int], ...] = ()
    positive: tuple[str, ...] = ()
    programs: int | None = None
    guarded: bool = False
    split: Split | None = None
    rows_apart: tuple[tuple[str, Size], ...] = ()
    whole: tuple[tuple[str, Size, Size], ...] = ()
    reaches: tuple[Reach, ...] = ()
    views: tuple[SparseView, ...] = ()
    dense_views: tuple[DenseView, ...] = ()


NO_CONDITIONS = Conditions()
"""Every call is taken."""
