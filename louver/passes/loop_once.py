"""loop-once: a product of a whole K, without a loop over it, becomes a loop of one step."""

from __future__ import annotations

from typing import NamedTuple

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from louver.ir.tile import DescriptorLoadOp, DotOp, FuncOp, ReshapeOp, TransOp, sparse_encoding
from louver.ir.tile.types import tensor_of
from louver.passes.index_numbers import literal
from louver.passes.insert import insert_before, integer


def loop_once(module: ModuleOp) -> None:
    """Rewrite in place: each dot with a sparse operand that stands outside of loops, and whose operands begin at 0 along K."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        for dot in [op for op in function.body.block.ops if isinstance(op, DotOp)]:
            if any(sparse_encoding(operand.type) is not None for operand in (dot.a, dot.b)):
                _loop(dot)


class _Chain(NamedTuple):
    """An operand of a dot: the operations from it back to its load, and the load's dimension along K, counted from its last one."""

    operations: tuple[Operation, ...]
    dimension: int


def _loop(dot: DotOp) -> None:
    left, right = _chain(dot.a, dot, -1), _chain(dot.b, dot, -2)
    if left is None or right is None:
        return
    depth = tensor_of(dot.a).get_shape()[1]
    zero, step = integer(dot, 0), integer(dot, depth)
    body = Block(arg_types=[i32, dot.c.type])
    k, partial = body.args
    k.name_hint, partial.name_hint = "k", "partial"
    operands = [_copied(chain, k, body) for chain in (left, right)]
    product = DotOp.build(operands=[*operands, [], partial], properties=dict(dot.properties), result_types=[dot.d.type])
    total = _append(body, product, dot)
    end = scf.YieldOp(total)
    end.location = dot.location
    body.add_op(end)
    total = insert_before(dot, scf.ForOp(zero, step, step, [dot.c], Region(body)))
    total.name_hint = dot.d.name_hint
    dot.d.replace_all_uses_with(total)
    Rewriter.erase_op(dot)
    for op in dict.fromkeys((*left.operations, *right.operations)):
        if not any(result.first_use for result in op.results):
            Rewriter.erase_op(op)


def _chain(value: SSAValue, dot: DotOp, dimension: int) -> _Chain | None:
    """None unless an operand is a matrix, transposed or not, that is loaded from the first element along K on."""
    found: list[Operation] = []
    while True:
        op = value.owner
        if not isinstance(op, Operation) or op.parent is not dot.parent:
            return None
        found.append(op)
        match op:
            case TransOp() if tensor_of(op.result).get_num_dims() == 2:
                dimension, value = -3 - dimension, op.src
            case ReshapeOp() if tensor_of(op.src).get_shape() == (1, *tensor_of(op.result).get_shape()):
                value = op.src
            case DescriptorLoadOp() if literal(op.offsets[dimension]) == 0:
                return _Chain(tuple(found), dimension)
            case _:
                return None


def _copied(chain: _Chain, k: SSAValue, body: Block) -> SSAValue:
    """The operand, made in the loop and loaded at k."""
    *moves, load = chain.operations
    assert isinstance(load, DescriptorLoadOp)
    offsets = list(load.offsets)
    offsets[chain.dimension] = k
    value = _append(body, DescriptorLoadOp(load.desc, offsets), load)
    for op in reversed(moves):
        new = op.clone()
        new.operands[0] = value
        value = _append(body, new, op)
    return value


def _append(body: Block, new: Operation, like: Operation) -> SSAValue:
    """Put `new` last, as what `like` was."""
    new.location = like.location
    body.add_op(new)
    new.results[0].name_hint = like.results[0].name_hint
    return new.results[0]
