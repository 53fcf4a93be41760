"""Encodes tensor maps (`louver.isa.bulk.TensorMap`) for the hardware, by the driver."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any

from louver.isa.bulk import TensorMap
from louver.runtime.driver import INVALID_CONTEXT, call, device_context, failure
from louver.runtime.module import TENSOR_MAP_BYTES

_ALIGNMENT = 64

# Values of the driver's enumerations (cuda.h). For copies only the size of an element matters; for additions, its type.
_DATA_TYPE = {1: 0, 2: 1, 4: 2, 8: 4}  # UINT8, UINT16, UINT32, UINT64
_ADDED_TYPE = {"s32": 3, "f16": 6, "f32": 7, "bf16": 9}  # INT32, FLOAT16, FLOAT32, BFLOAT16
_INTERLEAVE_NONE = 0
_SWIZZLE = {0: 0, 32: 1, 64: 2, 128: 3}
_L2_PROMOTION = {0: 0, 64: 1, 128: 2, 256: 3}
_FILL_ZEROS = 0
_ONES = (1,) * 5

# Sizes and byte strides (64 bits each), box sizes and element strides (32 bits each), by rank.
_LISTS = {rank: struct.Struct(f"={2 * rank}Q{2 * rank}I") for rank in range(1, 6)}


def encode(tensor_map: TensorMap) -> bytes:
    """The 128 bytes that a kernel takes by value for a tensor map. Reads outside the tensor give zeros.

    The call needs the driver, but sends no work to the GPU. Raises DriverError if the driver refuses the map,
    DriverMissingError without a driver. Source: CUDA driver API, cuTensorMapEncodeTiled.
    """
    rank = len(tensor_map.shape)
    buffer = (ctypes.c_char * (TENSOR_MAP_BYTES + _LISTS[rank].size + _ALIGNMENT))()
    start = -ctypes.addressof(buffer) % _ALIGNMENT
    result = ctypes.addressof(buffer) + start
    # The driver reads one stride fewer than dimensions.
    strides = (*tensor_map.strides, 0)
    _LISTS[rank].pack_into(
        buffer, start + TENSOR_MAP_BYTES, *tensor_map.shape, *strides, *tensor_map.box, *_ONES[:rank]
    )
    lists = result + TENSOR_MAP_BYTES
    arguments = (
        result,
        _DATA_TYPE[tensor_map.element_bytes] if tensor_map.adds is None else _ADDED_TYPE[tensor_map.adds],
        rank,
        tensor_map.address,
        lists,
        lists + 8 * rank,
        lists + 16 * rank,
        lists + 20 * rank,
        _INTERLEAVE_NONE,
        _SWIZZLE[tensor_map.swizzle],
        _L2_PROMOTION[tensor_map.l2_promotion],
        _FILL_ZEROS,
    )
    code = _encode_tiled()(*arguments)
    if code == INVALID_CONTEXT:
        # The driver needs a current context, although a map belongs to no context.
        with device_context(0):
            code = _encode_tiled()(*arguments)
    if code:
        raise failure(code, f"encoding {tensor_map}")
    return buffer.raw[start : start + TENSOR_MAP_BYTES]


# Called by address, because the CUtensorMap object of cuda.bindings does not have the alignment of 64 bytes that the
# driver needs.
@functools.cache
def _encode_tiled() -> Any:
    address = call("cuGetProcAddress", b"cuTensorMapEncodeTiled", 12000, 0, doing="looking for cuTensorMapEncodeTiled")[
        0
    ]
    pointer = ctypes.c_void_p
    arguments = [
        pointer,
        ctypes.c_int,
        ctypes.c_uint32,
        pointer,
        pointer,
        pointer,
        pointer,
        pointer,
        *[ctypes.c_int] * 4,
    ]
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(address)
