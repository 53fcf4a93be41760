"""Tile IR -> epilogue: what is computed for each element between the sum of products and the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue

from louver.ir.arith import SIToFPOp
from louver.ir.tile import BroadcastOp, DescriptorLoadOp, ExpandDimsOp, TransOp, element_name
from louver.ir.tile.types import as_tensor, tensor_of
from louver.passes.product import Accumulator, Add, Cast, Expression, LoadVector, Multiply, Size
from louver.passes.refusal import unsupported
from louver.passes.trace import Position, Trace

Axis = Literal["m", "n"]
Axes = tuple[Axis | None, ...]
"""Which axis of the product each dimension of a tensor runs along; None where it has one element for all of them."""


def find_sum(value: SSAValue, store: Operation) -> tuple[SSAValue, bool]:
    """The loop result that `value` [rows, columns] is computed from, and whether it is transposed on the way."""
    found: dict[tuple[SSAValue, bool], None] = {}
    seen: set[tuple[SSAValue, bool]] = set()
    pending = [(value, False)]
    while pending:
        item = pending.pop()
        if item in seen:
            continue
        seen.add(item)
        current, transposed = item
        op = current.owner
        if isinstance(op, scf.ForOp):
            found[item] = None
        elif isinstance(op, Operation):
            flips = isinstance(op, TransOp)
            pending += [(operand, transposed != flips) for operand in op.operands if _is_matrix(operand)]
    if len(found) != 1:
        raise unsupported(
            f"a store must have one sum of products as source, in one orientation; there are {len(found)}", store
        )
    return next(iter(found))


def _is_matrix(value: SSAValue) -> bool:
    tensor = as_tensor(value.type)
    return tensor is not None and tensor.get_num_dims() == 2


@dataclass(frozen=True, slots=True)
class EpilogueReader:
    """Reads expressions over `total`, the sum of products.

    positions and extents: where a tile starts along each axis of the product, and the product's size there.
    """

    trace: Trace
    total: SSAValue
    positions: dict[Axis, Position]
    extents: dict[Axis, Size]

    def read(self, value: SSAValue, axes: Axes, user: Operation) -> Expression:
        """The expression of a tensor whose dimensions run along `axes`."""
        if value is self.total:
            return Accumulator()
        op = self.trace.definition(value, user)
        match op:
            case arith.AddfOp() | arith.AddiOp():
                return Add(self.read(op.lhs, axes, op), self.read(op.rhs, axes, op))
            case arith.MulfOp():
                return Multiply(self.read(op.lhs, axes, op), self.read(op.rhs, axes, op))
            case arith.ExtFOp() | arith.TruncFOp() | SIToFPOp():
                return Cast(self.read(op.input, axes, op), element_name(tensor_of(op.result).element_type))
            case TransOp():
                order = op.order.get_values()
                return self.read(op.src, tuple(axes[order.index(i)] for i in range(len(order))), op)
            case BroadcastOp():
                return self.read(op.src, _before_broadcast(op, axes), op)
            case ExpandDimsOp():
                axis = op.axis.value.data
                return self.read(op.src, axes[:axis] + axes[axis + 1 :], op)
            case DescriptorLoadOp():
                return self._vector(op, axes)
            case _:
                raise unsupported("an epilogue adds, multiplies, casts and broadcasts", op)

    def _vector(self, op: DescriptorLoadOp, axes: Axes) -> LoadVector:
        if len(axes) != 1 or axes[0] is None:
            raise unsupported("an epilogue reads vectors along one axis of the product", op)
        axis = axes[0]
        view = self.trace.view(op.desc, op)
        if view.pattern is not None:
            raise unsupported("an epilogue reads dense vectors", op)
        if view.sizes != (self.extents[axis],):
            raise unsupported(f"a vector along {axis} must have the product's size there, {self.extents[axis]}", op)
        if self.trace.position(op.offsets[0], op) != self.positions[axis]:
            raise unsupported(f"a vector along {axis} must be read where the tile starts", op)
        return LoadVector(view.argument, view.element, axis)


def _before_broadcast(op: BroadcastOp, axes: Axes) -> Axes:
    source, result = tensor_of(op.src).get_shape(), tensor_of(op.result).get_shape()
    return tuple(None if size == 1 and to != 1 else axis for size, to, axis in zip(source, result, axes, strict=True))
