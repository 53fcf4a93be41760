"""Loads cubins and launches their kernels. A warm launch is one call of the driver."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from louver.runtime.device import Device, device
from louver.runtime.driver import INVALID_CONTEXT, INVALID_HANDLE, api, call, device_context, failure

ParamType: TypeAlias = Literal["u32", "u64", "f32", "tensormap"]
"""Types of kernel parameters, those of `louver.ptx.module.Param`. Pointers are u64."""

TENSOR_MAP_BYTES = 128
"""Size of an encoded tensor map (CUtensorMap)."""

_TENSOR_MAP_ALIGNMENT = 128
_FORMATS: dict[ParamType, str] = {"u32": "I", "u64": "Q", "f32": "f", "tensormap": f"{TENSOR_MAP_BYTES}s"}
"""The `struct` format of each type. Each argument is aligned to its size."""


class ArgumentPack:
    """The arguments of a kernel, in the memory that the driver reads.

    The driver copies the arguments during the launch call. So a pack can be bound again as soon as `launch` has
    returned. Only one thread may use a pack at a time.
    """

    __slots__ = ("_buffer", "_layout", "_pointers", "_start", "table", "types")

    def __init__(self, types: Sequence[ParamType]) -> None:
        self.types = tuple(types)
        self._layout = layout = _layout(self.types)
        self._buffer = (ctypes.c_char * (layout.format.size + _TENSOR_MAP_ALIGNMENT))()
        self._start = -ctypes.addressof(self._buffer) % _TENSOR_MAP_ALIGNMENT
        base = ctypes.addressof(self._buffer) + self._start
        self._pointers = (ctypes.c_void_p * max(1, len(self.types)))(*[base + offset for offset in layout.offsets])
        self.table: int = ctypes.addressof(self._pointers)
        """Address of the driver's array of pointers (`kernelParams`)."""

    def bind(self, *values: int | float | bytes) -> None:
        """Set all arguments, in order: ints (u32, u64), floats (f32), encoded tensor maps of 128 bytes.

        Raises ValueError if a value does not fit the type of its parameter.
        """
        if len(values) != len(self.types):
            raise ValueError(f"the kernel has {len(self.types)} parameters, got {len(values)} arguments")
        for index in self._layout.maps:
            value = values[index]
            if not isinstance(value, bytes) or len(value) != TENSOR_MAP_BYTES:
                raise ValueError(f"argument {index} is a tensor map of {TENSOR_MAP_BYTES} bytes, got {_shown(value)}")
        try:
            self._layout.format.pack_into(self._buffer, self._start, *values)
        except (struct.error, OverflowError) as error:
            index = next(at for at, kind in enumerate(self.types) if not _fits(kind, values[at]))
            raise ValueError(
                f"argument {index} must be a value of type {self.types[index]}, got {_shown(values[index])}"
            ) from error


class LoadedKernel:
    """A kernel that is loaded on a device. Its module stays loaded until the process ends.

    name: name of the kernel's entry point.
    device: the device on which it is loaded.
    function: the driver's handle.
    threads: threads of a CTA.
    cluster: CTAs of a cluster along x, as the kernel declares it.
    dynamic_shared: bytes of dynamic shared memory.
    dependent: whether it may begin while the previous kernel of its stream ends (programmatic dependent launch). The
        kernel then waits for the previous one.
    """

    __slots__ = ("cluster", "dependent", "device", "dynamic_shared", "function", "name", "threads")

    def __init__(
        self,
        name: str,
        device: Device,
        function: Any,
        *,
        threads: int,
        cluster: int,
        dynamic_shared: int,
        dependent: bool = False,
    ) -> None:
        self.name = name
        self.device = device
        self.threads = threads
        self.cluster = cluster
        self.dynamic_shared = dynamic_shared
        self.dependent = dependent
        self.function = function

    def bound(self, grid: int | tuple[int, int, int], arguments: ArgumentPack, stream: int = 0) -> BoundLaunch:
        """A launch on `stream` (a CUstream handle; 0 is the default stream), which can be sent any number of times.

        grid: CTAs along x, or along x, y and z; x is a multiple of `cluster`.
        arguments: the driver reads them at each launch.
        """
        return BoundLaunch(self, (grid, 1, 1) if isinstance(grid, int) else grid, arguments, stream)

    def launch(self, grid: int | tuple[int, int, int], arguments: ArgumentPack, stream: int = 0) -> None:
        """Send one launch and return without waiting, see `bound`. It can be captured into a CUDA graph.

        Raises DriverError with CUDA's name of the error, and ValueError for an impossible grid.
        """
        self.bound(grid, arguments, stream)()

    def __repr__(self) -> str:
        return f"LoadedKernel({self.name!r} on {self.device.name})"


