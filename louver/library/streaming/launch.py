"""Builds, loads and launches streaming kernels."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from louver.isa.targets import FP8, target
from louver.library.streaming.derived.record import Derived
from louver.library.streaming.record import ScaledRows, Streaming
from louver.library.streaming.squares.record import Squared
from louver.library.streaming.windows.record import Windowed
from louver.runtime.built import load_built
from louver.runtime.device import device
from louver.runtime.driver import is_capturing
from louver.runtime.module import ArgumentPack, LoadedKernel

if TYPE_CHECKING:
    from louver.library.streaming.place import Record
    from louver.ptx.module import Kernel

MOST_CTAS = 65_535
"""Most CTAs of a grid along y."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and its arguments.

    record: the kernel; None if there is nothing to do.
    arguments: by parameter.
    tiles: columns and rows of tiles.
    """

    record: Record | None
    arguments: dict[str, int] = field(default_factory=dict[str, int])
    tiles: tuple[int, int] = (0, 0)

    def send(self, ordinal: int = 0, stream: int = 0) -> None:
        """Launch the kernel on a stream of a device, and return without waiting.

        Raises RuntimeError if the kernel is not loaded yet while the stream is being captured.
        """
        if self.record is None:
            return
        kernel = self.ready(ordinal, stream)
        types = _parameter_types(self.record)
        pack = ArgumentPack([types[name] for name in types])
        pack.bind(*(self.arguments[name] for name in types))
        kernel.launch(self.grid(kernel.device.sm_count), pack, stream)

    def ready(self, ordinal: int, stream: int) -> LoadedKernel:
        """The kernel, loaded at the first call. Raises as `send`."""
        assert self.record is not None
        kernel = _ready().get((ordinal, self.record))
        if kernel is None:
            if is_capturing(stream):
                raise RuntimeError(
                    f"the kernel for {self.record.kind} of these arrays must be loaded before its stream is captured: make the same "
                    "call once before the capture"
                )
            kernel = _loaded(ordinal, self.record)
            _ready()[ordinal, self.record] = kernel
        return kernel

    def grid(self, sms: int) -> tuple[int, int, int]:
        """CTAs along x, y and z, on a device with `sms` SMs."""
        assert self.record is not None
        across, below = self.tiles
        return across, min(below, max(1, self.record.ctas_per_sm * sms // across), MOST_CTAS), 1


def build(record: Record) -> Kernel:
    """The kernel of a record. The emulator can run it too."""
    if isinstance(record, Windowed):
        from louver.library.streaming.windows.build_windows import build as build_windowed

        return build_windowed(record)
    if isinstance(record, Derived):
        from louver.library.streaming.derived.build_derived import build as build_derived

        return build_derived(record)
    if isinstance(record, Squared):
        from louver.library.streaming.squares.build_squares import build as build_squared

        return build_squared(record)
    if isinstance(record, ScaledRows):
        from louver.library.streaming.scaled_rows import build as build_rows

        return build_rows(record)
    from louver.library.streaming.build_streaming import build

    return build(record)


def _loaded(ordinal: int, record: Record) -> LoadedKernel:
    from louver.ptx.validate import ValidationError

    try:
        return load_built(ordinal, "streaming", record, build=lambda: build(record))
    except ValidationError as error:
        place = device(ordinal)
        stored = record.stored_type.name if isinstance(record, Streaming) else record.element
        if {record.element, stored} & set(FP8) and not target(place.target).provides("sm_89"):
            made = "" if stored == record.element else f" as {stored}"
            raise ValueError(
                f"the kernel for {record.kind} of {record.element}{made} converts 8-bit floats, which GPUs do from sm_89 on, got {place}: "
                "move the array to the host, or convert it to f16"
            ) from error
        raise


@functools.cache
def _ready() -> dict[tuple[int, Record], LoadedKernel]:
    return {}


@functools.cache
def _parameter_types(record: Record) -> dict[str, Any]:
    from louver.library.streaming.place import parameters

    return {param.name: param.type for param in parameters(record)}
