"""Sums of a tile that is a sparse matrix in another shape, as sums of the matrix.

x [32, 16, 64] * reshape(w [512, 64]), summed along 2  ⟶  reshape(reshape(x) [512, 64] * w, summed along 1)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import IntegerAttr, TensorType, i32
from xdsl.ir import Operation, SSAValue

from louver.analysis.effects import is_elementwise
from louver.compile.rewrite.insert import insert_before
from louver.ir import tile as tt
from louver.ir.tile.types import as_tensor, tensor_of


def flat_sum(op: tt.ReduceOp) -> tt.ReduceOp | None:
    """A sum along the last dimension of a matrix, with a reshape of its result behind it; None if there is no such matrix.

    `op` stays as it is.
    """
    source = op.srcs[0]
    matrix = next(_matrices(source), None)
    shape, axis = tensor_of(source).get_shape(), op.axis.value.data
    if matrix is None or axis != len(shape) - 1 or matrix[-1] != shape[axis]:
        return None
    made = tt.ReduceOp.create(
        operands=[_shaped(source, matrix, op)],
        result_types=[TensorType(tensor_of(source).element_type, matrix[:-1])],
        properties={**op.properties, "axis": IntegerAttr(len(matrix) - 1, i32)},
        regions=[op.combine.clone()],
    )
    insert_before(op, made)
    return made


def reshaped_back(made: tt.ReduceOp, op: tt.ReduceOp) -> SSAValue:
    """The result of a flat sum in the shape of the sum that it replaces."""
    return insert_before(op, tt.ReshapeOp(made.result[0], tensor_of(op.result[0]).get_shape()))


def _matrices(value: SSAValue) -> Iterator[Sequence[int]]:
    """The shapes of the sparse matrices of which elementwise operations compute a tile."""
    owner = value.owner
    if isinstance(owner, tt.ReshapeOp) and isinstance(owner.src.owner, tt.DecompressOp):
        yield tensor_of(owner.src).get_shape()
    elif isinstance(owner, Operation) and is_elementwise(owner):
        for each in owner.operands:
            yield from _matrices(each)


def _shaped(value: SSAValue, shape: Sequence[int], before: Operation) -> SSAValue:
    """A tile in another shape. Elementwise operations are applied in that shape."""
    owner = value.owner
    if as_tensor(value.type) is None:
        return value
    if isinstance(owner, tt.ReshapeOp) and tuple(tensor_of(owner.src).get_shape()) == tuple(shape):
        return owner.src
    if not isinstance(owner, Operation) or not is_elementwise(owner) or not owner.operands:
        return insert_before(before, tt.ReshapeOp(value, shape))
    made = type(owner).create(
        operands=[_shaped(each, shape, before) for each in owner.operands],
        result_types=[TensorType(tensor_of(value).element_type, shape)],
        properties=dict(owner.properties),
        attributes=dict(owner.attributes),
    )
    insert_before(before, made)
    made.location = owner.location
    return made.results[0]
