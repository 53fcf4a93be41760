"""Kernel parameters: bits, addresses and tensor maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from louver.emulator.errors import LaunchError, OutOfBoundsError
from louver.emulator.memory import Allocation, GlobalMemory
from louver.emulator.shared import WINDOW_START
from louver.emulator.tiles import Tensor
from louver.isa.bulk import TensorMap
from louver.isa.instruction import Bits
from louver.isa.machine import GENERIC_PARAMETERS, U8, Mask
from louver.ptx.module import Kernel, Param
from louver.ptx.validate import SHARED_SYMBOL

Argument: TypeAlias = int | float | Allocation | TensorMap
"""A kernel argument: a number for `u32`, `u64` and `f32`, an allocation for its address (`u64`), or a tensor map."""

FIRST_ADDRESS = 0x1000_0000_0000
"""Address of the first parameter, between shared and global addresses."""

STEP = 256
"""Bytes from one parameter to the next, more than the 128 of a tensor map."""


class Parameters:
    """Arguments of one launch, checked against the kernel's parameters."""

    def __init__(self, kernel: Kernel, arguments: Mapping[str, Argument], memory: GlobalMemory) -> None:
        expected = [param.name for param in kernel.params]
        if set(expected) != set(arguments):
            raise LaunchError(f"{kernel.name} takes the arguments {expected}, got {list(arguments)}")
        self._names = expected
        self._values = [arguments[name] for name in expected]
        self._bits = [_bits(param, value) for param, value in zip(kernel.params, self._values, strict=True)]
        maps = {value for value in self._values if isinstance(value, TensorMap)}
        self._tensors = {tensor_map: Tensor.bind(tensor_map, memory) for tensor_map in maps}

    def symbols(self) -> dict[str, int]:
        """Addresses of the parameters and of dynamic shared memory."""
        return {
            SHARED_SYMBOL: WINDOW_START,
            **{name: FIRST_ADDRESS + STEP * index for index, name in enumerate(self._names)},
        }

    def tensor(self, tensor_map: TensorMap) -> Tensor:
        return self._tensors[tensor_map]

    def at(self, address: int) -> Argument:
        """The argument of the parameter at a generic address."""
        index, offset = divmod(address - GENERIC_PARAMETERS - FIRST_ADDRESS, STEP)
        if 0 <= (address - FIRST_ADDRESS) // STEP < len(self._values):
            raise OutOfBoundsError(
                f"a tensor map has a generic address, got {address:#x} of the space .param: convert it by cvta.param"
            )
        if not 0 <= index < len(self._values) or offset:
            raise OutOfBoundsError(f"no parameter is at address {address:#x}")
        return self._values[index]

    def gather(self, address: Bits, size: int, active: Mask) -> U8:
        """Bytes that `ld.param` reads: uint8 [32, size], zeros for inactive lanes."""
        out = np.zeros((len(address), size), np.uint8)
        found: list[int] = address[active].tolist()
        for each in dict.fromkeys(found):
            index, offset = divmod(each - FIRST_ADDRESS, STEP)
            inside = 0 <= index < len(self._bits) and offset + size <= len(self._bits[index])
            if not inside:
                raise OutOfBoundsError(f"{size} bytes at parameter address {each:#x} are outside every parameter")
            out[active & (address == each)] = self._bits[index][offset : offset + size]
        return out


def _bits(param: Param, value: Argument) -> U8:
    """Bytes of the parameter. A tensor map has none, because only bulk copies read it."""
    if param.type == "tensormap":
        if not isinstance(value, TensorMap):
            raise LaunchError(f"parameter {param.name} is a tensor map, got {value!r}")
        return np.zeros(0, np.uint8)
    if isinstance(value, Allocation):
        value = value.address
    if isinstance(value, TensorMap) or (isinstance(value, float) and param.type != "f32"):
        raise LaunchError(f"parameter {param.name} is {param.type}, got {value!r}")
    if param.type == "f32":
        return np.frombuffer(np.float32(value).tobytes(), np.uint8)
    size = 4 if param.type == "u32" else 8
    if not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        raise LaunchError(f"parameter {param.name} is {param.type}, got {value}")
    return np.frombuffer((int(value) % (1 << 8 * size)).to_bytes(size, "little"), np.uint8)
