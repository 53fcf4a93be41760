"""Lowers loops and branches. Their conditions are scalars, which are equal in all threads, so no warp diverges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.passages import end_of
from louver.compile.lower.tiles.atomic import is_ordered
from louver.compile.lower.tiles.bits import keep_bits, test_bits
from louver.compile.lower.tiles.carried import Carried
from louver.compile.lower.tiles.facts import Facts
from louver.compile.lower.tiles.numbers import bits_of, is_integer, signed_type
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.plan.encode.unit import by_warpgroups
from louver.ir import tile as tt
from louver.ir.tile.staging import in_shared
from louver.isa.wgmma import WgmmaWait
from louver.ptx.module import Reg


def _ends(low: Lowering, block: Block) -> list[Registers]:
    return [low.values[value] for value in end_of(block).operands]


def _elements(low: Lowering, carried: Sequence[Carried]) -> list[Registers]:
    return [each.elements(low) for each in carried]


def _carry_on(low: Lowering, carried: Sequence[Carried], block: Block) -> None:
    """Move the values at the end of a block to the registers that the loop carries."""
    ends = [each.held(low, end) for each, end in zip(carried, _ends(low, block), strict=True)]
    _assign(low, [each.registers for each in carried], ends)


def _fresh(low: Lowering, values: Sequence[Registers]) -> list[Registers]:
    """New registers with these contents."""
    return [tuple(low.copy(register) for register in registers) for registers in values]


def _assign(low: Lowering, to: Sequence[Registers], values: Sequence[Registers]) -> None:
    """Assign all registers of `to` at the same time. `values` may contain registers of `to`."""
    pairs = [pair for group in zip(to, values, strict=True) for pair in zip(*group, strict=True)]
    moved = [(target, source) for target, source in pairs if target != source]
    targets = {target for target, _ in moved}
    moved = [(target, low.copy(source) if source in targets else source) for target, source in moved]
    for target, source in moved:
        low.k.mov(source, into=target)


def _bind(low: Lowering, values: Sequence[SSAValue], registers: Sequence[Registers]) -> None:
    low.values.update(zip(values, registers, strict=True))


def _may_follow(low: Lowering, *blocks: Block) -> None:
    """Record the accesses of a loop's body before the body, because they may precede it in the iteration before."""
    found = [op for block in blocks for op in block.walk()]
    low.accesses.loads |= any(isinstance(op, tt.LoadOp | tt.AsyncCopyOp | tt.BoxCopiesOp | tt.AtomicOp) for op in found)
    stores = any(isinstance(op, tt.StoreOp) or (isinstance(op, tt.AtomicOp) and is_ordered(op)) for op in found)
    low.accesses.stores |= stores
    low.accesses.unpublished |= stores
    exchanges = any(op in low.rooms.exchanges and op not in low.rooms.own for op in found)
    takers = [op for op in found if isinstance(op, tt.ConvertLayoutOp | tt.DotOp)]
    low.accesses.takes |= exchanges or any(in_shared(each) for op in takers for each in op.operands)
    low.accesses.puts |= any(isinstance(op, tt.WaitBarrierOp) for op in found)
    low.accesses.puts |= exchanges
    low.accesses.exchanged |= low.rooms.own.intersection(found)
    low.copied.update(op.slot for op in found if isinstance(op, tt.AsyncCopyOp))
    for op in found:
        # If warpgroups multiply, a branch ends with a fence.
        fenced = low.multiplies and _in_branch(op, blocks)
        match op:
            case tt.AsyncWaitOp():
                low.have_put(*low.copied, fenced=fenced)
            case tt.LocalStoreOp():
                low.have_put(op.slot, fenced=fenced)
            case tt.ConvertLayoutOp() if in_shared(op.result):
                low.have_put(op.result, fenced=fenced or _fenced_behind(low, op))
            case tt.DotOp():
                # The dot fences the parts that it stores.
                pass
            case _:
                low.accesses.unfenced |= op in low.rooms.exchanges and op not in low.rooms.own and not fenced


def _fenced_behind(low: Lowering, put: tt.ConvertLayoutOp) -> bool:
    """Whether warpgroup products follow in the block of an operation that stores a tile for them.

    They fence the tile first.
    """
    if low.rooms.multiplied.isdisjoint(low.rooms.tiles[put.result]):
        return False
    op = put.next_op
    while op is not None and not (isinstance(op, tt.DotOp) and by_warpgroups(op) and op.parts == 1):
        op = op.next_op
    return op is not None


