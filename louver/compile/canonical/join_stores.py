"""join-stores: joins the stores of parts of a tile to one store.

Two stores to neighbouring blocks become one if they store the same function of neighbouring parts. Parts are halves of
a larger tile (`tl.split`), and neighbouring blocks that are loaded, such as parts of a bias. Four parts are two pairs,
and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.affine import Affine
from louver.analysis.effects import has_no_effect
from louver.analysis.integers import equal, equal_indices
from louver.compile.rewrite.insert import insert, insert_after
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.arith import TruncIOp
from louver.ir.tile.types import as_tensor, is_splat, tensor_of

_ELEMENTWISE = (tt.FpToFpOp, tt.ClampFOp, tt.ExternElementwiseOp)
"""Elementwise operations outside of MLIR's dialects."""

_Writing: TypeAlias = tt.DescriptorStoreOp | tt.DescriptorReduceOp


def join_stores(module: ModuleOp) -> None:
    """Rewrite in place. Stores that are not parts of one tile do not change."""
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        if len(_stores(function)) > 1:
            while any(_join(*pair) for pair in combinations(_stores(function), 2)):
                pass
            remove_dead(function)


def _stores(function: tt.FuncOp) -> list[_Writing]:
    return [op for op in function.body.walk() if isinstance(op, _Writing)]


def _join(one: _Writing, two: _Writing) -> bool:
    """Join two stores, given in the order of execution, at the place of the second. Returns whether this was possible."""
    if one.parent is not two.parent or type(one) is not type(two) or not _alone_between(one, two):
        return False
    if isinstance(one, tt.DescriptorReduceOp) and isinstance(two, tt.DescriptorReduceOp) and one.kind != two.kind:
        return False
    for low, high in ((one, two), (two, one)):
        axis = _neighbours(low.desc, high.desc, low.offsets, high.offsets)
        value = None if axis is None else _Joiner(two).joined(low.src, high.src, axis)
        if axis is not None and value is not None:
            insert(two, low.through(_wider(low.desc, axis), _starts(low.offsets, high.offsets, axis), value), two)
            Rewriter.erase_op(one)
            Rewriter.erase_op(two)
            return True
    return False


def _alone_between(one: Operation, two: Operation) -> bool:
    """Whether all operations between two operations of a block only read memory or compute."""
    op = one.next_op
    while op is not None and op is not two:
        if not isinstance(op, tt.DescriptorLoadOp) and not has_no_effect(op):
            return False
        op = op.next_op
    return op is two


def _neighbours(one: SSAValue, two: SSAValue, first: Sequence[tt.Index], second: Sequence[tt.Index]) -> int | None:
    """The dimension along which block `two` of a tensor begins where block `one` ends; None if there is no such
    dimension.
    """
    low, high = one.owner, two.owner
    if not isinstance(low, tt.MakeTensorDescriptorOp) or not isinstance(high, tt.MakeTensorDescriptorOp):
        return None
    same = low.base is high.base and equal_indices(low.sizes, high.sizes) and equal_indices(low.steps, high.steps)
    if not same or low.block != high.block or low.padding != high.padding:
        return None
    affine = Affine()
    apart = [(affine.index(_whole(b)) - affine.index(_whole(a))).constant for a, b in zip(first, second, strict=True)]
    along = [axis for axis, distance in enumerate(apart) if distance != 0]
    return along[0] if len(along) == 1 and apart[along[0]] == low.block.get_shape()[along[0]] else None


def _whole(index: tt.Index) -> tt.Index:
    """An index before it is truncated. A constant difference of two indices does not change by it."""
    return index.owner.input if isinstance(index, SSAValue) and isinstance(index.owner, TruncIOp) else index


def _starts(low: Sequence[tt.Index], high: Sequence[tt.Index], axis: int) -> list[tt.Index]:
    return [a if place == axis else b for place, (a, b) in enumerate(zip(low, high, strict=True))]


def _wider(descriptor: SSAValue, axis: int) -> SSAValue:
    """A descriptor of the same tensor whose block is twice as long along a dimension."""
    made = descriptor.owner
    assert isinstance(made, tt.MakeTensorDescriptorOp)
    new = tt.MakeTensorDescriptorOp(made.base, made.sizes, made.steps, _twice(made.block.get_shape(), axis))
    if made.padding is not None:
        new.properties["padding"] = made.padding
    new.result.name_hint = descriptor.name_hint
    return insert_after(made, new)


