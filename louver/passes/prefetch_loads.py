"""prefetch-loads: what a loop's dots multiply is loaded one step before it is multiplied.

    first = load at the loop's first number                  if there is one
    for i … iter_args(…, tile = first):
        … tile goes to shared memory …
        next = load at i + step                              if there is such a number
        … products of tile …
        yield …, next

Memory answers while the products before are summed. A tile waits in registers, so that only so much may wait beside the sums: `KEPT_BYTES`.

Valid tile IR in, without sparse types, block pointers, descriptors and encodings (after split-addresses), valid tile IR out. What is
loaded is the same. What a load adds up beyond the loop's end is an address that nothing is read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import FixedBitwidthType, IntegerAttr, ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile import DotOp, FuncOp, LoadOp, SplatOp
from louver.ir.tile.types import as_tensor, tensor_of
from louver.isa.instruction import LANES
from louver.passes.effects import has_no_effect, takes_any
from louver.passes.insert import carrying, insert, insert_before
from louver.passes.integers import position
from louver.passes.remove_dead import remove_dead
from louver.passes.staged_operands import staged_operands

KEPT_BYTES = 448
"""Of each thread, for sums and for what a loop loads ahead: 112 registers of 255, beside operands and addresses."""


def prefetch_loads(module: ModuleOp, warps: int) -> None:
    """In place; the module is verified after it. warps: of a CTA.

    Of innermost loops that only load and compute, and have dots with operands that go through shared memory (`staged_operands`): the
    loads that their dots multiply, if these fit `KEPT_BYTES` beside sums. A load stays whose address hangs on what the loop loads or sums.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]:
        staged = staged_operands(function)
        for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp)]:
            dots = [op for op in loop.body.block.ops if isinstance(op, DotOp)]
            if not any(value in staged for dot in dots for value in (dot.a, dot.b)) or not _only_loads(loop):
                continue
            loads = [load for load in _multiplied(dots) if _Sources(loop, load).known_ahead]
            kept = sum(map(_tile_bytes, [*(load.result for load in loads), *(dot.d for dot in dots)]))
            if loads and kept <= KEPT_BYTES * LANES * warps:
                _load_ahead(loop, loads)
        remove_dead(function)
    module.verify()


def _only_loads(loop: scf.ForOp) -> bool:
    """Whether nothing in a loop has another effect than loads, whose order does not matter then, and no loop or branch is in it."""
    for op in loop.body.block.walk():
        if isinstance(op, LoadOp):
            if op.is_volatile is not None:
                return False
        elif isinstance(op, scf.ForOp | scf.WhileOp | scf.IfOp) or not has_no_effect(op):
            return False
    return True


def _multiplied(dots: Sequence[DotOp]) -> list[LoadOp]:
    """The loads of tiles of which operands are made, in the order of the block."""
    found: set[Operation] = set()
    for dot in dots:
        for operand in (dot.a, dot.b, *([] if dot.metadata is None else [dot.metadata])):
            found |= _loads_of(operand, dot.parent_block()) or set()
    block = dots[0].parent_block()
    assert block is not None
    return [op for op in block.ops if isinstance(op, LoadOp) and op in found]


def _loads_of(operand: SSAValue, block: Block | None) -> set[Operation] | None:
    """The loads of a block that a tile is made of; None for what must wait for a dot or a reduction there."""
    found: set[Operation] = set()
    seen: set[SSAValue] = set()
    pending = [operand]
    while pending:
        value = pending.pop()
        owner = value.owner
        if value in seen or not isinstance(owner, Operation) or owner.parent_block() is not block:
            continue
        seen.add(value)
        if isinstance(owner, LoadOp):
            if as_tensor(owner.result.type) is not None:
                found.add(owner)
        elif isinstance(owner, DotOp) or owner.regions:
            return None
        else:
            pending += owner.operands
    return found


def _tile_bytes(tile: SSAValue) -> int:
    tensor = tensor_of(tile)
    element = tensor.element_type
    assert isinstance(element, FixedBitwidthType)
    return prod(tensor.get_shape()) * element.bitwidth // 8


class _Sources:
    """What a load's operands are computed of in one iteration.

    made: operations of the loop, in order. varying: those of them that may give something else in each iteration. stepped: operations
    that compute the next values of what the loop carries for them. known_ahead: whether all of it can be computed a step ahead.
    """

    def __init__(self, loop: scf.ForOp, load: LoadOp) -> None:
        block, end = loop.body.block, loop.body.block.last_op
        assert end is not None
        made, carried = _computed(load.operands, block)
        self.made = [op for op in block.ops if op in made]
        self.varying = _varying(self.made, block)
        self.stepped, _ = _computed([end.operands[position(each, block.args) - 1] for each in carried], block)
        # What is divided by may be 0 beyond the loop's end, unless it is what it was.
        defined = all(takes_any(op) or op.operands[1].owner not in (block, *self.varying) for op in self.made)
        self.known_ahead = defined and all(_pure(op) for op in (*made, *self.stepped))


def _computed(values: Iterable[SSAValue], block: Block) -> tuple[set[Operation], list[SSAValue]]:
    """The operations of a block that values are computed by, back to its arguments, and those of these that a loop carries."""
    made: set[Operation] = set()
    carried: dict[SSAValue, None] = {}
    pending = list(values)
    while pending:
        value = pending.pop()
        owner = value.owner
        if owner is block:
            if value is not block.args[0]:
                carried[value] = None
        elif isinstance(owner, Operation) and owner.parent_block() is block and owner not in made:
            made.add(owner)
            pending += owner.operands
    return made, list(carried)


