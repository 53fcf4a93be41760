"""unroll-programs: changes a persistent kernel to a kernel with one program for each tile.

`for tile in range(tl.program_id(0), tiles, tl.num_programs(0))` computes every tile once for any grid. With a constant
step it does so if the grid has that many programs, or one program for each tile. The pass records the step for the
launch (`Conditions.programs`). It adds an assumption that the program number is below `tiles`. `number_tiles` tests
that `tiles` is the number of tiles, and removes the assumption.

A program may also count its share of the tiles, as `tiles // step`, and one more if its number is below the rest. The pass
evaluates the share for small numbers of tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerType, ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.integers import constant_integer, position
from louver.analysis.passages import end_of
from louver.compile.condition_attributes import state_programs
from louver.compile.rewrite.insert import insert, insert_before, integer
from louver.ir import tile as tt
from louver.ir.comparisons import CmpiOp
from louver.ir.interpret.arithmetic import ARITHMETIC
from louver.ir.llvm import AssumeOp

_Integers = NDArray[Any]

AXIS = 0
"""The axis of the grid along which persistent programs are counted."""


def unroll_programs(module: ModuleOp) -> None:
    """Rewrite in place. Kernels with one program for each tile do not change."""
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        for loop in [op for op in function.body.block.ops if isinstance(op, scf.ForOp)]:
            found = _tiles(loop) or _shared_tiles(loop)
            if found is not None and _stores(loop):
                _unroll(loop, found)
                state_programs(function, found.step)


class _Tiles(NamedTuple):
    """The tiles of a loop. step: from one tile of a program to the next; 0 for the number of programs. end: their number."""

    program: SSAValue
    step: int
    end: SSAValue


def _tiles(loop: scf.ForOp) -> _Tiles | None:
    """The tiles of a loop from the program's number on; None if the loop is not over tiles."""
    if not _is_program(loop.lb) or any(result.first_use is not None for result in loop.results):
        return None
    step = _program_step(loop.step)
    return None if step is None or not _count_tiles(loop) else _Tiles(loop.lb, step, loop.ub)


def _is_program(value: SSAValue) -> bool:
    return isinstance(value.owner, tt.GetProgramIdOp) and value.owner.axis.value.data == AXIS


def _program_step(value: SSAValue) -> int | None:
    """The step of a program in tiles; 0 for the number of programs; None for other values."""
    if isinstance(value.owner, tt.GetNumProgramsOp) and value.owner.axis.value.data == AXIS:
        return 0
    constant = constant_integer(value)
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


def _shared_tiles(loop: scf.ForOp) -> _Tiles | None:
    """The tiles of a loop that runs as often as a program has tiles; None if that is not its number of iterations."""
    block, end = loop.body.block, end_of(loop.body.block)
    is_plain = constant_integer(loop.lb) == 0 and constant_integer(loop.step) == 1 and not block.args[0].first_use
    if not is_plain or not loop.iter_args or any(result.first_use is not None for result in loop.results):
        return None
    found = set[tuple[SSAValue, int]]()
    for first, number, after in zip(loop.iter_args, block.args[1:], end.operands, strict=True):
        grows = isinstance(after.owner, arith.AddiOp) and after.owner.lhs is number
        step = _program_step(after.owner.rhs) if grows and isinstance(after.owner, arith.AddiOp) else None
        program = first if _is_program(first) or not isinstance(first.owner, Operation) else first.owner.operands[0]
        if step is None or not _is_program(program) or not _is_near(first, program, step):
            return None
        found.add((program, step))
    if len(found) != 1:
        return None
    program, step = found.pop()
    tiles = _Share(program, step).tiles(loop)
    return None if tiles is None else _Tiles(program, step, tiles)


def _is_near(first: SSAValue, program: SSAValue, step: int) -> bool:
    """Whether a value is the program's number, or that plus or minus a constant or the number of programs."""
    op = first.owner
    if first is program:
        return True
    if not isinstance(op, arith.AddiOp | arith.SubiOp) or op.lhs is not program:
        return False
    return constant_integer(op.rhs) is not None or (step == 0 and _program_step(op.rhs) == 0)


