"""shape-loads: changes a load of a flat tile that is reshaped to a matrix to a load of the matrix.

`i = tl.arange(0, M * N)` is a row number times N plus a column number. `i // N` is the row and `i % N` the column.
Offsets that are computed from these by elementwise operations become rows and columns. Loads of other flat tiles do not
change.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerType, ModuleOp, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.effects import is_elementwise
from louver.analysis.integers import constant_integer
from louver.compile.rewrite.insert import insert
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import BroadcastOp, ExpandDimsOp, FuncOp, LoadOp, MakeRangeOp, ReshapeOp, SplatOp
from louver.ir.tile.types import as_tensor, is_splat, tensor_of

_QUOTIENTS = (arith.DivSIOp, arith.DivUIOp)
_RESTS = (arith.RemSIOp, arith.RemUIOp)


def shape_loads(module: ModuleOp) -> None:
    """Rewrite in place."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        shaped = False
        for op in [op for op in function.body.walk() if isinstance(op, ReshapeOp)]:
            load, shape = op.src.owner, tensor_of(op.result).get_shape()
            if not isinstance(load, LoadOp) or not load.result.has_one_use() or len(shape) != 2:
                continue
            if all(_has_shape(each, shape) for each in load.operands):
                known: dict[SSAValue, SSAValue] = {}
                Rewriter.replace_op(op, [], [_shaped(load.result, shape, load, known)])
                shaped = True
        if shaped:
            remove_dead(function)


def _has_shape(value: SSAValue, shape: Sequence[int]) -> bool:
    """Whether a flat tile is computed by elementwise operations from the rows and columns of a matrix of this shape."""
    op = value.owner
    match op:
        case SplatOp() | arith.ConstantOp():
            return _splat(op) if isinstance(op, arith.ConstantOp) else True
        case MakeRangeOp():
            return True
        case _ if isinstance(op, (*_QUOTIENTS, *_RESTS)) and isinstance(op.lhs.owner, MakeRangeOp):
            return op.lhs.owner.start.value.data == 0 and constant_integer(op.rhs) == shape[1]
        case _ if is_elementwise(op):
            return all(as_tensor(each.type) is None or _has_shape(each, shape) for each in op.operands)
        case _:
            return False


def _splat(op: arith.ConstantOp) -> bool:
    return isinstance(op.value, DenseIntOrFPElementsAttr) and is_splat(op.value)


def _shaped(value: SSAValue, shape: Sequence[int], before: LoadOp, known: dict[SSAValue, SSAValue]) -> SSAValue:
    """The matrix for a flat tile, computed before the load."""
    if as_tensor(value.type) is None:
        return value
    if value not in known:
        found = known[value] = _matrix(value, shape, before, known)
        found.name_hint = value.name_hint
    return known[value]


def _matrix(value: SSAValue, shape: Sequence[int], before: LoadOp, known: dict[SSAValue, SSAValue]) -> SSAValue:
    op = value.owner
    assert isinstance(op, Operation)

    def add(new: Operation) -> SSAValue:
        return insert(before, new, op).results[0]

    def numbers(axis: int, start: int = 0) -> SSAValue:
        line = add(ExpandDimsOp(add(MakeRangeOp(start, start + shape[axis])), 1 - axis))
        return add(BroadcastOp(line, shape))

    def filled(number: int) -> SSAValue:
        type_ = TensorType(IntegerType(32), shape)
        return add(arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(type_, [number])))

    if isinstance(op, MakeRangeOp):
        rows = add(arith.MuliOp(numbers(0), filled(shape[1])))
        return add(arith.AddiOp(rows, numbers(1, op.start.value.data)))
    if isinstance(op, _QUOTIENTS) and isinstance(op.lhs.owner, MakeRangeOp):
        return numbers(0)
    if isinstance(op, _RESTS) and isinstance(op.lhs.owner, MakeRangeOp):
        return numbers(1)
    if isinstance(op, SplatOp):
        return add(SplatOp(op.src, shape))
    if isinstance(op, arith.ConstantOp):
        assert isinstance(op.value, DenseIntOrFPElementsAttr)
        type_ = TensorType(tensor_of(value).element_type, shape)
        return add(arith.ConstantOp(DenseIntOrFPElementsAttr(type_, op.value.data)))  # type: ignore[arg-type]
    operands = {each: _shaped(each, shape, before, known) for each in op.operands}
    new = op.clone(dict(operands))
    old = tensor_of(value)
    Rewriter.replace_value_with_new_type(new.results[0], TensorType(old.element_type, shape, old.encoding))
    return add(new)
