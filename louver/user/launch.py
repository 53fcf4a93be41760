"""A call on a device: a kernel chosen for its arrays' alignment, its arguments bound, ready to be launched again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from louver.compile.plan.schedule import Schedule
from louver.compile.tile_signature import Part
from louver.formats.tensor import SparseTensor
from louver.isa.targets import Target
from louver.isa.targets import target as machine
from louver.isa.tensormap import TensorMap
from louver.library.bind import Held, packed
from louver.library.rows import Rows
from louver.library.state import TensorState
from louver.runtime.device import device
from louver.runtime.driver import device_context, is_capturing
from louver.runtime.module import ArgumentPack, BoundLaunch, LoadedKernel, ParamType
from louver.runtime.tensormap import encode
from louver.user.arguments import Call
from louver.user.binding import bind_call
from louver.user.compiled import UserKernel, Variant, Wanted, is_loaded, loaded, target_of
from louver.user.gated_pairs import is_made, operand
from louver.user.hints import Hints
from louver.user.source import KernelSource


@dataclass(frozen=True, slots=True)
class Ready:
    """A bound launch. What it reads of sparse tensors lives as long as they do. product: whether it is one, or register tiles."""

    kernel: LoadedKernel
    grid: tuple[int, int, int]
    pack: ArgumentPack
    product: bool

    def bound(self, stream: int) -> BoundLaunch:
        """The launch to a stream."""
        return self.kernel.bound(self.grid, self.pack, stream)


def ready(source: KernelSource, hints: Hints, call: Call, grid: Sequence[int], ordinal: int, stream: int) -> Ready:
    """The call on device `ordinal`, compiled, loaded and uploaded the first time.

    Raises ValueError where sizes, arrays and grid do not fit together, UnsupportedKernelError for a kernel that cannot be
    compiled, and RuntimeError when something would have to be compiled or uploaded while `stream` is being captured.
    """
    with device_context(ordinal):
        place = machine(target_of(ordinal)), device(ordinal).sm_count
        memory = DeviceMemory(source, hints, call, grid, ordinal, stream, *place)
        found = bind_call(source.name, hints, call, grid, memory)
        kernel = found.kernel
        types: list[ParamType] = [parameter.type for parameter in kernel.signature.all_parameters]
        return Ready(kernel.kernel, found.grid, packed(types, found.values), kernel.launch.nest is not None)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A device's memory for one call: what is missing is compiled, loaded and uploaded, but not while `stream` is being captured."""

    source: KernelSource
    hints: Hints
    call: Call
    grid: Sequence[int]
    ordinal: int
    stream: int
    target: Target
    sm_count: int

    def kernel(self, variant: Variant, schedule: Schedule | None = None) -> UserKernel[LoadedKernel]:
        """The kernel, loaded."""
        asked = self.source, self.hints, self.call, variant, self.target.name, self.grid, self.sm_count
        wanted = Wanted.of(*asked, schedule=schedule)
        if not is_loaded(wanted, self.ordinal):
            self._refuse_capture("compiled")
        return loaded(wanted, self.ordinal)

    def held(self, argument: str) -> Held:
        """A dense array, where it is."""
        array = self.call.arrays[argument]
        return Held(array.address, array.byte_range[1] - array.address)

    def product_operand(self, parts: Sequence[SparseTensor], words: int, entries: int) -> tuple[Rows, int]:
        """The operand of the tensor, or of the gated one that two are."""
        if not is_made(parts):
            self._refuse_capture("uploaded")
        s = operand(parts)
        state = s.derived.of(TensorState)
        if not state.has_operand(self.ordinal, words):
            self._refuse_capture("uploaded")
        found = state.operand(s, self.ordinal, words)
        return found.rows(s.rows // entries, entries), found.metadata.address

    def tile_operand(self, argument: str, element: str) -> Mapping[Part, Held]:
        """The tensor as register tiles read it."""
        s = self.call.sparse[argument]
        state = s.derived.of(TensorState)
        if not state.has_tiles(self.ordinal, element):
            self._refuse_capture("uploaded")
        found = state.tiles(s, self.ordinal, element)
        values, metadata = (Held(each.address, each.nbytes) for each in (found.values, found.metadata))
        return {"values": values, "metadata": metadata}

    def encode(self, tensor_map: TensorMap) -> bytes:
        """By the driver."""
        return encode(tensor_map)

    def _refuse_capture(self, what: str) -> None:
        if is_capturing(self.stream):
            name = self.source.name
            raise RuntimeError(
                f"{name} must be {what} before its stream is captured: make the call once before the capture, or call "
                f"louver.jit({name}).prepare[grid](…) with the same arguments"
            )
