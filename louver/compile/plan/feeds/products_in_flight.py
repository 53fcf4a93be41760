"""Finds the loops whose products may run on while the next step waits for its copies, synchronizes and begins its own."""

from __future__ import annotations

from collections.abc import Container

from xdsl.dialects import scf
from xdsl.ir import Block, SSAValue

from louver.analysis.integers import position
from louver.analysis.passages import end_of
from louver.compile.plan.encode.anchors import is_tile
from louver.compile.plan.encode.unit import by_warpgroups, promoted_columns, warpgroup_instruction
from louver.ir.tile import DotOp, LoadOp, MmaAttr, TransOp
from louver.ir.tile.staging import in_shared
from louver.ir.tile.types import register_encoding


def products_in_flight(loop: scf.ForOp, copied: Container[SSAValue]) -> list[DotOp]:
    """The dots of a loop, if the products of a step may run until those of the next step have begun; else none.

    copied: tiles of the loop in shared memory, which keep their contents for two steps.

    Products then read nothing that the next step changes: tiles in `copied` or from before the loop, and metadata in
    registers of the step. Only the products of the next step read their sums.
    """
    block = loop.body.block
    dots = [op for op in loop.body.walk() if isinstance(op, DotOp)]
    if all(op.parent is block and _accumulates(op, block) and _reads_kept(op, block, copied) for op in dots):
        return dots
    return []


def _accumulates(op: DotOp, block: Block) -> bool:
    """Whether only the loop carries the sums of a dot, in the registers in which the products add to them."""
    encoding, end = register_encoding(op.d.type), end_of(block)
    if not isinstance(encoding, MmaAttr) or not by_warpgroups(op) or op.parts > 1 or promoted_columns(op) is not None:
        return False
    if warpgroup_instruction(op, encoding).d_fragment.packed > 1:
        return False
    ends = op.d.has_one_use() and any(each is op.d for each in end.operands)
    return ends and op.c.has_one_use() and block.args[position(op.d, end.operands) + 1] is op.c


def _reads_kept(op: DotOp, block: Block, copied: Container[SSAValue]) -> bool:
    """Whether no operation of the loop overwrites what a dot reads before the products of the next step have begun."""
    return all(map(in_shared, (op.a, op.b))) and all(
        _is_kept(each, block, copied) for each in (op.a, op.b, op.metadata) if each is not None
    )


def _is_kept(tile: SSAValue, block: Block, copied: Container[SSAValue]) -> bool:
    owner = tile.owner
    if tile in copied or isinstance(owner, LoadOp):
        return True
    if isinstance(owner, Block):
        # The registers of a value that the loop carries get the next value.
        return owner is not block
    if in_shared(tile) and owner.parent is block and not isinstance(owner, TransOp):
        return False
    return owner.parent is not block or all(_is_kept(each, block, copied) for each in owner.operands if is_tile(each))
