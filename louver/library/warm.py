"""Warm calls: products of PyTorch tensors whose facts were checked before, launched with little host time.

The first call of a kind goes through every check and is then remembered in two steps: by all that the checks looked at but
for addresses (element types, shapes, strides, devices), and below that by addresses, with the bound arguments. A call that
differs in the first is checked in full again; one that differs in the second has alignment and overlap checked again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from louver.library.bind import Sized
from louver.library.dense import same_place
from louver.library.fused import NOTHING, Fused, Given, Place
from louver.library.launch import Launcher, Sendable
from louver.library.request import Request
from louver.library.rows import Rows
from louver.runtime.arrays import ArrayView
from louver.runtime.known_calls import KnownCalls, keep_recent

RECENT_CALLS = 256
"""Kinds of calls remembered for a sparse tensor or a plan."""

RECENT_ADDRESSES = 64
"""Combinations of addresses remembered for a kind of call."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A launch that was checked and made: its launcher, numbers and grid, both matrices in place, options."""

    launcher: Launcher
    sized: Sized
    dense: Rows
    out: Rows
    fused: Fused


class WarmCall:
    """One kind of call: everything is fixed but the places of its arrays, the values of its numbers and the stream.

    empty: makes an output. launches: by places, see `WarmCalls`.
    """

    __slots__ = (
        "_c_is_like_out",
        "_dense_bytes",
        "_out_bytes",
        "_placed",
        "_reads",
        "empty",
        "launches",
    )

    def __init__(self, request: Request, out: ArrayView, placed: Placed) -> None:
        fused = placed.fused
        # torch.empty with its device named takes half the time of a tensor's new_empty.
        self.empty: Callable[[], Any] = partial(
            sys.modules["torch"].empty, request.shape, dtype=out.owner.dtype, device=out.owner.device
        )
        self._dense_bytes = _extent(request.dense)
        self._out_bytes = _extent(out)
        c = fused.arrays.get("c")
        # An address of the output need not be aligned for another element type.
        self._c_is_like_out = (
            c is not None and c.element == out.element and same_place(replace(c, address=out.address), out)
        )
        # A record must not keep the caller's arrays: their facts are enough.
        facts = fused.moved_to_facts()
        self._placed = replace(placed, fused=facts)
        self._reads = [(name, facts.arrays.get(name)) for name in Given._fields]
        self.launches: dict[tuple[Place, ...], Sendable] = {}

    def bind(self, dense: int, out: int, stream: int, *options: Place) -> Sendable | None:
        """The launch with dense operand, output and options at these places, kept in `launches`; None when they need the checks
        of a first call.
        """
        placed = self._placed
        rows, result = placed.dense.moved(dense), placed.out.moved(out)
        if not (rows.aligned and self._writes_apart(out, dense, self._dense_bytes)):
            return None
        # The kernel was chosen for an output of this alignment.
        if result.bulk_writable != placed.out.bulk_writable or out % result.element_bytes:
            return None
        if options and not self._may_read(out, options):
            return None
        launch = placed.launcher.bound(placed.sized, rows, result, placed.fused.bind(options), stream)
        return keep_recent(self.launches, (dense, out, stream, *options), launch, RECENT_ADDRESSES)

    def _may_read(self, out: int, options: tuple[Place, ...]) -> bool:
        """Whether the options' arrays are aligned to their elements, and apart from the output or, `c` only, the output."""
        for (name, array), place in zip(self._reads, options, strict=True):
            if array is None or not isinstance(place, int):
                continue
            whole = name == "c" and place == out and self._c_is_like_out
            if place % array.element.bytes or not (whole or self._writes_apart(out, place, _extent(array))):
                return False
        return True

    def _writes_apart(self, out: int, place: int, nbytes: int) -> bool:
        """Whether the output's bytes lie before or behind an input's; other ways to be apart need the full check."""
        return out + self._out_bytes <= place or place + nbytes <= out


class WarmCalls(KnownCalls[WarmCall]):
    """The kinds of calls seen lately for one sparse tensor or plan."""

    __slots__ = ()

    def launch(self, options: Hashable, x: Any, given: Given, out: Any) -> Any:
        """The output, its computation sent to torch's current stream; None, and nothing done, unless the call is known.

        options: all that decides about the call besides arrays and numbers.
        """
        types = self.types
        if type(x) not in types:
            return None
        try:
            ordinal = x.get_device()
            call = self.calls.get(_key(types, options, x, ordinal, given, out))
        except (RuntimeError, TypeError):
            # Tensors without strides (sparse, nested), options that are none: the checks say what is wrong.
            return None
        if call is None:
            return None
        made = call.empty() if out is None else out
        places: tuple[Any, ...] = (x.data_ptr(), made.data_ptr(), self.stream(ordinal))
        if given is not NOTHING:
            # Written out: a function call for each of the options would cost as much as the launch's arguments.
            places += tuple(
                [
                    None if value is None else value.data_ptr() if type(value) in types else value or repr(value)
                    for value in given
                ]
            )
        launch = call.launches.get(places) or call.bind(*places)
        if launch is None:
            return None
        code = launch.send()[0]
        if code:
            launch.recover(int(code))
        return made

    def keep(
        self, options: Hashable, arrays: tuple[Any, Given, Any], request: Request, out: ArrayView, placed: Placed
    ) -> None:
        """Remember a call that was checked and launched, if its arrays are torch tensors. arrays: x, options, out as given."""
        x, given, result = arrays
        if out.kind != "torch" or not self.know_torch() or type(x) not in self.types:
            return
        with contextlib.suppress(TypeError):
            key = _key(self.types, options, x, x.get_device(), given, result)
            keep_recent(self.calls, key, WarmCall(request, out, placed), RECENT_CALLS)


def _key(types: tuple[type, ...], options: Hashable, x: Any, ordinal: int, given: Given, out: Any) -> Hashable:
    """All that the checks look at but for addresses and numbers. Raises for what only the checks can judge."""
    read = None if given is NOTHING else tuple([None if value is None else _facts(value, types) for value in given])
    if out is None:
        return (options, read, x.dtype, x.shape, x.stride(), ordinal, x.is_neg())
    if type(out) not in types:
        raise TypeError("only plain tensors are known by their facts")
    # One tuple: another one in it would have to be made and hashed as well.
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
    """A tensor's facts, or that it is a number."""
    if type(value) in types:
        return (value.dtype, value.shape, value.stride(), value.get_device(), value.is_neg())
    if type(value) in (float, int):
        return float
    raise TypeError("only plain tensors and numbers are known by their facts")


def _extent(array: ArrayView) -> int:
    first, last = array.byte_range
    return last - first
