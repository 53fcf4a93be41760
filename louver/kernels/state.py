"""What has been made for each sparse tensor: operands on devices, launchers, warm calls. It goes when the tensor goes."""

from __future__ import annotations

import functools
import threading
import weakref

from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem, accumulator_of
from louver.kernels.compiled import is_loaded, loaded
from louver.kernels.launch import Launcher
from louver.kernels.operand import DeviceOperand, TileOperand, upload, upload_tiles, with_words
from louver.kernels.warm import WarmCalls
from louver.passes.layout import metadata_words
from louver.passes.schedule import Schedule
from louver.runtime.driver import is_capturing


class TensorState:
    """What has been made for one sparse tensor. It does not keep the tensor."""

    def __init__(self) -> None:
        self.warm = WarmCalls()
        self._operands: dict[tuple[int, int], DeviceOperand] = {}
        self._tiles: dict[int, TileOperand] = {}
        self._launchers: dict[tuple[Problem, Schedule, int], Launcher] = {}
        self._lock = threading.Lock()

    def launcher(self, s: SparseTensor, problem: Problem, schedule: Schedule, ordinal: int, stream: int) -> Launcher:
        """A product of `s`, the state's own tensor, on a device; compiled, loaded and uploaded the first time.

        Raises RuntimeError when something is missing and `stream`, where the launch will go, is being captured.
        """
        key = (problem, schedule, ordinal)
        found = self._launchers.get(key)
        if found is None:
            place = (ordinal, metadata_words(schedule, s.dtype.name))
            if not (place in self._operands and is_loaded(*key)) and is_capturing(stream):
                usual = accumulator_of(problem.a)
                sums = "" if problem.accumulate == usual else f", accumulate={problem.accumulate!r}"
                epilogue = f", epilogue=louver.{problem.epilogue!r}" if problem.epilogue.floating else ""
                batch = {None: "", "dense": ", batch=…", "both": "", "sparse": ", batch=1"}[problem.batch]
                raise RuntimeError(
                    "a product must be compiled and its operand uploaded before its stream is captured: call "
                    f"louver.prepare(s, n=…, kind={problem.kind!r}, bias={problem.bias is not None}, "
                    f"out_dtype={problem.out!r}, layout={problem.b_layout!r}{batch}{sums}{epilogue}) before the capture"
                )
            found = self._launchers.setdefault(key, Launcher(loaded(*key), self.operand(s, *place), s.shape))
        return found

    def has_tiles(self, ordinal: int) -> bool:
        """Whether `tiles` has been uploaded already."""
        return ordinal in self._tiles

    def tiles(self, s: SparseTensor, ordinal: int) -> TileOperand:
        """The operand of kernels of register tiles."""
        with self._lock:
            found = self._tiles.get(ordinal)
            if found is None:
                found = self._tiles[ordinal] = upload_tiles(s, ordinal)
            return found

    def has_operand(self, ordinal: int, words: int) -> bool:
        """Whether `operand` has been uploaded already."""
        return (ordinal, words) in self._operands

    def operand(self, s: SparseTensor, ordinal: int, words: int) -> DeviceOperand:
        """The operand with so many words a load of metadata; one upload of the values serves all."""
        with self._lock:
            found = self._operands.get((ordinal, words))
            if found is None:
                other = next((operand for (place, _), operand in self._operands.items() if place == ordinal), None)
                found = upload(s, ordinal, words) if other is None else with_words(other, s, words)
                self._operands[ordinal, words] = found
            return found


class TensorStates:
    """States by tensor, which are found by identity and dropped when it dies."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[SparseTensor], TensorState]] = {}
        self._lock = threading.Lock()

    def find(self, s: SparseTensor) -> TensorState | None:
        """The tensor's state, None for whatever has none."""
        # A dictionary with weak keys costs the hot path four times as much.
        kept = self._kept.get(id(s))
        return kept[1] if kept is not None and kept[0]() is s else None

    def of(self, s: SparseTensor) -> TensorState:
        """The tensor's state, a new one the first time."""
        with self._lock:
            found = self.find(s)
            if found is None:
                found = TensorState()
                number = id(s)
                # Called when the tensor dies, at any time: it takes no lock.
                self._kept[number] = (weakref.ref(s, lambda dead: self._drop(number, dead)), found)
            return found

    def _drop(self, number: int, dead: weakref.ref[SparseTensor]) -> None:
        kept = self._kept.get(number)
        if kept is not None and kept[0] is dead:
            del self._kept[number]


@functools.cache
def states() -> TensorStates:
    """The process's states."""
    return TensorStates()
