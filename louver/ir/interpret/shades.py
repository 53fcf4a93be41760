"""Tracks marks of elements in addition to their numbers: stored elements of a sparse tensor, and undefined elements.

A product with a sparse tile sums only its stored elements, as hardware does. So infinity is not multiplied by a zero
that is not stored. A masked element of a load without `other` is zero here and in compiled kernels, and undefined in
Triton. It is tracked to operations that make it visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Operation

from louver.ir import tile as tt
from louver.ir.arith import DIVISIONS
from louver.ir.comparisons import SelectOp
from louver.ir.interpret.arithmetic import Handler
from louver.ir.interpret.values import Shaded, Truths, Value, View, plain, shaded, undefined_of
from louver.ir.tile.memory import checked

Seen: TypeAlias = Callable[[Shaded, Operation], None]
"""A callback for undefined elements that an operation makes visible."""

_MOVES = (tt.SplatOp, tt.BroadcastOp, tt.ReshapeOp, tt.ExpandDimsOp, tt.TransOp, tt.SplitOp)
_STORES = (tt.StoreOp, tt.AtomicRMWOp, tt.AtomicCASOp, tt.DescriptorStoreOp, tt.DescriptorReduceOp)


def run_shaded(op: Operation, operands: Sequence[Any], run: Handler, seen: Seen) -> Sequence[Value]:
    """The results of an operation with shaded operands."""
    values = [plain(each) for each in operands]
    if isinstance(op, _MOVES):
        return _moved(op, operands[0], run)
    undefined = [undefined_of(each) for each in operands]
    if isinstance(op, _STORES):
        _store(op, operands, undefined, values, seen)
        return run(op, values)
    if isinstance(op, DIVISIONS):
        # Undefined elements are zero here. They are replaced, so that there is no division by zero.
        values[1] = np.where(undefined[1], np.ones_like(values[1]), values[1])
    found = run(op, operands if isinstance(op, tt.DotOp) else values)
    unknown = _of_results(op, undefined, values)
    return [shaded(each, unknown, loads_of(operands)) for each in found]


def loads_of(values: Sequence[Any]) -> frozenset[Operation]:
    """The loads whose masked elements are undefined in these values."""
    return frozenset[Operation]().union(*(each.loads for each in values if isinstance(each, Shaded)))


def _moved(op: Operation, value: Shaded, run: Handler) -> Sequence[Value]:
    def moved(shade: Truths | None) -> Sequence[Any]:
        return [None] * len(op.results) if shade is None else run(op, [shade])

    values: Sequence[Any] = run(op, [value.value])
    parts = zip(values, moved(value.stored), moved(value.undefined), strict=True)
    return [Shaded(each, stored, undefined, value.loads) for each, stored, undefined in parts]


def _of_results(op: Operation, undefined: Sequence[Truths], values: Sequence[Any]) -> Truths:
    """The undefined elements of an operation's results."""
    match op, values:
        case SelectOp(), [condition, *_]:
            return undefined[0] | np.where(condition, undefined[1], undefined[2])
        case arith.AndIOp(), [one, other] if one.dtype == np.bool_:
            return (undefined[0] | undefined[1]) & (one | undefined[0]) & (other | undefined[1])
        case arith.OrIOp(), [one, other] if one.dtype == np.bool_:
            return (undefined[0] | undefined[1]) & (~one | undefined[0]) & (~other | undefined[1])
        case tt.LoadOp(mask=mask), _ if mask is not None:
            # A masked address is not read.
            outside = undefined[2] if len(undefined) > 2 else np.asarray(False)
            return undefined[1] | np.where(values[1], undefined[0], outside)
        case tt.DotOp(), _:
            return _of_dot(undefined)
        case tt.JoinOp(), [one, _]:
            return np.stack([np.broadcast_to(each, one.shape) for each in undefined], axis=-1)
        case tt.GatherOp(axis=axis), [source, indices]:
            taken = np.take_along_axis(
                np.broadcast_to(undefined[0], source.shape), indices.astype(np.int64), axis.value.data
            )
            return taken | undefined[1]
        case _:
            return np.logical_or.reduce(np.broadcast_arrays(*undefined))


def _store(
    op: Operation, operands: Sequence[Any], undefined: Sequence[Truths], values: Sequence[Any], seen: Seen
) -> None:
    if isinstance(op, tt.StoreOp | tt.AtomicOp) and not isinstance(values[0], View):
        masked = len(values) > 2 and not isinstance(op, tt.AtomicCASOp)
        mask = undefined[2] | values[2] if masked else np.asarray(True)
        unknown = [each & mask for each in undefined]
    else:
        view: Any = values[0]
        if isinstance(op, tt.StoreOp):
            inside = view.inside(checked(op))
        else:
            inside = view.moved([int(each) for each in values[1:-1]]).inside(range(len(view.block)))
        unknown = [each & inside for each in undefined]
    for each, shade in zip(operands, unknown, strict=True):
        if shade.any():
            seen(each, op)


def _of_dot(undefined: Sequence[Truths]) -> Truths:
    """The undefined sums of a dot: those with an undefined element in their row of a or their column of b. All of them if
    a scale is.
    """
    a, b, c, *scales = undefined
    rows = a.any(axis=1, keepdims=True) if a.ndim else a
    scaled = np.asarray(any(each.any() for each in scales))
    return rows | (b.any(axis=0, keepdims=True) if b.ndim else b) | c | scaled
