"""The GPU at hand, or the reason why there is none."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from louver.runtime.driver import DriverError, DriverMissingError, api, call

WITHOUT_GPU = "formats, compiling, the emulator and the reference path still work"
"""The advice for a machine without a GPU."""


class NoDeviceError(RuntimeError):
    """Something needed a GPU and there is none."""


@dataclass(frozen=True, slots=True)
class Device:
    """A CUDA device.

    ordinal: the driver's index. capability: compute capability. sm_count: streaming multiprocessors.
    shared_limit: bytes of shared memory that a CTA may have at most (opt-in). l2_bytes: size of the L2 cache.
    memory_bytes: size of the global memory. driver: the CUDA version that the driver supports.
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
        """The PTX target with this device's own instructions, such as "sm_90a"; plain before Hopper."""
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    def __str__(self) -> str:
        return f"{self.name} ({self.target}, {self.sm_count} SMs, {self.memory_bytes / 2**30:.0f} GiB)"


@dataclass(frozen=True, slots=True)
class NoDevice:
    """No usable CUDA device; `reason` says what is missing."""

    reason: str

    def __str__(self) -> str:
        return f"no GPU: {self.reason}; {WITHOUT_GPU}"


def current_device() -> Device | NoDevice:
    """The device whose context is current on this thread, else device 0; or the reason that there is none.

    Never raises. Facts about a device are read once per process.
    """
    reason = _why_none()
    if reason is not None:
        return NoDevice(reason)
    try:
        return device(_current_ordinal())
    except DriverError as error:
        return NoDevice(str(error))


def require_device() -> Device:
    """`current_device()`, or NoDeviceError with the reason."""
    found = current_device()
    if isinstance(found, NoDevice):
        raise NoDeviceError(str(found))
    return found


@functools.cache
def device(ordinal: int) -> Device:
    """The device of that ordinal. Raises DriverError when there is none, DriverMissingError without a driver."""
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
    """The CUDA version that the installed driver supports, such as "13.0". Raises DriverMissingError without one."""
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
