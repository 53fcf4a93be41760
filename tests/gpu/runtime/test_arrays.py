from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from louver.formats.dtypes import ELEMENT_TYPES
from louver.runtime.arrays import empty_like_kind, overlaps, view
from louver.runtime.memory import DeviceArray

NAMES = [name for name, t in ELEMENT_TYPES.items() if name != "tf32" and t.numbers == 1 and not t.unused]


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    # Otherwise most of the device's memory is taken at once.
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("jax without CUDA")
    return module


@pytest.mark.parametrize("name", NAMES)
def test_torch_tensors_are_read_in_place(torch: Any, name: str, rng: np.random.Generator) -> None:
    element = ELEMENT_TYPES[name]
    raw = rng.integers(0, 256, (9, 12 * element.bytes), dtype=np.uint8)
    like = view(torch.empty(1, device="cuda"))
    made = empty_like_kind(like, (9, 12), element)
    made.view(torch.uint8).copy_(torch.from_numpy(raw))
    x = made[1::2, 3:]
    v = view(x)
    assert (v.element, v.shape, v.strides, v.address) == (element, (4, 9), (24, 1), x.data_ptr())
    assert (v.device, v.kind, v.writable) == (x.get_device(), "torch", True)
    assert v.stream == torch.cuda.current_stream().cuda_stream
    assert v.to_numpy().tobytes() == raw.view(element.numpy)[1::2, 3:].tobytes()


def test_torch_streams_are_followed(torch: Any) -> None:
    x = torch.ones(4, device="cuda", dtype=torch.float16)
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        assert view(x).stream == other.cuda_stream
    assert view(x).stream == torch.cuda.current_stream().cuda_stream


def test_torch_views_tell_overlap(torch: Any) -> None:
    x = torch.zeros(64, 100, device="cuda", dtype=torch.bfloat16)
    assert overlaps(view(x[:, :50]), view(x[:, 49:]))
    assert not overlaps(view(x[:, :50]), view(x[:, 50:]))
    assert overlaps(view(x), view(x.t()))
    assert not view(x[:1].expand(8, 100)).writable


def test_cupy_arrays_are_read_in_place(cupy: Any, rng: np.random.Generator) -> None:
    data = rng.standard_normal((6, 8)).astype(np.float16)
    own = cupy.cuda.Stream(non_blocking=True)
    with own:
        x = cupy.asarray(data)[::2, 1:]
        v = view(x)
        assert (v.strides, v.address, v.kind, v.stream) == ((16, 1), x.data.ptr, "cupy", own.ptr)
        assert np.array_equal(v.to_numpy(), data[::2, 1:])
        made = empty_like_kind(v, (3, 5), ELEMENT_TYPES["f32"])
    assert isinstance(made, cupy.ndarray) and made.shape == (3, 5) and made.dtype == np.float32
    assert isinstance(empty_like_kind(v, (3, 5), ELEMENT_TYPES["bf16"]), DeviceArray)
    with pytest.raises(ValueError, match="cannot have negative strides"):
        view(cupy.asarray(data)[::-1])
    with pytest.raises(ValueError, match="element type"):
        view(cupy.zeros(3, np.float64))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "s8"])
def test_jax_arrays_are_read_in_place(jax: Any, name: str, rng: np.random.Generator) -> None:
    element = ELEMENT_TYPES[name]
    data = rng.integers(-9, 9, (5, 7)).astype(element.numpy)
    v = view(jax.numpy.asarray(data))
    assert (v.element, v.shape, v.kind, v.writable) == (element, (5, 7), "other", False)
    assert v.to_numpy().tobytes() == data.tobytes()
    assert isinstance(empty_like_kind(v, (2, 2), element), DeviceArray)


def test_other_libraries_adopt_louver_s_arrays(torch: Any, rng: np.random.Generator) -> None:
    data = rng.standard_normal((5, 7)).astype(np.float16)
    x = DeviceArray.of(data)
    assert np.array_equal(torch.as_tensor(x, device="cuda").cpu().numpy(), data)


def test_launches_follow_torch_s_stream_and_graph(torch: Any, rng: np.random.Generator) -> None:
    from louver.runtime.module import ArgumentPack, load
    from support import kernels

    kernel = load(kernels.cubin(kernels.AXPY), "axpy", threads=128)
    data = torch.from_numpy(rng.integers(-99, 99, 5000).astype(np.float32))
    x, y = data.cuda(), torch.zeros(5000, device="cuda")
    arguments = ArgumentPack(["u64", "u64", "f32", "u32"])

    def add() -> None:
        vx, vy = view(x), view(y)
        arguments.bind(vx.address, vy.address, 1.0, 5000)
        kernel.launch(40, arguments, vy.stream or 0)

    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add()
    y.zero_()
    for _ in range(3):
        graph.replay()
    assert torch.equal(y.cpu(), 3 * data)
    add()
    assert torch.equal(y.cpu(), 4 * data)
