"""The API of the CUDA driver. It is imported at first use, and error codes become exceptions."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

INVALID_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT: the calling thread has no current context, or a foreign one."""

INVALID_HANDLE = 400
"""CUDA_ERROR_INVALID_HANDLE: the function or stream belongs to another context."""


CAPTURE_IMPLICIT = 906
"""CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the default stream was used while another stream is being captured."""

HINTS: dict[int, str] = {
    2: "free device memory, or use smaller arrays",
    200: "the cubin is damaged: remove it from the kernel cache",
    209: "the cubin was assembled for another GPU: compile for this device's target",
    222: "the driver is older than the assembler: update it to one that supports CUDA 13",
    700: "an earlier kernel read or wrote outside its arrays, and the process's CUDA context is lost: start again",
    701: "the CTA needs more registers or shared memory than an SM has",
    719: "an earlier kernel faulted, and the process's CUDA context is lost: start again",
    900: "this cannot be done while a stream is being captured: do it before the capture",
    906: "the default stream cannot be used while another stream is being captured: pass the capturing stream",
}
"""Advice for some result codes."""


class DriverMissingError(RuntimeError):
    """There is no usable CUDA driver. The message names the missing part."""


class DriverError(RuntimeError):
    """A call of the CUDA driver failed.

    code: the CUresult.
    name: CUDA's name of the code, such as "CUDA_ERROR_INVALID_VALUE".
    doing: the purpose of the call.
    """

    def __init__(self, code: int, name: str, doing: str) -> None:
        hint = HINTS.get(code)
        super().__init__(f"{doing} failed with {name} ({code})" + (f": {hint}" if hint else ""))
        self.code = code
        self.name = name
        self.doing = doing


@functools.cache
def api() -> Any:
    """The module `cuda.bindings.driver`, initialised (cuInit).

    Raises DriverMissingError if the package, the driver's library or a device is missing.
    """
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DriverMissingError(f"the package cuda-bindings cannot be imported ({error})") from error
    try:
        code = int(driver.cuInit(0)[0])
    except RuntimeError as error:
        raise DriverMissingError("the NVIDIA driver's library (libcuda) was not found") from error
    if code:
        raise DriverMissingError(f"the NVIDIA driver does not start: {error_name(driver, code)} ({code})")
    return driver


def error_name(driver: Any, code: int) -> str:
    """CUDA's name of a result code."""
    status, name = driver.cuGetErrorName(driver.CUresult(code))
    return name.decode() if not int(status) and name else "an unknown CUDA error"


def call(name: str, *arguments: Any, doing: str = "") -> Any:
    """Call the driver function `name`, and return its value: None, one value, or a tuple of values.

    doing: the purpose of the call, for the error message.

    Raises DriverError, DriverMissingError.
    """
    driver = api()
    result, *values = getattr(driver, name)(*arguments)
    if int(result):
        raise failure(int(result), doing or name)
    return values[0] if len(values) == 1 else tuple(values) or None


def failure(code: int, doing: str) -> DriverError:
    """The exception for a result code that is not CUDA_SUCCESS."""
    return DriverError(code, error_name(api(), code), doing)


@functools.cache
def primary_context(ordinal: int) -> Any:
    """The device's primary context, which PyTorch and the CUDA runtime also use. It is kept until the process ends."""
    return call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal), doing=f"opening device {ordinal}")


@contextmanager
def device_context(ordinal: int) -> Generator[None]:
    """Make the device's primary context current on this thread, inside the `with` block."""
    call("cuCtxPushCurrent", primary_context(ordinal), doing=f"making device {ordinal} current")
    try:
        yield
    finally:
        call("cuCtxPopCurrent", doing=f"leaving device {ordinal}")


def is_capturing(stream: int) -> bool:
    """Whether work on `stream` (a CUstream handle; 0 is the default stream) would take part in a capture, or disturb
    one, now.
    """
    try:
        return _is_capturing(stream)
    except DriverError as error:
        if error.code == CAPTURE_IMPLICIT:
            return True
        if error.code != INVALID_CONTEXT:
            raise
    # A thread that has not used the GPU yet has no context. The driver needs one even for this query.
    with device_context(0):
        return _is_capturing(stream)


def _is_capturing(stream: int) -> bool:
    return int(call("cuStreamIsCapturing", stream, doing="asking whether a stream is being captured")) != 0


def capture_question(stream: int) -> Callable[[], tuple[Any, Any]]:
    """The driver's query whether `stream` is being captured, for launches that query each time. It returns two zeros if
    the stream is not captured.
    """
    return functools.partial(api().cuStreamIsCapturing, api().CUstream(stream))


def capture_of(stream: int) -> int:
    """The number of the capture of which `stream` is a part; each capture of the process has a different number.

    0 outside a capture. -1 for the default stream, if work on it would disturb the capture of another stream.
    """
    if not is_capturing(stream):
        return 0
    try:
        _, number, *_ = call("cuStreamGetCaptureInfo", stream, doing="asking which capture a stream is part of")
    except DriverError as error:
        if error.code != CAPTURE_IMPLICIT:
            raise
        return -1
    return int(number)


@contextmanager
def relaxed_capture() -> Generator[None]:
    """Allow this thread to allocate memory while a stream is being captured. Without this, an allocation ends the
    capture.
    """
    relaxed = api().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call("cuThreadExchangeStreamCaptureMode", relaxed, doing="allowing allocation during a capture")
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", before, doing="forbidding allocation during a capture")