@dataclass(frozen=True, slots=True)
class _Share:
    """Evaluates how many tiles a program has."""

    program: SSAValue
    step: int

    def tiles(self, loop: scf.ForOp) -> SSAValue | None:
        """The number of all tiles, if the loop runs once for each tile of the program; else None."""
        most = self.step or 8
        steps: _Integers = np.array([self.step] if self.step else range(1, most + 1))[:, None, None]
        tiles: _Integers = np.arange(3 * most + 2)[None, :, None]
        programs: _Integers = np.arange(most)[None, None, :]
        known = {self.program: programs}
        share = self._value(loop.ub, known, steps)
        if share is not None:
            # The sizes are constants, and so is the number of tiles.
            every = int(np.broadcast_to(share, programs.shape).sum())
            return integer(loop, every) if self.step and (share == _share(every, programs, steps)).all() else None
        for candidate in _needed(loop.ub):
            share = self._value(loop.ub, known | {candidate: tiles}, steps)
            if share is not None and ((share == _share(tiles, programs, steps)) | (programs >= steps)).all():
                return candidate
        return None

    def _value(self, value: SSAValue, known: Mapping[SSAValue, _Integers], steps: _Integers) -> _Integers | None:
        """An integer for all numbers of programs and tiles; None if it depends on others."""
        op, constant = value.owner, constant_integer(value)
        if value in known:
            return known[value]
        if constant is not None:
            return np.array(constant)
        if isinstance(op, tt.GetNumProgramsOp) and self.step == 0 and op.axis.value.data == AXIS:
            return steps
        if isinstance(op, scf.IfOp):
            place = position(value, op.results)
            operands = [op.cond, *(end_of(region.block).operands[place] for region in op.regions)]
        elif isinstance(op, Operation) and type(op) in ARITHMETIC and isinstance(value.type, IntegerType):
            operands = list(op.operands)
        else:
            return None
        values = [found for each in operands if (found := self._value(each, known, steps)) is not None]
        if len(values) < len(operands):
            return None
        if isinstance(op, scf.IfOp):
            return np.where(values[0], values[1], values[2])
        return cast("_Integers", ARITHMETIC[type(op)](op, values)[0])


def _share(tiles: _Integers | int, programs: _Integers, steps: _Integers) -> _Integers:
    """How many tiles each program has, if it computes every `steps`-th one from its own number on."""
    return -np.minimum((programs - tiles) // steps, 0)


def _needed(value: SSAValue) -> Iterator[SSAValue]:
    """The values from which an integer is computed, those that it uses directly first."""
    pending, seen = [value], set[SSAValue]()
    while pending:
        op = pending.pop(0).owner
        operands = list(op.operands) if isinstance(op, Operation) else []
        if isinstance(op, scf.IfOp):
            operands += [each for region in op.regions for each in end_of(region.block).operands]
        new = [each for each in dict.fromkeys(operands) if each not in seen and isinstance(each.type, IntegerType)]
        seen.update(new)
        pending += new
        yield from new


def _unroll(loop: scf.ForOp, tiles: _Tiles) -> None:
    block, end = loop.body.block, end_of(loop.body.block)
    insert(loop, AssumeOp.build(operands=[insert_before(loop, CmpiOp(tiles.program, tiles.end, "slt"))]), loop)
    # The loop carries only functions of the tile's number. In the first iteration of a program they have their initial
    # values.
    for argument, first in zip(block.args, (loop.lb, *loop.iter_args), strict=True):
        argument.replace_all_uses_with(first)
    Rewriter.erase_op(end)
    for argument in reversed(block.args):
        block.erase_arg(argument)
    Rewriter.inline_block(block, InsertPoint.before(loop))
    Rewriter.erase_op(loop)
