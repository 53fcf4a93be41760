"""Checks that each value stands before its uses, where they see it, and that no chain of values is too long to follow."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from louver.frontend.ttir.limits import MAX_CHAIN, MAX_OPERATIONS
from louver.ir.refusal import unsupported
from louver.ir.tile import FuncOp


def check_order(function: FuncOp) -> None:
    """Raises UnsupportedKernelError for a value that is used before its definition or outside its region, for too many
    operations, and for a chain of operations that is too long.
    """
    depths: dict[SSAValue, int] = {}
    for number, op in enumerate(function.walk()):
        if number > MAX_OPERATIONS:
            rule = f"a kernel has at most {MAX_OPERATIONS:,} operations"
            raise unsupported(rule, op, "make loops of what it repeats")
        depth = 1 + max((_depth(value, op, depths) for value in op.operands), default=0)
        if depth > MAX_CHAIN:
            rule = f"at most {MAX_CHAIN} operations in a row need the one before"
            raise unsupported(rule, op, "make a loop of what repeats")
        for region in op.regions:
            for block in region.blocks:
                depths |= dict.fromkeys(block.args, depth)
        depths |= dict.fromkeys(op.results, depth)
        parent = op.parent_op()
        if op.next_op is None and parent is not None:
            # The results of a loop or a branch come from its end.
            depths |= {result: max(depth, depths.get(result, 0)) for result in parent.results}


def _depth(value: SSAValue, op: Operation, depths: dict[SSAValue, int]) -> int:
    found = depths.get(value)
    place = value.owner if isinstance(value.owner, Block) else value.owner.parent
    if found is None or not _is_around(place, op):
        name = f"%{value.name_hint}" if value.name_hint else "a value"
        raise unsupported(f"a value is used behind its definition, in the same region or inside; {name} is not", op)
    return found


def _is_around(block: Block | None, op: Operation) -> bool:
    around = op.parent
    while around is not None and around is not block:
        parent = around.parent_op()
        around = None if parent is None else parent.parent
    return around is not None
