"""Dense operands and outputs of kernels: matrices with one contiguous dimension, alone or in a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from louver.formats.dtypes import ElementType, ElementTypeError
from louver.formats.tensor import SparseTensor
from louver.runtime.arrays import ArrayView, overlaps, view

Axes: TypeAlias = tuple[tuple[int, int], ...]
"""Size and stride of each axis, in elements, outermost first."""


@dataclass(frozen=True, slots=True)
class DenseMatrix:
    """The dense operand [K, N] in any layout.

    k_stride, n_stride: strides along K and N, in elements.
    entries: axes of a batch of such matrices, outermost first.
    """

    array: ArrayView
    k: int
    n: int
    k_stride: int
    n_stride: int
    entries: Axes = ()

    @property
    def layout(self) -> Literal["k_major", "n_major", "copy"]:
        """The contiguous dimension: "k_major", "n_major", or "copy" if there is none and the kernel needs a copy. A
        dimension of one element counts as contiguous.
        """
        if self.k_stride == 1 or self.k == 1:
            return "k_major"
        if self.n_stride == 1 or self.n == 1:
            return "n_major"
        return "copy"


def named_view(name: str, x: Any, types: Collection[str]) -> ArrayView:
    """`view(x)` of an argument of a product. Errors begin with `name`, and list `types`, the allowed element types."""
    try:
        return view(x)
    except ElementTypeError as error:
        raise ValueError(f"{name} must be of {' or '.join(types)}, got {error.given}: convert it first") from None
    except TypeError as error:
        hint = "; .dense() makes one of a sparse tensor" if isinstance(x, SparseTensor) else ""
        raise TypeError(f"{name}: {error}{hint}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def merged(axes: Iterable[tuple[int, int]]) -> Axes:
    """The same elements with as few axes as possible. Axes of one element are dropped, and axes that one stride spans
    are joined.
    """
    found: list[tuple[int, int]] = []
    for size, stride in axes:
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            size *= found.pop()[0]
        found.append((size, stride))
    return tuple(found)


def axes_of(x: ArrayView) -> Axes:
    """Size and stride of each axis, outermost first."""
    return tuple(zip(x.shape, x.strides, strict=True))


def matrices(x: ArrayView, k_axis: int) -> DenseMatrix:
    """The dense operand from an array whose last two axes are K and N, in either order. k_axis: the axis of K, -1 or
    -2.
    """
    n_axis = -3 - k_axis
    entries = merged(axes_of(x)[:-2])
    return DenseMatrix(x, x.shape[k_axis], x.shape[n_axis], x.strides[k_axis], x.strides[n_axis], entries)


@dataclass(frozen=True, slots=True)
class Stored:
    """An output, or an array of its shape: matrices [rows, columns] with contiguous rows.

    pitch: elements from one row to the next.
    batch_pitch: elements from one entry of a batch to the next; 0 without a batch.
    """

    array: ArrayView
    rows: int
    columns: int
    pitch: int
    batch: int = 1
    batch_pitch: int = 0


def stored(x: ArrayView, leading: int, name: str) -> Stored | None:
    """`x` as matrices. The first `leading` axes are the batch, the last axis is the columns, and the axes between are
    the rows.

    None if the axes of the batch, or those of the rows, do not join into one stride. Raises ValueError if rows are not
    contiguous.
    """
    *outer, (columns, step) = axes_of(x)
    batch, rows = merged(outer[:leading]), merged(outer[leading:])
    if step != 1 and columns > 1:
        raise ValueError(f"{name}'s rows must be contiguous, got strides {list(x.strides)}")
    if len(batch) > 1 or len(rows) > 1:
        return None
    count, pitch = rows[0] if rows else (1, columns)
    entries, batch_pitch = batch[0] if batch else (1, 0)
    return Stored(x, count, columns, pitch, entries, batch_pitch)


def check_output(
    out: ArrayView,
    shape: tuple[int, ...],
    element: ElementType,
    sources: tuple[ArrayView, ...],
    c: ArrayView | None = None,
) -> ArrayView:
    """The caller's output, checked. Raises ValueError with the broken rule.

    sources: inputs that must not overlap the output.
    c: an input that may be the output itself.
    """
    if out.shape != shape:
        raise ValueError(f"out must have shape {list(shape)}, got {list(out.shape)}")
    if out.element != element:
        raise ValueError(f"out must have element type {element}, got {out.element}")
    if not out.writable:
        raise ValueError(
            "out must be writable, and its elements must not overlap each other, got a read-only, broadcast or "
            f"overlapping array of shape {list(out.shape)} with strides of {list(out.strides)} elements: give "
            "an array of its own"
        )
    for source in sources if c is None or same_place(out, c) else (*sources, c):
        if out.device != source.device:
            raise ValueError(
                f"out must be on the inputs' device, got {out.device} and {source.device} (None: the host)"
            )
        if overlaps(out, source):
            raise ValueError(
                "out must not overlap an input, unless it is c itself: the kernel writes it while it reads"
            )
    return out


def same_place(a: ArrayView, b: ArrayView) -> bool:
    """Whether two arrays are the same elements in the same order. The stride of an axis with one element does not
    count.
    """
    if (a.address, a.device, a.element, a.shape) != (b.address, b.device, b.element, b.shape):
        return False
    return all(size == 1 or x == y for size, x, y in zip(a.shape, a.strides, b.strides, strict=True))
