"""Reads DLPack capsules, by the C structures of dlpack.h."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

CPU = 1
CUDA = 2
CUDA_HOST = 3
CUDA_MANAGED = 13

LEGACY_STREAM = 1
"""DLPack's name for the legacy default stream; also a CUstream handle."""

_TYPES = {
    # (type code, bits): element type's name
    (0, 8): "s8",
    (0, 16): "s16",
    (0, 32): "s32",
    (0, 64): "s64",
    (1, 8): "u8",
    (1, 16): "u16",
    (1, 32): "u32",
    (1, 64): "u64",
    (2, 16): "f16",
    (2, 32): "f32",
    (4, 16): "bf16",
    (6, 8): "bool",
    (10, 8): "e4m3",
    (12, 8): "e5m2",
}
_READ_ONLY = 1


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# Louver declares separate prototypes, because all libraries of the process share the types of `ctypes.pythonapi`'s
# functions.
_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@dataclass(frozen=True, slots=True)
class Contents:
    """The array that a capsule describes. address: in bytes. strides: in elements."""

    address: int
    element: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    read_only: bool


def export(x: Any, stream: int | None) -> Any:
    """The capsule of `x`, versioned if `x` supports this. The producer makes `stream` wait for the data.

    stream: CUstream handle; None for a host array.
    """
    arguments: dict[str, Any] = {} if stream is None else {"stream": stream}
    try:
        return x.__dlpack__(max_version=(1, 1), **arguments)
    except TypeError:
        return x.__dlpack__(**arguments)


def read(capsule: Any) -> Contents:
    """The array that a capsule describes. The data is valid as long as the capsule exists. The capsule is not renamed,
    so it frees the data itself.

    Raises ValueError for an element type that Louver does not have, TypeError if it is not a DLPack capsule.
    """
    tensor, read_only = _tensor(capsule)
    kind = (tensor.dtype.code, tensor.dtype.bits)
    if tensor.dtype.lanes != 1 or kind not in _TYPES:
        raise ValueError(
            f"DLPack type code {kind[0]} of {kind[1]} bits × {tensor.dtype.lanes} is no element type: convert the data to "
            f"one of {', '.join(_TYPES.values())} first"
        )
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else row_major(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return Contents(address, _TYPES[kind], shape, strides, read_only)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a contiguous row-major array."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def _tensor(capsule: Any) -> tuple[_Tensor, bool]:
    name = _capsule_name(capsule)
    if name == b"dltensor":
        # DLManagedTensor begins with the tensor.
        return _Tensor.from_address(_capsule_pointer(capsule, name)), False
    if name == b"dltensor_versioned":
        managed = _Versioned.from_address(_capsule_pointer(capsule, name))
        if managed.major != 1:
            raise ValueError(f"Louver reads DLPack 1, got version {managed.major}.{managed.minor}")
        return managed.tensor, bool(managed.flags & _READ_ONLY)
    raise TypeError(f"expected a fresh DLPack capsule, got one named {name!r}")
