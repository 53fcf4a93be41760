"""Objects made for a sparse tensor: operands on devices, launchers, warm calls. The tensor keeps them (`derived`)."""

from __future__ import annotations

import threading

from louver.compile.plan.schedule import Schedule
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem, accumulator_of
from louver.library.compiled import BuiltKernel, find, loaded
from louver.library.configure import Demand
from louver.library.launch import Launcher
from louver.library.operand import (
    DeviceOperand,
    Form,
    TileOperand,
    Words,
    form_of,
    upload,
    upload_tiles,
    with_words,
)
from louver.library.ranges import Cutting
from louver.library.warm import WarmCalls
from louver.runtime.driver import is_capturing
from louver.runtime.module import LoadedKernel


class TensorState:
    """Objects made for one sparse tensor, `s.derived.of(TensorState)`. They do not keep the tensor alive."""

    def __init__(self) -> None:
        self.warm = WarmCalls()
        self._operands: dict[tuple[int, Form], DeviceOperand] = {}
        self._tiles: dict[tuple[int, str], TileOperand] = {}
        self._launchers: dict[tuple[Problem, Schedule, int], Launcher] = {}
        self._lock = threading.Lock()

    def refresh(self, s: SparseTensor) -> None:
        """Write the tensor's values to where they are on devices, after all that reads them and before anything that will."""
        with self._lock:
            # Operands that differ in the words of their metadata share their values.
            for operand in {each.values: each for each in self._operands.values()}.values():
                operand.refresh(s)
            for tiles in self._tiles.values():
                tiles.refresh(s)

    def launcher(
        self,
        s: SparseTensor,
        problem: Problem,
        schedule: Schedule,
        ordinal: int,
        stream: int,
        *,
        batch_invariant: bool = False,
    ) -> Launcher:
        """A product of `s`, the state's own tensor, on a device; compiled, loaded and uploaded the first time.

        Raises RuntimeError when something is missing and `stream`, where the launch will go, is being captured; batch_invariant: what
        to call then.
        """
        key = (problem, schedule, ordinal)
        found = self._launchers.get(key)
        if found is None:
            place = (ordinal, form_of(schedule, s))
            kernel = find(*key)
            if not (place in self._operands and kernel) and is_capturing(stream):
                usual = accumulator_of(problem.a)
                sums = "" if problem.accumulate == usual else f", accumulate={problem.accumulate!r}"
                epilogue = f", epilogue=louver.{problem.epilogue!r}" if problem.epilogue.floating else ""
                batch = {None: "", "dense": ", batch=…", "both": "", "sparse": ", batch=1"}[problem.batch]
                invariant = ", batch_invariant=True" if batch_invariant else ""
                raise RuntimeError(
                    "a product must be compiled and its operand uploaded before its stream is captured: call "
                    f"louver.prepare(s, n=…, kind={problem.kind!r}, bias={problem.bias is not None}, "
                    f"out_dtype={problem.out!r}, layout={problem.b_layout!r}{batch}{sums}{epilogue}{invariant}) before the capture"
                )
            launcher = _launcher(problem, schedule, kernel or loaded(*key), self.operand(s, *place), s.shape)
            found = self._launchers.setdefault(key, launcher)
        return found

    def has_tiles(self, ordinal: int, element: str) -> bool:
        """Whether `tiles` has been uploaded already."""
        return (ordinal, element) in self._tiles

    def tiles(self, s: SparseTensor, ordinal: int, element: str) -> TileOperand:
        """The operand of kernels of register tiles, its metadata for products of `element`."""
        with self._lock:
            found = self._tiles.get((ordinal, element))
            if found is None:
                found = self._tiles[ordinal, element] = upload_tiles(s, ordinal, element)
            return found

    def has_operand(self, ordinal: int, form: Form) -> bool:
        """Whether `operand` has been uploaded already."""
        return (ordinal, form) in self._operands

    def operand(self, s: SparseTensor, ordinal: int, form: Form) -> DeviceOperand:
        """The operand in a form; one upload of the values serves all numbers of words."""
        with self._lock:
            found = self._operands.get((ordinal, form))
            if found is None:
                others = (operand for (place, _), operand in self._operands.items() if place == ordinal)
                other = next(others, None) if isinstance(form, Words) else None
                if other is None or not isinstance(form, Words):
                    found = upload(s, ordinal, form)
                else:
                    found = with_words(other, s, form)
                self._operands[ordinal, form] = found
            return found


def _launcher(
    problem: Problem,
    schedule: Schedule,
    kernel: BuiltKernel[LoadedKernel],
    operand: DeviceOperand,
    shape: tuple[int, ...],
) -> Launcher:
    cutting = Cutting.of(Demand.of_problem(problem), schedule) if schedule.cuts else None
    return Launcher(kernel, operand, shape, cutting)


def state_of(s: object) -> TensorState | None:
    """The tensor's state, None before there is one, and for what is no tensor."""
    return s.derived.find(TensorState) if isinstance(s, SparseTensor) else None
