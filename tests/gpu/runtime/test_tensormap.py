from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from louver.isa.bulk import TensorMap
from louver.isa.swizzle import Swizzle, SwizzledTile
from louver.runtime.driver import DriverError
from louver.runtime.memory import DeviceArray, DeviceBuffer
from louver.runtime.module import ArgumentPack, load
from louver.runtime.tensormap import encode
from support import kernels
from support.warpgroup import shared_image

pytestmark = pytest.mark.usefixtures("hopper")


@pytest.fixture
def hopper() -> None:
    from louver.runtime.device import require_device

    if require_device().capability[0] != 9:
        pytest.skip("the kernel of these tests is made for sm_90a")


def copied(tensor_map: TensorMap, c0: int, c1: int) -> np.ndarray:
    """The shared-memory image of a box, uint8 [box_bytes]."""
    size = tensor_map.box_bytes
    kernel = load(kernels.cubin(kernels.BOX), "box", threads=128, dynamic_shared=size + 8)
    out = DeviceBuffer(size)
    out.fill(0xEE)
    arguments = ArgumentPack(["tensormap", "u64", "u32", "u32", "u32"])
    arguments.bind(encode(tensor_map), out.address, c0, c1, size)
    kernel.launch(1, arguments)
    return out.read()


def expected(data: np.ndarray, tensor_map: TensorMap, c0: int, c1: int) -> np.ndarray:
    """The same by NumPy: zeros outside the matrix, then the swizzle's image of the box."""
    columns, rows = tensor_map.shape
    width, lines = tensor_map.box
    box = np.zeros((lines, width), data.dtype)
    inside = data[c1 : min(rows, c1 + lines), c0 : min(columns, c0 + width)]
    box[: inside.shape[0], : inside.shape[1]] = inside
    raw = box.view(np.uint8).reshape(lines, -1)
    if not tensor_map.swizzle:
        return raw.reshape(-1)
    return shared_image(SwizzledTile("k", lines, raw.shape[1], Swizzle(tensor_map.swizzle)), raw)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_boxes_are_copied(dtype: Any, swizzle: Any, rng: np.random.Generator) -> None:
    width = np.dtype(dtype).itemsize
    columns, rows, pitch = 301, 77, 320
    data = rng.integers(0, np.iinfo(dtype).max, (rows, pitch)).astype(dtype)
    x = DeviceArray.of(data.view({1: np.uint8, 2: np.float16, 4: np.int32}[width]))
    box = ((swizzle or 64) // width, 64)
    tensor_map = TensorMap(x.buffer.address, width, (columns, rows), (pitch * width,), box, swizzle)
    # A box starts at a multiple of 16 bytes; it may leave the matrix on any side.
    for c0, c1 in ((0, 0), (64, 13), (288, rows - 9), (256, 70)):
        got = copied(tensor_map, c0, c1)
        assert np.array_equal(got, expected(data[:, :columns], tensor_map, c0, c1)), (c0, c1)


@pytest.mark.parametrize("promotion", [0, 64, 128, 256])
def test_promotion_changes_no_data(promotion: Any, rng: np.random.Generator) -> None:
    data = rng.integers(0, 255, (40, 64), dtype=np.uint8)
    x = DeviceArray.of(data)
    tensor_map = TensorMap(x.buffer.address, 1, (64, 40), (64,), (64, 32), 64)
    promoted = replace(tensor_map, l2_promotion=promotion)
    assert np.array_equal(copied(promoted, 0, 8), expected(data, tensor_map, 0, 8))


def test_many_maps_have_many_encodings(rng: np.random.Generator) -> None:
    maps = [TensorMap(256 * int(i), 2, (1000, 77), (2048,), (64, 64), 128) for i in rng.integers(1, 1 << 20, 50)]
    encoded = [encode(tensor_map) for tensor_map in maps]
    assert all(len(each) == 128 for each in encoded)
    assert len(set(encoded)) == len(set(maps))
    assert [encode(tensor_map) for tensor_map in maps] == encoded


def test_what_the_driver_refuses_is_shown() -> None:
    refused = TensorMap(0x10000, 2, (4096, 64), (8192,), (64, 64))
    # Past the record's own check, so that the driver's answer is seen.
    object.__setattr__(refused, "box", (512, 64))
    with pytest.raises(DriverError, match=r"encoding TensorMap\(address=65536.*CUDA_ERROR_INVALID_VALUE"):
        encode(refused)
