"""A fake GPU of any compute capability that runs the register tiles of library products, on the emulator."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from louver.compile.problem_tiles import ProblemTiles
from louver.emulator import GlobalMemory, run
from louver.emulator.memory import Allocation
from louver.library import compiled, host
from louver.runtime import device
from support.fake_gpu import FakeGpu, Tensor, _read

SHARED = {(8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99, (9, 0): 227, (10, 0): 227, (12, 0): 99, (12, 1): 99}
"""KiB of shared memory of a CTA, by compute capability."""


class TileGpu:
    """Makes a recording device one of another compute capability, whose register tiles run when they are launched."""

    def __init__(
        self, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], sms: int = 4
    ) -> None:
        self.made: dict[str, ProblemTiles] = {}
        self.ran: list[ProblemTiles] = []
        self.arrays: list[np.ndarray] = []
        self._gpu = gpu
        facts = vars(gpu.CUdevice_attribute) | {
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": capability[0],
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": capability[1],
            "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": sms,
            "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": SHARED[capability] << 10,
        }
        gpu.CUdevice_attribute = SimpleNamespace(**facts)
        device.device.cache_clear()
        host._say_once.cache_clear()
        assemble, launch = compiled.assemble_tiles, gpu._cuLaunchKernel

        def assembled(problem: Any, schedule: Any, machine: str | None = None) -> Any:
            made, assembly = assemble(problem, schedule, machine)
            self.made[compiled.product_key(problem, schedule, machine or schedule.target)] = made
            return made, assembly

        def launched(*arguments: Any) -> None:
            launch(*arguments)
            self._run(arguments[0], arguments[1], arguments[9])

        monkeypatch.setattr(compiled, "assemble_tiles", assembled)
        monkeypatch.setattr(gpu, "_cuLaunchKernel", launched)
        # Records of kernels that another test compiled have no module to run.
        monkeypatch.setattr(compiled, "kernel_cache", _Nothing)

    def on(self, array: np.ndarray) -> Tensor:
        """The array as a tensor of the device."""
        self.arrays.append(array)
        return Tensor.of(array)

    def _run(self, function: Any, grid: int, table: int) -> None:
        key = next((key for (key, _), each in compiled._loaded().items() if each.kernel.function == function), None)
        if key not in self.made:
            return
        made = self.made[key]
        self.ran.append(made)
        parameters = made.signature.parameters
        pointers = (ctypes.c_void_p * len(parameters)).from_address(table)
        values = {each.name: _read(each, at) for each, at in zip(parameters, pointers, strict=True)}
        memory = GlobalMemory()
        blocks = [(ctypes.addressof(each), ctypes.sizeof(each)) for each in self._gpu.memory.values()]
        blocks += [(each.ctypes.data, each.nbytes) for each in self.arrays]
        for start, size in sorted(set(blocks)):
            data = np.frombuffer((ctypes.c_char * size).from_address(start), np.uint8)
            memory._allocations.append(Allocation("memory", start, data, data, None, writable=True, settled=False))
        run(made.kernel, grid, values, memory=memory)


class _Nothing:
    """A cache that keeps nothing."""

    def get_or_build(self, key: str, build: Any) -> Any:
        return build()
