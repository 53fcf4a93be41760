"""A call that checks and compresses its arguments, then launches two kernels, of which a flag on the device stops one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from louver.isa.targets import target as machine
from louver.runtime.device import device
from louver.runtime.driver import device_context
from louver.runtime.memory import fill_bytes
from louver.runtime.violations import Page
from louver.user.arguments import Call
from louver.user.compiled import target_of
from louver.user.dense_argument import DenseArgument
from louver.user.found_memory import AllRooms, FoundMemory, room_key
from louver.user.hints import Hints
from louver.user.launch import ready
from louver.user.source import KernelSource, ReadOnce

Step: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The work of a call, in the order of its stream. clear: sets the counters to 0. compress: checks and compresses the
    arguments. kernels: the sparse kernel, which runs if all hold their patterns, and the dense one, which runs if not.
    page: where they report violations; None for kernels that have no computed addresses.
    """

    clear: Step
    compress: tuple[Step, ...]
    kernels: tuple[Step, Step]
    page: Page | None


@dataclass(frozen=True, slots=True, eq=False)
class FoundCall:
    """A call with dense arguments that may hold patterns. It keeps addresses, not arrays."""

    source: KernelSource
    hints: Hints
    call: Call
    arguments: tuple[DenseArgument, ...]
    grid: Sequence[int]
    ordinal: int

    @classmethod
    def of(
        cls,
        source: KernelSource,
        hints: Hints,
        call: Call,
        arguments: Mapping[str, DenseArgument],
        grid: Sequence[int],
        ordinal: int,
    ) -> FoundCall:
        arrays = {name: replace(array, owner=None) for name, array in call.arrays.items()}
        kept = tuple(replace(each, array=replace(each.array, owner=None)) for each in arguments.values())
        return cls(source, hints, replace(call, arrays=arrays, given={}), kept, grid, ordinal)

    def steps(self, rooms: AllRooms, key: tuple[int, ...], stream: int) -> Steps:
        """The call with the rooms of a key on a stream. Raises ValueError if the sparse or the dense kernel does not take it,
        NotFoundError for arguments that cannot be compressed in place.
        """
        held = rooms.of(self.arguments[0].array, key)
        own = {each.name: held.of(each) for each in self.arguments}
        kept = self.call.with_sparse({name: room.s for name, room in own.items()}).flagged(held.flag, "zero")
        broken = self.call.flagged(held.flag, "not zero")
        with device_context(self.ordinal):
            place = machine(target_of(self.ordinal)), device(self.ordinal).sm_count
            asked = ReadOnce(self.source), self.hints, kept, self.grid, self.ordinal, stream
            memory = FoundMemory(*asked, *place, rooms=own)
            sparse = memory.ready()
            dense = ready(self.source, self.hints, broken, self.grid, self.ordinal, stream)
        counters = held.counters
        compress = [
            launch
            for each in self.arguments
            for launch in own[each.name].launches(
                each.array, each.axis, tuple(dict.fromkeys(memory.forms.get(each.name, ()))), counters.address
            )
        ]
        clear = partial(fill_bytes, counters.address, 0, counters.size, ordinal=self.ordinal, stream=stream)
        sent = tuple(partial(each.send, self.ordinal, stream) for each in compress)
        return Steps(clear, sent, (sparse.launch, dense.launch), sparse.page or dense.page)


class FoundLaunch:
    """The launch of a `FoundCall` on a stream. Nothing waits, and nothing is allocated after the first launch of a stream
    or of a capture.

    send, recover, on: as in `BoundLaunch`.
    """

    __slots__ = ("_bound", "_call", "_rooms", "_stream")

    def __init__(
        self, call: FoundCall, rooms: AllRooms, stream: int, bound: dict[tuple[int, ...], Steps] | None = None
    ) -> None:
        self._call = call
        self._rooms = rooms
        self._stream = stream
        self._bound = {} if bound is None else bound

    def on(self, stream: int) -> FoundLaunch:
        """The same launch on another stream, with the memory of that stream."""
        return FoundLaunch(self._call, self._rooms, stream, self._bound)

    def bind(self) -> Steps:
        """The steps for the stream as it is now, captured or not. Raises as `FoundCall.steps`."""
        key = room_key(self._call.ordinal, self._stream)
        with self._rooms.lock:
            found = self._bound.get(key)
            if found is None:
                found = self._bound[key] = self._call.steps(self._rooms, key, self._stream)
            return found

    def __call__(self) -> None:
        """Send the work of the call. Raises as its kernels do, and AddressError for what they have reported."""
        with self._rooms.lock:
            steps = self.bind()
            if steps.page is not None:
                steps.page.check()
            for step in (steps.clear, *steps.compress, *steps.kernels):
                step()

    def rehearse(self) -> None:
        """The work of a call whose arguments hold their patterns, whatever they hold."""
        with self._rooms.lock:
            steps = self.bind()
            for step in (steps.clear, *steps.compress, steps.clear, *steps.kernels):
                step()

    def send(self) -> tuple[Any, ...]:
        """As `__call__`. Returns a tuple with the code of success."""
        self()
        return (0,)

    def recover(self, code: int) -> None:
        """Send the work again."""
        self()
