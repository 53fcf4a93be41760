"""`prune`, `check`, `compress` and `dense` of arrays on a GPU: as on the host, bit for bit, and only counts travel.

The fake GPU runs each kernel on the emulator.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library.forms import Metadata, TileMetadata, Values
from louver.library.state import TensorState
from louver.runtime.arrays import view
from louver.runtime.memory import DeviceArray
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.sparse import bits_of, random_bits, same_bits

CAPTURING = 0xCA
"""The stream that the recording driver says is being captured."""

CASES = [
    ("bf16", "2:4", (2, 18, 7), 1),
    ("f16", "2:4", (9, 44), -1),
    ("s8", "3:8", (6, 41), -1),
    ("e4m3", "2:4", (70, 36), 0),
    ("u8", "2:4", (130,), 0),
    ("e5m2", "1:2", (5, 66), -1),
    ("f16", "16:64", (3, 130), -1),
    ("f32", "1:2", (7, 20), -1),
    ("bf16", "4:4", (6, 23), -1),
    ("bf16", "2:8@4", (2, 10, 24), -1),
    ("e4m3", "3:8@16", (2, 24, 50), 1),
    ("s8", "100:200@3", (201, 5), 0),
    ("f16", "2:8@V4", (2, 10, 21), -1),
]
"""Groups of 64, vectors and patterns that keep all have kernels of their own; V:N:M goes through the host."""


def on_gpu(array: np.ndarray, ordinal: int = 0) -> Tensor:
    return Tensor.of(np.ascontiguousarray(array), ordinal=ordinal)


def contents(array: Any) -> np.ndarray:
    return np.ascontiguousarray(view(array).to_numpy())


def travelled(gpu: FakeGpu) -> int:
    """Bytes copied to the host."""
    return sum(arguments[2] for arguments in gpu.called("cuMemcpyDtoHAsync"))


def same_tensor(t: SparseTensor, s: SparseTensor) -> bool:
    there = (t.pattern, t.dtype, t.shape, t.axis, t.negative_zeros_dropped)
    return (
        there == (s.pattern, s.dtype, s.shape, s.axis, s.negative_zeros_dropped)
        and same_bits(contents(t.values), np.ascontiguousarray(s.values))
        and np.array_equal(contents(t.indices), s.indices)
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("dtype", "pattern", "shape", "axis"), CASES)
def test_as_on_the_host(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, dtype: str, pattern: str, shape: Any, axis: int
) -> None:
    w = random_bits(rng, shape, dtype)
    there, pruned = on_gpu(w, 1), louver.prune(w, pattern, axis=axis)
    kept = louver.prune(there, pattern, axis=axis)
    assert isinstance(kept, Tensor) and (kept.get_device(), kept.shape) == (1, shape)
    assert same_bits(contents(kept), pruned)
    zero = louver.compress(w, pattern, axis=axis, method="magnitude")
    assert same_tensor(louver.compress(there, pattern, axis=axis, method="magnitude"), zero)
    if view(w).element.floating:
        bits_of(pruned)[(bits_of(pruned) == 0) & (rng.random(shape) < 0.3)] = view(w).element.negative_zero
    held, s = on_gpu(pruned, 1), louver.compress(pruned, pattern, axis=axis)
    t = louver.compress(held, pattern, axis=axis)
    assert t.device == 1 and isinstance(t.values, Tensor) and same_tensor(t, s)
    assert same_bits(contents(t.dense()), s.dense())
    for given, exact, listed in ((pruned, True, 1), (w, False, 2)):
        expected = louver.check(given, pattern, axis=axis, exact=exact, listed=listed)
        assert louver.check(on_gpu(given), pattern, axis=axis, exact=exact, listed=listed) == expected


def test_only_counts_travel(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    w = random_bits(rng, (9, 44), "f16")
    kept = louver.prune(on_gpu(w), "2:4")
    louver.compress(on_gpu(w), "2:4", method="magnitude")
    louver.compress_both(on_gpu(w))
    assert not gpu.called("cuMemcpyDtoHAsync") and not gpu.called("cuStreamSynchronize"), "nothing is waited for"
    louver.compress(kept, "2:4").dense()
    assert travelled(gpu) == 2 * 16
    louver.check(kept, "2:4")
    assert travelled(gpu) == 2 * 16 + 8 * 7
    gpu.calls.clear()
    kept = louver.prune(on_gpu(w), "2:8@4")
    louver.compress(on_gpu(w), "2:8@4", method="magnitude")
    assert not gpu.called("cuMemcpyDtoHAsync") and not gpu.called("cuStreamSynchronize"), "nothing is waited for"
    louver.compress(kept, "2:8@4").dense()
    louver.check(kept, "2:8@4")
    assert travelled(gpu) == 2 * 16 + 8 * 11
    assert not gpu.called("cuMemcpyHtoDAsync")


def test_both_orientations(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    w = random_bits(rng, (2, 10, 12), "bf16")
    there = on_gpu(w)
    assert all(map(same_tensor, louver.compress_both(there), louver.compress_both(w)))
    expected = louver.prune(w, "2:4", transposable=True)
    assert same_bits(contents(louver.prune(there, "2:4", transposable=True, axis=-2)), expected)


def test_arrays_of_louver_s_own(gpu: FakeGpu, rng: np.random.Generator) -> None:
    for dtype in ("f16", "e4m3"):
        w = random_bits(rng, (6, 20), dtype)
        t = louver.compress(DeviceArray.of(w), "2:4", method="magnitude")
        assert isinstance(t.values, DeviceArray) and isinstance(t.dense(), DeviceArray)
        assert same_bits(t.dense().numpy(), louver.prune(w, "2:4"))


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (2, 0, 4), (0,)])
def test_arrays_without_elements(gpu: FakeGpu, torch: FakeTorch, shape: tuple[int, ...]) -> None:
    w = np.zeros(shape, np.float16)
    there = Tensor(shape, address=1 << 10)
    assert louver.prune(there, "2:4").shape == shape
    assert louver.check(there, "2:4") == louver.check(w, "2:4")
    assert same_tensor(louver.compress(there, "2:4"), louver.compress(w, "2:4"))
    assert louver.compress(there, "2:4").dense().shape == shape
    assert not gpu.launches


# --- metadata ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "axis"), [((70, 300), -1), ((300, 20), 0), ((3, 20, 68), -1)])
@pytest.mark.parametrize("method", ["magnitude", None])
def test_metadata_is_made_on_the_way(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, shape: Any, axis: int, method: Any
) -> None:
    w = louver.prune(random_bits(rng, shape, "f16"), "2:4", axis=axis)
    torch.stream = 7
    t = louver.compress(on_gpu(w), "2:4", axis=axis, method=method)
    torch.stream = 9
    gpu.launches.clear()
    gpu.calls.clear()
    state = t.derived.of(TensorState)
    assert not state.has(0, Metadata())
    state.form(t, Values(), 0)
    held = state.form(t.mT, Metadata(), 0)
    assert not gpu.launches and gpu.called("cuStreamSynchronize") == [(7,)], "its stream is waited for"
    assert state.form(t, Metadata(), 0) is held and state.has(0, Metadata())
    expected = Metadata().host(t.to("cpu"))
    assert contents_at(gpu, held.address, held.nbytes) == expected.tobytes()


def test_metadata_that_the_first_product_does_not_read_goes(gpu: FakeGpu, torch: FakeTorch, rng: Any) -> None:
    t = louver.compress(on_gpu(random_bits(rng, (70, 40), "f16")), "2:4", method="magnitude")
    gpu.launches.clear()
    state = t.derived.of(TensorState)
    gone = weakref.finalize(state._offered[1].owner, lambda: None)
    held = state.form(t, TileMetadata("f16"), 0)
    assert len(gpu.launches) == 1 and not gone.alive
    assert contents_at(gpu, held.address, held.nbytes) == TileMetadata("f16").host(t.to("cpu")).tobytes()
    state.form(t, Metadata(), 0)
    assert len(gpu.launches) == 2


@pytest.mark.parametrize(
    ("dtype", "pattern", "shape", "axis"),
    [
        ("f32", "1:2", (8, 8), -1),
        ("f16", "2:8", (8, 8), -1),
        ("f16", "2:4", (8,), -1),
        ("f16", "2:4", (2, 8, 8), 0),
        ("f16", "2:4", (2, 2, 8, 8), -1),
    ],
)
def test_tensors_that_no_product_takes_so_have_none(
    gpu: FakeGpu, torch: FakeTorch, rng: Any, dtype: str, pattern: str, shape: Any, axis: int
) -> None:
    t = louver.compress(on_gpu(random_bits(rng, shape, dtype)), pattern, axis=axis, method="magnitude")
    assert len(gpu.launches) == 1 and t.derived.find(TensorState) is None


def contents_at(gpu: FakeGpu, address: int, nbytes: int) -> bytes:
    return ctypes.string_at(address, nbytes)


# --- errors --------------------------------------------------------------------------------------------------------------


BAD: list[Callable[[Any], Any]] = [
    lambda w: louver.prune(w, "2:3:4"),
    lambda w: louver.prune(w, "2:4@8", norm="l3"),
    lambda w: louver.compress(w, "2:4@8"),
    lambda w: louver.prune(w, "2:4", axis=2),
    lambda w: louver.prune(w, "2:4", method="random"),
    lambda w: louver.prune(w, "1:2", transposable=True),
    lambda w: louver.compress(w, "2:4", method="random"),
    lambda w: louver.compress(w, "2:4"),
    lambda w: louver.compress(w, "2:4", axis=0),
    lambda w: louver.compress(w, "16:64"),
    lambda w: louver.check(w, "4:2"),
    lambda w: louver.check(w, "2:4", axis=-3),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_errors_are_those_of_the_host(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, number: int) -> None:
    w = rng.standard_normal((12, 130)).astype(np.float16)
    with pytest.raises(ValueError) as host:
        BAD[number](w)
    with pytest.raises(ValueError) as there:
        BAD[number](on_gpu(w))
    assert str(there.value) == str(host.value)


def test_arrays_that_no_kernel_takes(gpu: FakeGpu, torch: FakeTorch) -> None:
    for function in (louver.prune, louver.check, louver.compress):
        with pytest.raises(ValueError, match="at least one dimension, got a scalar: give an array"):
            function(Tensor(()), "2:4")
    with pytest.raises(ValueError, match="a transposable mask is of the last two axes, got 1 dimensions"):
        louver.compress_both(Tensor((8,)))
    apart = Tensor((4, 4, 4, 8), strides=(512, 16, 128, 1))
    with pytest.raises(ValueError, match="two strides beside that of its sparse axis 3, got strides .*: make a contig"):
        louver.prune(apart, "2:4")
    with pytest.raises(ValueError, match="of its sparse axis 1, .* with the sparse axis among the last two"):
        louver.compress(Tensor((2, 8, 3, 5)), "2:4@5", axis=1, method="magnitude")
    assert not gpu.launches


def test_illegal_codes_are_refused(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(random_bits(rng, (6, 26), "f16"), "2:4"), "2:4")
    indices = s.indices.copy()
    indices[4, 2] = 0x40
    t = replace(s, values=on_gpu(s.values), indices=on_gpu(indices))
    with pytest.raises(ValueError, match="got 0x0 in row 4, group 4"):
        t.dense()


def test_captures(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    w = on_gpu(random_bits(rng, (6, 24), "f16"))
    torch.stream = CAPTURING
    with pytest.raises(RuntimeError, match="kernel for prune of these arrays must be loaded before its stream is capt"):
        louver.prune(w, "2:4")
    torch.stream = 0
    kept = louver.prune(w, "2:4")
    t = louver.compress(kept, "2:4")
    louver.compress(w, "2:4", method="magnitude")
    torch.stream = CAPTURING
    gpu.calls.clear()
    louver.prune(w, "2:4")
    captured = louver.compress(w, "2:4", method="magnitude")
    assert captured.derived.find(TensorState) is None, "its metadata is not written yet"
    for waits in (
        lambda: louver.compress(kept, "2:4"),
        lambda: louver.check(kept, "2:4"),
        t.dense,
    ):
        with pytest.raises(
            RuntimeError, match="waits for its result, and its stream is being captured: make it before"
        ):
            waits()
    assert not gpu.called("cuMemAllocAsync") and not gpu.called("cuStreamSynchronize")
