from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from louver.formats.dtypes import ELEMENT_TYPES
from louver.runtime.adapters import empty_rows
from louver.runtime.arrays import empty_like_kind, view
from louver.runtime.memory import DeviceArray, DeviceBuffer


def test_bytes_go_in_and_out(fake: Any, rng: np.random.Generator) -> None:
    buffer = DeviceBuffer(100, ordinal=1, stream=6)
    assert fake.called("cuMemAllocAsync") == [(100, 6)]
    data = rng.integers(0, 256, 30, dtype=np.uint8)
    buffer.fill(0xAB)
    buffer.write(data, offset=70)
    assert np.array_equal(buffer.read(30, offset=70), data)
    assert (buffer.read(offset=1)[:69] == 0xAB).all()
    assert buffer.read().size == 100
    assert fake.called("cuStreamSynchronize")[-1] == (6,)


def test_memory_is_released_once(fake: Any) -> None:
    buffer = DeviceBuffer(10, stream=6)
    address = buffer.address
    buffer.close()
    buffer.close()
    assert fake.called("cuMemFreeAsync") == [(address, 6)]
    with pytest.raises(ValueError, match="closed"):
        buffer.read()
    del buffer
    dropped = DeviceBuffer(10)
    del dropped
    assert len(fake.called("cuMemFreeAsync")) == 2
    assert not fake.memory


def test_a_release_that_fails_at_the_end_is_quiet(fake: Any) -> None:
    buffer = DeviceBuffer(10)
    fake.fails["cuMemFreeAsync"] = [700]
    del buffer
    with pytest.raises(ValueError, match="at least 1 byte"):
        DeviceBuffer(0)


def test_what_a_capture_would_release_stays_until_a_later_allocation(fake: Any) -> None:
    """A graph would release it at each replay."""
    buffer = DeviceBuffer(10, stream=6)
    address = buffer.address
    fake.captures[6] = 2
    buffer.close()
    again = DeviceBuffer(10)
    assert not fake.called("cuMemFreeAsync") and address in fake.memory, "the capture goes on"
    del fake.captures[6]
    DeviceBuffer(10).close()
    assert fake.called("cuMemFreeAsync")[0] == (address, 6)
    again.close()
    assert not fake.memory


def test_a_later_release_that_fails_is_not_the_allocation_s_error(fake: Any) -> None:
    buffer = DeviceBuffer(10, stream=6)
    fake.captures[6] = 2
    buffer.close()
    del fake.captures[6]
    fake.fails["cuMemFreeAsync"] = [400]
    again = DeviceBuffer(10)
    assert again.address and len(fake.called("cuMemFreeAsync")) == 1


def test_the_default_stream_beside_a_capture_releases_nothing(fake: Any) -> None:
    buffer = DeviceBuffer(10)
    for name in ("cuStreamIsCapturing", "cuStreamGetCaptureInfo"):
        fake.fails[name] = [906]
    buffer.close()
    assert not fake.called("cuMemFreeAsync")
    DeviceBuffer(10).close()
    assert len(fake.called("cuMemFreeAsync")) == 2


def test_memory_of_a_capture_is_released_in_it_or_by_its_graph(fake: Any) -> None:
    fake.captures[6] = 2
    inside, later = DeviceBuffer(10, stream=6), DeviceBuffer(10, stream=6)
    address = inside.address
    inside.close()
    assert fake.called("cuMemFreeAsync") == [(address, 6)]
    del fake.captures[6]
    later.close()
    DeviceBuffer(10).close()
    assert len(fake.called("cuMemFreeAsync")) == 2, "not that of the graph"


def test_buffers_check_their_bounds(fake: Any) -> None:
    buffer = DeviceBuffer(10)
    for offset, size in ((5, 6), (-1, 3), (11, 0)):
        with pytest.raises(ValueError, match="lie outside the buffer's 10"):
            buffer.read(size, offset=offset)
    with pytest.raises(ValueError, match="lie outside"):
        buffer.write(np.zeros(6, np.int16))
    with pytest.raises(ValueError, match="C-contiguous"):
        buffer.write(np.zeros((2, 4), np.uint8)[:, ::2])
    with pytest.raises(ValueError, match="a byte is 0 to 255"):
        buffer.fill(256)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.int32])
def test_arrays_go_in_and_out(fake: Any, dtype: Any, rng: np.random.Generator) -> None:
    data = rng.integers(-9, 9, (7, 10)).astype(dtype)
    x = DeviceArray.of(data[::-1, ::3], ordinal=1, stream=4)
    assert (x.shape, x.strides, x.nbytes) == ((7, 4), (4, 1), 28 * data.itemsize)
    assert x.numpy().tobytes() == data[::-1, ::3].tobytes()
    v = view(x)
    assert (v.address, v.device, v.stream, v.kind) == (x.buffer.address, 1, 4, "louver")
    assert v.to_numpy().tobytes() == data[::-1, ::3].tobytes()


