"""Dense operands and outputs as the kernels see them: two dimensions, one of them contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from louver.formats.dtypes import ElementType
from louver.runtime.arrays import ArrayView, overlaps


@dataclass(frozen=True, slots=True)
class DenseMatrix:
    """The dense operand [K, N] in some layout.

    k_stride, n_stride: elements between neighbours along K and N. layout: "k_major" (k_stride 1), "n_major" (n_stride 1),
    or "copy" where neither is 1 and the kernel needs a copy.
    """

    array: ArrayView
    k: int
    n: int
    k_stride: int
    n_stride: int

    @property
    def layout(self) -> Literal["k_major", "n_major", "copy"]:
        """Which dimension is contiguous. A dimension of one element counts as contiguous."""
        if self.k_stride == 1 or self.k == 1:
            return "k_major"
        if self.n_stride == 1 or self.n == 1:
            return "n_major"
        return "copy"


def matrix(x: ArrayView, k_axis: int) -> DenseMatrix:
    """A two-dimensional array as the dense operand; `k_axis` is its K dimension."""
    n_axis = 1 - k_axis
    return DenseMatrix(x, x.shape[k_axis], x.shape[n_axis], x.strides[k_axis], x.strides[n_axis])


def as_tokens(x: ArrayView, name: str) -> ArrayView:
    """`x [..., K]` with its leading axes as one: [tokens, K]. Raises ValueError when no single stride walks them."""
    *leading, last = zip(x.shape, x.strides, strict=True)
    count, stride = _flatten(leading, last[0])
    if stride is None:
        raise ValueError(
            f"the leading axes of {name} must be walkable by one stride, got shape {list(x.shape)} with strides "
            f"{list(x.strides)}: make it contiguous"
        )
    host = None if x.host is None else x.host.reshape(count, x.shape[-1])
    return replace(x, shape=(count, last[0]), strides=(stride, last[1]), host=host)


def _flatten(axes: Sequence[tuple[int, int]], width: int) -> tuple[int, int | None]:
    """Elements and stride of the axes flattened to one; stride None when there is none."""
    moving = [(size, stride) for size, stride in axes if size > 1]
    count = 1
    for size, _ in axes:
        count *= size
    if not moving:
        return count, width
    for (_, outer), (size, inner) in zip(moving, moving[1:], strict=False):
        if outer != size * inner:
            return count, None
    return count, moving[-1][1]


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
        raise ValueError("out must be writable, each element on its own, got a read-only or broadcast array")
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


def rows_of(out: ArrayView, name: str = "out") -> ArrayView:
    """A two-dimensional array with contiguous rows, or ValueError."""
    if out.strides[1] != 1 and out.shape[1] > 1:
        raise ValueError(f"{name}'s rows must be contiguous, got strides {list(out.strides)}")
    if out.shape[0] > 1 and out.strides[0] < out.shape[1]:
        raise ValueError(
            f"{name}'s rows must not overlap, got {out.shape[1]} columns and rows {out.strides[0]} elements apart"
        )
    return out