class BoundLaunch:
    """A launch with a fixed kernel, grid, arguments and stream. It keeps the arguments alive. Threads may share it as
    long as the arguments do not change.

    send: the plain call of the driver. It returns a tuple that begins with the result code. If the code is not 0, pass
        it to `recover`. Time-critical callers use `send` and `recover`; others call the launch itself.
    """

    __slots__ = ("_arguments", "_grid", "_kernel", "_stream", "send")

    def __init__(self, kernel: LoadedKernel, grid: tuple[int, int, int], arguments: ArgumentPack, stream: int) -> None:
        self._kernel = kernel
        self._grid = grid
        self._arguments = arguments
        self._stream = stream
        self.send: Callable[[], tuple[Any, ...]]
        if kernel.dependent:
            config = _dependent(kernel, grid, stream)
            self.send = functools.partial(api().cuLaunchKernelEx, config, kernel.function, arguments.table, 0)
            return
        # The stream is an object of the driver, because each call would convert an integer to such an object.
        self.send = functools.partial(
            api().cuLaunchKernel,
            kernel.function,
            *grid,
            kernel.threads,
            1,
            1,
            kernel.dynamic_shared,
            api().CUstream(stream),
            arguments.table,
            0,
        )

    def on(self, stream: int) -> BoundLaunch:
        """The same launch on another stream."""
        return BoundLaunch(self._kernel, self._grid, self._arguments, stream)

    def __call__(self) -> None:
        """Send the launch. Raises as `LoadedKernel.launch`."""
        code = self.send()[0]
        if code:
            self.recover(int(code))

    def recover(self, code: int) -> None:
        """Send the launch again after the driver refused it with this code, or raise as `LoadedKernel.launch`."""
        kernel, grid = self._kernel, self._grid
        # A query of the current context before each launch would cost as much time as the arguments. So the context is
        # set only here, after a launch from a thread without a context or with that of another device.
        if code in (INVALID_CONTEXT, INVALID_HANDLE):
            with device_context(kernel.device.ordinal):
                code = int(self.send()[0])
            if not code:
                return
        if min(grid) < 1 or grid[0] % kernel.cluster:
            raise ValueError(
                f"{kernel.name}: the grid's sides are at least 1, x a multiple of the cluster's {kernel.cluster} CTAs, "
                f"got {grid}"
            )
        raise failure(
            code,
            f"launching {kernel.name} on {kernel.device.name} (grid {grid}, {kernel.threads} threads, cluster "
            f"{kernel.cluster}, {kernel.dynamic_shared} bytes of shared memory, stream {self._stream:#x})",
        )


def _dependent(kernel: LoadedKernel, grid: tuple[int, int, int], stream: int) -> Any:
    """The driver's configuration of a launch that may begin while the previous kernel of the stream ends."""
    driver = api()
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = kernel.threads, 1, 1
    config.sharedMemBytes = kernel.dynamic_shared
    config.hStream = driver.CUstream(stream)
    config.attrs, config.numAttrs = [attribute], 1
    return config


def load(
    cubin: bytes,
    kernel_name: str,
    *,
    dynamic_shared: int = 0,
    threads: int,
    cluster: int = 1,
    ordinal: int = 0,
    dependent: bool = False,
) -> LoadedKernel:
    """Load a kernel of a cubin on the device `ordinal`.

    dynamic_shared: bytes of dynamic shared memory of a launch, at most the device's limit.
    threads: threads of a CTA, as the kernel declares them.
    cluster, dependent: see `LoadedKernel`.

    Equal cubins are loaded once on each device. Loading cannot be captured, so load before a capture begins.

    Raises ValueError if a limit is exceeded, DriverError if the driver refuses the kernel.
    """
    on = device(ordinal)
    if not 0 <= dynamic_shared <= on.shared_limit:
        raise ValueError(
            f"{kernel_name}: a CTA has at most {on.shared_limit} bytes of shared memory on {on.name}, "
            f"got {dynamic_shared}: use fewer stages or smaller tiles"
        )
    if not 1 <= threads <= 1024 or cluster < 1:
        raise ValueError(
            f"{kernel_name}: 1 to 1024 threads and clusters of at least 1 CTA, got {threads} and {cluster}"
        )
    with device_context(ordinal):
        function = call(
            "cuModuleGetFunction",
            _module(ordinal, cubin),
            kernel_name.encode(),
            doing=f"finding the kernel {kernel_name}",
        )
        if dynamic_shared:
            attribute = api().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            doing = f"allowing {kernel_name} {dynamic_shared} bytes of shared memory"
            call("cuFuncSetAttribute", function, attribute, dynamic_shared, doing=doing)
        # By default the driver loads a function at its first launch. Loading must not happen inside a capture.
        call("cuFuncLoad", function, doing=f"loading {kernel_name}")
    return LoadedKernel(
        kernel_name,
        on,
        function,
        threads=threads,
        cluster=cluster,
        dynamic_shared=dynamic_shared,
        dependent=dependent,
    )


# Modules are never unloaded, because a CUDA graph with a captured launch can be replayed after all Python objects are
# deleted.
@functools.cache
def _module(ordinal: int, cubin: bytes) -> Any:
    return call("cuModuleLoadData", cubin, doing=f"loading a cubin of {len(cubin)} bytes on device {ordinal}")


class _Layout(NamedTuple):
    """The layout of arguments: their offsets, one format of all bytes with gaps, and the numbers of the tensor maps."""

    offsets: tuple[int, ...]
    format: struct.Struct
    maps: tuple[int, ...]


@functools.cache
def _layout(types: tuple[ParamType, ...]) -> _Layout:
    offsets: list[int] = []
    end, text = 0, "="
    for kind in types:
        if kind not in _FORMATS:
            raise ValueError(f"a parameter is one of {', '.join(_FORMATS)}; got {kind!r}")
        size = struct.calcsize(_FORMATS[kind])
        start = -(-end // size) * size
        text += f"{start - end}x{_FORMATS[kind]}"
        offsets.append(start)
        end = start + size
    maps = tuple(index for index, kind in enumerate(types) if kind == "tensormap")
    return _Layout(tuple(offsets), struct.Struct(text), maps)


def _fits(kind: ParamType, value: int | float | bytes) -> bool:
    try:
        struct.pack(f"={_FORMATS[kind]}", value)
    except (struct.error, OverflowError):
        return False
    return True


def _shown(value: object) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)
