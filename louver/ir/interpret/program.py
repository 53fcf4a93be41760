"""Runs one program of a grid: its operations in order, with loops, branches and reductions."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from louver.ir import tile as tt
from louver.ir.interpret.arithmetic import ARITHMETIC, Handler
from louver.ir.interpret.shades import Seen, loads_of, run_shaded
from louver.ir.interpret.tiles import TILES
from louver.ir.interpret.values import Fault, InterpretationError, Shaded, Value, dtype_of, plain, shaded, undefined_of
from louver.ir.refusal import unsupported

_HANDLERS: dict[type[Operation], Handler] = {**ARITHMETIC, **TILES}

_CONTROL = (
    scf.ForOp,
    scf.IfOp,
    scf.WhileOp,
    scf.YieldOp,
    scf.ConditionOp,
    tt.ReduceOp,
    tt.ReduceReturnOp,
    tt.ScanOp,
    tt.ScanReturnOp,
    tt.ReturnOp,
    tt.GetProgramIdOp,
    tt.GetNumProgramsOp,
)


_NESTED = (scf.ForOp, scf.IfOp, scf.WhileOp)

Turns: TypeAlias = Generator[Operation, None, Sequence[Value]]
"""A run that pauses at each operation that it yields, so that other programs can run. It returns the results."""


def _at_once(turns: Turns) -> Sequence[Value]:
    """The result of a run without loops."""
    try:
        next(turns)
    except StopIteration as end:
        return end.value
    raise AssertionError("no loop that looks at memory is in the region of a reduction")


def require_known(function: tt.FuncOp) -> None:
    """Raise UnsupportedKernelError for the first operation that cannot be interpreted."""
    for op in function.body.walk():
        if not isinstance(op, _CONTROL) and type(op) not in _HANDLERS:
            raise unsupported(f"{op.name} has no meaning in the interpreter", op)


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    numbers: its program number along each axis of the grid.
    grid: programs along each axis.
    seen: called for undefined elements that an operation makes visible.
    values: the values computed so far.
    """

    numbers: tuple[int, ...]
    grid: tuple[int, ...]
    seen: Seen
    values: dict[SSAValue, Value] = field(default_factory=dict[SSAValue, Value])

    def run(self, block: Block, given: Sequence[Value]) -> Turns:
        """Run a block, and return the operands of its terminator. given: the values of its arguments.

        Yields a loop that reads memory before it reads again, because another program may change the memory. Raises
        InterpretationError, which names the operation that failed.
        """
        self.values.update(zip(block.args, given, strict=True))
        for op in block.ops:
            operands = [self.values[operand] for operand in op.operands]
            if op.has_trait(IsTerminator):
                return operands
            try:
                if isinstance(op, _NESTED):
                    results = yield from self._nested(op, operands)
                else:
                    results = self._results(op, operands)
            except Fault as fault:
                where = ", ".join(map(str, self.numbers))
                raise InterpretationError(f"{fault} (program {where})", op) from None
            self.values.update(zip(op.results, results, strict=True))
        return ()

    def _nested(self, op: Operation, operands: Sequence[Any]) -> Turns:
        match op:
            case scf.ForOp():
                return (yield from self._for(op, operands))
            case scf.WhileOp():
                return (yield from self._while(op, operands))
            case _:
                region = op.regions[0 if self._decides(operands[0], op) else 1]
                return (yield from self.run(region.block, ())) if region.blocks else ()

    def _results(self, op: Operation, operands: Sequence[Any]) -> Sequence[Value]:
        match op:
            case tt.ReduceOp():
                return self._reduce(op, operands)
            case tt.ScanOp():
                return self._scan(op, operands)
            case tt.GetProgramIdOp():
                return (np.asarray(self.numbers[op.axis.value.data], np.int32),)
            case tt.GetNumProgramsOp():
                return (np.asarray(self.grid[op.axis.value.data], np.int32),)
            case _ if any(isinstance(each, Shaded) for each in operands):
                return run_shaded(op, operands, _HANDLERS[type(op)], self.seen)
            case _:
                return _HANDLERS[type(op)](op, operands)

    def _decides(self, value: Value, op: Operation) -> Any:
        """A value that decides the control flow of `op`."""
        if isinstance(value, Shaded) and undefined_of(value).any():
            self.seen(value, op)
        return plain(value)

    def _for(self, op: scf.ForOp, operands: Sequence[Any]) -> Turns:
        start, end, step = (int(self._decides(value, op)) for value in operands[:3])
        if step < 1:
            raise Fault(f"a loop's step is at least 1, got {step}")
        carried: Sequence[Value] = operands[3:]
        dtype = dtype_of(op.lb.type)
        for number in range(start, end, step):
            carried = yield from self.run(op.body.block, [np.asarray(number, dtype), *carried])
        return carried

    def _while(self, op: scf.WhileOp, operands: Sequence[Any]) -> Turns:
        looks = any(isinstance(each, tt.LoadOp | tt.AtomicOp) for each in op.before_region.walk())
        carried: Sequence[Value] = operands
        while True:
            condition, *passed = yield from self.run(op.before_region.block, carried)
            if not self._decides(condition, op):
                return passed
            carried = yield from self.run(op.after_region.block, passed)
            if looks:
                yield op

    def _reduce(self, op: tt.ReduceOp, operands: Sequence[Any]) -> Sequence[Value]:
        """Combine elements one at a time, from the first to the last. Hardware may use another order."""
        axis = op.axis.value.data
        totals = [each[-1] for each in self._combined(op, [np.moveaxis(plain(value), axis, 0) for value in operands])]
        undefined = [each.any(axis=axis) if each.ndim else each for each in map(undefined_of, operands)]
        unknown = np.logical_or.reduce(undefined)
        return [shaded(np.asarray(each), unknown, loads_of(operands)) for each in totals]

    def _scan(self, op: tt.ScanOp, operands: Sequence[Any]) -> Sequence[Value]:
        axis, step = op.axis.value.data, -1 if op.reverse.value.data else 1

        def turned(array: Any) -> Any:
            """The array with the axis first, in the order in which elements are combined."""
            return np.moveaxis(array, axis, 0)[::step]

        def back(parts: Any) -> Any:
            return np.moveaxis(np.asarray(parts)[::step], 0, axis)

        found = self._combined(op, [turned(plain(value)) for value in operands])
        shape = plain(operands[0]).shape
        masks = [np.broadcast_to(undefined_of(each), shape) for each in operands]
        unknown = back(np.logical_or.accumulate(turned(np.logical_or.reduce(masks)), axis=0))
        return [shaded(back(each), unknown, loads_of(operands)) for each in found]

    def _combined(self, op: tt.CombiningOp, slices: Sequence[Any]) -> list[list[Any]]:
        """For each operand, the combined elements up to each place of the first axis."""
        total: Sequence[Any] = [each[0] for each in slices]
        found = [[each] for each in total]
        for index in range(1, len(slices[0])):
            given = [*map(np.asarray, total), *(np.asarray(each[index]) for each in slices)]
            total = _at_once(self.run(op.combine.block, given))
            for column, each in zip(found, total, strict=True):
                column.append(each)
        return found
