"""make-ahead: computes operands one step before their products, and stores them to one of two slots in shared memory.

    for i:                                     store the operand of the first step to slot 0        if there is one
        put operand(i) into shared memory      for i, slots:
        … products …                   ⟶           … products of the first slot …
                                                   store operand(i + step) to the other slot        computed while products run
                                                   the slots change places

Threads synchronize once a step, before the products. By then all products of the step before have ended, so the slot
that they read is free. The sources of operands are loaded one step ahead too. The later passes ring-copies and
prefetch-loads load them earlier.

Input and output are valid tile IR with encodings (after assign-encodings).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.integers import position
from louver.analysis.passages import end_of
from louver.compile.plan.feeds.ring_tiles import goes_to_ring
from louver.compile.plan.feeds.steps_ahead import (
    computed,
    computed_again,
    is_pure,
    loaded_again,
    move_up,
    only_loads,
    varying,
)
from louver.compile.rewrite.insert import carrying, insert
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.comparisons import CmpiOp
from louver.ir.tile import ConvertLayoutOp, DotOp, FuncOp, LoadOp, LocalAllocOp, LocalStoreOp, TransOp
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.staging import in_shared
from louver.ir.tile.types import register_encoding, tensor_of


def make_ahead(module: ModuleOp) -> None:
    """Rewrites loops in place. Loops with stores, and operands that depend on a dot or a reduction, do not change."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]:
        for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp) and only_loads(op)]:
            puts = [op for op in loop.body.block.ops if isinstance(op, ConvertLayoutOp) and _is_made(loop, op)]
            if puts:
                _make_ahead(loop, puts)
        remove_dead(function)


def _is_made(loop: scf.ForOp, put: ConvertLayoutOp) -> bool:
    """Whether an operation stores an operand of warpgroup products to shared memory that can be computed one step
    ahead.
    """
    block = loop.body.block
    if not in_shared(put.result) or in_shared(put.src) or not _multiplied(put.result):
        return False
    source = put.src.owner.src if isinstance(put.src.owner, TransOp) else put.src
    if isinstance(source.owner, LoadOp) and goes_to_ring(loop, source.owner, ()):
        return False
    made, carried = computed([put.src], block)
    early = all(isinstance(op, LoadOp) or is_pure(op) for op in made)
    return bool(made) and early and all(map(is_pure, _next(block, carried)))


def _multiplied(tile: SSAValue) -> bool:
    """Whether only warpgroup products read a tile, or a transpose of it."""
    users = [use.operation for use in tile.uses]
    return all(isinstance(user, DotOp) or (isinstance(user, TransOp) and _multiplied(user.result)) for user in users)


def _next(block: Block, carried: Sequence[SSAValue]) -> set[Operation]:
    """The operations of a loop's body that compute the values of these arguments in the next iteration."""
    return computed([end_of(block).operands[position(each, block.args) - 1] for each in carried], block)[0]


def _make_ahead(loop: scf.ForOp, puts: Sequence[ConvertLayoutOp]) -> None:
    block, end = loop.body.block, end_of(loop.body.block)
    found, carried = computed([put.src for put in puts], block)
    made = [op for op in block.ops if op in found]
    changing = varying(made, block)
    move_up(block, (found - changing) | _next(block, carried))
    slots = [[insert(loop, LocalAllocOp(tensor_of(put.result), 1), put).results[0] for _ in range(2)] for put in puts]

    runs = insert(loop, CmpiOp(loop.lb, loop.ub, "slt"), puts[0]).results[0]
    known = dict[SSAValue, SSAValue](zip(block.args, (loop.lb, *loop.iter_args), strict=True))
    _compute(loop, made, known, runs, straight=True)
    given = [*loop.iter_args]
    for put, (first, other) in zip(puts, slots, strict=True):
        given += [insert(loop, LocalStoreOp(known.get(put.src, put.src), first), put).results[0], other]

    # The next number may overflow. The difference to the upper bound does not: it is at least 1, and fits as unsigned.
    place = next(op for op in block.ops if isinstance(op, DotOp)).next_op
    assert place is not None
    number, like = block.args[0], puts[0]
    left = insert(place, arith.SubiOp(loop.ub, number), like).results[0]
    goes_on = insert(place, CmpiOp(loop.step, left, "ult"), like).results[0]
    following = insert(place, arith.AddiOp(number, loop.step), like).results[0]
    known = dict[SSAValue, SSAValue](zip(block.args, (following, *end.operands), strict=False))
    _compute(place, [op for op in made if op in changing], known, goes_on)
    ends = [*end.operands]
    for put in puts:
        now, other = (block.insert_arg(put.result.type, len(block.args)) for _ in range(2))
        ends += [insert(place, LocalStoreOp(known.get(put.src, put.src), other, free=True), put).results[0], now]
        Rewriter.replace_op(put, [], [now])
    new = carrying(loop, given, ends)
    Rewriter.replace_op(loop, [], new.results[: len(loop.results)])


def _compute(
    before: Operation,
    made: Sequence[Operation],
    known: dict[SSAValue, SSAValue],
    guard: SSAValue,
    *,
    straight: bool = False,
) -> None:
    """Clones operations before `before`. If `guard` is false, nothing is loaded.

    straight: whether conversions through shared memory that would move no element are removed.
    """
    for op in made:
        if straight and isinstance(op, ConvertLayoutOp) and (tile := _unmoved(op, known)) is not None:
            known[op.result] = insert(before, ConvertLayoutOp(tile, _encoding(op.result)), op).results[0]
            continue
        if isinstance(op, LoadOp):
            known[op.result] = loaded_again(before, op, known, guard)
        else:
            computed_again(before, [op], known, guard)


def _unmoved(op: ConvertLayoutOp, known: Mapping[SSAValue, SSAValue]) -> SSAValue | None:
    """The source of a conversion through shared memory, if each thread would read its own elements; None otherwise."""
    put = known.get(op.src, op.src).owner
    if not isinstance(put, ConvertLayoutOp) or not in_shared(put.result) or in_shared(op.result):
        return None
    shape = tensor_of(put.src).get_shape()
    return put.src if _encoding(put.src).layout(shape) == _encoding(op.result).layout(shape) else None


def _encoding(tile: SSAValue) -> Encoding:
    found = register_encoding(tile.type)
    assert found is not None
    return found
