"""The current GPU and its properties, or the reason why there is none."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from louver.runtime.driver import DriverError, DriverMissingError, api, call

WITHOUT_GPU = "formats, compiling, the emulator and the reference path still work"
"""The advice for a machine without a GPU."""


class NoDeviceError(RuntimeError):
    """An operation needs a GPU, and there is none."""


@dataclass(frozen=True, slots=True)
class Device:
    """A CUDA device.

    ordinal: the driver's index.
    capability: compute capability.
    sm_count: number of streaming multiprocessors.
    shared_limit: most bytes of shared memory of a CTA (opt-in).
    l2_bytes: size of the L2 cache.
    memory_bytes: size of the global memory.
    driver: the CUDA version that the driver supports.
    """

    ordinal: int
    name: str
    capability: tuple[int, int]
    sm_count: int
    shared_limit: int
    l2_bytes: int
    memory_bytes: int
    driver: tuple[int, int]

    @property
    def target(self) -> str:
        """The architecture-specific PTX target, such as "sm_90a". Before Hopper there is only the plain target."""
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    def __str__(self) -> str:
        return f"{self.name} ({self.target}, {self.sm_count} SMs, {self.memory_bytes / 2**30:.0f} GiB)"


@dataclass(frozen=True, slots=True)
class NoDevice:
    """There is no usable CUDA device. reason: the missing part."""

    reason: str

    def __str__(self) -> str:
        return f"no GPU: {self.reason}; {WITHOUT_GPU}"


def current_device() -> Device | NoDevice:
    """The device whose context is current on this thread, else device 0; or the reason why there is none.

    Never raises. The properties of a device are read once a process.
    """
    reason = _why_none()
    if reason is not None:
        return NoDevice(reason)
    try:
        return device(_current_ordinal())
    except DriverError as error:
        return NoDevice(str(error))


def require_device() -> Device:
    """`current_device()`. Raises NoDeviceError with the reason if there is none."""
    found = current_device()
    if isinstance(found, NoDevice):
        raise NoDeviceError(str(found))
    return found


@functools.cache
def device(ordinal: int) -> Device:
    """The device with this ordinal. Raises DriverError if there is none, DriverMissingError without a driver."""
    handle = call("cuDeviceGet", ordinal, doing=f"looking for device {ordinal}")
    attributes = api().CUdevice_attribute

    def attribute(name: str) -> int:
        key = getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call("cuDeviceGetAttribute", key, handle, doing=f"reading {name} of device {ordinal}"))

    return Device(
        ordinal=ordinal,
        name=bytes(call("cuDeviceGetName", 256, handle)).split(b"\x00")[0].decode(),
        capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        shared_limit=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        memory_bytes=int(call("cuDeviceTotalMem", handle)),
        driver=_version(),
    )


def driver_version() -> str:
    """The CUDA version that the installed driver supports, such as "13.0". Raises DriverMissingError without it."""
    major, minor = _version()
    return f"{major}.{minor}"


def _version() -> tuple[int, int]:
    number = int(call("cuDriverGetVersion"))
    return number // 1000, number % 1000 // 10


@functools.cache
def _why_none() -> str | None:
    try:
        count = int(call("cuDeviceGetCount"))
    except (DriverMissingError, DriverError) as error:
        return str(error)
    return None if count else "the NVIDIA driver sees no device"


def _current_ordinal() -> int:
    if not int(call("cuCtxGetCurrent")):
        return 0
    return int(call("cuCtxGetDevice"))
