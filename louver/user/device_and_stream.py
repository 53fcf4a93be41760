"""The device and the stream of a call's arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from louver.formats.tensor import SparseTensor
from louver.runtime.adapters import DEFAULT_STREAMS
from louver.runtime.arrays import ArrayView
from louver.runtime.driver import is_capturing


def place(name: str, found: Mapping[str, ArrayView], sparse: Mapping[str, SparseTensor]) -> tuple[int | None, int]:
    """The device of the call's arrays (None: host memory), and the stream that their library uses.

    sparse: the call's sparse tensors. Those on a device must be on the same device.
    """
    arrays = list(found.items())
    if not arrays:
        raise ValueError(f"{name} needs at least one array among its arguments, to store to")
    (first, array), *others = arrays
    for other, device in ((other, its.device) for other, its in others):
        if device != array.device:
            raise _apart(name, (first, array.device), (other, device))
    for other, device in ((other, its.device) for other, its in sparse.items()):
        if device not in (None, array.device):
            raise _apart(name, (first, array.device), (other, device))
    return array.device, _stream(name, arrays)


def refuse_capture(name: str, what: str, stream: int) -> None:
    """Raises RuntimeError while `stream` is being captured. what: the missing step in words, such as "compiled"."""
    if is_capturing(stream):
        raise RuntimeError(
            f"{name} must be {what} before its stream is captured: make the call once before the capture, or call "
            f"louver.jit({name}).prepare[grid](…) with the same arguments"
        )


def _stream(name: str, arrays: Sequence[tuple[str, ArrayView]]) -> int:
    """The stream of the arrays' libraries; the default stream if none is named. Raises ValueError for several streams."""
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


def _apart(name: str, *places: tuple[str, int | None]) -> ValueError:
    found = " and ".join(
        f"{argument!r} " + ("in host memory" if device is None else f"on device {device}")
        for argument, device in places
    )
    return ValueError(f"{name}'s arrays must be in one place, got {found}")
