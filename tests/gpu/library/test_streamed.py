"""`prune`, `check`, `compress` and `dense` of PyTorch's tensors on the GPU: as on the host, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.library.forms import Metadata
from louver.library.state import TensorState
from louver.runtime.memory import read_bytes
from support.device_products import to_numpy, to_torch
from support.products import assert_exact, operands
from support.sparse import bits_of, random_bits, same_bits
from support.windows import adversarial, close_sums

DTYPES = ("f16", "bf16", "e4m3", "e5m2", "s8", "u8", "f32")

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda t: t,
    "columns": lambda t: t.mT.contiguous().mT,
    "apart": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "offset": lambda t: t.new_empty(t.numel() + 1)[1:].view(t.shape).copy_(t),
}
"""Of the same elements; those in between are others."""


def laid_out(torch: Any, array: np.ndarray, layout: str) -> Any:
    """The array on the GPU; PyTorch moves integers, since it has few operations on 8-bit floats."""
    made = to_torch(array)
    return LAYOUTS[layout](made.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[array.itemsize])).view(made.dtype)


def same_tensor(t: SparseTensor, s: SparseTensor) -> bool:
    there = (t.pattern, t.dtype, t.shape, t.axis, t.negative_zeros_dropped)
    return (
        there == (s.pattern, s.dtype, s.shape, s.axis, s.negative_zeros_dropped)
        and same_bits(np.ascontiguousarray(to_numpy(t.values)), np.ascontiguousarray(s.values))
        and np.array_equal(to_numpy(t.indices), s.indices)
    )


def with_negative_zeros(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    negative = element_type(array.dtype).negative_zero
    if negative is not None:
        bits_of(array)[(bits_of(array) == 0) & (rng.random(array.shape) < 0.2)] = negative
    return array


def compare(torch: Any, rng: np.random.Generator, w: np.ndarray, layout: str, pattern: str, axis: int) -> None:
    there = laid_out(torch, w, layout)
    pruned = louver.prune(w, pattern, axis=axis)
    assert same_bits(to_numpy(louver.prune(there, pattern, axis=axis)), pruned)
    s = louver.compress(pruned, pattern, axis=axis)
    t = louver.compress(there, pattern, axis=axis, method="magnitude")
    assert same_tensor(t, s) and same_bits(to_numpy(t.dense()), s.dense())
    dirty = with_negative_zeros(rng, pruned)
    held = laid_out(torch, dirty, layout)
    assert same_tensor(louver.compress(held, pattern, axis=axis), louver.compress(dirty, pattern, axis=axis))
    for exact in (False, True):
        for given, host in ((there, w), (held, dirty)):
            found = louver.check(given, pattern, axis=axis, exact=exact, listed=2)
            assert found == louver.check(host, pattern, axis=axis, exact=exact, listed=2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pattern", ["2:4", "1:2", "3:8", "16:64", "2:8@4", "4:16@32", "3:7@5", "100:256@64", "3:3@2"])
def test_as_on_the_host(rng: np.random.Generator, torch: Any, pattern: str, dtype: str, layout: str) -> None:
    compare(torch, rng, random_bits(rng, (333, 1002), dtype), layout, pattern, -1)
    compare(torch, rng, random_bits(rng, (2, 130, 77), dtype), layout, pattern, 1)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(rng: np.random.Generator, torch: Any, dtype: str, norm: Any) -> None:
    """Sums in the order of the rows: many are a unit apart, or equal."""
    for layout in LAYOUTS:
        for data in (random_bits, adversarial, close_sums):
            w = data(rng, (200, 330), dtype)
            for pattern in ("2:8@64", "16:32@37", "1:4@1000"):
                there = louver.prune(laid_out(torch, w, layout), pattern, norm=norm)
                assert same_bits(to_numpy(there), louver.prune(w, pattern, norm=norm))


@pytest.mark.parametrize("seed", range(200))
def test_random_shapes(torch: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 17))
    shape = tuple(int(size) for size in rng.integers(1, 200, rng.integers(1, 4)))
    pattern = f"{rng.integers(1, m)}:{m}" if rng.random() < 0.6 else ("2:4" if rng.random() < 0.7 else "1:2")
    if seed % 2:
        m = int(rng.integers(1, 257))
        pattern = f"{rng.integers(1, m + 1)}:{m}@{rng.integers(1, 150)}"
    layout = rng.choice([name for name in LAYOUTS if len(shape) > 1 or name != "columns"])
    w = adversarial(rng, shape, str(rng.choice(DTYPES)))
    compare(torch, rng, w, layout, pattern, int(rng.integers(-len(shape), len(shape))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (262, 130), (3, 70, 33), (2048, 1032)])
def test_both_orientations(rng: np.random.Generator, torch: Any, shape: tuple[int, ...], dtype: str) -> None:
    w = random_bits(rng, shape, dtype)
    for layout in LAYOUTS:
        there = laid_out(torch, w, layout)
        assert all(map(same_tensor, louver.compress_both(there), louver.compress_both(w)))
        assert same_bits(
            to_numpy(louver.prune(there, "2:4", transposable=True)), louver.prune(w, "2:4", transposable=True)
        )


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8"])
@pytest.mark.parametrize(("m", "n", "k"), [(300, 16, 520), (1024, 2048, 1024), (65, 1, 1028)])
def test_a_weight_is_ready_for_products(
    rng: np.random.Generator, torch: Any, m: int, n: int, k: int, dtype: str
) -> None:
    given = operands(rng, m, n, k, dtype)
    for axis, w in ((-1, given.a), (0, np.ascontiguousarray(given.a.T))):
        for method in ("magnitude", None):
            t = louver.compress(to_torch(w), "2:4", axis=axis, method=method)
            held = t.derived.of(TensorState).form(t, Metadata(), 0)
            expected = Metadata().host(t.to("cpu"))
            assert read_bytes(held.address, held.nbytes, ordinal=0, stream=0).tobytes() == expected.tobytes()
            weight = t if axis else t.T
            assert_exact(to_numpy(louver.linear(to_torch(given.b.T), weight, out_dtype="f32")).T, given)


def test_a_large_weight(rng: np.random.Generator, torch: Any) -> None:
    """More tiles than CTAs."""
    w = torch.randn(16384, 8192, device="cuda", dtype=torch.float16)
    t = louver.compress(w, "2:4", method="magnitude")
    kept = t.dense()
    size, rest = w.abs(), (w - kept).abs()
    assert torch.equal(kept[kept != 0], w[kept != 0])
    assert int((kept.view(-1, 4) != 0).sum(1).max()) <= 2
    # Nothing that is left out is larger than what is kept.
    least = torch.where(kept != 0, size, torch.inf).view(-1, 4).amin(1)
    assert bool((rest.view(-1, 4).amax(1) <= least).all())
    assert louver.check(kept, "2:4").ok and not louver.check(w, "2:4").ok


@pytest.mark.parametrize("pattern", ["2:4", "4:16@32"])
def test_a_captured_graph_prunes_again(rng: np.random.Generator, torch: Any, pattern: str) -> None:
    first, second = (random_bits(rng, (70, 264), "f16") for _ in range(2))
    w = to_torch(first)
    for function in (louver.prune, lambda w, pattern: louver.compress(w, pattern, method="magnitude").values):
        function(w, pattern)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = louver.prune(w, pattern)
        s = louver.compress(w, pattern, method="magnitude")
        with pytest.raises(RuntimeError, match="waits for its result, and its stream is being captured"):
            louver.check(w, pattern)
    for given in (first, second):
        w.copy_(to_torch(given))
        graph.replay()
        torch.cuda.synchronize()
        assert same_bits(to_numpy(kept), louver.prune(given, pattern))
        assert same_tensor(s, louver.compress(given, pattern, method="magnitude"))


def test_streams(rng: np.random.Generator, torch: Any) -> None:
    """The results of a stream are pruned behind it."""
    w = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(64, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(5):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            busy = torch.randn(8192, 8192, device="cuda")
            for _ in range(5):
                busy = busy @ busy
            late = w * 2 + 0 * busy[:4096, :4096].nan_to_num().clamp(0, 0).to(w.dtype)
            t = louver.compress(late, "2:4", method="magnitude")
        torch.cuda.current_stream().wait_stream(side)
        y = louver.linear(x, t)
        expected = louver.prune(w * 2, "2:4")
        assert torch.equal(t.dense(), expected)
        torch.testing.assert_close(y, x @ expected.T, rtol=0.02, atol=2.0)


def test_a_large_weight_of_vectors(rng: np.random.Generator, torch: Any) -> None:
    """More windows than CTAs, and tiles that the L2 cache does not hold."""
    for w in (torch.randn(28672, 4096, device="cuda", dtype=torch.float16), torch.randn(4096, 28672, device="cuda").T):
        t = louver.compress(w, "2:8@128", method="magnitude")
        kept = louver.prune(w, "2:8@128")
        assert torch.equal(t.dense(), kept) and louver.check(kept, "2:8@128", exact=True).ok
        sums = torch.zeros(224, 4096, device="cuda")
        for row in range(128):
            sums += w.reshape(224, 128, 4096)[:, row].float() ** 2
        order = sums.view(224, -1, 8).argsort(dim=-1, descending=True, stable=True)[..., :2].sort(dim=-1).values
        assert torch.equal(order.reshape(224, -1).cpu(), torch.from_numpy(t.unpacked_indices()).long())


@pytest.mark.parametrize(
    ("pattern", "place", "message"),
    [("2:4", (40, 3), "got 0x0 in row 40"), ("2:16@8", (5, 3), "increase and are under 16")],
)
def test_illegal_indices(rng: np.random.Generator, torch: Any, pattern: str, place: Any, message: str) -> None:
    t = louver.compress(to_torch(random_bits(rng, (70, 264), "f16")), pattern, method="magnitude")
    t.indices[place] = 0x40 if pattern == "2:4" else 0x11
    with pytest.raises(ValueError, match=message):
        t.dense()
