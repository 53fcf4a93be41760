"""Warm calls: products of PyTorch tensors whose facts were checked before, launched with little host time.

The first call of a kind goes through every check and is then remembered in two steps: by all that the checks looked at but
for addresses (element types, shapes, strides, devices), and below that by addresses, with the bound arguments. A call that
differs in the first is checked in full again; one that differs in the second has alignment and overlap checked again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

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
    """A launch that was checked and made: its launcher, the dense operand's N, both matrices in place, the arguments."""

    launcher: Launcher
    n: int
    dense: Rows
    out: Rows
    pack: ArgumentPack


class WarmCall:
    """One kind of call: everything is fixed but the addresses of the dense operand, the bias and the output."""

    __slots__ = (
        "_bias",
        "_dense",
        "_dense_bytes",
        "_grid",
        "_kernel",
        "_out_bytes",
        "_packs",
        "_placed",
        "dtype",
        "shape",
    )

    def __init__(self, request: Request, out: ArrayView, placed: Placed) -> None:
        self.shape = request.shape
        self.dtype = out.owner.dtype
        self._placed = placed
        self._kernel = placed.launcher.kernel
        self._grid = placed.launcher.grid(placed.n)
        self._dense_bytes = _extent(request.dense)
        self._out_bytes = _extent(out)
        # The bias's bytes and element size; without one, its address of 0 is apart from every output and aligned.
        self._bias = (0, 1) if request.bias is None else (_extent(request.bias), request.bias.element.bytes)
        bias = 0 if request.bias is None else request.bias.address
        self._packs: dict[tuple[int, int, int], ArgumentPack] = {
            (request.dense.address, bias, out.address): placed.pack
        }

    def launch(self, dense: int, bias: int, out: int, stream: int) -> bool:
        """Launch on these addresses; False, and nothing launched, when they need the checks of a first call."""
        pack = self._packs.get((dense, bias, out))
        if pack is None:
            pack = self._bind(dense, bias, out)
            if pack is None:
                return False
        self._kernel.launch(self._grid, pack, stream)
        return True

    def _bind(self, dense: int, bias: int, out: int) -> ArgumentPack | None:
        placed = self._placed
        rows, result = placed.dense.moved(dense), placed.out.moved(out)
        if not (rows.aligned and self._writes_apart(dense, bias, out)):
            return None
        # The kernel was chosen for an output of this alignment.
        if result.bulk_writable != placed.out.bulk_writable or out % result.element_bytes or bias % self._bias[1]:
            return None
        pack = placed.launcher.arguments(placed.n, rows, result, bias)
        if len(self._packs) >= RECENT_ADDRESSES:
            self._packs.clear()
        self._packs[dense, bias, out] = pack
        return pack

    def _writes_apart(self, dense: int, bias: int, out: int) -> bool:
        """Whether the output's bytes lie before or behind each input's; other ways to be apart need the full check."""
        end = out + self._out_bytes
        after_dense, after_bias = dense + self._dense_bytes, bias + self._bias[0]
        return (end <= dense or after_dense <= out) and (end <= bias or after_bias <= out)


class WarmCalls:
    """The kinds of calls seen lately for one sparse tensor or plan. Threads may share it: what is kept never changes."""

    __slots__ = ("_calls", "_stream", "_types")

    def __init__(self) -> None:
        self._calls: dict[Hashable, WarmCall] = {}
        self._types: tuple[type, ...] = ()
        self._stream: Callable[[int], int] = _no_stream

    def launch(self, options: Hashable, x: Any, bias: Any, out: Any) -> Any:
        """The output, its computation sent to torch's current stream; None, and nothing done, unless the call is known.

        options: all that decides about the call besides the arrays.
        """
        if type(x) not in self._types:
            return None
        try:
            call = self._calls.get(self._key(options, x, bias, out))
        except (RuntimeError, TypeError):
            # Tensors without strides (sparse, nested), options that are none: the checks say what is wrong.
            return None
        if call is None:
            return None
        made = x.new_empty(call.shape, dtype=call.dtype) if out is None else out
        stream = self._stream(x.get_device())
        done = call.launch(x.data_ptr(), 0 if bias is None else bias.data_ptr(), made.data_ptr(), stream)
        return made if done else None

    def keep(
        self, options: Hashable, arrays: tuple[Any, Any, Any], request: Request, out: ArrayView, placed: Placed
    ) -> None:
        """Remember a call that was checked and launched, if its arrays are torch tensors. arrays: x, bias and out as given."""
        if out.kind != "torch":
            return
        if not self._types:
            torch: Any = sys.modules["torch"]
            self._stream = torch_stream(torch)
            self._types = (torch.Tensor, torch.nn.Parameter)
        if not all(array is None or type(array) in self._types for array in arrays):
            return
        if len(self._calls) >= RECENT_CALLS:
            self._calls.clear()
        self._calls[self._key(options, *arrays)] = WarmCall(request, out, placed)

    def _key(self, options: Hashable, x: Any, bias: Any, out: Any) -> Hashable:
        """All that the checks look at but for addresses. Raises for what only the checks can judge."""
        return (
            options,
            x.dtype,
            x.shape,
            x.stride(),
            x.get_device(),
            x.is_neg(),
            None if bias is None else _facts(bias, self._types),
            None if out is None else _facts(out, self._types),
        )


def _facts(tensor: Any, types: tuple[type, ...]) -> Hashable:
    if type(tensor) not in types:
        raise TypeError("only plain tensors are known by their facts")
    return (tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device(), tensor.is_neg())


def _extent(array: ArrayView) -> int:
    first, last = array.byte_range
    return last - first


def _no_stream(ordinal: int) -> int:
    raise RuntimeError(f"no call on device {ordinal} is known yet")
