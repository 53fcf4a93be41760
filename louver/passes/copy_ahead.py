"""copy-ahead: what is loaded a step ahead, for shared memory, goes there without a stay in registers.

    for i … iter_args(tile = load)                  for i … iter_args(tile = copy into slot 0, free = slot 1)
                                                        wait
        put tile into shared memory          ⟶
        next = load                                     next = copy into free
        … products …                                    … products …
        yield next                                      yield next, tile
                                                    wait

Two slots take turns: the copy for the next step runs while the products of this one read the other slot. Threads meet once a step,
between the wait and the copy, where all tiles come this way.
Valid tile IR with encodings in (after assign-encodings), valid tile IR out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.ir.tile import AsyncCopyOp, AsyncWaitOp, ConvertLayoutOp, LoadOp, LocalAllocOp, SharedAttr, TransOp
from louver.ir.tile.types import AnyTensor, register_encoding, tensor_of
from louver.passes.effects import has_no_effect
from louver.passes.insert import carrying, insert
from louver.passes.lower_tiles.shared import in_shared


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A tile that a loop carries to shared memory. put: its conversion, of its transpose where `turn` is there.

    first, following: its loads before the loop and in it.
    """

    index: int
    turn: TransOp | None
    put: ConvertLayoutOp
    first: LoadOp
    following: LoadOp


def copy_ahead(module: ModuleOp) -> None:
    """In place; the module is verified after it."""
    for loop in [op for op in module.walk() if isinstance(op, scf.ForOp) and all(map(_only_loads, op.body.walk()))]:
        found = [each for index in range(len(loop.iter_args)) if (each := _ahead(loop, index)) is not None]
        if found:
            _copy(loop, found)
    module.verify()


def _ahead(loop: scf.ForOp, index: int) -> _Ahead | None:
    """What a loop carries, if only shared memory takes it, and loads right before the loop and in it alone make it.

    A copy reads its source later than a load does: nothing else happens until the wait.
    """
    argument, end = loop.body.block.args[index + 1], loop.body.block.last_op
    assert end is not None
    first, following, user = loop.iter_args[index].owner, end.operands[index].owner, _only_user(argument)
    turn = user if isinstance(user, TransOp) else None
    put = user if turn is None else _only_user(turn.result)
    if not isinstance(put, ConvertLayoutOp) or not in_shared(put.result):
        return None
    if not isinstance(first, LoadOp) or not isinstance(following, LoadOp):
        return None
    if not _right_before(first, loop) or following.parent_block() is not loop.body.block:
        return None
    alone = first.result.has_one_use() and following.result.has_one_use() and loop.results[index].first_use is None
    zeros = _gives_zeros(first) and _gives_zeros(following)
    return _Ahead(index, turn, put, first, following) if alone and zeros else None


def _only_loads(op: Operation) -> bool:
    return has_no_effect(op) or isinstance(op, LoadOp | AsyncCopyOp | AsyncWaitOp | LocalAllocOp)


def _right_before(load: LoadOp, loop: scf.ForOp) -> bool:
    """Whether a load is in the block of a loop, with nothing but loads in between."""
    between: Operation | None = load
    while between is not None and between is not loop and _only_loads(between):
        between = between.next_op
    return between is loop


def _only_user(value: SSAValue) -> Operation | None:
    return next(iter(value.uses)).operation if value.has_one_use() else None


def _gives_zeros(load: LoadOp) -> bool:
    """Whether elements that are not loaded are zeros, or nothing reads them, and nothing is said of caches."""
    if load.cache is not None or load.evict is not None or load.is_volatile is not None:
        return False
    if load.other is None:
        return True
    owner = load.other.owner
    if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, DenseIntOrFPElementsAttr):
        return False
    return not any(owner.value.iter_values())


def _copy(loop: scf.ForOp, tiles: Sequence[_Ahead]) -> None:
    """The loop with these tiles copied ahead of it."""
    block, end = loop.body.block, loop.body.block.last_op
    assert isinstance(end, scf.YieldOp) and block.first_op is not None
    given, ends = list(loop.iter_args), list(end.operands)
    insert(block.first_op, AsyncWaitOp(), loop)
    for each in tiles:
        tile, memory = block.args[each.index + 1], _memory(each)
        slots = [insert(each.first, LocalAllocOp(memory), each.put).results[0] for _ in range(2)]
        given[each.index] = _copied(each.first, slots[0])
        given.append(slots[1])
        free = block.insert_arg(memory, len(block.args))
        here = block.insert_arg(memory, each.index + 1)
        here.name_hint = tile.name_hint
        if each.turn is None:
            Rewriter.replace_op(each.put, [], [here])
        else:
            turned = TransOp.create(
                operands=[here], result_types=[each.put.result.type], properties=dict(each.turn.properties)
            )
            Rewriter.replace_op(each.put, [], [insert(each.put, turned, each.turn).results[0]])
            Rewriter.erase_op(each.turn)
        block.erase_arg(tile)
        ends[each.index] = _copied(each.following, free)
        ends.append(here)
    new = carrying(loop, given, ends)
    insert(loop, AsyncWaitOp(), loop)
    for before, after in zip(loop.results, new.results, strict=False):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    Rewriter.erase_op(loop)
    for each in tiles:
        for load in (each.first, each.following):
            Rewriter.erase_op(load)


def _memory(ahead: _Ahead) -> AnyTensor:
    """The tile in shared memory as it is loaded: a transpose has its dimensions the other way around."""
    put = tensor_of(ahead.put.result)
    encoding = register_encoding(put)
    assert isinstance(encoding, SharedAttr)
    if ahead.turn is None:
        return put
    return TensorType(put.element_type, put.get_shape()[::-1], encoding.turned())


def _copied(load: LoadOp, slot: SSAValue) -> SSAValue:
    """The tile of a load, copied to shared memory in its place."""
    copy = insert(load, AsyncCopyOp(load.ptr, slot, load.mask), load)
    copy.results[0].name_hint = load.result.name_hint
    return copy.results[0]