def test_other_libraries_can_adopt_an_array(fake: Any) -> None:
    x = DeviceArray.empty((3, 5), ELEMENT_TYPES["f16"])
    interface = x.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["stream"]) == ((3, 5), "<f2", 1)
    assert interface["data"] == (x.buffer.address, False)
    assert not hasattr(DeviceArray.empty((3, 5), ELEMENT_TYPES["bf16"]), "__cuda_array_interface__")
    assert not hasattr(DeviceArray.empty((3, 5), ELEMENT_TYPES["e5m2"]), "__cuda_array_interface__")


def test_array_errors(fake: Any) -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 5\) of f16 needs 30 bytes, got 29"):
        DeviceArray(DeviceBuffer(29), (3, 5), ELEMENT_TYPES["f16"])
    with pytest.raises(ValueError, match=r"dimensions are 0 or more, got shape \(3, -1\)"):
        DeviceArray(DeviceBuffer(29), (3, -1), ELEMENT_TYPES["f16"])


def test_an_array_may_be_empty(fake: Any) -> None:
    for x in (DeviceArray.empty((0, 5), ELEMENT_TYPES["f16"]), DeviceArray.of(np.empty((0, 5), np.float16))):
        assert x.numpy().shape == view(x).to_numpy().shape == (0, 5)
    assert not fake.called("cuMemcpyDtoHAsync") and not fake.called("cuMemcpyHtoDAsync")


def test_outputs_follow_the_input_s_device_and_stream(fake: Any) -> None:
    like = view(DeviceArray.empty((3,), ELEMENT_TYPES["f16"], ordinal=1, stream=8))
    made = empty_like_kind(like, (2, 2), ELEMENT_TYPES["bf16"])
    assert isinstance(made, DeviceArray)
    assert (made.buffer.ordinal, made.buffer.stream, made.shape) == (1, 8, (2, 2))


def test_strided_device_arrays_are_copied_out_in_order(fake: Any, rng: np.random.Generator) -> None:
    data = rng.standard_normal((6, 9)).astype(np.float32)
    x = DeviceArray.of(data)

    interface = {
        "version": 3,
        "shape": (4, 3),
        "typestr": "<f4",
        "data": (x.buffer.address + 4 * 2, False),
        "strides": (4, 72),
    }
    fake._cuPointerGetAttribute = lambda attribute, address: 0
    fake.CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=1)
    v = view(SimpleNamespace(__cuda_array_interface__=interface))
    assert np.array_equal(v.to_numpy(), data.reshape(-1)[2:][np.add.outer(np.arange(4), 18 * np.arange(3))])


def test_rows_are_made_by_the_kind_s_library(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on: list[int] = []
    cuda = SimpleNamespace(Device=lambda ordinal: on.append(ordinal) or nullcontext())
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, empty=np.empty))
    rows = empty_rows("cupy", (3, 5), ELEMENT_TYPES["f16"], 16, 1, 0)
    assert isinstance(rows, np.ndarray) and (rows.shape, rows.strides, on) == ((3, 5), (16, 2), [1])
    for kind, element in (("cupy", "bf16"), ("other", "f16"), ("louver", "e4m3")):
        width = ELEMENT_TYPES[element].bytes
        made = empty_rows(kind, (3, 5), ELEMENT_TYPES[element], 16, 1, 4)
        assert isinstance(made, DeviceArray)
        assert (made.shape, made.strides, made.buffer.nbytes) == ((3, 5), (16 // width, 1), 48)
        assert (made.buffer.ordinal, made.buffer.stream) == (1, 4)
    with pytest.raises(ValueError, match=r"shape \(3, 5\) of f16 needs 42 bytes, got 41"):
        DeviceArray(DeviceBuffer(41), (3, 5), ELEMENT_TYPES["f16"], (8, 1))


def test_arrays_with_gaps_go_out(fake: Any, rng: np.random.Generator) -> None:
    data = rng.integers(-9, 9, (3, 8)).astype(np.float16)
    whole = DeviceArray.of(data)
    part = DeviceArray(whole.buffer, (3, 5), whole.element, whole.strides)
    assert np.array_equal(part.numpy(), data[:, :5]) and np.array_equal(view(part).to_numpy(), data[:, :5])
    assert part.__cuda_array_interface__["strides"] == (16, 2) and whole.__cuda_array_interface__["strides"] is None
