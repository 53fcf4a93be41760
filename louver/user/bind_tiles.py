"""A call of a register-tile kernel, checked against the kernel's assumptions about its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from louver.formats.tensor import SparseTensor
from louver.ir.conditions import Conditions, Reach, SparseView
from louver.ir.polynomial import Numbers, Polynomial, Size
from louver.isa.metadata import WARP_ROWS
from louver.library.forms import as_stored
from louver.library.longer_rows import has_longer_rows
from louver.runtime.dlpack import row_major
from louver.user.arguments import Call
from louver.user.checked_call import CheckedCall, ViewError


def check_tiles(name: str, conditions: Conditions, sparse: Sequence[str], call: Call, grid: Sequence[int]) -> None:
    """Raises ValueError for sparse tensors that register tiles cannot read, and for sizes other than the tensors'.
    sparse: the arguments that the kernel reads as sparse tensors.
    """
    checked = CheckedCall.of(name, call, grid)
    for argument in sparse:
        s = checked.sparse(argument)
        if s.size % s.pattern.m:
            raise ValueError(
                f"K of {name}'s sparse argument {argument!r} is a multiple of {s.pattern.m}, got {s.size}: pad it with zeros"
            )
    checked.check(conditions)
    for view in conditions.views:
        given = checked.sparse(view.argument)
        if (stride := view.strides[-1].value(checked.numbers)) != given.size:
            checked.check_rows(view.argument, given, stride)
        _check_view(name, view, as_stored(given), checked.numbers, across=given.axis != given.ndim - 1)
    for reach in conditions.reaches:
        _check_reach(name, reach, checked.sparse(reach.argument), checked.numbers)
    for view in conditions.dense_views:
        sizes, strides = ([each.value(checked.numbers) for each in part] for part in (view.sizes, view.strides))
        if min(sizes) > 0:
            checked.check_extent(view.argument, 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True)))


def _check_view(name: str, view: SparseView, s: SparseTensor, numbers: Numbers, *, across: bool) -> None:
    """Check the kernel's sizes and strides that locate the tensor's values and metadata. across: the tensor was turned, so
    that no rows of it are a matrix.
    """
    argument, many = view.argument, len(view.strides) > 1
    first, *inner = (None if size is None else size.value(numbers) for size in view.sizes)
    given = tuple(each for each in inner if each is not None)
    strides = [stride.value(numbers) for stride in view.strides]
    alone = many and first == 1 and len(strides) == len(s.shape) == 2
    shape = (1, *s.shape) if alone else _as_batch(s, strides, across=across) if many else s.shape
    if many and len(view.strides) + 1 != len(shape):
        if len(view.strides) == len(s.shape) == 2:
            raise ViewError(
                f"{name} must be given the strides of the dense tensor, contiguous, for {argument!r}: matrices are a number of rows apart "
                f"that is a multiple of {WARP_ROWS} and divides {s.rows}, each of {s.size} elements, got a stride of {strides[0]}",
                described=True,
            )
        raise ViewError(
            f"{name} describes {argument!r} as matrices of a batch, in {len(view.strides) + 1} dimensions, got {list(s.shape)}"
        )
    counts = shape[:-1] if many else (s.rows,)
    steps = row_major(shape)[0 if many else len(shape) - 2 : -1]
    for place, (stride, apart, count) in enumerate(zip(strides, steps, counts, strict=True), 1):
        rows = place == len(strides)
        # A single row has no neighbours, but its stride may give its length, or the number of rows of a matrix. A single matrix has
        # none either, but a number that no launch knows may move by parts of it.
        inside = not rows and count == 1 and first is None and 0 < stride < apart
        if stride != apart and (count > 1 or inside or (rows and (many or view.columns == view.strides[-1]))):
            raise ViewError(
                f"{name} must be given the strides of the dense tensor, contiguous, for {argument!r}: "
                f"{'rows' if rows else 'matrices'} are {apart} elements apart, got a stride of {stride}",
                # Whole rows apart, the tile is one of every few rows.
                described=inside or stride % s.size == 0,
            )
    if many and any(rows > held for rows, held in zip(given, shape[1:-1], strict=True)):
        raise ViewError(
            f"{name} is given the sizes of {argument!r}, matrices of {_sizes(shape[1:-1])} rows at most, got {_sizes(given)}"
        )
    if first is not None and first > counts[0]:
        raise _beyond(name, argument, "matrices" if many else "rows", first, counts[0])
    columns, group = view.columns.value(numbers), s.pattern.m
    if columns != s.size and (columns > s.size or columns % group):
        raise ViewError(
            f"{name} reads rows of {argument!r}, {s.size} elements, or whole groups of {group} from their start, got {columns}",
            # Sparse along the last axis but one, the rows of all matrices follow one another in the dense tensor.
            described=(across and columns <= prod(s.shape[:-2]) * s.size) or _is_moved(view.columns, s.size, numbers),
        )
    if not many and s.rows > s.shape[-2] and s.shape[-2] % WARP_ROWS:
        raise ViewError(
            f"{name} reads all matrices of {argument!r} as one, whose rows are then a multiple of {WARP_ROWS} each, got "
            f"{s.shape[-2]}: describe it in three dimensions",
            described=True,
            rows=(argument, s.size) if has_longer_rows(s, s.size) else None,
        )


def _is_moved(columns: Size, row: int, numbers: Numbers) -> bool:
    """Whether one of the terms of a row's end moves to another row, such as that of a second half, and not beyond it."""
    if len(columns.terms) < 2 or not row:
        return False
    parts = [Polynomial(frozenset([term])).value(numbers) for term in columns]
    return any(part > row and part % row == 0 and sum(parts) - part <= row for part in parts)


