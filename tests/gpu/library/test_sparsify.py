"""`louver.sparsify` on the GPU: as on the host, bit for bit, and followed by plans and captured graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library.forms import Metadata, TileMetadata, Values
from louver.library.sparsify import ROWS
from louver.library.state import TensorState
from louver.runtime.memory import read_bytes
from support.device_products import to_numpy, to_torch
from support.sparse import random_bits, same_bits

WAYS = [
    ("f16", None, None, "relu2"),
    ("bf16", None, None, "relu2"),
    ("bf16", None, None, None),
    ("f16", "e4m3", 0.37, "relu2"),
    ("bf16", "e4m3", 3.0, None),
    ("f16", "e4m3", ROWS, "relu2"),
    ("bf16", "e4m3", ROWS, "relu2"),
    ("bf16", "e4m3", ROWS, None),
]


def same(t: SparseTensor, s: SparseTensor) -> bool:
    return same_bits(np.ascontiguousarray(to_numpy(t.values)), np.ascontiguousarray(s.values)) and np.array_equal(
        to_numpy(t.indices), s.indices
    )


def check_forms(t: SparseTensor, s: SparseTensor) -> None:
    for form in t.derived.of(TensorState).forms():
        held = read_bytes(form.address, form.nbytes, ordinal=0, stream=0)
        if form.form == Values():
            continue
        assert held.tobytes() == form.form.host(s).tobytes(), form.form


def scales(rows: Any, scale: Any, make: Any) -> dict[str, Any]:
    if scale == ROWS:
        return {"row_scales": make(np.full(rows, -1, np.float32))}
    return {} if scale is None else {"scale": scale}


@pytest.mark.parametrize("shape", [(333, 1002), (70, 14336), (2, 65, 256), (3, 40000)])
@pytest.mark.parametrize(("dtype", "stored", "scale", "activation"), WAYS)
def test_as_on_the_host(
    rng: np.random.Generator, torch: Any, dtype: str, stored: Any, scale: Any, activation: Any, shape: Any
) -> None:
    x = random_bits(rng, shape, dtype)
    x[::2] = rng.standard_normal(x[::2].shape).astype(x.dtype)
    here, there = scales(shape[:-1], scale, lambda a: a), scales(shape[:-1], scale, to_torch)
    s = louver.sparsify(x, dtype=stored, activation=activation, **here)
    moved = to_torch(x)
    for given in (moved, moved.mT.contiguous().mT, moved.repeat_interleave(2, -1)[..., ::2]):
        t = louver.sparsify(given, dtype=stored, activation=activation, **there)
        assert same(t, s)
        check_forms(t, s)
        if scale == ROWS:
            np.testing.assert_array_equal(there["row_scales"].cpu().numpy(), here["row_scales"])


@pytest.mark.parametrize(("dtype", "stored", "scale", "activation"), [WAYS[i] for i in (0, 1, 3, 6)])
def test_a_graph_of_pass_and_product_replays_with_new_activations(
    rng: np.random.Generator, torch: Any, dtype: str, stored: Any, scale: Any, activation: Any
) -> None:
    half = torch.float16 if dtype == "f16" else torch.bfloat16
    kind = torch.float8_e4m3fn if stored else half
    x, w = torch.randn(264, 512, device="cuda").to(half), torch.randn(128, 512, device="cuda").to(kind)
    given = scales(264, scale, to_torch)
    s = louver.sparsify(x, dtype=stored, activation=activation, **given)
    epilogue = {"scale": given.get("row_scales", given.get("scale"))}
    y = torch.empty(264, 128, device="cuda", dtype=torch.bfloat16 if stored else half)
    plan = louver.plan("matmul", s, n=128, like=w.t(), **epilogue)

    def both() -> None:
        louver.sparsify(x, out=s, activation=activation, **given)
        plan(w.t(), out=y)

    both()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        both()
    before = y.clone()
    for _ in range(3):
        x.copy_(torch.randn(264, 512, device="cuda"))
        graph.replay()
        fresh = scales(264, scale, to_torch)
        t = louver.sparsify(x, dtype=stored, activation=activation, **fresh)
        expected = louver.matmul(t, w.t(), scale=fresh.get("row_scales", fresh.get("scale")))
        assert torch.equal(y, expected) and not torch.equal(y, before)
        dense = t.dense().double() @ w.double().t()
        factor = fresh["row_scales"].double()[:, None] if scale == ROWS else scale or 1
        assert ((y.double() - dense * factor).norm() / (dense * factor).norm()).item() < 0.01


def test_all_forms_follow_in_a_graph(rng: np.random.Generator, torch: Any) -> None:
    x, kept = (torch.randn(200, 520, device="cuda", dtype=torch.float16) for _ in range(2))
    s = louver.sparsify(x)
    plans = [louver.plan("matmul", s, n=64, target=target) for target in (None, "sm_80")]
    b = torch.randn(520, 64, device="cuda", dtype=torch.float16)
    state = s.derived.of(TensorState)
    state.form(s, Values(packed=True), 0)
    louver.sparsify(x, out=s)
    torch.cuda.synchronize()
    outputs = [torch.empty(200, 64, device="cuda", dtype=torch.float16) for _ in plans]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        louver.sparsify(x, out=s)
        for p, y in zip(plans, outputs, strict=True):
            p(b, out=y)
    x.copy_(kept)
    graph.replay()
    torch.cuda.synchronize()
    expected = louver.compress(to_numpy(kept), "2:4", method="magnitude")
    assert same(s, expected) and {type(each.form) for each in state.forms()} >= {Metadata, TileMetadata, Values}
    check_forms(s, expected)
    exact = s.dense().double() @ b.double()
    for y in outputs:
        assert ((y.double() - exact).norm() / exact.norm()).item() < 1e-3
    with pytest.raises(RuntimeError, match="a captured graph writes this tensor by louver.sparsify"):
        state.form(s, TileMetadata("bf16"), 0)


def test_a_side_stream(rng: np.random.Generator, torch: Any) -> None:
    x = torch.randn(128, 512, device="cuda", dtype=torch.bfloat16)
    s, stream = louver.sparsify(x), torch.cuda.Stream()
    fresh = torch.randn(128, 512, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        louver.sparsify(fresh, out=s)
        assert not stream.query(), "nothing was waited for"
        dense = s.values.clone()
    stream.synchronize()
    expected = louver.sparsify(to_numpy(fresh))
    assert same(s, expected) and same_bits(np.ascontiguousarray(to_numpy(dense)), np.ascontiguousarray(expected.values))
