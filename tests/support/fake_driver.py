"""A CUDA driver that records: device memory is host memory, and kernels are launched but never run."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

from louver.library import deleted_forms
from louver.runtime import device, driver, memory, module, tensormap, violations, workspace

CACHED = (
    driver.api,
    driver.primary_context,
    device.device,
    device._why_none,
    deleted_forms._kept,
    memory._kept,
    module._module,
    tensormap._encode_tiled,
    violations._pages,
    workspace._held,
    workspace._stream,
)


class FakeDriver:
    """Stands in for `cuda.bindings.driver`: device memory is host memory, and launches are recorded.

    captures: the number of the capture of each stream that is being captured. fails: result codes to give, by function's name, one after the other. calls: what was called.
    """

    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=9,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=0,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=132,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=232448,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE=50 << 20,
    )
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING="non-blocking")
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="programmatic")
    CUresult = int
    CUstream = int

    def __init__(self) -> None:
        self.fails: dict[str, list[int]] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.contexts = [0]
        self.devices = 2
        self.reads: list[int] = []
        self.captures = {0xCA: 1}
        self.mode = "global"

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, arguments))
            codes = self.fails.get(name)
            if codes:
                code = codes.pop(0)
                if code:
                    return (code, None)
            value = getattr(self, "_" + name, lambda *_: None)(*arguments)
            return (0,) if value is None else (0, value)

        return function

    def _cuDeviceGetCount(self) -> int:
        return self.devices

    def _cuDeviceGet(self, ordinal: int) -> int:
        return ordinal

    def _cuDeviceGetName(self, length: int, handle: int) -> bytes:
        return b"Fake GPU\0 and rubbish"

    def _cuDeviceGetAttribute(self, key: int, handle: int) -> int:
        return key

    def _cuDeviceTotalMem(self, handle: int) -> int:
        return 140 << 30

    def _cuDriverGetVersion(self) -> int:
        return 13020

    def _cuGetErrorName(self, code: int) -> bytes:
        return {1: b"CUDA_ERROR_INVALID_VALUE", 201: b"CUDA_ERROR_INVALID_CONTEXT"}.get(code, b"CUDA_ERROR_FAKE")

    def _cuDevicePrimaryCtxRetain(self, handle: int) -> int:
        return 100 + handle

    def _cuCtxGetCurrent(self) -> int:
        return self.contexts[-1]

    def _cuCtxGetDevice(self) -> int:
        return self.contexts[-1] - 100

    def _cuCtxPushCurrent(self, context: int) -> None:
        self.contexts.append(context)

    def _cuCtxPopCurrent(self) -> int:
        return self.contexts.pop()

    def _cuModuleLoadData(self, cubin: bytes) -> str:
        return f"module {len(cubin)}"

    def _cuModuleGetFunction(self, loaded: str, name: bytes) -> str:
        return f"{name.decode()} of {loaded}"

    def _cuStreamIsCapturing(self, stream: int) -> int:
        return int(stream in self.captures)

    def _cuStreamGetCaptureInfo(self, stream: int) -> tuple[int, int]:
        return 1, self.captures[stream]

    def _cuThreadExchangeStreamCaptureMode(self, mode: str) -> str:
        before, self.mode = self.mode, mode
        return before

    def _cuStreamCreate(self, flags: str) -> str:
        return "own stream"

    def _cuMemAlloc(self, nbytes: int, stream: int = 0) -> int:
        assert nbytes, "the driver refuses to allocate 0 bytes"
        block = (ctypes.c_char * (nbytes + 256))()
        address = -(-ctypes.addressof(block) // 256) * 256
        self.memory[address] = block
        return address

    def CUlaunchConfig(self) -> SimpleNamespace:
        return SimpleNamespace()

    def CUlaunchAttribute(self) -> SimpleNamespace:
        return SimpleNamespace(value=SimpleNamespace())

    def _cuLaunchKernelEx(self, config: Any, function: str, table: int, extra: int) -> None:
        grid = config.gridDimX, config.gridDimY, config.gridDimZ
        block = config.blockDimX, config.blockDimY, config.blockDimZ
        self._cuLaunchKernel(function, *grid, *block, config.sharedMemBytes, config.hStream, table, extra)

    _cuMemAllocAsync = _cuMemAlloc

    def _cuMemHostAlloc(self, nbytes: int, flags: int) -> int:
        return self._cuMemAlloc(nbytes)

    def _cuLaunchKernel(self, *arguments: Any) -> None:
        # The first argument, as a kernel would read it.
        pointer = ctypes.c_void_p.from_address(arguments[9]).value
        if pointer is not None:
            self.reads.append(ctypes.c_uint64.from_address(pointer).value)

    def _cuMemFreeAsync(self, address: int, stream: int) -> None:
        del self.memory[address]

    def _cuMemsetD8Async(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        ctypes.memset(address, byte, nbytes)

    def _cuMemcpyHtoDAsync(self, to: int, source: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(to, source, nbytes)

    def _cuMemcpyDtoHAsync(self, to: int, source: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(to, source, nbytes)


def forget() -> None:
    """Drop all that was cached of a driver."""
    for function in CACHED:
        function.cache_clear()
