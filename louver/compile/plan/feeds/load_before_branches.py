"""load-before-branches: loads what a branch of a loop multiplies before the branch, masked by the condition of the branch.

    for i:                                     for i:
        if condition:                              tile = load, masked by condition
            tile = load                    ⟶       if condition:
            … products of tile …                       … products of tile …

The loop then loads tiles of later steps ahead, as it does for a dot in each step, and the dot runs only where the branch is
taken. Nothing is read where it is not. A condition may be loaded from memory: it is then loaded ahead of the tiles.

Input and output are valid tile IR without sparse types, block pointers and descriptors (after describe-boxes).
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.passages import stepping_loop
from louver.compile.plan.feeds.copied_loads import is_unchanged
from louver.compile.plan.feeds.describe_boxes import is_multiplied
from louver.compile.plan.feeds.steps_ahead import OUTSIDE, computed, computed_again, is_pure, loaded_again, only_loads
from louver.compile.rewrite.insert import insert, insert_before, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.comparisons import SelectOp
from louver.ir.tile import FuncOp, LoadOp
from louver.ir.tile.multiples import apart_of


def load_before_branches(module: ModuleOp) -> None:
    """Rewrites loops without inner loops in place, if they load, compute and store.

    A load moves if only loads and short computations give its address, and no store of the loop may change what they load.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]:
        apart = apart_of(function)
        # A load moves out of inner branches first.
        for branch in reversed([op for op in function.body.walk() if isinstance(op, scf.IfOp)]):
            loop = stepping_loop(branch)
            if loop is None or not only_loads(loop, stores=True):
                continue
            for block in (region.block for region in branch.regions if region.blocks):
                loads = [op for op in block.ops if isinstance(op, LoadOp) and is_multiplied(op.result)]
                loads = [load for load in loads if _may_move(load, block, loop, apart)]
                if loads:
                    _move(branch, block, loads)
        remove_dead(function)


def _may_move(load: LoadOp, block: Block, loop: scf.ForOp, apart: Container[SSAValue]) -> bool:
    """Whether only loads and short computations of a block give the address of a load, and no store changes what they load."""
    made, _ = computed(load.operands, block)
    if not all(isinstance(each, LoadOp) or is_pure(each) for each in made):
        return False
    return all(is_unchanged(each, loop, apart) for each in (load, *made) if isinstance(each, LoadOp))


def _move(branch: scf.IfOp, block: Block, loads: Sequence[LoadOp]) -> None:
    """Move loads of one region before the branch."""
    guard: SSAValue = branch.cond
    if block is not branch.true_region.block:
        guard = insert_before(branch, arith.XOrIOp(guard, integer(branch, 1, guard.type)))
    found, _ = computed([each for load in loads for each in load.operands], block)
    known = dict[SSAValue, SSAValue]()
    computed_again(branch, [op for op in block.ops if op in found], known, guard)
    for load in loads:
        tile = known.get(load.result) or loaded_again(branch, load, known, guard)
        new = tile.owner
        assert isinstance(new, LoadOp)
        if load.box is not None:
            # The rows stay as they are: a ring compares those of the first step with the rows of the array.
            *rows, column = (known.get(each, each) for each in load.place)
            column = insert(new, SelectOp(guard, column, integer(new, OUTSIDE)), load).results[0]
            first = len(new.operands) - len(load.place)
            for index, each in enumerate((*rows, column), first):
                new.operands[index] = each
        Rewriter.replace_op(load, [], [tile])
