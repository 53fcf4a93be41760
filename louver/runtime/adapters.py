"""One adapter for each kind of array. Libraries are looked up in sys.modules: if an array exists, its library is
imported.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType, element_type
from louver.formats.torch_tensors import check_operand, host_array, is_torch_tensor
from louver.runtime import dlpack
from louver.runtime.arrays import ArrayView, Kind, repeats
from louver.runtime.driver import api, call
from louver.runtime.memory import DeviceArray, DeviceBuffer

_element = functools.cache(element_type)

DEFAULT_STREAMS = (0, dlpack.LEGACY_STREAM)
"""CUstream handles of the default stream."""


def adapt(x: Any) -> ArrayView:
    """See `louver.runtime.arrays.view`."""
    if isinstance(x, np.ndarray):
        return from_numpy(cast("NDArray[Any]", x))
    if is_torch_tensor(x):
        return from_torch(x)
    if isinstance(x, DeviceArray):
        return _from_louver(x)
    interface = getattr(x, "__cuda_array_interface__", None)
    has_dlpack = hasattr(x, "__dlpack__")
    # If the interface names no stream, the consumer must wait for the data. With DLPack, the producer takes care of
    # this.
    named = interface is not None and _typestr_element(interface) is not None
    if interface is not None and (not has_dlpack or (named and interface.get("stream"))):
        return from_cuda_array_interface(x, interface)
    if has_dlpack:
        stream = interface.get("stream") if interface is not None else None
        return from_dlpack(x, stream or None)
    raise TypeError(
        f"expected an array (NumPy, PyTorch, or with __cuda_array_interface__ or __dlpack__), got {type(x).__name__}: "
        "np.asarray makes one of lists and numbers"
    )


def empty(like: ArrayView, shape: tuple[int, ...], element: ElementType) -> Any:
    """See `louver.runtime.arrays.empty_like_kind`."""
    if like.device is not None:
        return _empty_on_device(like.kind, shape, element, like.device, like.stream or 0)
    if like.kind == "torch":
        return sys.modules["torch"].empty(shape, dtype=_torch_dtype(element), device=like.owner.device)
    return np.empty(shape, element.numpy)


def empty_rows(kind: Kind, shape: tuple[int, int], element: ElementType, pitch: int, ordinal: int, stream: int) -> Any:
    """A new array [rows, columns] on a device, with undefined contents.

    kind: library of the array, as in `empty`. The allocation is in the order of this library's stream.
    pitch: bytes from one row to the next.
    stream: the stream for the allocation, if Louver itself allocates.
    """
    whole = _empty_on_device(kind, (shape[0], pitch // element.bytes), element, ordinal, stream)
    if isinstance(whole, DeviceArray):
        return DeviceArray(whole.buffer, shape, element, whole.strides)
    return whole[:, : shape[1]]


def scratch(kind: Kind, nbytes: int, ordinal: int, stream: int) -> Callable[[], tuple[int, object]]:
    """Takes memory on a device for work that is sent at once: an address, a multiple of 256 bytes, and its owner.

    The memory is released with its owner, in the order of a stream: torch's current stream if `kind` is "torch", else
    `stream`.
    """
    if kind != "torch":

        def own() -> tuple[int, object]:
            buffer = DeviceBuffer(nbytes, ordinal=ordinal, stream=stream)
            return buffer.address, buffer

        return own
    torch: Any = sys.modules["torch"]
    empty = functools.partial(torch.empty, (nbytes,), dtype=torch.uint8, device=torch.device("cuda", ordinal))

    def of_torch() -> tuple[int, object]:
        made = empty()
        return made.data_ptr(), made

    return of_torch


def alias(x: Any) -> Any:
    """The same array, for Louver to keep. `x.data = …` can give a PyTorch tensor other memory, but does not change its
    alias.
    """
    return x.detach() if is_torch_tensor(x) else x


def kind_for(ordinal: int) -> tuple[Kind, int]:
    """The kind of arrays that Louver makes on a device for host arrays, and the stream for them.

    This is PyTorch with its current stream, if PyTorch is imported and sees the device. Otherwise it is "louver" with
    the default stream.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or torch.cuda.device_count() <= ordinal:
        return "louver", 0
    return "torch", torch_stream(torch)(ordinal)


def _empty_on_device(kind: Kind, shape: tuple[int, ...], element: ElementType, ordinal: int, stream: int) -> Any:
    if kind == "torch":
        torch: Any = sys.modules["torch"]
        return torch.empty(shape, dtype=_torch_dtype(element), device=torch.device("cuda", ordinal))
    if kind == "cupy" and element.numpy.isbuiltin == 1:
        cupy: Any = sys.modules["cupy"]
        with cupy.cuda.Device(ordinal):
            return cupy.empty(shape, element.numpy)
    return DeviceArray.empty(shape, element, ordinal=ordinal, stream=stream)


