"""Warm calls: products of PyTorch tensors that passed the checks before, launched with little host time.

The first call of a kind passes all checks. It is then remembered at two levels:

1. by all that the checks read except addresses: element types, shapes, strides, devices
2. below that by addresses, with the bound arguments

A call that differs at the first level is checked in full. A call that differs only at the second has its alignment and
overlap checked again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from math import gcd
from typing import Any

from louver.choose.times import LINE_BYTES
from louver.formats.torch_tensors import check_memory
from louver.library.copied import CopiedFirst, RowCopy
from louver.library.dense import same_place
from louver.library.fused import NOTHING, Fused, Given, Place
from louver.library.launch import Launcher, Sendable, Sized
from louver.library.request import Request
from louver.library.rows import PITCH, Rows
from louver.runtime.arrays import ArrayView, Kind
from louver.runtime.dlpack import row_major
from louver.runtime.known_calls import KnownCalls, Same, keep_recent, never

RECENT_CALLS = 256
"""Kinds of calls that are remembered for a sparse tensor or a plan."""

RECENT_ADDRESSES = 64
"""Combinations of addresses that are remembered for a kind of call."""

MISSES = 16
"""Calls that a guard fails to recognize before it is replaced. A new guard takes as long as some calls."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A launch that was checked and made.

    launcher: its launcher.
    sized: its numbers and grid.
    dense: the dense operand that the kernel reads.
    copy: the copy that writes this operand; None if it is read in place.
    kind: the library that allocates the copy.
    out: the output.
    fused: its options.
    """

    launcher: Launcher
    sized: Sized
    dense: Rows
    copy: RowCopy | None
    kind: Kind
    out: Rows
    fused: Fused

    def at(self, dense: int, out: int, stream: int, *options: Place) -> Sendable | CopiedFirst:
        """The launch with the caller's dense operand, output and options at these addresses.

        Raises RuntimeError if it copies and the copying kernels are not loaded while the stream is being captured.
        """
        launcher, sized, rows = self.launcher, self.sized, self.dense
        result, bound = self.out.moved(out), self.fused.bind(options)

        def product(address: int) -> Sendable:
            return launcher.bound(sized, rows.moved(address), result, bound, stream)

        if self.copy is None:
            return product(dense)
        return CopiedFirst(self.copy, dense, product, self.kind, launcher.kernel.device.ordinal, stream)


class WarmCall:
    """One kind of call. Only the addresses of arrays, the values of numbers and the stream may change.

    options: as given to `WarmCalls.launch`.
    ordinal: number of the device.
    kinds: types of the options with values, or `NOTHING` itself.
    empty: makes an output.
    launches: launches by addresses and numbers.
    same: whether tensors have the properties of its x, output and options.
    alone: the same for x and options, where the call makes its output.
    missed: calls of this kind that `same` and `alone` did not recognize.
    """

    __slots__ = (
        "_arrays",
        "_c_is_like_out",
        "_dense_bytes",
        "_out_bytes",
        "_placed",
        "_reads",
        "alone",
        "empty",
        "kinds",
        "launches",
        "missed",
        "options",
        "ordinal",
        "same",
    )

    def __init__(self, options: Hashable, request: Request, out: ArrayView, fused: Fused) -> None:
        self.options = options
        self.ordinal = out.device or 0
        self.kinds: tuple[Any, ...] = ()
        self._arrays: tuple[bool, ...] = ()
        self.same: Same = never
        self.alone: Same = never
        self.missed = 0
        # With strides and a device, `empty_strided` takes less time than `empty` or `new_empty`.
        self.empty: Callable[[], Any] = partial(
            sys.modules["torch"].empty_strided,
            request.shape,
            row_major(request.shape),
            dtype=out.owner.dtype,
            device=out.owner.device,
        )
        self._dense_bytes = _extent(request.dense)
        self._out_bytes = _extent(out)
        c = fused.arrays.get("c")
        # The address of the output need not be aligned for another element type.
        self._c_is_like_out = (
            c is not None and c.element == out.element and same_place(replace(c, address=out.address), out)
        )
        self._placed: dict[tuple[int, bool], Placed] = {}
        self._reads = [(name, fused.arrays.get(name)) for name in fused.names]
        self.launches: dict[tuple[Place, ...], Sendable | CopiedFirst] = {}

    def add(self, dense: int, out: int, placed: Placed) -> None:
        """Remember a launch that was made with dense operand and output at these addresses."""
        self._placed[_alignment(dense, out)] = placed

    def guard(
        self, made: Callable[[Sequence[Any]], Same], types: tuple[type, ...], x: Any, given: Given, out: Any
    ) -> None:
        """Recognize calls with the properties of these tensors from now on. made: see `KnownCalls.guard`."""
        self.kinds = NOTHING if given is NOTHING else tuple(map(type, given))
        self._arrays = tuple([kind in types for kind in self.kinds])
        same = made([*([x] if out is None else [x, out]), *compress(given, self._arrays)])
        self.same, self.alone = (never, same) if out is None else (same, never)

    def takes(self, x: Any, given: Given, out: Any) -> bool:
        """Whether a call that has options with values is of this kind."""
        if tuple(map(type, given)) != self.kinds:
            return False
        arrays = compress(given, self._arrays)
        return self.alone(x, *arrays) if out is None else self.same(x, out, *arrays)

    def bind(self, dense: int, out: int, stream: int, *options: Place) -> Sendable | CopiedFirst | None:
        """The launch with dense operand, output and options at these addresses, kept in `launches`.

        Returns None if the call needs the checks of a first call.
        """
        placed = self._placed.get(_alignment(dense, out))
        if placed is None or out % placed.out.element_bytes or not self._writes_apart(out, dense, self._dense_bytes):
            return None
        if options and not self._may_read(out, options):
            return None
        launch = placed.at(dense, out, stream, *options)
        return keep_recent(self.launches, (dense, out, stream, *options), launch, RECENT_ADDRESSES)

    def _may_read(self, out: int, options: tuple[Place, ...]) -> bool:
        """Whether the arrays of the options are aligned to their elements and do not overlap the output. `c` may be
        the output.
        """
        for (name, array), place in zip(self._reads, options, strict=True):
            if array is None or not isinstance(place, int):
                continue
            whole = name == "c" and place == out and self._c_is_like_out
            if place % array.element.bytes or not (whole or self._writes_apart(out, place, _extent(array))):
                return False
        return True

    def _writes_apart(self, out: int, place: int, nbytes: int) -> bool:
        """Whether the output lies entirely before or after an input. Other arrays without overlap need the full
        check.
        """
        return out + self._out_bytes <= place or place + nbytes <= out


class WarmCalls(KnownCalls[WarmCall]):
    """The kinds of calls that were seen recently for one sparse tensor or plan."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        super().__init__()
        self._latest: WarmCall | None = None

    def launch(self, options: Hashable, x: Any, given: Given, out: Any) -> Any:
        """Launch the product on torch's current stream and return its output. Return None and do nothing if the call is
        not known.

        options: all that decides about the call besides arrays and numbers.
        """
        # Read once: another thread may set it.
        call = self._latest
        try:
            if call is None or call.options != options:
                call = self._find(options, x, given, out)
            elif given is call.kinds:
                if not (call.alone(x) if out is None else call.same(x, out)):
                    call = self._find(options, x, given, out)
            elif not call.takes(x, given, out):
                call = self._find(options, x, given, out)
        except (RuntimeError, TypeError, ValueError):
            # Tensors without strides (sparse, nested), or values that are no options: the checks report the error.
            return None
        if call is None:
            return None
        made = call.empty() if out is None else out
        try:
            places: tuple[Any, ...] = (x.data_ptr(), made.data_ptr(), self.stream(call.ordinal))
            if given is not NOTHING:
                types = self.types
                # Written inline: a function call for each option would cost as much as the launch's arguments.
                places += tuple(
                    [
                        value.data_ptr() if type(value) in types else value or repr(value)
                        for value in given
                        if value is not None
                    ]
                )
        except RuntimeError:
            # Tensors without memory, such as those of a transform.
            return None
        launch = call.launches.get(places)
        if launch is None:
            # New addresses. That of a tensor whose storage was freed is never kept.
            launch = call.bind(*places) if self._in_memory(x, made, *given) else None
            if launch is None:
                return None
        code = launch.send()[0]
        if code:
            launch.recover(int(code))
        return made

    def _in_memory(self, *arrays: Any) -> bool:
        try:
            for each in arrays:
                if type(each) in self.types:
                    check_memory(each)
        except ValueError:
            return False
        return True

    def _find(self, options: Hashable, x: Any, given: Given, out: Any) -> WarmCall | None:
        """The call by its key, which becomes the latest one. Raises for arguments that only the checks can judge."""
        types, latest = self.types, self._latest
        if type(x) not in types or self._recorded(x, given, out):
            return None
        call = self.calls.get(_key(types, options, x, x.get_device(), given, out))
        if call is not None and self.guard is not None:
            self._latest = call
            if call is latest:
                # PyTorch's guards depend on its modes, such as inference_mode. They never recognize a call that gives a
                # tensor twice.
                call.missed += 1
                if call.missed % MISSES == 0:
                    call.guard(self.guard, types, x, given, out)
        return call

    def _recorded(self, x: Any, given: Given, out: Any) -> bool:
        """Whether PyTorch records the call, for a gradient or in a trace. The checks refuse it then."""
        if self.modes() or self.trace() is not None:
            return True
        if not self.grad_enabled():
            return False
        return any(type(each) in self.types and each.requires_grad for each in (x, out, *given))

    def keep(
        self, options: Hashable, arrays: tuple[Any, Given, Any], request: Request, out: ArrayView, placed: Placed
    ) -> None:
        """Remember a call that was checked and launched, if its arrays are torch tensors. arrays: x, options and
        out, as given.
        """
        x, given, result = arrays
        if out.kind != "torch" or not self.know_torch() or type(x) not in self.types:
            return
        with contextlib.suppress(TypeError):
            key = _key(self.types, options, x, x.get_device(), given, result)
            # A record must not keep the caller's arrays alive: their properties are enough.
            placed = replace(placed, fused=placed.fused.moved_to_facts())
            call = self.calls.get(key)
            if call is None:
                call = keep_recent(self.calls, key, WarmCall(options, request, out, placed.fused), RECENT_CALLS)
            call.add(request.dense.address, out.address, placed)
            if self.guard is not None:
                call.guard(self.guard, self.types, x, given, result)
                self._latest = call


