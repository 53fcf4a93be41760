"""`louver.jit(kernel, find=…)`: dense arguments that hold a pattern are multiplied by sparse tensor cores."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from louver.formats.dynamo import opaque
from louver.formats.tensor import SparseTensor
from louver.runtime.adapters import make_wait
from louver.runtime.arrays import view
from louver.user.arguments import Call, Kind, canonical, plain
from louver.user.compiled import UncleanKernelError, multiples_of, target_of
from louver.user.dense_argument import Axis, DenseArgument, NotFoundError, contracted_axis, in_memory_order, pattern_for
from louver.user.descriptor import TensorDescriptor
from louver.user.device_and_stream import place, refuse_capture
from louver.user.explanation import Explanation
from louver.user.hints import Hints
from louver.user.interpreted import TARGET
from louver.user.jit_kernel import Grid, JitKernel, grid_sizes
from louver.user.launched_calls import LaunchedCall
from louver.user.remembered import Remembered
from louver.user.source import Parameter

if TYPE_CHECKING:
    from louver.emulator import Report
    from louver.user.found_launch import FoundLaunch

Asked: TypeAlias = "dict[str, DenseArgument | NotFoundError]"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The comparison of a call's two ways. found: whether the arguments are found. why: the times, or the reason."""

    found: bool
    why: str


