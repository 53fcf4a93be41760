"""Dense operands and outputs as kernels read and write them: matrices with one contiguous dimension, alone or in a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from louver.formats.dtypes import ElementType, ElementTypeError
from louver.formats.tensor import SparseTensor
from louver.runtime.arrays import ArrayView, overlaps, view

Axes: TypeAlias = tuple[tuple[int, int], ...]
"""Size and stride (elements) of axes, outermost first."""


@dataclass(frozen=True, slots=True)
class DenseMatrix:
    """The dense operand [K, N] in some layout.

    k_stride, n_stride: elements between neighbours along K and N. layout: "k_major" (k_stride 1), "n_major" (n_stride 1),
    or "copy" where neither is 1 and the kernel needs a copy. entries: axes of a batch of such matrices, outermost first.
    """

    array: ArrayView
    k: int
    n: int
    k_stride: int
    n_stride: int
    entries: Axes = ()

    @property
    def layout(self) -> Literal["k_major", "n_major", "copy"]:
        """The contiguous dimension. A dimension of one element counts as contiguous."""
        if self.k_stride == 1 or self.k == 1:
            return "k_major"
        if self.n_stride == 1 or self.n == 1:
            return "n_major"
        return "copy"


def named_view(name: str, x: Any, types: Collection[str]) -> ArrayView:
    """`view(x)` of a product's argument, whose name its errors begin with. types: the element types that it may have."""
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
    """The axes in as few as possible: none of one element, and those that a single stride walks joined."""
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
    """An array of at least two axes, of which the last two are the dense operand's: `k_axis` (-1 or -2) is its K."""
    n_axis = -3 - k_axis
    entries = merged(axes_of(x)[:-2])
    return DenseMatrix(x, x.shape[k_axis], x.shape[n_axis], x.strides[k_axis], x.strides[n_axis], entries)


@dataclass(frozen=True, slots=True)
class Stored:
    """An output, or an array like it: matrices [rows, columns] with contiguous rows.

    pitch, batch_pitch: elements from row to row, and from one entry of a batch to the next; 0 without entries.
    """

    array: ArrayView
    rows: int
    columns: int
    pitch: int
    batch: int = 1
    batch_pitch: int = 0


def stored(x: ArrayView, leading: int, name: str) -> Stored | None:
    """`x` as matrices, its first `leading` axes a batch, the others but the last one rows.

    None where no single stride walks either of them. Raises ValueError for rows that are not contiguous.
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
    """The caller's output, or ValueError with the rule that it breaks. c: an input that may be the output itself."""
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
    """Whether two arrays are the same elements in the same order; an axis of one element has no stride to speak of."""
    if (a.address, a.device, a.element, a.shape) != (b.address, b.device, b.element, b.shape):
        return False
    return all(size == 1 or x == y for size, x, y in zip(a.shape, a.strides, b.strides, strict=True))
