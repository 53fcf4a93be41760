"""loop-once: a product of a whole K, without a loop over it, becomes a loop of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from louver.ir.tile import DescriptorLoadOp, DotOp, FuncOp, ReshapeOp, TransOp, sparse_encoding
from louver.ir.tile.types import tensor_of
from louver.passes.index_numbers import literal
from louver.passes.insert import insert, integer


def loop_once(module: ModuleOp) -> None:
    """Rewrite in place: dots with a sparse operand that stand outside of loops, and whose operands begin at 0 along K.

    Two of them become one loop where nothing between them uses the first.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        found = [operands for op in function.body.block.ops if isinstance(op, DotOp) and (operands := _operands(op))]
        waiting: list[_Operands] = []
        for operands in found:
            if waiting and not (len(waiting) == 1 and _may_wait(waiting[0].dot, operands.dot)):
                _loop(waiting)
                waiting = []
            waiting.append(operands)
        if waiting:
            _loop(waiting)


def _may_wait(dot: DotOp, for_: DotOp) -> bool:
    """Whether a dot may be computed as late as another one of as many steps."""
    if tensor_of(dot.a).get_shape()[1] != tensor_of(for_.a).get_shape()[1]:
        return False
    return all(
        use.operation.parent is dot.parent and use.operation is not for_ and for_.is_before_in_block(use.operation)
        for use in dot.d.uses
    )


class _Chain(NamedTuple):
    """An operand of a dot: the operations from it back to its load, and the load's dimension along K, counted from its last one."""

    operations: tuple[Operation, ...]
    dimension: int


class _Operands(NamedTuple):
    """A dot and both of its operands."""

    dot: DotOp
    left: _Chain
    right: _Chain


def _operands(dot: DotOp) -> _Operands | None:
    if not any(sparse_encoding(operand.type) is not None for operand in (dot.a, dot.b)):
        return None
    left, right = _chain(dot.a, dot, -1), _chain(dot.b, dot, -2)
    return None if left is None or right is None else _Operands(dot, left, right)


def _loop(dots: Sequence[_Operands]) -> None:
    """One loop of one step for these, where the last of them stands."""
    place = dots[-1].dot
    zero, step = integer(place, 0), integer(place, tensor_of(place.a).get_shape()[1])
    body = Block(arg_types=[i32, *(each.dot.c.type for each in dots)])
    k, *partials = body.args
    k.name_hint = "k"
    sums: list[SSAValue] = []
    for (dot, *chains), partial in zip(dots, partials, strict=True):
        partial.name_hint = "partial"
        a, b = (_copied(chain, k, body) for chain in chains)
        product = DotOp.build(operands=[a, b, [], partial], properties=dict(dot.properties), result_types=[dot.d.type])
        sums.append(_append(body, product, dot))
    end = scf.YieldOp(*sums)
    end.location = place.location
    body.add_op(end)
    loop = scf.ForOp(zero, step, step, [each.dot.c for each in dots], Region(body))
    insert(place, loop, place)
    for (dot, left, right), total in zip(dots, loop.results, strict=True):
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
