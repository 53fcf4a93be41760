from __future__ import annotations

import itertools

import numpy as np
import pytest

from louver.emulator import GlobalMemory, LaunchError, MisalignedError, OutOfBoundsError, UninitialisedError
from louver.emulator.tiles import Tensor, signed_coordinates, tile_bytes
from louver.formats.dtypes import element_type
from louver.isa.bulk import TensorMap


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


BOXES = pytest.mark.parametrize(
    ("shape", "strides", "box", "element"),
    [
        ((37,), (), (32,), 1),
        ((19, 7), (48,), (16, 4), 2),
        ((5, 9, 3), (32, 304), (8, 4, 2), 4),
        ((3, 4, 2, 3, 2), (32, 128, 256, 768), (4, 3, 2, 2, 2), 8),
    ],
)


def extent(tensor_map):
    strides = (tensor_map.element_bytes, *tensor_map.strides)
    sizes = zip(tensor_map.shape, strides, strict=True)
    return tensor_map.element_bytes + sum((n - 1) * stride for n, stride in sizes)


def places(rng, tensor_map, count=20):
    """Coordinates of boxes at and about the tensor, the innermost one at multiples of 16 bytes."""
    chunk = 16 // tensor_map.element_bytes
    for _ in range(count):
        at = [int(rng.integers(-b, n + 1)) for b, n in zip(tensor_map.box, tensor_map.shape, strict=True)]
        yield (at[0] // chunk * chunk, *at[1:])


@BOXES
def test_a_box_is_read_as_defined(rng, shape, strides, box, element):
    memory = GlobalMemory()
    image = rng.integers(0, 256, extent(TensorMap(0, element, shape, strides, box)), np.uint8)
    tensor_map = TensorMap(memory.add("x", image.copy(), writable=False).address, element, shape, strides, box)
    tensor = Tensor.bind(tensor_map, memory)
    for place in places(rng, tensor_map):
        tensor.check_load(place)
        np.testing.assert_array_equal(tensor.load(place), element_by_element(image, tensor_map, place))


@BOXES
def test_a_box_is_written_as_defined(rng, shape, strides, box, element):
    """Into rows of whole chunks, which the hardware writes."""
    shape = (-(-shape[0] * element // 16) * 16 // element, *shape[1:])
    memory = GlobalMemory()
    expected = np.zeros(extent(TensorMap(0, element, shape, strides, box)), np.uint8)
    target = memory.add("target", expected.copy(), initialised=False)
    tensor_map = TensorMap(target.address, element, shape, strides, box)
    tensor = Tensor.bind(tensor_map, memory)
    for place in places(rng, tensor_map):
        data = rng.integers(0, 256, tensor_map.box_bytes, np.uint8)
        tensor.check_store(place)
        tensor.store(place, data)
        items = iter(data.reshape(-1, element))
        for offset in itertools.product(*(range(b) for b in box[::-1])):
            item = next(items)
            index = [c + o for c, o in zip(place, offset[::-1], strict=True)]
            if all(0 <= i < n for i, n in zip(index, shape, strict=True)):
                at = sum(i * s for i, s in zip(index, (element, *strides), strict=True))
                expected[at : at + element] = item
    np.testing.assert_array_equal(target.array, expected)


@BOXES
def test_copies_start_at_whole_chunks(rng, shape, strides, box, element):
    memory = GlobalMemory()
    size = extent(TensorMap(0, element, shape, strides, box))
    x = memory.add("x", rng.integers(0, 256, size, np.uint8))
    tensor = Tensor.bind(TensorMap(x.address, element, shape, strides, box), memory)
    for column in {1, 16 // element - 1, 16 // element + 1, -1}:
        place = (column, *(0 for _ in shape[1:]))
        with pytest.raises(MisalignedError, match=f"coordinate {column} of {element}-byte elements"):
            tensor.check_load(place)
        with pytest.raises(MisalignedError, match="a multiple of 16 bytes along the innermost dimension"):
            tensor.check_store(place)


@pytest.mark.parametrize("adds", ["f32", "f16", "bf16", "s32"])
def test_boxes_are_added_to_what_is_there(rng, adds):
    dtype, memory = element_type(adds).numpy, GlobalMemory()
    before = rng.integers(-8, 9, (5, 24)).astype(dtype)
    x = memory.add("x", before.copy())
    size = dtype.itemsize
    tensor = Tensor.bind(TensorMap(x.address, size, (24, 5), (24 * size,), (16, 4), adds=adds), memory)
    box = rng.integers(-8, 9, (4, 16)).astype(dtype)
    tensor.add((16, 3), box.reshape(-1).view(np.uint8))
    expected = before.copy()
    expected[3:, 16:] += box[:2, :8]
    np.testing.assert_array_equal(x.array, expected)
    plain = Tensor.bind(TensorMap(x.address, size, (24, 5), (24 * size,), (16, 4)), memory)
    with pytest.raises(LaunchError, match="needs a tensor map with an element type to add"):
        plain.add((0, 0), box.reshape(-1).view(np.uint8))


@BOXES
def test_stores_past_rows_of_other_sizes_than_whole_chunks_are_found(rng, shape, strides, box, element):
    memory = GlobalMemory()
    size = extent(TensorMap(0, element, shape, strides, box))
    x = memory.add("x", rng.integers(0, 256, size, np.uint8))
    tensor_map = TensorMap(x.address, element, shape, strides, box)
    tensor = Tensor.bind(tensor_map, memory)
    found = 0
    for place in places(rng, tensor_map, 50):
        touched = all(-b < c < n for c, b, n in zip(place, box, shape, strict=True))
        if touched and place[0] + box[0] > shape[0]:
            found += 1
            with pytest.raises(
                OutOfBoundsError, match=f"{shape[0]} elements of {element} bytes, which it would write past"
            ):
                tensor.check_store(place)
        else:
            tensor.check_store(place)
    assert 0 < found < 50


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


def test_a_map_may_leave_its_array_but_no_box_may():
    memory = GlobalMemory()
    array = memory.add("x", np.arange(250, dtype=np.float32))
    tensor = Tensor.bind(TensorMap(array.address, 2, (64, 9), (128,), (8, 2)), memory)
    assert tensor.load((0, 5)).tobytes() == array.data[640:656].tobytes() + array.data[768:784].tobytes()
    with pytest.raises(OutOfBoundsError, match=r"the box at \(56, 7\) of .* leaves x \(1000 bytes\): 152 bytes past"):
        tensor.load((56, 7))
    with pytest.raises(LaunchError, match="begins in no array: .*past the end"):
        Tensor.bind(TensorMap(array.address + 1008, 2, (64, 9), (128,), (8, 2)), memory)


def test_unwritten_bytes_and_inputs_are_protected():
    memory = GlobalMemory()
    fresh = memory.add("fresh", np.zeros((8, 16), np.uint8), initialised=False)
    fixed = memory.add("fixed", np.zeros((8, 16), np.uint8), writable=False)
    with pytest.raises(UninitialisedError, match="fresh that were never written"):
        Tensor.bind(TensorMap(fresh.address, 1, (16, 8), (16,), (16, 2)), memory).load((0, 0))
    with pytest.raises(OutOfBoundsError, match="fixed is an input"):
        Tensor.bind(TensorMap(fixed.address, 1, (16, 8), (16,), (16, 2)), memory).check_store((0, 0))
