"""Launches kernels of register tiles on a GPU, as `louver.jit` does, with their arrays between guards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from louver.choose.occupancy import with_room
from louver.compile.compiled import CompiledKernel, CompiledTiles
from louver.compile.signature import ARRAYS, ArgumentParameter
from louver.formats.tensor import SparseTensor
from louver.isa.instruction import LANES
from louver.library.forms import tile_form
from louver.library.launch import bind_arguments, packed
from louver.library.rows import Held, encoded_map
from louver.runtime.memory import DeviceBuffer
from louver.runtime.module import load

GUARD = 4096
POISON = 0xA7


class Placed:
    """An array on the device between two guards."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.bytes = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        self.buffer = DeviceBuffer(self.bytes.size + 2 * GUARD)
        self.buffer.fill(POISON)
        self.buffer.write(self.bytes, offset=GUARD)

    @property
    def address(self) -> int:
        return self.buffer.address + GUARD

    def read(self, like: np.ndarray[Any, Any]) -> None:
        """Copy the device's bytes into `like`."""
        whole = self.buffer.read()
        assert (whole[:GUARD] == POISON).all() and (whole[GUARD + self.bytes.size :] == POISON).all()
        found = whole[GUARD : GUARD + self.bytes.size].view(like.dtype).reshape(like.shape)
        like[...] = found


def launch_tiles(
    compiled: CompiledTiles,
    grid: Sequence[int],
    arguments: Mapping[str, Any],
    outputs: Sequence[str],
    *,
    own_warps: bool = False,
) -> None:
    """Launch once; outputs are copied back into their arrays. own_warps: the test chose how many there are.

    Raises ValueError for arrays of which bulk copies cannot read the kernel's boxes.
    """
    warps = compiled.signature.threads // LANES if own_warps else None
    found = with_room(CompiledKernel(compiled, ""), warps)
    signature, assembly = found.kernel.made.signature, found.assembly
    # Fewer warps than Louver would choose may have too few registers: who asks for them takes what is spilled.
    assert assembly.clean or own_warps, assembly.warnings
    assert not any(warning.performance_loss for warning in assembly.warnings), assembly.warnings
    loaded = load(
        assembly.cubin, signature.kernel, dynamic_shared=signature.shared_bytes, threads=signature.threads, ordinal=0
    )
    placed: dict[tuple[str, str], Placed] = {}
    x, y, z = (*grid, 1, 1)[:3]
    numbers: dict[str, int | float] = {"programs x": x, "programs y": y, "programs z": z}
    for parameter in signature.parameters:
        given, key = arguments[parameter.argument], (parameter.argument, parameter.part)
        if isinstance(parameter, ArgumentParameter) and parameter.part not in ARRAYS:
            numbers[parameter.number] = given
        elif isinstance(parameter, ArgumentParameter) and key not in placed:
            if isinstance(given, SparseTensor):
                given = tile_form(given, parameter.part, parameter.element).host(given)
            placed[key] = Placed(given)
    held = {key: Held(array.address, array.bytes.size) for key, array in placed.items()}
    pack = packed(signature.types, bind_arguments(signature, numbers, held, encoded_map))
    loaded.launch((x, y, z), pack)
    for name in outputs:
        placed[name, "address"].read(arguments[name])
