"""turn-right-sparse: changes a product with a sparse right operand to the transpose of a product with a sparse left
operand.

dot(x, w) with a sparse w [K, N] becomes trans(dot(trans w, trans x)). A loop carries the transposed sum. After the loop
the sum is transposed back, and `read_nest` reads this as a transposed store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.passages import end_of
from louver.compile.rewrite.insert import insert, insert_after, insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import DotOp, FuncOp, TransOp, sparse_encoding
from louver.ir.tile.types import is_splat, tensor_of

_TURNED = (1, 0)


def turn_right_sparse(module: ModuleOp) -> None:
    """Rewrite in place. Kernels without a sparse right operand do not change."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        dots = [op for op in function.body.walk() if isinstance(op, DotOp) and sparse_encoding(op.b.type) is not None]
        if not dots:
            continue
        for dot in dots:
            _turn_dot(dot)
        for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp)]:
            turned = loop
            for index in range(len(loop.iter_args)):
                turned = _turn_carried(turned, index)
        _drop_pairs(function)
        remove_dead(function)


def _turn_dot(dot: DotOp) -> None:
    if dot.metadata is not None:
        return
    b, a, c = (_turned(each, dot) for each in (dot.b, dot.a, dot.c))
    new = DotOp.build(operands=[b, a, [], c, []], properties=dict(dot.properties), result_types=[_turned_type(dot.d)])
    insert_before(dot, new)
    Rewriter.replace_op(dot, [], [insert_before(dot, TransOp(new.d))])


def _turn_carried(loop: scf.ForOp, index: int) -> scf.ForOp:
    """The loop, which now carries the transposed sum if the sum is computed transposed."""
    partial, end = loop.body.block.args[index + 1], end_of(loop.body.block)
    if not _is_turned(end.operands[index]):
        return loop
    end.operands[index] = _turned(end.operands[index], end)
    loop.operands[3 + index] = _turned(loop.iter_args[index], loop)
    first = loop.body.block.first_op
    assert first is not None
    _use_back(_retyped(partial), lambda back: insert(first, back, first))
    result = _retyped(loop.results[index])
    new = result.owner
    assert isinstance(new, scf.ForOp)
    _use_back(result, lambda back: insert_after(new, back))
    return new


def _is_turned(value: SSAValue) -> bool:
    """Whether a value is the transpose of a dot."""
    op = value.owner
    return isinstance(op, TransOp) and isinstance(op.src.owner, DotOp)


def _retyped(value: SSAValue) -> SSAValue:
    return Rewriter.replace_value_with_new_type(value, _turned_type(value))


def _use_back(value: SSAValue, place: Callable[[Operation], object]) -> None:
    """Transpose a value back for its users, after it has become its transpose."""
    uses = list(value.uses)
    back = TransOp(value)
    back.result.name_hint = value.name_hint
    place(back)
    for use in uses:
        use.operation.operands[use.index] = back.result


def _turned_type(value: SSAValue) -> Attribute:
    tensor = tensor_of(value)
    return TensorType(tensor.element_type, tensor.get_shape()[::-1], tensor.encoding)


def _turned(value: SSAValue, user: Operation) -> SSAValue:
    """The transpose of a matrix. If the matrix is a transpose itself, no operation is added."""
    op = value.owner
    if isinstance(op, TransOp) and tuple(op.order.get_values()) == _TURNED:
        return op.src
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, DenseIntOrFPElementsAttr) and is_splat(op.value):
        number = cast(Any, op.value).get_values()[0]
        made = DenseIntOrFPElementsAttr.from_list(cast(Any, _turned_type(value)), [number])
        return insert_after(op, arith.ConstantOp(made))
    return insert_before(user, TransOp(value))


def _drop_pairs(function: FuncOp) -> None:
    """Remove pairs of transpositions."""
    for op in [op for op in function.body.walk() if isinstance(op, TransOp)]:
        inner = op.src.owner
        if isinstance(inner, TransOp) and tuple(op.order.get_values()) == tuple(inner.order.get_values()) == _TURNED:
            op.result.replace_all_uses_with(inner.src)
