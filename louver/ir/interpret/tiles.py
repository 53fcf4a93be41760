"""Interprets tile operations: shapes, products and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, IntegerType
from xdsl.ir import Operation

from louver.formats.blocks import SCALED_COLUMNS
from louver.ir import tile as tt
from louver.ir.interpret.arithmetic import Handler, rounded
from louver.ir.interpret.values import (
    Array,
    Fault,
    Memory,
    Pointers,
    Shaded,
    Value,
    View,
    dtype_of,
    plain,
    shaded,
    shape_of,
)
from louver.ir.llvm import AssumeOp
from louver.ir.tile.memory import checked
from louver.ir.tile.syntax import Literals, join_indices
from louver.ir.tile.types import loaded_type
from louver.isa.narrow import SCALE, scale_values
from louver.isa.product_meaning import read_tf32

NAN_PADDING = 2
"""The number in Triton for NaN outside of a tensor. 1 is for zeros, which are the default too."""


def _shaped(change: Any) -> Handler:
    """The handler of an operation that moves elements.

    change: computes the array of the result from that of the operand.
    """

    def run(op: Operation, values: Sequence[Any]) -> Sequence[Value]:
        value = values[0]
        return (value.reshaped(change(op, value.offsets)) if isinstance(value, Pointers) else change(op, value),)

    return run


def _to_shape(op: Operation, array: Array) -> Array:
    return np.broadcast_to(array, shape_of(op.results[0].type))


def _reshaped(op: tt.ReshapeOp, array: Array) -> Array:
    return array.reshape(shape_of(op.result.type))


def _expanded(op: tt.ExpandDimsOp, array: Array) -> Array:
    return np.expand_dims(array, op.axis.value.data)


def _turned(op: tt.TransOp, array: Array) -> Array:
    return array.transpose(op.order.get_values())


def _split(op: tt.SplitOp, values: Sequence[Any]) -> Sequence[Value]:
    return values[0][..., 0], values[0][..., 1]


def _range(op: tt.MakeRangeOp, values: Sequence[Any]) -> Sequence[Value]:
    return (np.arange(op.start.value.data, op.end.value.data, dtype=np.int32),)


def _decompressed(op: tt.DecompressOp, values: Sequence[Any]) -> Sequence[Value]:
    """Decompress a tile. A tile with a sparse type has all elements here, so nothing changes."""
    if op.metadata is not None:
        raise Fault(
            "the interpreter decompresses a tile by its sparse type, not from values and metadata: run the "
            "module before decompose-sparse-tensors"
        )
    return (values[0],)


def _dot(op: tt.DotOp, values: Sequence[Any]) -> Sequence[Value]:
    """c + a · b. The sum is in float64, and rounded once to the type of `c`. Integers are exact, and wrap."""
    if op.metadata is not None:
        raise Fault(
            "the interpreter multiplies operands of sparse types, not values and metadata: run the module "
            "before decompose-sparse-tensors"
        )
    a, b, c, *scales = (plain(each) for each in values)
    left, right = _operand(a, op), _operand(b, op)
    to = dtype_of(op.d.type)
    with np.errstate(all="ignore"):
        if scales:
            of_rows, of_columns = (scale_values(each, SCALE).repeat(SCALED_COLUMNS, axis=1) for each in scales)
            left, right = left * of_rows, right * of_columns.T
        total = _sums(left, right, *values[:2]) + c.astype(np.float64)
    # Sums of fewer than 2^37 products of 8-bit integers are exact in float64.
    return (total.astype(np.int64).astype(to) if to.kind == "i" else rounded(total, to),)


def _sums(a: Array, b: Array, *operands: Value) -> Array:
    """a · b over the stored elements of sparse operands. A zero that is not stored is not multiplied by infinity."""
    left, right = (each.stored if isinstance(each, Shaded) else None for each in operands)
    if left is None and right is None:
        return a @ b
    finite = np.isfinite(a).all(axis=0) & np.isfinite(b).all(axis=1)
    total = a[:, finite] @ b[finite]
    for k in np.flatnonzero(~finite):
        stored = (True if left is None else left[:, k, None]) & (True if right is None else right[k])
        total += np.where(stored, a[:, k, None] * b[k], 0.0)
    return total


def _operand(value: Array, op: tt.DotOp) -> Array:
    precision = "tf32" if op.input_precision is None else op.input_precision.data
    if value.dtype == np.float32 and precision == "tf32":
        value = read_tf32(value)
    return value.astype(np.float64)


def _add(op: tt.AddPtrOp, values: Sequence[Any]) -> Sequence[Value]:
    pointers, offsets = values
    return (pointers.reshaped(pointers.offsets + offsets.astype(np.int64)),)


def _numbers(values: Sequence[Any], literals: Literals) -> tuple[int, ...]:
    """An index list with these values."""
    return tuple(int(cast(Any, entry)) for entry in join_indices(values, literals))


def _fill(padding: IntegerAttr[IntegerType] | None) -> float:
    return float("nan") if padding is not None and padding.value.data == NAN_PADDING else 0.0


def _describe(op: tt.MakeTensorDescriptorOp, values: Sequence[Any]) -> Sequence[Value]:
    rank = len(op.shape)
    sizes = _numbers(values[1 : 1 + rank], op.static_shape)
    steps = _numbers(values[1 + rank :], op.static_strides)
    if steps[-1] != 1:
        raise Fault(f"a descriptor's last dimension is contiguous: its stride is 1, not {steps[-1]}")
    return (_view(values[0], sizes, steps, op.block.get_shape(), (0,) * len(sizes), _fill(op.padding)),)


def _point(op: tt.MakeTensorPtrOp, values: Sequence[Any]) -> Sequence[Value]:
    ends = np.cumsum([1, len(op.shape), len(op.strides), len(op.offsets)])
    sizes, steps, first = (
        _numbers(values[start:end], literals)
        for start, end, literals in zip(
            ends, ends[1:], (op.static_shape, op.static_strides, op.static_offsets), strict=False
        )
    )
    return (_view(values[0], sizes, steps, op.block.get_shape(), first),)


def _view(
    base: Pointers,
    sizes: tuple[int, ...],
    steps: tuple[int, ...],
    block: tuple[int, ...],
    first: tuple[int, ...],
    fill: float = 0.0,
) -> View:
    return View(base.single, int(base.offsets), sizes, steps, block, first, fill)


def _advance(op: tt.AdvanceOp, values: Sequence[Any]) -> Sequence[Value]:
    return (values[0].moved(_numbers(values[1:], op.static_offsets)),)


def _load_block(op: tt.DescriptorLoadOp, values: Sequence[Any]) -> Sequence[Value]:
    view = cast(View, values[0])
    return (view.moved(_numbers(values[1:], op.static_indices)).load(range(len(view.block))),)


def _store_block(op: tt.DescriptorStoreOp, values: Sequence[Any]) -> Sequence[Value]:
    view = cast(View, values[0])
    view.moved(_numbers(values[1:-1], op.static_indices)).store(range(len(view.block)), values[-1])
    return ()


def _reduce_block(op: tt.DescriptorReduceOp, values: Sequence[Any]) -> Sequence[Value]:
    view = cast(View, values[0]).moved(_numbers(values[1:-1], op.static_indices))
    every, value = range(len(view.block)), values[-1]
    if op.kind.data not in _CHANGES:
        raise Fault(
            f"the interpreter reduces through descriptors by add, min, max, and, or and xor, not by {op.kind.data}"
        )
    with np.errstate(all="ignore"):
        changed = _CHANGES[op.kind.data](plain(view.load(every)), value)
    view.store(every, np.asarray(changed).astype(value.dtype))
    return ()


def _load(op: tt.LoadOp, values: Sequence[Any]) -> Sequence[Value]:
    """Load elements.

    Masked elements are `other`, or zero as in compiled kernels. Without `other` they are undefined in Triton.
    """
    pointer: Any = values[0]
    if isinstance(pointer, View):
        inside = pointer.inside(checked(op))
        found = replace(pointer, fill=_fill(op.padding)).load(checked(op))
        given = op.padding is not None
    else:
        inside = np.ones(pointer.offsets.shape, np.bool_) if op.mask is None else values[1]
        found = pointer.memory.load(pointer.offsets, inside, values[2] if op.other is not None else np.asarray(0))
        given = op.other is not None
    return (found if given else shaded(found, ~inside, frozenset([op])),)


def _store(op: tt.StoreOp, values: Sequence[Any]) -> Sequence[Value]:
    pointer: Any = values[0]
    if isinstance(pointer, View):
        pointer.store(checked(op), values[1])
    else:
        pointer.memory.store(pointer.offsets, None if op.mask is None else values[2], values[1])
    return ()


def _unsigned(change: Any) -> Any:
    """A change of integers that reads them as unsigned."""

    def run(old: Array, new: Array) -> Array:
        unsigned = f"u{old.itemsize}"
        return np.asarray(change(old.view(unsigned), new.view(unsigned))).view(old.dtype)

    return run


def _second(old: Array, new: Array) -> Array:
    return new


_CHANGES: dict[str, Any] = {
    "add": np.add,
    "fadd": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "umax": _unsigned(np.maximum),
    "umin": _unsigned(np.minimum),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": _second,
}
"""For each atomic operation, a function of the old number and a value that gives the new number."""


def _atomic(op: tt.AtomicRMWOp, values: Sequence[Any]) -> Sequence[Value]:
    """Change one element after the other. The old number of a masked element is 0."""
    change = _CHANGES[op.kind.data]
    pointers, value = values[:2]
    mask = values[2] if len(values) > 2 else np.ones(np.shape(value), np.bool_)
    before = np.zeros_like(value)
    for place in np.ndindex(np.shape(value)):
        if mask[place]:
            offsets = np.asarray(pointers.offsets[place])
            before[place] = plain(pointers.memory.load(offsets, np.asarray(True), value[place]))
            with np.errstate(all="ignore"):
                changed = change(np.asarray(before[place]), np.asarray(value[place]))
            pointers.memory.store(offsets, None, np.asarray(changed).astype(value.dtype))
    return (before,)


def _swap(op: tt.AtomicCASOp, values: Sequence[Any]) -> Sequence[Value]:
    """Compare and swap one element after the other. The comparison is of bits."""
    pointers, expected, value = values
    before = np.zeros_like(value)
    bits = f"u{value.itemsize}"
    for place in np.ndindex(np.shape(value)):
        offsets = np.asarray(pointers.offsets[place])
        before[place] = plain(pointers.memory.load(offsets, np.asarray(True), value[place]))
        if np.asarray(before[place]).view(bits) == np.asarray(expected[place]).view(bits):
            pointers.memory.store(offsets, None, np.asarray(value[place]))
    return (before,)


def _join(op: tt.JoinOp, values: Sequence[Any]) -> Sequence[Value]:
    return (np.stack(values, axis=-1),)


def _gather(op: tt.GatherOp, values: Sequence[Any]) -> Sequence[Value]:
    source, indices = values
    size = source.shape[op.axis.value.data]
    if ((indices < 0) | (indices >= size)).any():
        raise Fault(f"a gather's indices along an axis of {size} elements are 0 to {size - 1}")
    return (np.take_along_axis(source, indices.astype(np.int64), op.axis.value.data),)


def _address(op: tt.PtrToIntOp, values: Sequence[Any]) -> Sequence[Value]:
    elements = values[0].single.elements
    return (np.asarray(elements.ctypes.data + values[0].offsets * elements.itemsize, np.int64),)


def _cast(op: tt.PointerCastOp, values: Sequence[Any]) -> Sequence[Value]:
    pointers, to = values[0], dtype_of(loaded_type(op.result.type))
    memory, size = pointers.single, pointers.single.elements.itemsize
    if (
        memory.stored is not None
        or memory.elements.nbytes % to.itemsize
        or (pointers.offsets * size % to.itemsize).any()
    ):
        raise Fault(
            f"{memory.name!r} may be read as elements of another type only if it is dense and holds a whole number "
            "of them"
        )
    return (Pointers(Memory(memory.name, memory.elements.view(to)), pointers.offsets * size // to.itemsize),)


def _assume(op: AssumeOp, values: Sequence[Any]) -> Sequence[Value]:
    if not values[0]:
        raise Fault("a condition of tl.assume must be true")
    return ()


TILES: dict[type[Operation], Handler] = {
    tt.SplatOp: _shaped(_to_shape),
    tt.BroadcastOp: _shaped(_to_shape),
    tt.ReshapeOp: _shaped(_reshaped),
    tt.ExpandDimsOp: _shaped(_expanded),
    tt.TransOp: _shaped(_turned),
    tt.SplitOp: _split,
    tt.MakeRangeOp: _range,
    tt.DecompressOp: _decompressed,
    tt.DotOp: _dot,
    tt.AddPtrOp: _add,
    tt.MakeTensorDescriptorOp: _describe,
    tt.MakeTensorPtrOp: _point,
    tt.AdvanceOp: _advance,
    tt.DescriptorLoadOp: _load_block,
    tt.DescriptorStoreOp: _store_block,
    tt.DescriptorReduceOp: _reduce_block,
    tt.LoadOp: _load,
    tt.StoreOp: _store,
    tt.AtomicRMWOp: _atomic,
    tt.AtomicCASOp: _swap,
    tt.JoinOp: _join,
    tt.GatherOp: _gather,
    tt.PtrToIntOp: _address,
    tt.PointerCastOp: _cast,
    AssumeOp: _assume,
}
"""The meaning of each operation."""