def _key(types: tuple[type, ...], options: Hashable, x: Any, ordinal: int, given: Given, out: Any) -> Hashable:
    """All that the checks read except addresses and numbers. Raises for arguments that only the checks can judge."""
    read = None if given is NOTHING else tuple([None if value is None else _facts(value, types) for value in given])
    if out is None:
        return (options, read, x.dtype, x.shape, x.stride(), ordinal, x.is_neg())
    if type(out) not in types:
        raise TypeError("only plain tensors are known by their facts")
    # One flat tuple: a nested one would have to be made and hashed as well.
    return (
        options,
        read,
        x.dtype,
        x.shape,
        x.stride(),
        ordinal,
        x.is_neg(),
        out.dtype,
        out.shape,
        out.stride(),
        out.get_device(),
        out.is_neg(),
    )


def _facts(value: Any, types: tuple[type, ...]) -> Hashable:
    """The properties of a tensor, or for a number its type `float`."""
    if type(value) in types:
        return (value.dtype, value.shape, value.stride(), value.get_device(), value.is_neg())
    if type(value) in (float, int):
        return float
    raise TypeError("only plain tensors and numbers are known by their facts")


def _alignment(dense: int, out: int) -> tuple[int, bool]:
    """The alignment of the addresses that decides about the kernel, and about a copy of the dense operand."""
    return gcd(dense, LINE_BYTES), out % PITCH == 0


def _extent(array: ArrayView) -> int:
    first, last = array.byte_range
    return last - first