def _twice(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(size * 2 if place == axis else size for place, size in enumerate(shape))


def _split_of(one: SSAValue, two: SSAValue, axis: int) -> SSAValue | None:
    """The tensor whose first half is `one` and whose second half is `two`: reshaped to two halves, transposed, and
    split.
    """
    split = one.owner
    if not isinstance(split, tt.SplitOp) or (split.first, split.second) != (one, two):
        return None
    turn = split.src.owner
    divide = turn.src.owner if isinstance(turn, tt.TransOp) else None
    if not isinstance(turn, tt.TransOp) or not isinstance(divide, tt.ReshapeOp):
        return None
    half = list(tensor_of(one).get_shape())
    order = [place for place in range(len(half) + 1) if place != axis]
    halves = (*half[:axis], 2, *half[axis:])
    if turn.order.get_values() != (*order, axis) or tensor_of(divide.result).get_shape() != halves:
        return None
    return divide.src if tensor_of(divide.src).get_shape() == _twice(half, axis) else None


@dataclass(frozen=True, slots=True)
class _Joiner:
    """Makes tensors from two halves, before an operation. known: the tensors made so far."""

    before: Operation
    known: dict[tuple[SSAValue, SSAValue, int], SSAValue | None] = field(
        default_factory=dict[tuple[SSAValue, SSAValue, int], "SSAValue | None"]
    )

    def joined(self, one: SSAValue, two: SSAValue, axis: int) -> SSAValue | None:
        """The tensor with the halves `one` and `two` along a dimension; None if it cannot be made."""
        if (one, two, axis) not in self.known:
            self.known[one, two, axis] = _split_of(one, two, axis) or self._made(one, two, axis)
        return self.known[one, two, axis]

    def _made(self, one: SSAValue, two: SSAValue, axis: int) -> SSAValue | None:
        low, high = one.owner, two.owner
        if not isinstance(low, Operation) or not isinstance(high, Operation) or type(low) is not type(high):
            return None
        shape = _twice(tensor_of(one).get_shape(), axis)
        made = self._operation(low, high, axis, shape)
        return None if made is None else insert(self.before, made, low).results[0]

    def _operation(self, low: Operation, high: Operation, axis: int, shape: Sequence[int]) -> Operation | None:
        match low, high:
            case tt.DescriptorLoadOp(), tt.DescriptorLoadOp():
                if _neighbours(low.desc, high.desc, low.offsets, high.offsets) != axis:
                    return None
                load = tt.DescriptorLoadOp(_wider(low.desc, axis), _starts(low.offsets, high.offsets, axis))
                load.properties |= {name: low.properties[name] for name in ("cache", "evict") if name in low.properties}
                return load
            case tt.SplatOp(src=scalar), tt.SplatOp(src=other):
                return tt.SplatOp(scalar, shape) if equal(scalar, other) else None
            case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as value), arith.ConstantOp(value=other):
                if not is_splat(value) or value != other:
                    return None
                return arith.ConstantOp(
                    DenseIntOrFPElementsAttr(TensorType(value.get_element_type(), shape), value.data)
                )
            case tt.TransOp(), tt.TransOp() if low.order == high.order:
                order = low.order.get_values()
                source = self.joined(low.src, high.src, order[axis])
                return None if source is None else tt.TransOp(source, order)
            case tt.ExpandDimsOp(), tt.ExpandDimsOp() if low.axis == high.axis and low.axis.value.data != axis:
                place = low.axis.value.data
                source = self.joined(low.src, high.src, axis - (place < axis))
                return None if source is None else tt.ExpandDimsOp(source, place)
            case tt.BroadcastOp(), tt.BroadcastOp() if tensor_of(low.src).get_shape()[axis] == 1:
                return tt.BroadcastOp(low.src, shape) if equal(low.src, high.src) else None
            case tt.BroadcastOp(), tt.BroadcastOp():
                source = self.joined(low.src, high.src, axis)
                return None if source is None else tt.BroadcastOp(source, shape)
            case tt.ReshapeOp(), tt.ReshapeOp() if axis > 0 and shape[1:] == _twice(
                tensor_of(low.src).get_shape(), axis - 1
            ):
                source = self.joined(low.src, high.src, axis - 1)
                return None if source is None else tt.ReshapeOp(source, shape)
            case _:
                return self._applied(low, high, axis)

    def _applied(self, low: Operation, high: Operation, axis: int) -> Operation | None:
        """An elementwise operation on joined tensors."""
        known = low.name.startswith(("arith.", "math.")) or isinstance(low, _ELEMENTWISE)
        if not known or low.regions or not low.operands or low.properties != high.properties:
            return None
        operands: list[SSAValue] = []
        for one, two in zip(low.operands, high.operands, strict=True):
            whole = self.joined(one, two, axis) if as_tensor(one.type) else one if equal(one, two) else None
            if whole is None:
                return None
            operands.append(whole)
        made = low.clone()
        made.operands = operands
        tensor = tensor_of(made.results[0])
        wide = TensorType(tensor.element_type, _twice(tensor.get_shape(), axis), tensor.encoding)
        Rewriter.replace_value_with_new_type(made.results[0], wide)
        return made
