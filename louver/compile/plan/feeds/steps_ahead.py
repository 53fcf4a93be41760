"""Clones loads of a loop, and the computation of their addresses, for a later step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.effects import has_no_effect, takes_any
from louver.analysis.integers import position
from louver.analysis.passages import end_of
from louver.compile.rewrite.insert import insert, move
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile import AtomicRMWOp, DotOp, LoadOp, LocalStoreOp, SplatOp, StoreOp
from louver.ir.tile.types import AnyTensor, as_tensor, register_encoding

OUTSIDE = -(1 << 30)
"""An index of a box outside of each array."""


class Sources:
    """The operations that compute some values in one iteration.

    repeated: whether the values are needed several steps ahead; else one step.
    made: these operations, in order.
    varying: those whose results may differ between iterations.
    carried: the loop arguments on which they, and the next values of these arguments, depend.
    stepped: the operations that compute these next values, in order.
    loads: scalars that some of them load. They may be loaded again under a mask, if no store of the loop changes them.
    known_ahead: whether all operations may run before the iteration.
    """

    def __init__(self, loop: scf.ForOp, values: Iterable[SSAValue], *, repeated: bool) -> None:
        block, end = loop.body.block, end_of(loop.body.block)
        made, found = computed(values, block)
        carried = dict.fromkeys(found)
        stepped: set[Operation] = set()
        pending = list(carried)
        while pending:
            more, reached = computed([end.operands[position(pending.pop(), block.args) - 1]], block)
            stepped |= more
            if repeated:
                pending += [each for each in reached if each not in carried]
                carried |= dict.fromkeys(reached)
        self.carried = list(carried)
        self.made = [op for op in block.ops if op in made]
        self.stepped = [op for op in block.ops if op in stepped]
        self.varying = varying(self.made, block)
        every = [op for op in block.ops if op in made or op in stepped]
        self.loads = [op for op in every if isinstance(op, LoadOp) and as_tensor(op.result.type) is None]
        self.known_ahead = all(is_pure(op) or op in self.loads for op in every)


def computed(values: Iterable[SSAValue], block: Block) -> tuple[set[Operation], list[SSAValue]]:
    """The operations of a block that compute values, back to the arguments of the block, and the carried arguments
    among these.
    """
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
            pending += taken(owner)
    return made, list(carried)


def taken(op: Operation) -> list[SSAValue]:
    """The values from outside that an operation and its regions use."""
    if not op.regions:
        return list(op.operands)
    inside = set(op.walk())
    return [value for each in op.walk() for value in each.operands if value.owner not in inside]


def varying(made: Iterable[Operation], block: Block) -> set[Operation]:
    """The operations whose results may differ between iterations. made: operations in order."""
    found: set[Operation] = set()
    for op in made:
        if any(operand.owner is block or operand.owner in found for operand in taken(op)):
            found.add(op)
    return found


def is_pure(op: Operation) -> bool:
    """Whether an operation is a short computation: not a load, product or reduction, nor a branch that contains one."""
    if isinstance(op, scf.IfOp):
        return all(is_pure(each) for region in op.regions for block in region.blocks for each in block.ops)
    return has_no_effect(op) and not op.regions and not isinstance(op, DotOp | LoadOp)


def only_loads(loop: scf.ForOp, *, stores: bool = False) -> bool:
    """Whether a loop accesses global memory only by loads, and contains no loop.

    The order of loads then does not matter.

    stores: whether stores, and atomic operations with unused results, are allowed too, also in branches.
    """
    for op in loop.body.block.walk():
        if isinstance(op, LoadOp):
            if op.fresh:
                return False
        elif stores and isinstance(op, StoreOp | AtomicRMWOp):
            if any(result.first_use for result in op.results):
                return False
        elif isinstance(op, scf.IfOp):
            if not stores and not is_pure(op):
                return False
        elif isinstance(op, scf.ForOp | scf.WhileOp) or not (has_no_effect(op) or isinstance(op, LocalStoreOp)):
            return False
    return True


def move_up(block: Block, early: set[Operation]) -> None:
    """Move operations to the top of a block, in their order."""
    top = next(op for op in block.ops if op not in early)
    for op in [op for op in block.ops if op in early]:
        move(top, op)


def computed_again(
    before: Operation, made: Iterable[Operation], known: dict[SSAValue, SSAValue], guard: SSAValue
) -> None:
    """Clones operations before `before`.

    known: maps values of the loop's body to values there. The results are added to it.
    guard: if it is false, the results are not used, nothing is loaded, and divisors are replaced by 1. In the loop itself a division by a
    fixed number keeps its divisor, because the assembler then computes one reciprocal for all steps.
    """
    for op in made:
        if isinstance(op, LoadOp):
            known[op.result] = loaded_again(before, op, known, guard)
            continue
        divided = op.parent is before.parent and not takes_any(op) and op.operands[1] not in known
        new = op.clone(known)
        Rewriter.insert_op(new, InsertPoint.before(before))
        for each, old in zip(new.walk(), op.walk(), strict=True):
            each.location = old.location
            if not divided and not takes_any(each):
                each.operands[1] = _where(guard, each.operands[1], each, old)


def made_again(
    before: Operation, made: Sequence[Operation], known: Mapping[SSAValue, SSAValue], goes_on: SSAValue
) -> dict[SSAValue, SSAValue]:
    """Clones operations as `computed_again` does. Returns `known` with their results; `known` does not change."""
    here = dict(known)
    computed_again(before, made, here, goes_on)
    return here


def next_step(
    before: Operation,
    loop: scf.ForOp,
    sources: Sources,
    known: dict[SSAValue, SSAValue],
    here: Mapping[SSAValue, SSAValue],
    goes_on: SSAValue,
) -> SSAValue:
    """Advance `known` by one iteration.

    Returns whether that iteration exists. here: `known` and values computed from it.
    """
    block, end = loop.body.block, end_of(loop.body.block)
    number = block.args[0]
    like = sources.made[-1] if sources.made else end
    # While there is a step, the difference to the upper bound does not overflow. It is at least 1, and fits as
    # unsigned.
    left = insert(before, arith.SubiOp(loop.ub, known[number]), like).results[0]
    more = insert(before, CmpiOp(loop.step, left, "ult"), like).results[0]
    again = insert(before, arith.AndIOp(goes_on, more), like).results[0]
    inner = made_again(before, [op for op in sources.stepped if op.results[0] not in here], here, goes_on)
    for each in sources.carried:
        value = end.operands[position(each, block.args) - 1]
        known[each] = inner.get(value, value)
    known[number] = insert(before, arith.AddiOp(known[number], loop.step), like).results[0]
    return again


def _where(guard: SSAValue, value: SSAValue, before: Operation, like: Operation) -> SSAValue:
    """A divisor or shift, or a tile of them, if `guard` is true; else 1."""
    tensor = as_tensor(value.type)
    number = IntegerAttr(1, cast(Any, value.type if tensor is None else tensor.element_type))
    one = insert(before, arith.ConstantOp(number), like).results[0]
    if tensor is not None:
        one = insert(before, splat(one, tensor), like).results[0]
    return insert(before, SelectOp(guard, value, one), like).results[0]


def splat(value: SSAValue, like: AnyTensor) -> SplatOp:
    """A tile with a scalar in each element, of the shape and encoding of `like`."""
    return SplatOp(value, like.get_shape(), register_encoding(like))


def loaded_again(before: Operation, load: LoadOp, known: dict[SSAValue, SSAValue], guard: SSAValue) -> SSAValue:
    """Clones a load under the condition `guard`. If the condition is false, elements are undefined, and not used.

    A box is then that of the step before, or outside: the map of an array without a mask may have more columns than the array.
    """
    other = None if load.other is None else known.get(load.other, load.other)
    new = LoadOp(known.get(load.ptr, load.ptr), guarded_mask(before, load, known, guard), other)
    if load.box is not None:
        new = new.found_in(load.box, [_place(before, load, each, known, guard) for each in load.place])
    new.properties |= {name: value for name, value in load.properties.items() if name != "operandSegmentSizes"}
    new.attributes = dict(load.attributes)
    insert(before, new, load)
    new.result.name_hint = load.result.name_hint
    return new.result


def _place(
    before: Operation, load: LoadOp, index: SSAValue, known: Mapping[SSAValue, SSAValue], guard: SSAValue
) -> SSAValue:
    """An index of a box in the step of `known`, if `guard` is true."""
    found = known.get(index, index)
    if found is index:
        return index
    owner, block = index.owner, before.parent
    here = owner is block or (
        isinstance(owner, Operation) and owner.parent is block and owner.is_before_in_block(before)
    )
    other = (
        index
        if here
        else insert(before, arith.ConstantOp(IntegerAttr(OUTSIDE, cast(Any, index.type))), load).results[0]
    )
    return insert(before, SelectOp(guard, found, other), load).results[0]


def guarded_mask(
    before: Operation, load: LoadOp | AtomicRMWOp, known: Mapping[SSAValue, SSAValue], guard: SSAValue
) -> SSAValue:
    """The mask of an access under the condition `guard`.

    Conditions that change in the loop come first. Loads share them, so their conjunction is computed once. Conditions
    on rows come last.
    """
    pointers = as_tensor(load.ptr.type)
    mask = guard if pointers is None else insert(before, splat(guard, pointers), load).results[0]
    conditions = sorted([] if load.mask is None else _joined(load.mask), key=lambda each: each in known, reverse=True)
    for each in conditions:
        mask = insert(before, arith.AndIOp(known.get(each, each), mask), load).results[0]
    return mask


def _joined(mask: SSAValue) -> list[SSAValue]:
    """The conditions whose conjunction a mask is."""
    if isinstance(mask.owner, arith.AndIOp):
        return [*_joined(mask.owner.lhs), *_joined(mask.owner.rhs)]
    return [mask]
