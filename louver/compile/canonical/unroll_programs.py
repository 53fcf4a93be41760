"""unroll-programs: changes a persistent kernel to a kernel with one program for each tile.

`for tile in range(tl.program_id(0), tiles, tl.num_programs(0))` computes every tile once for any grid. With a constant
step it does so if the grid has that many programs, or one program for each tile. The pass records the step for the
launch (`Conditions.programs`). It adds an assumption that the program number is below `tiles`. `number_tiles` tests
that `tiles` is the number of tiles, and removes the assumption.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.integers import constant_integer
from louver.analysis.passages import end_of
from louver.compile.condition_attributes import state_programs
from louver.compile.rewrite.insert import insert, insert_before
from louver.ir import tile as tt
from louver.ir.comparisons import CmpiOp
from louver.ir.llvm import AssumeOp

AXIS = 0
"""The axis of the grid along which persistent programs are counted."""


def unroll_programs(module: ModuleOp) -> None:
    """Rewrite in place. Kernels with one program for each tile do not change."""
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        for loop in [op for op in function.body.block.ops if isinstance(op, scf.ForOp)]:
            step = _step(loop)
            if step is not None and _stores(loop):
                _unroll(loop)
                state_programs(function, step)


def _step(loop: scf.ForOp) -> int | None:
    """The step of a program in tiles; 0 for the number of programs. None if the loop is not over tiles."""
    first, step = loop.lb.owner, loop.step.owner
    if not isinstance(first, tt.GetProgramIdOp) or first.axis.value.data != AXIS:
        return None
    if any(result.first_use is not None for result in loop.results) or not _count_tiles(loop):
        return None
    if isinstance(step, tt.GetNumProgramsOp) and step.axis.value.data == AXIS:
        return 0
    constant = constant_integer(loop.step)
    return constant if constant is not None and constant > 0 else None


def _stores(loop: scf.ForOp) -> bool:
    return any(
        isinstance(op, tt.StoreOp | tt.DescriptorStoreOp | tt.AtomicOp | tt.DescriptorReduceOp) for op in loop.walk()
    )


def _count_tiles(loop: scf.ForOp) -> bool:
    """Whether the loop carries only its number plus or minus constants.

    Kernels of Triton's tutorials count tiles twice.
    """
    carried = zip(loop.iter_args, loop.body.block.args[1:], end_of(loop.body.block).operands, strict=True)
    return all(
        _is_sum(first, loop.lb, loop) and _is_sum(after, number, loop, by_step=True) for first, number, after in carried
    )


def _is_sum(value: SSAValue, of: SSAValue, loop: scf.ForOp, *, by_step: bool = False) -> bool:
    """Whether a value is `of` plus the loop's step (`by_step`), or `of` itself, or `of` plus or minus a constant."""
    op = value.owner
    if by_step:
        return isinstance(op, arith.AddiOp) and {op.lhs, op.rhs} == {of, loop.step}
    if value is of:
        return True
    if not isinstance(op, arith.AddiOp | arith.SubiOp) or op.lhs is not of:
        return False
    return op.rhs is loop.step or constant_integer(op.rhs) is not None


def _unroll(loop: scf.ForOp) -> None:
    block, end, program = loop.body.block, end_of(loop.body.block), loop.lb
    insert(loop, AssumeOp.build(operands=[insert_before(loop, CmpiOp(program, loop.ub, "slt"))]), loop)
    # The loop carries only functions of the tile's number. In the first iteration of a program they have their initial
    # values.
    for argument, first in zip(block.args, (program, *loop.iter_args), strict=True):
        argument.replace_all_uses_with(first)
    Rewriter.erase_op(end)
    for argument in reversed(block.args):
        block.erase_arg(argument)
    Rewriter.inline_block(block, InsertPoint.before(loop))
    Rewriter.erase_op(loop)
