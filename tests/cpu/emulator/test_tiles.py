from __future__ import annotations

import itertools

import numpy as np
import pytest

from louver.emulator import GlobalMemory, LaunchError, MisalignedError, OutOfBoundsError, UninitialisedError
from louver.emulator.tiles import Tensor, signed_coordinates, tile_bytes
from louver.isa.tensormap import TensorMap


def element_by_element(image, tensor_map, coordinates):
    """The box as the PTX ISA defines it, one element at a time."""
    out = []
    for place in itertools.product(*(range(n) for n in tensor_map.box[::-1])):
        index = [c + p for c, p in zip(coordinates, place[::-1], strict=True)]
        if all(0 <= i < n for i, n in zip(index, tensor_map.shape, strict=True)):
            strides = (tensor_map.element_bytes, *tensor_map.strides)
            at = sum(i * s for i, s in zip(index, strides, strict=True))
            out.append(image[at : at + tensor_map.element_bytes])
        else:
            out.append(np.zeros(tensor_map.element_bytes, np.uint8))
    return np.concatenate(out)


@pytest.mark.parametrize(
    ("shape", "strides", "box", "element"),
    [
        ((37,), (), (16,), 1),
        ((19, 7), (48,), (8, 4), 2),
        ((5, 9, 3), (32, 304), (4, 4, 2), 4),
        ((3, 4, 2, 3, 2), (32, 128, 256, 768), (2, 3, 2, 2, 2), 8),
    ],
)
def test_a_box_is_read_and_written_as_defined(rng, shape, strides, box, element):
    extent = shape[0] * element + sum((n - 1) * s for n, s in zip(shape[1:], strides, strict=True))
    memory = GlobalMemory()
    image = rng.integers(0, 256, extent, np.uint8)
    source = memory.add("source", image.copy(), writable=False)
    target = memory.add("target", np.zeros(extent, np.uint8), initialised=False)
    maps = [TensorMap(a.address, element, shape, strides, box) for a in (source, target)]
    read, written = (Tensor.bind(m, memory) for m in maps)
    expected = np.zeros(extent, np.uint8)
    for _ in range(20):
        place = tuple(int(rng.integers(-b, n + 1)) for b, n in zip(box, shape, strict=True))
        data = read.load(place)
        np.testing.assert_array_equal(data, element_by_element(image, maps[0], place))
        written.store(place, data)
        for offset in itertools.product(*(range(b) for b in box)):
            index = [c + o for c, o in zip(place, offset, strict=True)]
            if all(0 <= i < n for i, n in zip(index, shape, strict=True)):
                at = sum(i * s for i, s in zip(index, (element, *strides), strict=True))
                expected[at : at + element] = image[at : at + element]
    np.testing.assert_array_equal(target.array, expected)


def test_the_swizzle_follows_absolute_addresses(rng):
    tensor_map = TensorMap(0x7000_0000_0000, 2, (64, 64), (128,), (64, 24), swizzle=128)
    at = tile_bytes(tensor_map, 2048 + 1024)
    assert isinstance(at, np.ndarray)
    logical = np.arange(tensor_map.box_bytes)
    line, chunk, byte = logical // 128, logical // 16 % 8, logical % 16
    np.testing.assert_array_equal(at, 3072 + line * 128 + (chunk ^ line % 8) * 16 + byte)
    shifted = tile_bytes(tensor_map, 3072 + 128)
    np.testing.assert_array_equal(shifted, 3200 + line * 128 + (chunk ^ (line + 1) % 8) * 16 + byte)


def test_a_tile_without_swizzle_is_one_run_of_bytes():
    assert tile_bytes(TensorMap(256, 2, (64, 64), (128,), (8, 24)), 1280) == slice(1280, 1280 + 384)


def test_a_tile_must_be_aligned():
    with pytest.raises(MisalignedError, match="multiple of 128, got 0x450"):
        tile_bytes(TensorMap(256, 2, (64, 64), (128,), (8, 24)), 0x450)


def test_coordinates_are_signed():
    assert signed_coordinates([0xFFFFFFFE, 5, 0x7FFFFFFF, -3]) == (-2, 5, 0x7FFFFFFF, -3)


def test_a_map_must_lie_in_its_array():
    memory = GlobalMemory()
    array = memory.add("x", np.zeros(1000, np.uint8))
    with pytest.raises(LaunchError, match="leaves its array: .*outside x"):
        Tensor.bind(TensorMap(array.address, 2, (64, 9), (128,), (8, 8)), memory)


def test_unwritten_bytes_and_inputs_are_protected():
    memory = GlobalMemory()
    fresh = memory.add("fresh", np.zeros((8, 16), np.uint8), initialised=False)
    fixed = memory.add("fixed", np.zeros((8, 16), np.uint8), writable=False)
    with pytest.raises(UninitialisedError, match="fresh that were never written"):
        Tensor.bind(TensorMap(fresh.address, 1, (16, 8), (16,), (16, 2)), memory).load((0, 0))
    with pytest.raises(OutOfBoundsError, match="fixed is an input"):
        Tensor.bind(TensorMap(fixed.address, 1, (16, 8), (16,), (16, 2)), memory).store((0, 0), np.zeros(32, np.uint8))
