"""Layout of a request's arrays: the axes of a batch, and the axes that form the rows of matrices.

The leading axes of a matmul are a batch. In a linear product with one weight, all leading axes count tokens:

- If they join into one axis of constant stride in every array, there is no batch.
- Otherwise some outer axes become a batch, so that views are read and written in place.
- If the entries of such a batch were small, the tokens are copied first instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from louver.frontend.problem import Batch, BLayout
from louver.isa.wgmma import TRANSPOSABLE
from louver.library.dense import DenseMatrix, Stored, axes_of, matrices, merged, stored
from louver.library.request import Request, gathers
from louver.library.rows import Rows, rows_in_place
from louver.runtime.arrays import ArrayView

LEAST_TOKENS = 128
"""Least number of tokens of an entry for which a batch is faster than a copy. Narrower tiles multiply at a lower rate.
"""


@dataclass(frozen=True, slots=True)
class Placement:
    """The arrays of a request as matrices.

    dense: the dense operand with the caller's strides. Its batch may have more than one axis.
    n: N of each product.
    batch: the number of products.
    own: whether each product has a separate dense operand.
    kind: see `Problem.batch`.
    gathers: whether the kernel gathers rows of K.
    """

    dense: DenseMatrix
    out: Stored
    c: Stored | None
    n: int
    batch: int
    own: bool
    kind: Batch | None
    gathers: bool

    @property
    def layout(self) -> BLayout:
        """The layout in which a kernel may read the dense operand in place."""
        if self.gathers:
            return "n_major"
        transposable = self.dense.array.element.name in TRANSPOSABLE
        return "n_major" if transposable and self.dense.layout == "n_major" else "k_major"

    @property
    def in_place(self) -> Rows | None:
        """The rows of the dense operand in place; None if a copy is needed."""
        return rows_in_place(self.dense, self.layout) if self.dense.n == self.n else None

    @property
    def copied_layout(self) -> BLayout:
        """The layout of a copy.

        Boxes of rows along K are never partly outside a narrow matrix. If a batch has several axes, such a copy can need
        more launches than one that keeps the layout.
        """
        kept = self.gathers or (len(self.dense.entries) > 1 and self.dense.n == self.n)
        return self.layout if kept else "k_major"

    def regrouped(self, copied: Rows) -> Rows:
        """The copied rows of the dense operand, divided among the products."""
        if not self.own or self.dense.n == self.n:
            return copied
        return Rows(
            copied.address,
            copied.inner,
            self.n,
            copied.pitch,
            copied.element_bytes,
            copied.owner,
            self.batch,
            self.n * copied.pitch if self.batch > 1 else 0,
        )


def placed(request: Request, out: ArrayView) -> Placement:
    """The arrays of a request as matrices for a kernel. Raises ValueError if the strides of the output or `c` do not
    fit.
    """
    if request.kind == "matmul":
        return _at(request, out, len(out.shape) - 2)
    weights = request.weights
    if weights:
        return _at(request, out, len(weights))
    return _tokens(request, out)


def _tokens(request: Request, out: ArrayView) -> Placement:
    """The placement of a linear product with one weight: the first division of its tokens that reads x in place. If
    there is none, x is copied.
    """
    epilogue = request.fused.epilogue
    along_tokens = epilogue.dense_bias is not None or epilogue.dense_scale == "column"
    # All products of a batch share vectors along the tokens, so with such vectors all tokens must be one axis.
    most = 1 if along_tokens else max(1, len(out.shape) - 1)
    ways = [leading for leading in range(most) if _fits(request, out, leading)]
    if not ways:
        raise _unwalkable(request, out)
    for leading in ways:
        found = _at(request, out, leading)
        small = ways[0] == 0 < leading and found.n < LEAST_TOKENS
        if not small and found.in_place is not None:
            return found
    return _at(request, out, ways[0])


def _fits(request: Request, out: ArrayView, leading: int) -> bool:
    c = request.fused.arrays.get("c")
    return stored(out, leading, "out") is not None and (c is None or stored(c, leading, "c") is not None)


def _at(request: Request, out: ArrayView, leading: int) -> Placement:
    """The placement whose batch is the first `leading` axes of the output."""
    c = request.fused.arrays.get("c")
    result, added = stored(out, leading, "out"), None if c is None else stored(c, leading, "c")
    if result is None or (c is not None and added is None):
        raise _unwalkable(request, out)
    dense = _dense(request, leading)
    batch = prod(out.shape[:leading])
    n = prod(out.shape[leading:-1]) if request.kind == "linear" else out.shape[-1]
    # An operand that is repeated by strides of 0 is shared by all products, unless its scales of blocks are not.
    repeated = all(stride == 0 for _, stride in dense.entries) and not request.fused.epilogue.scaled
    own = len(request.dense.shape) > 2 and not (request.weights and repeated)
    kind: Batch | None = None
    if batch > 1:
        kind = "dense" if not request.weights else "both" if own else "sparse"
    if not own:
        dense = DenseMatrix(dense.array, dense.k, dense.n, dense.k_stride, dense.n_stride)
    return Placement(dense, result, added, n, batch, own, kind, gathers(request.s))


def _dense(request: Request, leading: int) -> DenseMatrix:
    x = request.dense
    if request.kind == "matmul":
        return matrices(x, k_axis=-2)
    *outer, (k, step) = axes_of(x)
    if request.weights:
        leading = len(outer) - 1
    entries, tokens = merged(outer[:leading]), merged(outer[leading:])
    if len(tokens) > 1:
        # These axes are copied in any case, so the division does not matter as long as the order is kept.
        *entries, tokens = (*merged(outer)[:-1], (merged(outer)[-1],))
    count, stride = tokens[0] if tokens else (1, k)
    return DenseMatrix(x, k, count, step, stride, tuple(entries))


def _unwalkable(request: Request, out: ArrayView) -> ValueError:
    c = request.fused.arrays.get("c")
    also = "" if c is None else f" and of c {list(c.strides)}"
    what = (
        "tokens are one axis, or a batch and an axis of tokens," if request.kind == "linear" else "a batch is one axis,"
    )
    return ValueError(
        f"{what} each with one stride in out and c, got shape {list(out.shape)} with strides of out "
        f"{list(out.strides)}{also}: make them contiguous"
    )
