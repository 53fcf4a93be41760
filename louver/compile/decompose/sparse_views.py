"""Reads the sizes and strides that a kernel of register tiles assumes for its sparse arguments.

A word of metadata covers 16 rows, so a kernel must use the sizes and strides of the tensor. A launch compares them with
the tensor (`louver.user.bind_tiles`). Sizes that a launch cannot compute are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from louver.analysis.access import EVERY
from louver.analysis.affine import launch_size
from louver.analysis.alignment import multiple_if
from louver.compile.decompose.memory import Axes, contiguous_axes, require_multiples
from louver.compile.decompose.rejected import naming_arguments
from louver.ir import tile as tt
from louver.ir.conditions import SparseView
from louver.ir.polynomial import Polynomial, Size
from louver.ir.refusal import unsupported
from louver.ir.tile.syntax import join_indices

BATCH_RULE = (
    "a matrix of a sparse batch is loaded through a descriptor of the whole tensor: tl.make_tensor_descriptor(a, [E, N, K], "
    "[stride_e, stride_n, 1], [1, rows, columns]).load([e, row, k]), reshaped to [rows, columns]"
)
"""The advice for a kernel that moves the pointer of a sparse tensor to one of its matrices."""


def read_views(function: tt.FuncOp) -> tuple[SparseView, ...]:
    """The views of sparse arguments in `function`, without duplicates.

    Rejects, with the operation's line, a view that does not begin at its argument, and sizes and strides that a launch
    cannot compute.
    """
    names = function.argument_names
    found: dict[SparseView, None] = {}
    for op in function.body.walk():
        if (
            isinstance(op, tt.MakeTensorDescriptorOp | tt.MakeTensorPtrOp)
            and tt.sparse_encoding(op.base.type) is not None
        ):
            with naming_arguments(function, op.base):
                found[_view(op, names)] = None
    return tuple(found)


def _view(op: tt.MakeTensorDescriptorOp | tt.MakeTensorPtrOp, names: Mapping[SSAValue, str]) -> SparseView:
    if op.base not in names:
        culprit = op.base.owner if isinstance(op.base.owner, Operation) else op
        raise unsupported("a sparse tensor must be read from its first element on", culprit, BATCH_RULE)
    if isinstance(op, tt.MakeTensorDescriptorOp):
        sizes, strides = list(op.sizes), list(op.steps)
        axes = Axes.last(len(sizes)) if len(sizes) > 1 else None
    else:
        sizes, strides = join_indices(op.shape, op.static_shape), join_indices(op.strides, op.static_strides)
        axes = contiguous_axes(strides, op)
    if axes is None:
        raise unsupported("a sparse tensor needs two dimensions at least, rows and columns", op)
    encoding = tt.sparse_encoding(op.base.type)
    assert encoding is not None
    others = [dimension for dimension in range(len(sizes)) if dimension not in (axes.rows, axes.columns)]
    order = [*others, axes.rows]
    first = launch_size(sizes[order[0]], names)
    end = _row_end(sizes[axes.columns], names, encoding.format.group, op)
    return SparseView(
        names[op.base],
        _size(end, names, "the length of rows", op, sums=True),
        # The next matrix begins after the rows of this one.
        (
            None if first == Polynomial.number(EVERY) else first,
            *(_size(sizes[each], names, "the rows of a matrix", op) for each in order[1:]),
        ),
        tuple(_size(strides[each], names, "a stride", op) for each in order),
    )


def _row_end(index: tt.Index, names: Mapping[SSAValue, str], group: int, op: Operation) -> tt.Index:
    """The end of the rows for all programs: K, if the kernel has min(K, end of a part).

    The launch checks that parts are whole groups.
    """
    if isinstance(index, SSAValue) and isinstance(index.owner, arith.MinSIOp):
        pair = [_row_end(each, names, group, op) for each in index.owner.operands]
        for rest, part in (pair, pair[::-1]):
            needs = None if launch_size(rest, names) is None else multiple_if(part, group)
            if needs is not None:
                require_multiples(needs, op)
                return rest
    return index


def _size(index: tt.Index, names: Mapping[SSAValue, str], what: str, op: Operation, *, sums: bool = False) -> Size:
    """A size or stride for the launch.

    sums: whether it may be a sum, such as the end of a part that does not begin at 0.
    """
    found = launch_size(index, names)
    if found is None or (len(found.terms) > 1 and not sums) or any(factor < 0 for _, factor in found):
        raise unsupported(
            f"{what} of a sparse tensor must be an argument, a number, a product of these or part of an "
            "argument, so that the launch can check it",
            op,
            "rows have no gaps, and parts of a row are whole groups",
        )
    return found
