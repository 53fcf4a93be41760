"""Products of patterns other than 2:4: equation (1) of NM-SpMM by the reference path, and what a GPU says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import PRODUCTS
from louver.library.numerics import compare
from louver.library.reference import exact_product
from support.fake_gpu import FakeGpu, FakeTorch, Tensor

quiet = pytest.mark.filterwarnings("ignore:louver computes by the reference path")


def weight(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, pattern: str) -> SparseTensor:
    w = rng.integers(0 if dtype == "u8" else -4, 5, shape).astype(element_type(dtype).numpy)
    return louver.compress(louver.prune(w, pattern), pattern)


def equation_1(a: np.ndarray[Any, Any], s: SparseTensor) -> np.ndarray[Any, Any]:
    """M/N · Σ_u A[i][⌊u/N⌋ · M + D[u][⌊j/L⌋]] · B'[u][j], with B' and D as docs/format.md gets them; A is filled up with zeros."""
    n, m, length = s.pattern.n, s.pattern.m, s.pattern.length
    stored, d = s.values.T.astype(np.float64), s.unpacked_indices().T
    a = np.pad(a.astype(np.float64), ((0, 0), (0, -a.shape[1] % m)))
    c = np.zeros((len(a), stored.shape[1]))
    for j in range(stored.shape[1]):
        for u in range(len(stored)):
            c[:, j] += a[:, u // n * m + d[u, j // length]] * stored[u, j]
    return m / n * c


@quiet
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "e4m3", "s8", "u8"])
@pytest.mark.parametrize(
    ("shape", "pattern"),
    [
        ((64, 32), "4:32@16"),
        ((37, 21), "2:8@32"),
        ((12, 40), "3:5"),
        ((5, 9), "4:4@2"),
        ((6, 16), "1:2"),
        ((8, 21), "2:4"),
        ((9, 300), "7:256@4"),
    ],
)
def test_products_of_integers_are_equation_1(
    shape: tuple[int, int], pattern: str, dtype: str, rng: np.random.Generator
) -> None:
    s = weight(rng, shape, dtype, pattern)
    x = rng.integers(0 if dtype == "u8" else -4, 5, (11, shape[1])).astype(s.dtype.numpy)
    expected = equation_1(x, s)
    y = louver.linear(x, s, alpha=s.pattern.rescaling, out_dtype="f32")
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    exact = x.astype(np.float64) @ s.dense().T.astype(np.float64)
    for got in (louver.linear(x, s, out_dtype="f32"), louver.matmul(s, x.T, out_dtype="f32").T, x @ s.T, (s @ x.T).T):
        np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2.0**-8)


@quiet
def test_a_weight_as_the_paper_has_it_multiplies_from_the_right(rng: np.random.Generator) -> None:
    b = louver.prune(rng.standard_normal((48, 70), np.float32), "2:16@32", axis=0)
    a = rng.standard_normal((9, 48), np.float32)
    s = louver.compress(b, "2:16@32", axis=0)
    stored, d = s.values.T, s.unpacked_indices().T
    assert stored.shape == (6, 70) and d.shape == (6, 3)
    np.testing.assert_array_equal(louver.from_indices(stored.T, d.T, "2:16@32", (48, 70), axis=0).dense(), b)
    c, bound = exact_product(b.T, a.T)
    assert compare(a @ s, c.T, bound.T, 48, "f32").ok


@quiet
@pytest.mark.parametrize("out", PRODUCTS["f32", "f32"])
def test_f32_and_its_epilogue(out: str, rng: np.random.Generator) -> None:
    s = weight(rng, (40, 64), "f32", "2:8@8")
    x, bias, c = (
        rng.integers(-3, 4, (10, 64)).astype(np.float32),
        np.arange(40, dtype=np.float32) - 20,
        np.ones((10, 40), np.float32),
    )
    assert louver.linear(x, s).dtype == np.float32
    y = louver.linear(x, s, bias, c=c, beta=2.0, activation="relu", out_dtype=out)
    exact = np.maximum(x.astype(np.float64) @ s.dense().T + bias + 2, 0)
    if out == "s8":
        exact = np.minimum(exact, 127)
    np.testing.assert_array_equal(y.astype(np.float64), exact.astype(element_type(out).numpy).astype(np.float64))


@quiet
def test_a_batch_has_windows_of_its_own(rng: np.random.Generator) -> None:
    s = weight(rng, (3, 10, 24), "bf16", "2:8@4")
    assert s.indices.shape[0] == 9
    x = rng.integers(-4, 5, (3, 7, 24)).astype(ml_dtypes.bfloat16)
    y = louver.linear(x, s, out_dtype="f32")
    np.testing.assert_array_equal(y, np.einsum("bnk,bmk->bnm", x.astype(np.float64), s.dense().astype(np.float64)))
    s.update_(np.zeros(s.values.shape, s.dtype.numpy))
    assert not louver.linear(x, s).any()


@quiet
def test_refusals(rng: np.random.Generator) -> None:
    s, x = weight(rng, (16, 16), "f32", "2:8@8"), np.ones((4, 16), np.float32)
    with pytest.raises(ValueError, match="must have one element type, got f16 and f32"):
        louver.linear(x.astype(np.float16), s)
    with pytest.raises(ValueError, match='accumulate must be "auto" or "f32" for f32'):
        louver.linear(x, s, accumulate="f16")
    with pytest.raises(
        ValueError, match="out_dtype must be f32, f16, bf16, e4m3, e5m2, s8 for operands of f32 and f32, got s32"
    ):
        louver.linear(x, s, out_dtype="s32")
    tf32 = replace(s, dtype=element_type("tf32"))
    with pytest.raises(ValueError, match="products take f16, .* f32, .* and u4x2, got tf32: convert the weight"):
        louver.linear(x, tf32)
    s = weight(rng, (16, 16), "f16", "1:2")
    for call in (lambda: louver.plan("linear", s, 4), lambda: louver.prepare(s, 4)):
        with pytest.raises(ValueError, match="and of f16 for 2:4, N:M, N:M@L, V:N:M, got 1:2 f16: convert"):
            call()


def test_a_gpu_is_not_asked_and_the_host_not_silent(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = weight(rng, (136, 72), "s8", "1:2")
    refused = {
        "int8": s,
        "float16": weight(rng, (136, 72), "f16", "1:2"),
        "float32": weight(rng, (136, 72), "f32", "2:4"),
    }
    for dtype, other in refused.items():
        with pytest.raises(ValueError, match=rf"got {other.pattern} {other.dtype}: .*, or give arrays on the host"):
            louver.linear(Tensor((16, 72), dtype), other)
    with pytest.warns(
        louver.NoKernelWarning,
        match="by the reference path on the CPU: GPUs have products of 1:2 for f32; .* got 1:2 s8",
    ):
        y = louver.linear(np.ones((16, 72), np.int8), s)
    np.testing.assert_array_equal(y[0].astype(np.float64), s.dense().astype(np.float64).sum(axis=1))
    assert not gpu.launches
