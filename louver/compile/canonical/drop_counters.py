"""drop-counters: computes integers that a loop counts from the number of the loop.

For example, `offset += BK` in a loop over steps becomes the number of the loop times BK.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.ir import SSAValue

from louver.analysis.integers import constant_integer
from louver.analysis.passages import end_of
from louver.compile.rewrite.insert import insert, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import FuncOp


def drop_counters(module: ModuleOp) -> None:
    """Rewrite in place. The integers must begin at 0, grow by a constant, and not be used after the loop."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        found = [_drop(op) for op in function.body.walk() if isinstance(op, scf.ForOp)]
        if any(found):
            remove_dead(function)


def _drop(loop: scf.ForOp) -> bool:
    """Rewrite the counters of a loop. Returns whether there were any."""
    end, number = end_of(loop.body.block), loop.body.block.args[0]
    step = constant_integer(loop.step)
    if constant_integer(loop.lb) != 0 or not step:
        return False
    found = False
    for place, first in enumerate(loop.iter_args):
        counter, following = loop.body.block.args[place + 1], end.operands[place]
        by = _growth(counter, following)
        counts = counter.type == number.type == i32 and constant_integer(first) == 0
        if by is None or by % step or not counts or loop.results[place].first_use is not None:
            continue
        # Only the value for the next iteration still uses the counter.
        others = [use for use in counter.uses if use.operation is not following.owner]
        value = _multiple(number, by // step, loop)
        for use in others:
            use.operation.operands[use.index] = value
        value.name_hint = value.name_hint or counter.name_hint
        found = True
    return found


def _growth(counter: SSAValue, following: SSAValue) -> int | None:
    """The constant that an iteration adds to a counter; None for other values."""
    op = following.owner
    if not isinstance(op, arith.AddiOp) or counter not in op.operands:
        return None
    return constant_integer(op.rhs if op.lhs is counter else op.lhs)


def _multiple(number: SSAValue, factor: int, loop: scf.ForOp) -> SSAValue:
    """The number of the loop times a constant, at the beginning of the body."""
    if factor == 1:
        return number
    start = loop.body.block.first_op
    assert start is not None
    return insert(start, arith.MuliOp(number, integer(loop, factor)), loop).results[0]