def _varying(made: Iterable[Operation], block: Block) -> set[Operation]:
    """Those of the operations, which are in order, that may compute something else in each iteration."""
    found: set[Operation] = set()
    for op in made:
        if any(operand.owner is block or operand.owner in found for operand in op.operands):
            found.add(op)
    return found


def _pure(op: Operation) -> bool:
    """Whether an operation is done at once: no load, no product, no reduction."""
    return has_no_effect(op) and not op.regions and not isinstance(op, DotOp | LoadOp)


def _load_ahead(loop: scf.ForOp, loads: Sequence[LoadOp]) -> None:
    """The loop with these loads of its body a step ahead of it."""
    block, end = loop.body.block, loop.body.block.last_op
    assert isinstance(end, scf.YieldOp)
    sources = [_Sources(loop, load) for load in loads]
    made = [op for op in block.ops if any(op in each.made for each in sources)]
    varying = _varying(made, block)
    _move_up(block, (set(made) - varying).union(*(each.stepped for each in sources)))
    # By then the tiles of this step have gone to shared memory, and left their registers.
    dot = next(op for op in block.ops if isinstance(op, DotOp))

    runs = insert_before(loop, CmpiOp(loop.lb, loop.ub, "slt"))
    starts = dict[SSAValue, SSAValue](zip(block.args, (loop.lb, *loop.iter_args), strict=True))
    first = _loads_at(loop, loads, made, starts, runs)

    # The next number may wrap. What is left does not: it is 1 at least and, read without a sign, fits its bits.
    number = block.args[0]
    left = insert(dot, arith.SubiOp(loop.ub, number), loop).results[0]
    goes_on = insert(dot, CmpiOp(loop.step, left, "ult"), loop).results[0]
    following = insert(dot, arith.AddiOp(number, loop.step), loop).results[0]
    following.name_hint = number.name_hint
    ends = dict[SSAValue, SSAValue](zip(block.args, (following, *end.operands), strict=True))
    ahead = _loads_at(dot, loads, [op for op in made if op in varying], ends, goes_on)
    _carry(loop, loads, first, ahead)


def _move_up(block: Block, early: set[Operation]) -> None:
    """Move operations to the top of a block, in their order."""
    top = next(op for op in block.ops if op not in early)
    for op in [op for op in block.ops if op in early]:
        op.detach()
        Rewriter.insert_op(op, InsertPoint.before(top))


def _loads_at(
    before: Operation,
    loads: Sequence[LoadOp],
    made: Iterable[Operation],
    known: dict[SSAValue, SSAValue],
    guard: SSAValue,
) -> list[SSAValue]:
    """What loads give, made again before an operation where `guard` holds. known: what stands there for values of the body."""
    for op in made:
        new = op.clone(known)
        if not takes_any(op):
            new.operands[1] = _where(guard, new.operands[1], before, op)
        Rewriter.insert_op(new, InsertPoint.before(before))
    return [_load_at(before, load, known, guard) for load in loads]


def _where(guard: SSAValue, value: SSAValue, before: Operation, like: Operation) -> SSAValue:
    """An integer, or a tile of them, where `guard` holds, else 1: what may be divided by, or shifted by."""
    tensor = as_tensor(value.type)
    number = IntegerAttr(1, cast(Any, value.type if tensor is None else tensor.element_type))
    one = insert(before, arith.ConstantOp(number), like).results[0]
    if tensor is not None:
        one = insert(before, SplatOp(one, tensor.get_shape()), like).results[0]
    return insert(before, SelectOp(guard, value, one), like).results[0]


def _load_at(before: Operation, load: LoadOp, known: dict[SSAValue, SSAValue], guard: SSAValue) -> SSAValue:
    """Elements are undefined where there is nothing to load: nothing reads them."""
    operands = [known.get(operand, operand) for operand in load.operands]
    mask = insert(before, SplatOp(guard, tensor_of(load.result).get_shape()), load).results[0]
    if load.mask is not None:
        mask = insert(before, arith.AndIOp(operands[1], mask), load).results[0]
    new = LoadOp(
        operands=[operands[0], [mask], operands[2:]],
        properties={name: value for name, value in load.properties.items() if name != "operandSegmentSizes"},
        result_types=[load.result.type],
    )
    insert(before, new, load)
    new.result.name_hint = load.result.name_hint
    return new.result


def _carry(loop: scf.ForOp, loads: Sequence[LoadOp], first: Sequence[SSAValue], ahead: Sequence[SSAValue]) -> None:
    """The loop, which carries what was loaded ahead in the place of its loads."""
    block, end = loop.body.block, loop.body.block.last_op
    assert isinstance(end, scf.YieldOp)
    for load in loads:
        tile = block.insert_arg(load.result.type, len(block.args))
        tile.name_hint = load.result.name_hint
        load.result.replace_all_uses_with(tile)
        Rewriter.erase_op(load)
    new = carrying(loop, [*loop.iter_args, *first], [*end.operands, *ahead])
    for before, after in zip(loop.results, new.results, strict=False):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    Rewriter.erase_op(loop)
