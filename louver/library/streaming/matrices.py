"""Arrays of any dimensions as batches of matrices whose rows are along the sparse axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from louver.library.streaming.record import VECTOR_BYTES, Access
from louver.runtime.arrays import ArrayView

MOST = 1 << 31
"""Upper limit of the number of rows, and of the elements of a row; both must be below it."""

Steps = tuple[int, int, int]
"""Elements from one row to the next, from one element of a row to the next, and from one entry to the next."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Matrices of a batch.

    entries: number of matrices.
    rows: rows of a matrix.
    size: elements of a row, along the sparse axis.
    """

    entries: int
    rows: int
    size: int

    def __post_init__(self) -> None:
        if self.entries * self.rows >= MOST or self.size >= MOST:
            raise ValueError(f"a sparse tensor has fewer than 2^31 rows and elements of a row, got {self}: divide it")

    @property
    def empty(self) -> bool:
        """Whether there are no elements."""
        return 0 in (self.entries, self.rows, self.size)


def matrices(views: Sequence[ArrayView], axis: int, *, batch: bool) -> tuple[Shape, list[Steps]]:
    """Arrays of one shape as batches of matrices: the common shape, and the steps of each array.

    axis: the sparse axis, counted from 0.
    batch: True if an entry must be a matrix of the last two axes. Otherwise all axes that one stride spans become rows.

    Raises ValueError for strides that do not allow this.
    """
    shape = views[0].shape
    others = [i for i in range(len(shape)) if i != axis]
    inner = others[-1:] if batch else []
    outer = [i for i in others if i not in inner]
    walks = _merged(shape, [view.strides for view in views], outer)
    if batch:
        walks.append((shape[inner[0]] if inner else 1, [view.strides[inner[0]] if inner else 0 for view in views]))
    if prod(shape) == 0:
        walks = [(prod(shape[i] for i in others), [0] * len(views))]
    none = (1, [0] * len(views))
    walks = [none] * (2 - len(walks)) + walks
    if len(walks) > 2:
        strides = " and ".join(str(list(view.strides)) for view in views)
        raise ValueError(
            f"a dense array of shape {list(shape)} is walked by two strides beside that of its sparse axis {axis}, got strides "
            f"{strides}: make a contiguous copy first, with the sparse axis among the last two"
        )
    (entries, entry_steps), (rows, row_steps) = walks
    steps = [(row, view.strides[axis], entry) for view, row, entry in zip(views, row_steps, entry_steps, strict=True)]
    return Shape(entries, rows, shape[axis]), steps


def _merged(shape: Sequence[int], strides: Sequence[Sequence[int]], axes: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Sizes and strides of some axes. Axes that one stride spans in all arrays are joined."""
    found: list[tuple[int, list[int]]] = []
    for axis in axes:
        size, steps = shape[axis], [each[axis] for each in strides]
        if size == 1:
            continue
        if found and all(last == size * step for last, step in zip(found[-1][1], steps, strict=True)):
            found[-1] = (found[-1][0] * size, steps)
        else:
            found.append((size, steps))
    return found


def access(view: ArrayView, shape: Shape, steps: Steps, *, along: int, down: int) -> Access:
    """The access of a kernel to an array, as wide as address, steps and sizes allow.

    along: most bytes of a row in one access.
    down: most bytes of a column in one access; 0 if the kernel cannot access columns.

    Both are multiples of the width.
    """
    size = view.element.bytes
    row, column, entry = (step * size for step in steps)
    whole = gcd(view.address, entry if shape.entries > 1 else 0, VECTOR_BYTES)
    if column == size or shape.size == 1:
        width = gcd(whole, row if shape.rows > 1 else 0, shape.size * size, along)
        return Access(max(width, size))
    width = gcd(whole, column, shape.rows * size, down)
    if down and row == size and width >= 4:
        return Access(width, columns=True)
    return Access(size)
