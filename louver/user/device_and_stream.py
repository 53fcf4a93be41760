"""The device and the stream of a call's arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from louver.runtime.adapters import DEFAULT_STREAMS
from louver.runtime.arrays import ArrayView


def place(name: str, found: Mapping[str, ArrayView]) -> tuple[int | None, int]:
    """The device of the call's arrays, None for host memory, and the stream that their library works on."""
    arrays = list(found.items())
    if not arrays:
        raise ValueError(f"{name} needs at least one array among its arguments, to store to")
    (first, array), *others = arrays
    for other, its in others:
        if its.device != array.device:
            raise ValueError(
                f"{name}'s arrays must be in one place, got {first!r} {_where(array)} and {other!r} {_where(its)}"
            )
    return array.device, _stream(name, arrays)


def _stream(name: str, arrays: Sequence[tuple[str, ArrayView]]) -> int:
    """The stream that the arrays' libraries work on, the default one where none names any. Raises ValueError for several."""
    named = [each for each in arrays if each[1].stream is not None and each[1].names_stream]
    handles = [0 if array.stream in DEFAULT_STREAMS else array.stream for _, array in named]
    for (other, found), handle in zip(named, handles, strict=True):
        if handle != handles[0]:
            first, array = named[0]
            raise ValueError(
                f"{name}'s arrays must be in use on one stream, got {first!r} ({array.kind}) on stream "
                f"{array.stream:#x} and {other!r} ({found.kind}) on stream {found.stream:#x}; neither stream "
                "waits for the other: make one of them the current stream of both libraries, or hand all "
                "arrays to one library, which then waits (torch.from_dlpack)"
            )
    return max(array.stream or 0 for _, array in named or arrays)


def _where(array: ArrayView) -> str:
    return "in host memory" if array.device is None else f"on device {array.device}"
