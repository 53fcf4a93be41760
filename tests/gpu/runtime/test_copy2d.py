from __future__ import annotations

import numpy as np
import pytest

from louver.runtime.copy2d import bound_copy
from louver.runtime.memory import DeviceBuffer

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def check(buffer: np.ndarray, start: int, shape: tuple[int, int], strides: tuple[int, int], stream: int) -> None:
    """Copy a view of `buffer` on the device and compare with NumPy; nothing between rows may change."""
    size = buffer.itemsize
    rows, columns = shape
    pitch = -(-columns * size // 16) * 16 + 16
    source = DeviceBuffer(buffer.nbytes, stream=stream)
    source.write(buffer)
    destination = DeviceBuffer(rows * pitch, stream=stream)
    destination.fill(0xEE)
    bound_copy(
        source=source.address + start * size,
        shape=shape,
        strides=strides,
        element_bytes=size,
        destination=destination.address,
        pitch=pitch,
        stream=stream,
    )()
    out = destination.read().reshape(rows, pitch)
    expected = np.lib.stride_tricks.as_strided(buffer[start:], shape, tuple(stride * size for stride in strides))
    assert np.array_equal(np.ascontiguousarray(out[:, : columns * size]).view(buffer.dtype), expected)
    assert (out[:, columns * size :] == 0xEE).all()


@pytest.mark.parametrize(
    ("entries", "shape", "strides", "entry_stride"),
    [
        (5, (333, 70), (80, 1), 30_000),
        (5, (70, 333), (1, 80), 30_000),
        (4000, (3, 40), (160_000, 1), 40),
        (300, (40, 3), (1, 12_000), 40),
        (7, (100, 33), (34, 1), 0),
    ],
)
def test_entries_follow_each_other(
    entries: int,
    shape: tuple[int, int],
    strides: tuple[int, int],
    entry_stride: int,
    rng: np.random.Generator,
    stream: int,
) -> None:
    steps = (entry_stride, *strides)
    last = sum((size - 1) * step for size, step in zip((entries, *shape), steps, strict=True))
    buffer = rng.integers(0, 2**16, last + 1, dtype=np.uint16)
    rows, columns = shape
    pitch = -(-columns * 2 // 16) * 16
    source = DeviceBuffer(buffer.nbytes, stream=stream)
    source.write(buffer)
    destination = DeviceBuffer(entries * rows * pitch, stream=stream)
    destination.fill(0xEE)
    bound_copy(
        source=source.address,
        shape=shape,
        strides=strides,
        element_bytes=2,
        destination=destination.address,
        pitch=pitch,
        entries=entries,
        entry_stride=entry_stride,
        stream=stream,
    )()
    out = destination.read().view(np.uint16).reshape(entries, rows, pitch // 2)
    expected = np.lib.stride_tricks.as_strided(buffer, (entries, *shape), tuple(2 * step for step in steps))
    np.testing.assert_array_equal(out[..., :columns], expected)
    assert (out[..., columns:] == 0xEEEE).all()


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(
    ("shape", "strides", "start"),
    [
        ((1, 1), (1, 1), 3),
        ((1, 100_003), (1, 1), 1),
        ((100_003, 1), (1, 1), 1),
        ((1, 5001), (1, 3), 2),
        ((777, 1234), (1237, 1), 1),
        ((1234, 777), (1, 1237), 1),
        ((333, 222), (700, 3), 5),
        ((222, 333), (3, 700), 5),
        ((50, 3000), (0, 1), 7),
        ((3000, 50), (1, 0), 7),
    ],
)
def test_every_view_is_copied(
    size: int,
    shape: tuple[int, int],
    strides: tuple[int, int],
    start: int,
    rng: np.random.Generator,
    stream: int,
) -> None:
    last = start + (shape[0] - 1) * strides[0] + (shape[1] - 1) * strides[1]
    buffer = rng.integers(0, 2 ** (8 * size), last + 1, dtype=UNSIGNED[size])
    check(buffer, start, shape, strides, stream)


def test_random_views_are_copied(rng: np.random.Generator, stream: int) -> None:
    buffer = rng.integers(0, 2**16, 1 << 20, dtype=np.uint16)
    for _ in range(40):
        rows, columns = (int(side) for side in rng.integers(1, 300, 2))
        unit, other = int(rng.integers(1, 4)), int(rng.integers(1, 1500))
        strides = (unit, other) if rng.integers(2) else (other, unit)
        start = int(rng.integers(0, 1000))
        if start + (rows - 1) * strides[0] + (columns - 1) * strides[1] < buffer.size:
            check(buffer, start, (rows, columns), strides, stream)


def test_far_addresses_are_reached(rng: np.random.Generator) -> None:
    from louver.runtime.device import require_device

    if require_device().memory_bytes < 12 << 30:
        pytest.skip("needs 9 GB of device memory")
    stride = (1 << 32) + 17
    source = DeviceBuffer(2 * stride)
    parts = rng.integers(0, 256, (2, 1000), dtype=np.uint8)
    for i, part in enumerate(parts):
        source.write(part, offset=5 + i * stride)
    for shape, strides, expected in (((2, 1000), (stride, 1), parts), ((1000, 2), (1, stride), parts.T)):
        pitch = -(-shape[1] // 16) * 16
        out = DeviceBuffer(shape[0] * pitch)
        bound_copy(
            source=source.address + 5,
            shape=shape,
            strides=strides,
            element_bytes=1,
            destination=out.address,
            pitch=pitch,
        )()
        assert np.array_equal(out.read().reshape(shape[0], pitch)[:, : shape[1]], expected)