def from_numpy(x: NDArray[Any], kind: Kind = "numpy", owner: Any = None) -> ArrayView:
    """The view of a host array, in place."""
    element = _element(x.dtype)
    width = element.bytes
    if any(stride % width for stride in x.strides):
        raise ValueError(f"strides are whole elements of {width} bytes, got {x.strides} bytes: copy the array first")
    strides = tuple(stride // width for stride in x.strides)
    return ArrayView(
        element=element,
        shape=x.shape,
        strides=strides,
        address=x.ctypes.data,
        device=None,
        owner=x if owner is None else owner,
        kind=kind,
        host=x,
        writable=x.flags.writeable and not repeats(x.shape, strides),
    )


def from_torch(x: Any) -> ArrayView:
    """The view of a torch tensor on the CPU or a CUDA device, in place, with torch's current stream.

    Raises TypeError or ValueError for a tensor that is not plain memory, that needs a gradient, or under a trace.
    """
    torch: Any = sys.modules["torch"]
    check_operand(x)
    element = _element(x.dtype)
    if not x.is_cuda:
        return from_numpy(host_array(x), "torch", x)
    ordinal = x.get_device()
    shape, strides = tuple(x.shape), x.stride()
    return ArrayView(
        element=element,
        shape=shape,
        strides=strides,
        address=x.data_ptr(),
        device=ordinal,
        owner=x,
        kind="torch",
        stream=torch_stream(torch)(ordinal),
        writable=not repeats(shape, strides),
    )


def from_cuda_array_interface(x: Any, interface: dict[str, Any]) -> ArrayView:
    """The view of a device array with version 2 or 3 of `__cuda_array_interface__`."""
    element = _typestr_element(interface)
    if element is None:
        raise ValueError(f"{interface['typestr']!r} names no element type that Louver has: convert the data first")
    if interface.get("mask") is not None:
        raise ValueError("masked arrays cannot be read in place: fill the masked elements first")
    address, read_only = interface["data"]
    shape = tuple(interface["shape"])
    pitches = interface.get("strides")
    if pitches is not None and any(pitch % element.bytes for pitch in pitches):
        raise ValueError(f"strides are whole elements of {element.bytes} bytes, got {tuple(pitches)} bytes")
    strides = dlpack.row_major(shape) if pitches is None else tuple(pitch // element.bytes for pitch in pitches)
    return ArrayView(
        element=element,
        shape=shape,
        strides=strides,
        address=address,
        device=_ordinal_of(address) if 0 not in shape else 0,
        owner=x,
        kind=_kind(x),
        stream=interface.get("stream") or 0,
        writable=not read_only and not repeats(shape, strides),
        names_stream=bool(interface.get("stream")),
    )


def from_dlpack(x: Any, stream: int | None) -> ArrayView:
    """The view of an array with DLPack. The producer of a device array makes a stream wait for the data.

    stream: the CUstream handle that the producer names. None if it names no stream; then the default stream waits.
    """
    device_type, ordinal = (int(part) for part in x.__dlpack_device__())
    on_device = device_type in (dlpack.CUDA, dlpack.CUDA_MANAGED)
    if not on_device and device_type not in (dlpack.CPU, dlpack.CUDA_HOST):
        raise ValueError(f"arrays are in host memory or on a CUDA device, got DLPack device type {device_type}")
    waiting = dlpack.LEGACY_STREAM if stream is None else stream
    capsule = dlpack.export(x, waiting if on_device else None)
    contents = dlpack.read(capsule)
    element = element_type(contents.element)
    shape, strides, address = contents.shape, contents.strides, contents.address
    writable = not contents.read_only and not _immutable(x) and not repeats(shape, strides)
    if not on_device:
        host = _host_array(address, shape, strides, element)
        host.flags.writeable = writable
        return from_numpy(host, "other", (x, capsule))
    return ArrayView(
        element=element,
        shape=shape,
        strides=strides,
        address=address,
        device=ordinal,
        owner=_Exported(x, capsule),
        kind=_kind(x),
        stream=waiting,
        writable=writable,
        names_stream=stream is not None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Exported:
    """A DLPack producer, and the capsule that keeps its memory."""

    producer: Any
    capsule: Any


def make_wait(array: ArrayView, stream: int) -> None:
    """Make `stream` (CUstream handle) wait for an array whose producer names no stream. So far only the default stream
    waits.
    """
    if isinstance(array.owner, _Exported) and not array.names_stream and stream not in DEFAULT_STREAMS:
        dlpack.export(array.owner.producer, stream)


def _from_louver(x: DeviceArray) -> ArrayView:
    return ArrayView(
        element=x.element,
        shape=x.shape,
        strides=x.strides,
        address=x.buffer.address,
        device=x.buffer.ordinal,
        owner=x,
        kind="louver",
        stream=x.buffer.stream,
    )


def _kind(x: Any) -> Kind:
    return "cupy" if type(x).__module__.partition(".")[0] == "cupy" else "other"


def _immutable(x: Any) -> bool:
    # JAX arrays are immutable, but an unversioned capsule has no flag for this.
    return type(x).__module__.partition(".")[0] in ("jax", "jaxlib")


def _typestr_element(interface: dict[str, Any]) -> ElementType | None:
    try:
        return element_type(np.dtype(interface["typestr"]))
    except (TypeError, ValueError):
        return None


def _ordinal_of(address: int) -> int:
    attribute = api().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(call("cuPointerGetAttribute", attribute, address, doing=f"asking whose memory {address:#x} is"))


def _host_array(address: int, shape: tuple[int, ...], strides: tuple[int, ...], element: ElementType) -> NDArray[Any]:
    if 0 in shape:
        return np.empty(shape, element.numpy)
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    first = sum(r for r in reach if r < 0) * element.bytes
    last = (sum(r for r in reach if r > 0) + 1) * element.bytes
    data: Any = (ctypes.c_char * (last - first)).from_address(address + first)
    pitches = tuple(stride * element.bytes for stride in strides)
    return np.ndarray(shape, element.numpy, buffer=data, offset=-first, strides=pitches)


def _torch_dtype(element: ElementType) -> Any:
    names = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
    return getattr(sys.modules["torch"], names.get(element.name, element.numpy.name))


@functools.cache
def torch_stream(torch: Any) -> Any:
    """A function that returns the handle of the current stream, from the ordinal of a device."""
    # Compiled torch code calls this function too. The public function makes an object at each call.
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if quick is not None:
        return quick

    def current(ordinal: int) -> int:
        return torch.cuda.current_stream(ordinal).cuda_stream

    return current
