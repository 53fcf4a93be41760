"""Products of nothing: a call with no tokens, no columns or no entries is checked as any other, and launches nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from support.fake_gpu import FakeGpu, FakeTorch, Tensor

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, K = 40, 72


def weight(rng: np.random.Generator, *shape: int) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal(shape).astype(np.float16), "2:4"), "2:4")


CALLS: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    # kind, weight, operand, result
    ("linear", (M, K), (0, K), (0, M)),
    ("linear", (M, K), (3, 0, K), (3, 0, M)),
    ("linear", (M, K), (0, 5, K), (0, 5, M)),
    ("linear", (2, M, K), (2, 0, K), (2, 0, M)),
    ("linear", (2, M, K), (0, K), (2, 0, M)),
    ("matmul", (M, K), (K, 0), (M, 0)),
    ("matmul", (M, K), (0, K, 5), (0, M, 5)),
    ("matmul", (M, K), (3, K, 0), (3, M, 0)),
    ("matmul", (2, M, K), (K, 0), (2, M, 0)),
]


def call(kind: str, s: SparseTensor, x: Any, **options: Any) -> Any:
    return louver.linear(x, s, **options) if kind == "linear" else louver.matmul(s, x, **options)


@pytest.mark.parametrize(("kind", "s", "x", "shape"), CALLS)
def test_the_result_is_empty(
    rng: np.random.Generator, kind: str, s: tuple[int, ...], x: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    w, dense = weight(rng, *s), np.zeros(x, np.float16)
    y = call(kind, w, dense, out_dtype="f32", activation="gelu")
    assert y.shape == shape and y.dtype == np.float32
    out = np.zeros(shape, np.float16)
    assert call(kind, w, dense, out=out) is out
    with pytest.raises(ValueError, match="out must have element type f32, got f16"):
        call(kind, w, dense, out=out, out_dtype="f32")
    with pytest.raises(ValueError, match="out must have shape"):
        call(kind, w, dense, out=np.zeros((*shape, 1), np.float16))


@pytest.mark.parametrize(("kind", "s", "x", "shape"), CALLS)
def test_nothing_is_launched(
    gpu: FakeGpu,
    torch: FakeTorch,
    rng: np.random.Generator,
    kind: str,
    s: tuple[int, ...],
    x: tuple[int, ...],
    shape: tuple[int, ...],
) -> None:
    w = weight(rng, *s)
    assert call(kind, w, Tensor(x)).shape == shape
    out = Tensor(shape)
    assert call(kind, w, Tensor(x), out=out, c=Tensor(shape), beta=2.0) is out
    assert not gpu.launches and not gpu.called("cuModuleLoadData") and not gpu.called("cuMemAllocAsync")


def test_options_of_no_tokens(rng: np.random.Generator) -> None:
    s, x = weight(rng, M, K), np.zeros((0, K), np.float16)
    along, vector = np.zeros(0, np.float32), np.ones(M, np.float32)
    y = louver.linear(x, s, vector, dense_bias=along, dense_scale=along, scale=vector, c=np.zeros((0, M), np.float16))
    assert y.shape == (0, M)
    with pytest.raises(ValueError, match=r"dense_bias must be \[tokens\] with tokens = 0, got shape \[1\]"):
        louver.linear(x, s, dense_bias=np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="bias must be"):
        louver.linear(x, s, np.zeros(0, np.float16))


def test_a_gated_pair_of_no_tokens(rng: np.random.Generator) -> None:
    pair = louver.gated(weight(rng, M, K), weight(rng, M, K))
    assert louver.linear(np.zeros((2, 0, K), np.float16), pair, activation="silu").shape == (2, 0, M)


@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_a_plan_for_no_tokens_computes_any(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, kind: Any) -> None:
    s = weight(rng, M, K)

    def operand(n: int) -> Tensor:
        return Tensor((n, K) if kind == "linear" else (K, n))

    for p in (louver.plan(kind, s, n=0), louver.plan(kind, s, n=0, like=operand(0)), louver.plan(kind, s, n=16)):
        for n in (0, 16, 0):
            out = Tensor((n, M) if kind == "linear" else (M, n))
            assert p(operand(n), out=out) is out
            assert len(gpu.launches) == (n > 0)
            gpu.launches.clear()
    loaded = len(gpu.called("cuModuleLoadData"))
    louver.prepare(s, n=(0, 16), kind=kind)
    call(kind, s, operand(0))
    assert loaded and not gpu.launches


def test_a_plan_for_no_entries_computes_any_batch(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = weight(rng, M, K)
    p = louver.plan("matmul", s, n=16, like=Tensor((0, K, 16)))
    assert p(Tensor((0, K, 16))).shape == (0, M, 16) and not gpu.launches
    assert p(Tensor((3, K, 16))).shape == (3, M, 16)
    (launch,) = gpu.launches
    assert launch.arguments["N"] == 16


def test_a_host_plan_of_no_tokens(rng: np.random.Generator) -> None:
    s = weight(rng, M, K)
    p = louver.plan("linear", s, n=0)
    assert p(np.zeros((0, K), np.float16)).shape == (0, M)
    x = rng.standard_normal((5, K)).astype(np.float16)
    np.testing.assert_array_equal(p(x), louver.linear(x, s))
