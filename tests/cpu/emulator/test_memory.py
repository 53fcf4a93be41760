from __future__ import annotations

import numpy as np
import pytest

from louver.emulator import GlobalMemory, MisalignedError, OutOfBoundsError, UninitialisedError

ALL = np.ones(32, np.bool_)


def lanes(*values):
    out = np.zeros(32, np.uint64)
    out[: len(values)] = values
    active = np.zeros(32, np.bool_)
    active[: len(values)] = True
    return out, active


def test_loads_and_stores_reach_the_arrays(rng):
    memory = GlobalMemory()
    x = memory.add("x", rng.integers(0, 1 << 32, 77, np.uint32))
    y = memory.add("y", rng.integers(0, 1 << 32, (5, 9), np.uint32))
    at = np.array([x.address + 4 * (i * 5 % 77) if i % 2 else y.address + 4 * (i % 45) for i in range(32)], np.uint64)
    got = memory.gather(at, 4, ALL).reshape(-1).view(np.uint32)
    flat = y.array.reshape(-1)
    assert got.tolist() == [int(x.array[i * 5 % 77] if i % 2 else flat[i % 45]) for i in range(32)]
    data = rng.integers(0, 256, (32, 4), np.uint8)
    active = rng.random(32) < 0.5
    before = x.array.copy(), y.array.copy()
    memory.scatter(at, data, active)
    for i in range(32):
        now = x.array[i * 5 % 77] if i % 2 else flat[i % 45]
        old = before[0][i * 5 % 77] if i % 2 else before[1].reshape(-1)[i % 45]
        assert now == (data[i].view(np.uint32)[0] if active[i] else old)


def test_the_offset_makes_unaligned_views():
    memory = GlobalMemory()
    x = memory.add("x", np.arange(16, dtype=np.uint16), offset=2)
    assert x.address % 256 == 2
    with pytest.raises(MisalignedError, match="multiple of 4"):
        memory.gather(*_swap(lanes(x.address), 4))
    assert memory.gather(*_swap(lanes(x.address + 6), 2))[0].view(np.uint16)[0] == 3


def _swap(pair, size):
    return pair[0], size, pair[1]


@pytest.mark.parametrize(
    ("step", "message"), [(-1, "outside x .*: 1 bytes before the start"), (40, "outside x .*: 0 bytes past the end")]
)
def test_the_gaps_are_out_of_bounds(step, message):
    memory = GlobalMemory()
    x = memory.add("x", np.zeros(40, np.uint8))
    memory.add("y", np.zeros(40, np.uint8))
    with pytest.raises(OutOfBoundsError, match=message):
        memory.gather(*_swap(lanes(x.address, x.address + step), 1))
    with pytest.raises(OutOfBoundsError, match="in no allocation"):
        memory.gather(*_swap(lanes(16), 1))


def test_an_access_across_the_end_is_out_of_bounds():
    memory = GlobalMemory()
    x = memory.add("x", np.zeros(42, np.uint8))
    with pytest.raises(OutOfBoundsError):
        memory.gather(*_swap(lanes(x.address + 40), 4))


def test_unwritten_bytes_are_found():
    memory = GlobalMemory()
    x = memory.add("x", np.zeros(40, np.uint8), initialised=False)
    address, active = lanes(x.address, x.address + 1)
    memory.scatter(address, np.full((32, 1), 7, np.uint8), active)
    assert memory.gather(address, 1, active)[:2].reshape(-1).tolist() == [7, 7]
    with pytest.raises(UninitialisedError, match="byte 2 of x"):
        memory.gather(*_swap(lanes(x.address + 2), 2))
    with pytest.raises(UninitialisedError, match="bulk copy"):
        memory.read(x.address, 16)


def test_inputs_are_not_written():
    memory = GlobalMemory()
    x = memory.add("x", np.zeros(40, np.uint8), writable=False)
    address, active = lanes(x.address)
    with pytest.raises(OutOfBoundsError, match="x is an input"):
        memory.scatter(address, np.zeros((32, 1), np.uint8), active)


def test_arrays_must_be_contiguous_and_writable():
    memory = GlobalMemory()
    with pytest.raises(ValueError, match="C-contiguous, got strides"):
        memory.add("x", np.zeros((4, 4))[:, ::2])
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="writable=False"):
        memory.add("x", fixed)
    memory.add("x", fixed, writable=False)