@opaque
class FindingKernel(JitKernel):
    """A kernel whose dense arguments named in `find` may hold a pattern, see `louver.jit`. Threads may share it.

    A call without `frozen` remembers nothing of the contents. On a GPU it checks and compresses the arguments in the
    order of the stream, without waiting, and a flag on the device decides which of two kernels runs. It does so only for
    sizes for which that was measured to be faster than the dense kernel, at the first call outside a capture.
    """

    def __init__(self, inner: JitKernel, find: Sequence[str], frozen: Sequence[str]) -> None:
        super().__init__(inner._source, inner._hints)
        check_names(self._source.name, self._parameters, find, frozen)
        self._inner = inner
        self._find = tuple(find)
        self._frozen = tuple(frozen)
        self._all_frozen = set(find) <= set(frozen)
        self._places = {each.name: index for index, each in enumerate(self._parameters)}
        self._constants = tuple(each.name for each in self._parameters if each.constexpr)
        self._remembered = Remembered()
        self._axes: dict[tuple[Kind, str], Axis] = {}
        self._outcomes: dict[Hashable, Outcome] = {}
        self._measuring = threading.Lock()
        self._rooms: Any = None

    def forget(self, array: Any) -> None:
        """Drop what is remembered of a frozen argument, of all views of its memory. Call it after a write: the next call
        checks again. CUDA graphs with the old contents must be captured again.
        """
        view(array.detach() if hasattr(array, "detach") else array)
        self._remembered.forget(array)

    def _launch(self, grid: Grid, *args: Any, **kwargs: Any) -> None:
        args, kwargs = self._with_frozen(args, kwargs)
        if self._all_frozen:
            self._inner[grid](*args, **kwargs)
            return
        super()._launch(grid, *args, **kwargs)

    def _first(self, grid: Grid, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call, hints = self._call(args, kwargs)
        ordinal, stream = place(self._source.name, call.arrays, call.sparse)
        sizes = grid_sizes(grid, call.given)
        asked = self._asked(call)
        if ordinal is None:
            self._interpreted(call.with_sparse(_held(asked)), hints, sizes)
            return
        reads = self._source.reads
        launch = None if 0 in sizes else self._chosen(grid, args, kwargs, (call, hints), asked, (ordinal, stream))
        if launch is None:
            self._inner[grid](*args, **kwargs)
            return
        for array in call.arrays.values():
            make_wait(array, stream)
        launch()
        self._recent.keep(args, kwargs, LaunchedCall.of(launch, sizes, call, reads, ordinal))

    def _prepare(self, grid: Grid, *args: Any, **kwargs: Any) -> None:
        from louver.user.snapshot import DeviceSnapshot

        args, kwargs = self._with_frozen(args, kwargs)
        if self._all_frozen:
            self._inner.prepare[grid](*args, **kwargs)
            return
        call, hints = self._call(args, kwargs)
        ordinal, stream = place(self._source.name, call.arrays, call.sparse)
        asked, launch = self._asked(call), None
        if ordinal is not None and 0 not in grid_sizes(grid, call.given):
            launch = self._chosen(grid, args, kwargs, (call, hints), asked, (ordinal, stream))
        if ordinal is None or launch is None:
            self._inner.prepare[grid](*args, **kwargs)
            return
        with closing(DeviceSnapshot(_written(call, asked), ordinal, stream)) as kept:
            try:
                launch()
            finally:
                kept.restore()

    def _emulate(self, grid: Grid, *args: Any, **kwargs: Any) -> Report:
        args, kwargs = self._with_frozen(args, kwargs)
        if self._all_frozen:
            return self._inner.emulate[grid](*args, **kwargs)
        call, hints = self._call(args, kwargs)
        arguments = _arguments(asked := self._asked(call))
        if not arguments or any(array.host is None for array in call.arrays.values()):
            return self._inner.emulate[grid](*args, **kwargs)
        held = _held(asked)
        flag = view(np.array([len(held) < len(arguments)], np.int32))
        tensors = {name: held[name] if name in held else each.pruned() for name, each in arguments.items()}
        sizes = grid_sizes(grid, call.given)
        kept = self._emulated(call.with_sparse(tensors).flagged(flag, "zero"), hints, sizes)
        broken = self._emulated(call.flagged(flag, "not zero"), hints, sizes)
        return kept if len(held) == len(arguments) else broken

    def _explain(self, grid: Grid | None, *args: Any, **kwargs: Any) -> Explanation:
        """How a call runs now, with what was found and which way was measured to be faster. Reads the arguments, and waits for
        the device.
        """
        given = self._named(args, kwargs)
        args, kwargs = self._with_frozen(args, kwargs)
        now = self._named(args, kwargs)
        lines = [
            f"{name}: frozen, {'found' if isinstance(_base(now[name]), SparseTensor) else 'holds no pattern that can be found'}"
            for name in self._frozen
            if name in given and not isinstance(_base(given[name]), SparseTensor)
        ]
        if self._all_frozen:
            explain = self._inner.explain if grid is None else self._inner.explain[grid]
            return replace(explain(*args, **kwargs), found=tuple(lines))
        call, hints = self._call(args, kwargs)
        asked = self._asked(call)
        held = _held(asked)
        for name, each in asked.items():
            if isinstance(each, NotFoundError):
                lines.append(f"{name}: dense, {each}")
            else:
                lines.append(f"{name}: {'holds' if name in held else 'does not hold'} {each.where}")
        arguments = _arguments(asked)
        whole = bool(arguments) and len(held) == len(arguments)
        ordinal = next(iter(call.arrays.values())).device
        outcome = None if ordinal is None else self._outcomes.get(self._class(call, hints, arguments, ordinal))
        if outcome is not None:
            lines.append(outcome.why)
        elif arguments:
            lines.append("not measured: found wherever it holds" if ordinal is None else "measured at the first call")
        found = held if whole and (outcome is None or outcome.found) else {}
        sizes = grid_sizes(grid, call.given)
        return replace(self._explained(call.with_sparse(found), hints, sizes), found=tuple(lines))

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self._places, args, strict=False)), **kwargs}

    def _with_frozen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, with sparse tensors in place of frozen ones that hold their pattern."""
        if not self._frozen:
            return args, kwargs
        given = self._named(args, kwargs)
        constants = tuple(str(canonical(plain(given[name]))) for name in self._constants if name in given)
        for name in self._frozen:
            value = given.get(name)
            base = _base(value)
            if value is None or isinstance(base, SparseTensor):
                continue
            array = view(base)
            facts = (name, array.address, array.shape, array.strides, array.element.name, array.device, constants)
            s = self._remembered.of(base, facts, partial(self._frozen_one, args, kwargs, name))
            if s is None:
                continue
            made = s if base is value else TensorDescriptor(s, value.shape, value.strides, value.block_shape)
            if name in kwargs:
                kwargs = {**kwargs, name: made}
            else:
                args = tuple(made if index == self._places[name] else each for index, each in enumerate(args))
        return args, kwargs

    def _frozen_one(self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> SparseTensor | None:
        try:
            return self._argument(self._inner._typical(args, kwargs), name).sparse()
        except NotFoundError:
            return None

    def _asked(self, call: Call) -> Asked:
        """The arguments of a call that are looked at before each launch, or the reasons why they cannot be found."""
        found: Asked = {}
        for name in self._find:
            if name in self._frozen or name not in call.arrays:
                continue
            try:
                found[name] = self._argument(call, name)
            except NotFoundError as reason:
                found[name] = reason
        return found

    def _argument(self, call: Call, name: str) -> DenseArgument:
        """Raises ValueError if no dot contracts the argument, NotFoundError if it cannot be found."""
        array = call.arrays[name]
        pattern = pattern_for(name, array)
        axis = self._axes.get((call.kind, name))
        if axis is None:
            target = target_of(array.device) if array.device is not None else TARGET
            axis = contracted_axis(self._source, call.kind, name, str(pattern), target)
            self._axes[call.kind, name] = axis
        return DenseArgument(name, in_memory_order(name, array), pattern, axis)

    def _class(self, call: Call, hints: Hints, arguments: Mapping[str, DenseArgument], ordinal: int) -> Hashable:
        """The calls that one measurement decides: equal kernels and alignment, and sizes between the same powers of two."""
        sizes = tuple((name, plain_class(value)) for name, value in sorted(call.numbers.items()))
        shapes = tuple((name, tuple(map(plain_class, each.array.shape)), each.axis) for name, each in arguments.items())
        return call.kind, hints, multiples_of(call), sizes, shapes, ordinal

    def _chosen(
        self,
        grid: Grid,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bound: tuple[Call, Hints],
        asked: Asked,
        at: tuple[int, int],
    ) -> FoundLaunch | None:
        """The launch that finds the arguments; None if the dense kernel runs alone. bound: the call. at: device, stream."""
        from louver.user.found_launch import FoundCall, FoundLaunch
        from louver.user.found_memory import AllRooms

        (call, hints), (ordinal, stream), arguments = bound, at, _arguments(asked)
        if not arguments:
            return None
        key = self._class(call, hints, arguments, ordinal)
        outcome = self._outcomes.get(key)
        if outcome is not None and not outcome.found:
            return None
        if outcome is None:
            refuse_capture(self._source.name, "measured", stream)
        with self._measuring:
            self._rooms = self._rooms or AllRooms()
            found = FoundCall.of(self._source, hints, call, arguments, grid_sizes(grid, call.given), ordinal)
            launch = FoundLaunch(found, self._rooms, stream)
            try:
                launch.bind()
            except (ValueError, UncleanKernelError) as error:
                # The dense call runs in any case. It raises its own error if its arguments are wrong.
                self._outcomes[key] = Outcome(False, f"not found: {error}")
                return None
            if outcome is None:
                outcome = self._measured(grid, args, kwargs, call, asked, launch, at)
                self._outcomes[key] = outcome
        return launch if outcome.found else None

    def _measured(
        self,
        grid: Grid,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Call,
        asked: Asked,
        launch: FoundLaunch,
        at: tuple[int, int],
    ) -> Outcome:
        from louver.user.snapshot import DeviceSnapshot
        from louver.user.timing import Trial, measure

        ordinal, stream = at
        for array in call.arrays.values():
            make_wait(array, stream)
        with closing(DeviceSnapshot(_written(call, asked), ordinal, stream)) as kept:
            ways = (launch.rehearse, lambda: self._inner[grid](*args, **kwargs))
            try:
                trials = [Trial(way, lambda: None, lambda error: None) for way in ways]
                found, dense = measure(trials, ordinal, stream)
            finally:
                kept.restore()
        times = f"check, compression and sparse kernel take {1e6 * found:.0f} µs, the dense kernel {1e6 * dense:.0f} µs"
        return Outcome(found < dense, f"measured on this GPU: {times}")


def check_names(kernel: str, parameters: Sequence[Parameter], find: Any, frozen: Any) -> None:
    """Raises TypeError unless both are tuples of names, ValueError unless these are arguments of the kernel that may be
    arrays, and frozen ones are in `find`.
    """
    arrays = [each.name for each in parameters if not each.constexpr and not each.type]
    for what, given in (("find", find), ("frozen", frozen)):
        names = list(cast("Sequence[Any]", given)) if isinstance(given, tuple | list) else [None]
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f'{what} is a tuple of names of arguments, such as ("w",), got {given!r}')
        unknown = [name for name in names if name not in arrays]
        if unknown:
            raise ValueError(
                f"{what} names arguments of {kernel} that may be arrays, {', '.join(arrays)}, got {unknown[0]!r}"
            )
    alone = [name for name in frozen if name not in find]
    if alone:
        raise ValueError(
            f"frozen promises that found arguments are not written, got {alone[0]!r}, which is not in find: add it there"
        )


def plain_class(value: Any) -> Any:
    """The power of two from which on an integer is in the same class; other numbers are all one class."""
    return (value - 1).bit_length() if type(value) is int and value > 0 else type(value).__name__


def _base(value: Any) -> Any:
    return value.base if hasattr(value, "block_shape") else value


def _arguments(asked: Asked) -> dict[str, DenseArgument]:
    return {name: each for name, each in asked.items() if isinstance(each, DenseArgument)}


def _held(asked: Asked) -> dict[str, SparseTensor]:
    """The sparse tensors of the arguments that hold their patterns now."""
    made = {name: each.sparse() for name, each in _arguments(asked).items()}
    return {name: s for name, s in made.items() if s is not None}


def _written(call: Call, asked: Asked) -> list[Any]:
    """The arrays that a kernel may write. A sparse kernel never stores to a found argument."""
    return [array for name, array in call.arrays.items() if name not in _arguments(asked)]