def _as_batch(s: SparseTensor, strides: Sequence[int], *, across: bool) -> tuple[int, ...]:
    """The shape with one batch dimension, or with matrices below each other by these strides, which may be parts of the tensor's
    own or several of them, if metadata permits it.
    """
    if len(strides) != 2:
        return s.shape
    rows = strides[0] // s.size if s.size else 0
    follow = len(s.shape) == 2 or s.shape[-2] % WARP_ROWS == 0
    if not across and follow and strides[1] == s.size and rows > 0 and rows % WARP_ROWS == 0 and s.rows % rows == 0:
        return (s.rows // rows, rows, s.size)
    return (prod(s.shape[:-2]), *s.shape[-2:]) if len(s.shape) > 2 else s.shape


def _check_reach(name: str, reach: Reach, s: SparseTensor, numbers: Numbers) -> None:
    """Raises ValueError if unmasked reads go beyond the tensor."""
    if any(each.value(numbers) < 1 for each in reach.counts):
        # A loop without iterations reads nothing.
        return
    end = reach.end.value(numbers)
    held = s.rows if reach.held is None else reach.held.value(numbers)
    if reach.of == "rows" and end > held:
        described = reach.in_branch or reach.held is not None
        raise _beyond(name, reach.argument, "rows", end, held, described=described)
    if reach.of == "columns" and end > s.size:
        text = f"{name} reads {end} elements of each row of {reach.argument!r}, which has {s.size}: mask them (columns < K), or pad K with zeros"
        # Sparse along the last axis but one, the matrices of a batch follow one another along it.
        if reach.in_branch or (s.axis != s.ndim - 1 and end <= prod(s.shape[:-1])):
            raise ViewError(text, described=True)
        raise ValueError(text)


def _beyond(name: str, argument: str, what: str, given: int, held: int, *, described: bool = False) -> ViewError:
    return ViewError(
        f"{name} reads {given} {what} of {argument!r}, which has {held}: pass the tensor's own sizes, and mask "
        "elements beyond them",
        described=described,
    )


def _sizes(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
