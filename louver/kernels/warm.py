"""Warm calls: products of PyTorch tensors whose facts were checked before, launched with little host time.

The first call of a kind goes through every check and is then remembered in two steps: by all that the checks looked at but
for addresses (element types, shapes, strides, devices), and below that by addresses, with the bound arguments. A call that
differs in the first is checked in full again; one that differs in the second has alignment and overlap checked again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from louver.kernels.dense import same_place
from louver.kernels.fused import NOT_FUSED, NOTHING, Fused, Given, Place
from louver.kernels.launch import Launcher, Rows
from louver.kernels.request import Request
from louver.runtime.adapters import torch_stream
from louver.runtime.arrays import ArrayView
from louver.runtime.module import ArgumentPack

RECENT_CALLS = 256
"""Kinds of calls remembered for a sparse tensor or a plan."""

RECENT_ADDRESSES = 64
"""Combinations of addresses remembered for a kind of call."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A launch that was checked and made: its launcher, the dense operand's N, both matrices in place, options, arguments."""

    launcher: Launcher
    n: int
    dense: Rows
    out: Rows
    fused: Fused
    pack: ArgumentPack


class WarmCall:
    """One kind of call: everything is fixed but the places of its arrays and the values of its numbers."""

    __slots__ = (
        "_c_is_like_out",
        "_dense_bytes",
        "_fused",
        "_grid",
        "_kernel",
        "_out_bytes",
        "_packs",
        "_placed",
        "_reads",
        "dtype",
        "shape",
    )

    def __init__(self, request: Request, out: ArrayView, placed: Placed) -> None:
        fused = placed.fused
        self.shape = request.shape
        self.dtype = out.owner.dtype
        self._kernel = placed.launcher.kernel
        self._grid = placed.launcher.grid(placed.n, placed.out.batch)
        self._dense_bytes = _extent(request.dense)
        self._out_bytes = _extent(out)
        c = fused.arrays.get("c")
        # An address of the output need not be aligned for another element type.
        self._c_is_like_out = (
            c is not None and c.element == out.element and same_place(replace(c, address=out.address), out)
        )
        # What is kept must not keep the caller's arrays: their facts are enough.
        self._fused = fused.moved_to_facts()
        self._placed = replace(placed, fused=self._fused)
        self._reads = [(name, self._fused.arrays.get(name)) for name in Given._fields]
        self._packs: dict[tuple[Place, ...], ArgumentPack] = {
            (request.dense.address, out.address, *_placed(fused)): placed.pack
        }

    def launch(self, places: tuple[Any, ...], stream: int) -> bool:
        """Launch with dense operand, output and options at these places; False, and nothing launched, when they need the
        checks of a first call.
        """
        pack = self._packs.get(places)
        if pack is None:
            pack = self._bind(*places)
            if pack is None:
                return False
        self._kernel.launch(self._grid, pack, stream)
        return True

    def _bind(self, dense: int, out: int, *options: Place) -> ArgumentPack | None:
        placed = self._placed
        rows, result = placed.dense.moved(dense), placed.out.moved(out)
        if not (rows.aligned and self._writes_apart(out, dense, self._dense_bytes)):
            return None
        # The kernel was chosen for an output of this alignment.
        if result.bulk_writable != placed.out.bulk_writable or out % result.element_bytes:
            return None
        if options and not self._may_read(out, options):
            return None
        pack = placed.launcher.arguments(placed.n, rows, result, self._fused.bind(options))
        if len(self._packs) >= RECENT_ADDRESSES:
            self._packs.clear()
        self._packs[dense, out, *options] = pack
        return pack

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


class WarmCalls:
    """The kinds of calls seen lately for one sparse tensor or plan. Threads may share it: what is kept never changes."""

    __slots__ = ("_calls", "_stream", "_types")

    def __init__(self) -> None:
        self._calls: dict[Hashable, WarmCall] = {}
        self._types: tuple[type, ...] = ()
        self._stream: Callable[[int], int] = _no_stream

    def launch(self, options: Hashable, x: Any, given: Given, out: Any) -> Any:
        """The output, its computation sent to torch's current stream; None, and nothing done, unless the call is known.

        options: all that decides about the call besides arrays and numbers.
        """
        types = self._types
        if type(x) not in types:
            return None
        try:
            call = self._calls.get(self._key(options, x, given, out))
        except (RuntimeError, TypeError):
            # Tensors without strides (sparse, nested), options that are none: the checks say what is wrong.
            return None
        if call is None:
            return None
        made = x.new_empty(call.shape, dtype=call.dtype) if out is None else out
        places = (x.data_ptr(), made.data_ptr())
        if given is not NOTHING:
            # Written out: a function call for each of the options would cost as much as the launch's arguments.
            places += tuple(
                [
                    None if value is None else value.data_ptr() if type(value) in types else value or repr(value)
                    for value in given
                ]
            )
        return made if call.launch(places, self._stream(x.get_device())) else None

    def keep(
        self, options: Hashable, arrays: tuple[Any, Given, Any], request: Request, out: ArrayView, placed: Placed
    ) -> None:
        """Remember a call that was checked and launched, if its arrays are torch tensors. arrays: x, options, out as given."""
        if out.kind != "torch":
            return
        if not self._types:
            torch: Any = sys.modules["torch"]
            self._stream = torch_stream(torch)
            self._types = (torch.Tensor, torch.nn.Parameter)
        x, given, result = arrays
        if type(x) not in self._types:
            return
        try:
            key = self._key(options, x, given, result)
        except TypeError:
            return
        if len(self._calls) >= RECENT_CALLS:
            self._calls.clear()
        self._calls[key] = WarmCall(request, out, placed)

    def _key(self, options: Hashable, x: Any, given: Given, out: Any) -> Hashable:
        """All that the checks look at but for addresses and numbers. Raises for what only the checks can judge."""
        types = self._types
        return (
            options,
            x.dtype,
            x.shape,
            x.stride(),
            x.get_device(),
            x.is_neg(),
            None if given is NOTHING else tuple([None if value is None else _facts(value, types) for value in given]),
            None if out is None else _facts(out, types),
        )


def _facts(value: Any, types: tuple[type, ...]) -> Hashable:
    """A tensor's facts, or that it is a number."""
    if type(value) in types:
        return (value.dtype, value.shape, value.stride(), value.get_device(), value.is_neg())
    if type(value) in (float, int):
        return float
    raise TypeError("only plain tensors and numbers are known by their facts")


def _placed(fused: Fused) -> tuple[Any, ...]:
    """The places of checked options, as `WarmCalls.launch` makes them: 0 as a text, for it equals -0."""
    if fused is NOT_FUSED or not (fused.arrays or fused.numbers):
        return ()
    return tuple(repr(place) if isinstance(place, float) and not place else place for place in fused.places)


def _extent(array: ArrayView) -> int:
    first, last = array.byte_range
    return last - first


def _no_stream(ordinal: int) -> int:
    raise RuntimeError(f"no call on device {ordinal} is known yet")
