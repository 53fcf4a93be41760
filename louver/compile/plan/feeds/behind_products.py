"""Moves operations of a loop behind its first product, so that they run while tensor cores multiply."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, Operation

from louver.analysis.effects import has_no_effect
from louver.compile.plan.encode.unit import by_warpgroups
from louver.compile.plan.feeds.copied_loads import only_user
from louver.compile.rewrite.insert import move
from louver.ir import tile as tt


def load_behind(block: Block, place: Operation) -> None:
    """Move loads for the next step after the products. The fence before the products would wait for all loads."""
    for op in list(block.ops):
        if op is place:
            return
        if isinstance(op, tt.LoadOp) and isinstance(only_user(op.result), scf.YieldOp):
            move(place, op)


def take_behind(dot: tt.DotOp) -> None:
    """Move operations that the products do not need after them, also reads of shared memory."""
    place, op = dot.next_op, dot.prev_op
    assert place is not None
    behind, after = set[Operation](), dot.next_op
    while after is not None:
        behind.add(after)
        after = after.next_op
    while op is not None:
        before, users = op.prev_op, [use.operation for result in op.results for use in result.uses]
        if has_no_effect(op) and not isinstance(op, scf.IfOp) and users and behind.issuperset(users):
            move(place, op)
            behind.add(op)
            place = op
        op = before


def first_product(block: Block) -> tt.DotOp | None:
    """The first dot, if warpgroups multiply it; None otherwise. Threads synchronize before it, so copies may follow it.

    A dot in parts is left out. It waits for most of its products, and copies should not wait.
    """
    dot = next((op for op in block.ops if isinstance(op, tt.DotOp)), None)
    return dot if dot is not None and by_warpgroups(dot) and dot.parts == 1 else None
