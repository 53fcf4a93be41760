"""Sparse tensors of arrays on the GPU: products read them in place, forms are NumPy's bit for bit, streams and threads share them."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library.forms import Metadata, Picks, RoundedValues, RowLists, TileMetadata, Values, on_device
from louver.library.state import TensorState
from louver.runtime.arrays import view
from louver.runtime.memory import DeviceArray, read_bytes
from support.device_products import to_numpy, to_torch
from support.products import Operands, assert_exact, operands
from support.sparse import random_bits, same_bits
from support.threads import in_threads


def rows_on_gpu(torch: Any, array: np.ndarray, gap: int = 0) -> Any:
    """Rows of a larger tensor, 16 bytes and `gap` elements more apart."""
    rows, columns = array.shape
    step = 16 // array.itemsize
    whole = to_torch(np.zeros((rows, -(-columns // step) * step + gap), array.dtype))
    whole.view(torch.uint8).fill_(255)
    part = whole[:, :columns]
    part.copy_(to_torch(array))
    return part


def resident(torch: Any, s: SparseTensor, gap: int = 0) -> SparseTensor:
    return replace(s, values=rows_on_gpu(torch, s.values, gap), indices=to_torch(s.indices))


@pytest.mark.parametrize("gap", [0, 16])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "e5m2", "s8", "u8"])
@pytest.mark.parametrize(("m", "n", "k"), [(300, 16, 520), (136, 1, 72), (1024, 200, 256), (1, 7, 3), (65, 300, 1030)])
def test_products_read_the_arrays_in_place(
    rng: np.random.Generator, torch: Any, m: int, n: int, k: int, dtype: str, gap: int
) -> None:
    given = operands(rng, m, n, k, dtype)
    t = resident(torch, given.s, gap)
    values = t.values
    x = to_torch(given.b.T)
    for _ in range(2):
        assert_exact(to_numpy(louver.linear(x, t, out_dtype="f32")).T, given)
        assert_exact(to_numpy(louver.matmul(t, to_torch(given.b), out_dtype="f32")), given)
        assert_exact(to_numpy(x @ t.T).T, given)
    held = t.derived.of(TensorState).form(t, Values(), 0)
    assert held.address == t.values.data_ptr() == values.data_ptr()


def test_a_batch_of_weights(rng: np.random.Generator, torch: Any) -> None:
    w = louver.prune(rng.integers(-3, 4, (3, 130, 72)).astype(np.float16), "2:4")
    x = rng.integers(-3, 4, (3, 33, 72)).astype(np.float16)
    t = resident(torch, louver.compress(w, "2:4"), 8)
    y = to_numpy(louver.linear(to_torch(x), t, out_dtype="f32"))
    np.testing.assert_array_equal(y, x.astype(np.float32) @ w.astype(np.float32).mT)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8"])
@pytest.mark.parametrize("shape", [(1, 4), (40, 72), (130, 200), (3, 20, 68), (2, 64, 1028), (4096, 4096)])
def test_forms_are_the_ones_that_numpy_defines(
    rng: np.random.Generator, torch: Any, shape: tuple[int, ...], dtype: str
) -> None:
    s = louver.compress(louver.prune(random_bits(rng, shape, dtype), "2:4"), "2:4")
    for t in (resident(torch, s), resident(torch, s, 16), s.to("cuda")):
        for form in (Values(packed=True), Metadata(), TileMetadata(dtype)):
            held = on_device(form, t, 0)
            assert read_bytes(held.address, held.nbytes, ordinal=0, stream=0).tobytes() == form.host(s).tobytes()


@pytest.mark.parametrize("pattern", ["2:8@32", "4:16@64", "1:3@128", "2:4@16", "20:100@4096"])
@pytest.mark.parametrize("shape", [(70, 45), (2, 130, 1000), (4096, 4096)])
def test_lists_and_picks_are_the_ones_that_numpy_defines(
    rng: np.random.Generator, torch: Any, shape: tuple[int, ...], pattern: str
) -> None:
    s = louver.compress(random_bits(rng, shape, "f32"), pattern, method="magnitude")
    length = s.pattern.length
    for t in (resident(torch, s), s.to("cuda")):
        for form in (*(RowLists(rows) for rows in (16, 32, 64, 128) if length % rows == 0), Picks(8), Picks(32)):
            held = on_device(form, t, 0)
            assert read_bytes(held.address, held.nbytes, ordinal=0, stream=0).tobytes() == form.host(s).tobytes()


def test_rounded_values_are_the_ones_that_numpy_defines(rng: np.random.Generator, torch: Any) -> None:
    s = louver.compress(random_bits(rng, (300, 1002), "f32"), "1:2", method="magnitude")
    for t in (resident(torch, s), resident(torch, s, 8)):
        held = on_device(RoundedValues(), t, 0)
        found = read_bytes(held.address, held.nbytes, ordinal=0, stream=0)
        assert found.tobytes() == RoundedValues().host(s).tobytes()


@pytest.mark.parametrize("gap", [0, 1, 16])
def test_moving_and_expanding(rng: np.random.Generator, torch: Any, gap: int) -> None:
    for shape, axis in (((40, 72), 1), ((7, 26), 0), ((3, 5, 13), 1)):
        w = louver.prune(random_bits(rng, shape, "bf16"), "2:4", axis=axis)
        s = louver.compress(w, "2:4", axis=axis)
        for t in (s.to("cuda"), s.to(torch.device("cuda:0")), resident(torch, s, gap)):
            assert t.device == 0 and isinstance(t.values, torch.Tensor) and t.values.is_cuda
            assert same_bits(to_numpy(t.dense()), s.dense()) and same_bits(t.to("cpu").dense(), s.dense())
            t.validate()


def test_values_of_any_layout(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 136, 16, 72)
    x, dense = to_torch(given.b.T), to_torch(np.ascontiguousarray(given.s.values))
    for values in (dense, dense.t().contiguous().t(), dense.repeat_interleave(2, 1)[:, ::2]):
        t = replace(given.s, values=values, indices=to_torch(given.s.indices).t().contiguous().t())
        assert_exact(to_numpy(louver.linear(x, t)).T, given)


def test_arrays_of_other_libraries(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 136, 16, 72)

    class Exported:
        """Knows DLPack only."""

        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

        def __dlpack__(self, **how: Any) -> Any:
            return self.array.__dlpack__(**how)

    values, indices = rows_on_gpu(torch, given.s.values), to_torch(given.s.indices)
    torch.cuda.synchronize()
    t = replace(given.s, values=Exported(values), indices=Exported(indices))
    assert_exact(to_numpy(louver.linear(to_torch(given.b.T), t)).T, given)
    assert same_bits(view(t.dense()).to_numpy(), given.a)
    own = replace(given.s, values=DeviceArray.of(given.s.values), indices=DeviceArray.of(given.s.indices))
    assert_exact(to_numpy(louver.linear(to_torch(given.b.T), own)).T, given)


def test_arrays_of_cupy(rng: np.random.Generator, torch: Any) -> None:
    cupy = pytest.importorskip("cupy")
    given = operands(rng, 136, 16, 72)
    t = replace(given.s, values=cupy.asarray(given.s.values), indices=cupy.asarray(given.s.indices))
    assert isinstance(t.values, cupy.ndarray) and isinstance(t.dense(), cupy.ndarray)
    assert_exact(to_numpy(louver.linear(to_torch(given.b.T), t)).T, given)


def test_arrays_that_are_still_being_written(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 300, 16, 520)
    values, indices = rows_on_gpu(torch, given.s.values), to_torch(given.s.indices)
    x = to_torch(given.b.T)
    for _ in range(3):
        late, codes = torch.zeros_like(values), torch.full_like(indices, 0x44)
        torch.cuda.synchronize()
        stream, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            late.copy_(values)
            codes.copy_(indices)
            t = replace(given.s, values=late, indices=codes)
            y = louver.linear(x, t)
        other.wait_stream(stream)
        with torch.cuda.stream(other):
            z = louver.linear(x, t)
        torch.cuda.synchronize()
        for result in (y, z):
            assert_exact(to_numpy(result).T, given)


def test_threads_and_streams_share_a_tensor(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 300, 1, 520)
    parts = [operands(rng, 1, 40 + 8 * index, 520).b for index in range(8)]
    t = resident(torch, given.s)
    torch.cuda.synchronize()

    def work(b: np.ndarray) -> None:
        expected = given.a.astype(np.float32) @ b.astype(np.float32)
        with torch.cuda.stream(torch.cuda.Stream()):
            dense = to_torch(b)
            for _ in range(10):
                np.testing.assert_array_equal(to_numpy(louver.matmul(t, dense, out_dtype="f32")), expected)

    in_threads(work, parts)


def changed(torch: Any, rng: np.random.Generator, given: Operands, t: SparseTensor, how: str) -> Operands:
    """The operands after `update_` with other small integers."""
    new = rng.integers(-4, 5, given.s.values.shape).astype(given.s.values.dtype)
    if how == "written":
        t.values.copy_(to_torch(new))
    t.update_({"device": lambda: to_torch(new), "host": lambda: new, "written": lambda: t.values}[how]())
    s = replace(given.s, values=new)
    return replace(given, s=s, a=s.dense())


@pytest.mark.parametrize("how", ["device", "host", "written"])
def test_a_captured_graph_follows_new_values(rng: np.random.Generator, torch: Any, how: str) -> None:
    given = operands(rng, 264, 16, 136)
    t = resident(torch, given.s)
    x, y = to_torch(given.b.T), torch.zeros(16, 264, dtype=torch.float16, device="cuda")
    packed = t.derived.of(TensorState).form(t, Values(packed=True), 0)
    louver.prepare(t, n=16)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        louver.linear(x, t, out=y)
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert_exact(to_numpy(y).T, given)
        bits = read_bytes(packed.address, packed.nbytes, ordinal=0, stream=0)
        assert bits.tobytes() == np.ascontiguousarray(given.s.values).tobytes()
        given = changed(torch, rng, given, t, how)


def test_a_first_use_that_is_captured_is_refused(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 264, 16, 136)
    t, x = resident(torch, given.s), to_torch(given.b.T)
    y = torch.zeros(16, 264, dtype=torch.float16, device="cuda")
    louver.linear(x, given.s, out=y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(RuntimeError, match="call louver.prepare"):
        louver.linear(x, t, out=y)
    louver.linear(x, t, out=y)
    assert_exact(to_numpy(y).T, given)


def test_illegal_codes_never_reach_the_hardware(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 264, 16, 136)
    indices = to_torch(given.s.indices)
    x = to_torch(given.b.T)
    for code in (0x00, 0x41, 0xF4):
        bad = indices.clone()
        bad[100, 3] = code
        t = replace(given.s, values=rows_on_gpu(torch, given.s.values), indices=bad)
        for _ in range(2):
            with pytest.raises(ValueError, match="at row 100, group [67]: compress the matrix again"):
                louver.linear(x, t)
    assert_exact(to_numpy(louver.linear(x, resident(torch, given.s))).T, given)


def test_tensors_dropped_while_a_kernel_waits_for_its_turn(rng: np.random.Generator, torch: Any) -> None:
    kept = operands(rng, 640, 264, 520)
    dense = to_torch(kept.b)
    stream = torch.cuda.Stream()
    for _ in range(4):
        t = kept.s.to("cuda")
        louver.matmul(t, dense)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(400_000_000)
            y = louver.matmul(t, dense)
        assert not stream.query()
        del t
        gc.collect()
        # PyTorch gives the memory of the values to the next tensor of their size.
        other = kept.s.to("cuda")
        other.values.view(torch.uint8).fill_(255)
        other.indices.fill_(255)
        stream.synchronize()
        assert_exact(to_numpy(y), kept)


def test_memory_is_counted_once(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 640, 16, 512)
    x = to_torch(given.b.T)
    louver.linear(x, given.s)
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    t = given.s.to("cuda")
    y = louver.linear(x, t)
    del y
    assert torch.cuda.memory_allocated() - before <= given.s.nbytes + 2 * 512
    del t
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_gated_pairs(rng: np.random.Generator, torch: Any) -> None:
    gate, up = operands(rng, 264, 16, 128), operands(rng, 264, 16, 128)
    x = to_torch(gate.b.T)
    expected = louver.gated(gate.s, up.s)
    pair = louver.gated(resident(torch, gate.s, 8), resident(torch, up.s))
    assert pair.device == 0 and same_bits(pair.to("cpu").dense(), expected.dense())
    for part, original in zip(pair.parts(), (gate, up), strict=True):
        assert same_bits(to_numpy(part.dense()), original.a)
    y, z = (to_numpy(louver.linear(x, each, activation="silu")) for each in (pair, expected))
    assert same_bits(y, z)