def _in_branch(op: Operation, blocks: Sequence[Block]) -> bool:
    """Whether an operation inside one of the blocks is inside a branch there."""
    outer: Operation | None = op
    while outer is not None and outer.parent_block() not in blocks:
        outer = outer.parent_op()
        if isinstance(outer, scf.IfOp):
            return True
    return False


def lower_for(low: Lowering, op: scf.ForOp) -> None:
    """Count from the lower bound in positive steps, while the number is below the upper bound.

    Behind a step, the products of the step before have ended, and those in flight behind the loop.
    """
    k, block = low.k, op.body.block
    kind = signed_type(bits_of(op.lb.type))
    number, end, step = low.copy(low.scalar(op.lb)), low.scalar(op.ub), low.scalar(op.step)
    low.known.has(number, Facts(low.multiple(block.args[0])))
    carried = [
        Carried.of(low, value, op, later) for value, later in zip(op.iter_args, end_of(block).operands, strict=True)
    ]
    for argument, each in zip(block.args[1:], carried, strict=True):
        if len(each.registers) == 1 and is_integer(argument.type) and each.registers[0].type in ("b32", "b64"):
            low.known.has(each.registers[0], Facts(low.multiple(argument)))
    _may_follow(low, block)
    before = replace(low.accesses)
    kept = dict(low.bits)
    conditions = keep_bits(low, op)
    outside = {each: low.values[each] for each in conditions}
    flying = [each for each in block.ops if isinstance(each, tt.DotOp) and each.in_flight is not None]

    def goes_on() -> Reg:
        return k.setp("lt", kind, number, end)

    def take_step() -> None:
        _bind(low, block.args, [(number,), *_elements(low, carried)])
        test_bits(low, conditions)
        low.lower_block(block)
        low.values.update(outside)
        if flying:
            k.emit(WgmmaWait(len(flying)))
        _carry_on(low, carried, block)
        k.add(number, step, into=number)

    with k.if_(goes_on(), uniform=True):
        with k.loop(uniform=True) as loop:
            take_step()
            if any(dot.metadata is not None for dot in flying):
                # Products in flight still read the metadata registers of their step.
                after = replace(low.accesses)
                with k.if_(goes_on(), uniform=True) as branch:
                    take_step()
                with branch.otherwise():
                    # Otherwise the assembler sees a way from here to the first step, and serializes all products.
                    k.emit(WgmmaWait(0))
                low.accesses.join(after)
            loop.repeat_if(goes_on())
        if flying:
            k.emit(WgmmaWait(0))
    # Another loop may be in another branch, which these registers do not reach.
    low.bits = kept
    low.accesses.join(before)
    _bind(low, op.results, _elements(low, carried))


def lower_if(low: Lowering, op: scf.IfOp) -> None:
    """Run one region or the other."""
    k = low.k
    before = replace(low.accesses)
    results: list[Registers] = []
    with k.if_(low.scalar(op.cond), uniform=True) as branch:
        _lower_branch(low, op.true_region.block)
        results = _fresh(low, _ends(low, op.true_region.block)) if op.results else []
    after = low.accesses
    low.accesses = before
    if op.false_region.blocks:
        with branch.otherwise():
            _lower_branch(low, op.false_region.block)
            if op.results:
                _assign(low, results, _ends(low, op.false_region.block))
    low.accesses.join(after)
    _bind(low, op.results, results)


def _lower_branch(low: Lowering, block: Block) -> None:
    """Lower one region of a branch. Its stores for products are fenced inside it, so that code after it needs no fence."""
    fenced = not (low.accesses.unseen or low.accesses.unfenced)
    low.lower_block(block)
    if fenced and low.multiplies:
        low.fence()


def lower_while(low: Lowering, op: scf.WhileOp) -> None:
    """Run the first region, and then the second one and the first one again while the condition of the first one holds."""
    k, before, after = low.k, op.before_region.block, op.after_region.block
    carried = [Carried.of(low, value, op) for value in op.arguments]
    _may_follow(low, before, after)
    with k.loop(uniform=True) as loop:
        _bind(low, before.args, _elements(low, carried))
        low.lower_block(before)
        end = before.last_op
        assert isinstance(end, scf.ConditionOp)
        passed = [Carried.of(low, value, op) for value in end.operands[1:]]
        # A copy, which the second region does not change.
        condition = low.copy(low.scalar(end.condition))
        with k.if_(condition, uniform=True):
            _bind(low, after.args, _elements(low, passed))
            low.lower_block(after)
            _carry_on(low, carried, after)
        loop.repeat_if(condition)
    _may_follow(low, before, after)
    _bind(low, op.results, _elements(low, passed))
