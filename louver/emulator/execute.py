"""Runs one warp, step by step, until it waits, ends, or has had its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from louver.emulator.decode import Step
from louver.emulator.errors import ConvergenceError, EmulationError, MisalignedError, UninitialisedError
from louver.emulator.masks import same, some
from louver.emulator.warp import Frame
from louver.isa.instruction import LANES, STORAGE, Effect, Operand
from louver.isa.machine import Mask, Suspend

if TYPE_CHECKING:
    from louver.emulator.warp import Warp

JUNK = 0xA5A5_A5A5_A5A5_A5A5
"""Value of lanes that were masked off at their register's first write."""

NO_LANES: Mask = np.zeros(LANES, np.bool_)


def run_burst(warp: Warp, limit: int) -> int:
    """Run at most `limit` steps of a ready warp; then it is done, asleep or ready again. Returns the steps."""
    try:
        return _steps(warp, limit)
    except EmulationError as error:
        raise type(error)(error.problem, error.place or warp.place(error.lane)) from None
    except ValueError as error:
        raise EmulationError(str(error), warp.place()) from error


def _steps(warp: Warp, limit: int) -> int:
    steps, hits, registers = warp.cluster.program.steps, warp.cluster.hits, warp.registers
    for count in range(limit):
        at = warp.counter
        if at == len(steps):
            warp.cluster.exit(warp)
            return count
        step = warp.step = steps[at]
        if step.plain and warp.mask is warp.exists:
            # Shortcut for most instructions; `_instruction` would do the same.
            warp.active = warp.mask
            registers[step.result] = step.compute(*_inputs(warp, step))[0]  # type: ignore[misc, index]
            hits[at] += 1
            warp.counter = at + 1
        elif step.op is not None:
            if not _instruction(warp, step):
                return count + 1
        else:
            _BRANCHES[step.kind](warp, step)
    warp.cluster.scheduler.ready(warp)
    return limit


def _inputs(warp: Warp, step: Step) -> list[Any]:
    registers = warp.registers
    found = [get(registers) for get in step.inputs]
    for value in found:
        if value is None:
            _report_unwritten(warp, step, next(index for index, each in enumerate(found) if each is None))
    return found


def _instruction(warp: Warp, step: Step) -> bool:
    """Execute one instruction. False if the warp sleeps now."""
    active = warp.mask if step.condition is None else _chosen(warp, step)
    if step.condition is not None and not some(active):
        warp.counter += 1
        return True
    warp.active = active
    if step.aligned and active is not warp.exists and not same(active, warp.exists):
        raise ConvergenceError(
            f"{step.name} is .aligned, but only {int(active.sum())} of the warp's {int(warp.exists.sum())} threads execute it"
        )
    if step.watched_reads or step.watched_writes:
        warp.hazards.touch(step)
    inputs = _inputs(warp, step)
    if step.compute is not None:
        _write(warp, step, step.compute(*inputs))
        _advance(warp)
        return True
    for index, operand in step.ranged:
        _check_range(step, operand, inputs[index], active)
    result = cast(Effect, step.op).execute(warp, *inputs)
    if isinstance(result, Suspend):
        assert warp.sleeps_on is not None
        warp.cluster.scheduler.sleep(warp, warp.sleeps_on, result.reason)
        return False
    _write(warp, step, result or ())
    _advance(warp)
    return True


def _check_range(step: Step, operand: Operand, value: Any, active: Mask) -> None:
    values = operand.values
    assert values is not None
    wrong = active & ((value < values[0]) | (value > values[-1]) | (value % values.step != 0))
    if some(wrong):
        lane = int(np.flatnonzero(wrong)[0])
        error = MisalignedError if int(value[lane]) % values.step else EmulationError
        raise error(f"{operand.name} of {step.name} {operand.rule}, got {int(value[lane])}", lane=lane)


def _advance(warp: Warp) -> None:
    warp.cluster.hits[warp.counter] += 1
    warp.counter += 1


def _write(warp: Warp, step: Step, values: tuple[Any, ...]) -> None:
    full = warp.active is warp.exists
    registers = warp.registers
    if full and step.result is not None:
        registers[step.result] = values[0]
        return
    for slots, value in zip(step.outputs, values, strict=False):
        rows = value if value.ndim == 2 else (value,)
        for slot, row in zip(slots, rows, strict=True):
            if full:
                registers[slot] = row
                continue
            old = registers[slot]
            if old is None:
                storage = np.dtype(STORAGE[warp.cluster.program.registers[slot].type])
                junk = JUNK & ((1 << 8 * storage.itemsize) - 1)
                old = np.full(LANES, junk, storage) if storage != np.bool_ else np.ones(LANES, np.bool_)
            registers[slot] = np.where(warp.active, row, old)


def _chosen(warp: Warp, step: Step) -> Mask:
    """Lanes of the mask for which the guard or branch condition holds."""
    assert step.condition is not None
    value = warp.registers[step.condition]
    if value is None:
        name = warp.cluster.slot_name(step.condition)
        raise UninitialisedError(f"predicate {name} is read but was never written")
    chosen = warp.mask & (~value if step.negated else value)
    return warp.mask if same(chosen, warp.mask) else chosen


def _decide(warp: Warp, step: Step) -> Mask:
    """As `_chosen`, for a branch; checks its promise of uniformity."""
    warp.active = warp.mask
    chosen = _chosen(warp, step)
    if step.uniform and chosen is not warp.mask and some(chosen):
        raise ConvergenceError("the branch is marked uniform (bra.uni), but the lanes of the warp disagree")
    return chosen


def _if(warp: Warp, step: Step) -> None:
    taken = _decide(warp, step)
    goes = some(taken)
    other = (NO_LANES if taken is warp.mask else warp.mask & ~taken) if goes else warp.mask
    warp.frames.append(Frame(warp.mask, other))
    if goes:
        warp.mask = taken
        warp.counter += 1
    else:
        warp.counter = step.target


def _else(warp: Warp, step: Step) -> None:
    other = warp.frames[-1].other
    if some(other):
        warp.mask = other
        warp.counter += 1
    else:
        warp.counter = step.target


def _endif(warp: Warp, step: Step) -> None:
    warp.mask = warp.frames.pop().before
    warp.counter += 1


def _loop(warp: Warp, step: Step) -> None:
    warp.frames.append(Frame(warp.mask, warp.mask))
    warp.counter += 1


def _repeat(warp: Warp, step: Step) -> None:
    again = _decide(warp, step)
    if some(again):
        warp.mask = again
        warp.counter = step.target
    else:
        warp.mask = warp.frames.pop().before
        warp.counter += 1


_BRANCHES = {"if": _if, "else": _else, "endif": _endif, "loop": _loop, "repeat": _repeat}


def _report_unwritten(warp: Warp, step: Step, index: int) -> None:
    missing = [slot for slot in step.sources[index] if warp.registers[slot] is None]
    names = ", ".join(warp.cluster.slot_name(slot) for slot in missing[:4])
    raise UninitialisedError(f"{names} is read but was never written")
