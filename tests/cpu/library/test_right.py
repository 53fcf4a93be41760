"""`louver.matmul(x, s)`: the sparse operand on the right, sparse along its last axis but one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from support.fake_gpu import FakeGpu, FakeTorch, Map, Tensor
from support.products import assert_close, assert_exact, operands

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, N, K = 5, 48, 72
"""Rows of x, columns of s, and what is summed along."""


def weight(rng: np.random.Generator, *leading: int, n: int = N, k: int = K) -> SparseTensor:
    """s [..., K, N], sparse along K."""
    dense = rng.integers(-4, 5, (*leading, k, n)).astype(np.float16)
    return louver.compress(louver.prune(dense, "2:4", axis=-2), "2:4", axis=-2)


def tokens(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-4, 5, shape).astype(np.float16)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8"])
def test_it_is_the_product(rng: np.random.Generator, dtype: str) -> None:
    given = operands(rng, N, M, K, dtype, bias="s32" if dtype == "s8" else "f16")
    assert_exact(louver.matmul(given.b.T, given.s.T, out_dtype="f32").T, given)
    assert_close(louver.matmul(np.asfortranarray(given.b.T), given.s.T, bias=given.bias).T, given, bias=True)
    np.testing.assert_array_equal(given.b.T @ given.s.T, louver.linear(given.b.T, given.s))


@pytest.mark.parametrize("leading", [(), (1,), (7,), (2, 3), (2, 0)])
def test_leading_axes_of_x_are_kept(rng: np.random.Generator, leading: tuple[int, ...]) -> None:
    s, x = weight(rng), tokens(rng, *leading, K)
    expected = x.astype(np.float64) @ s.dense().astype(np.float64)
    for y in (x @ s, louver.matmul(x, s), louver.plan("matmul", s, n=7)(x)):
        assert y.shape == (*leading, N) and y.dtype == np.float16
        np.testing.assert_array_equal(y, expected.astype(np.float16))


def test_a_batch_of_weights(rng: np.random.Generator) -> None:
    s, x = weight(rng, 3), tokens(rng, 3, M, K)
    dense = s.dense().astype(np.float64)
    np.testing.assert_array_equal(louver.matmul(x, s), (x @ dense).astype(np.float16))
    np.testing.assert_array_equal(x[0] @ s, (x[0] @ dense).astype(np.float16))


def test_options_go_with_the_operand_that_they_name(rng: np.random.Generator) -> None:
    s, x = weight(rng), tokens(rng, 2, M, K)
    bias, scale = tokens(rng, N), np.exp2(rng.integers(-2, 3, N)).astype(np.float32)
    dense_bias, dense_scale = tokens(rng, 2, M), np.exp2(rng.integers(-2, 3, 2 * M)).astype(np.float32)
    c, out = tokens(rng, 2, M, N), np.full((2, M, N), np.nan, np.float32)
    y = louver.matmul(
        x, s, out, bias=bias, scale=scale, dense_bias=dense_bias, dense_scale=dense_scale,
        c=c, alpha=0.5, beta=2.0, out_scale=0.25, activation="relu", batch_invariant=True,
    )  # fmt: skip
    assert y is out
    total = 0.5 * scale * dense_scale.reshape(2, M, 1) * (x.astype(np.float64) @ s.dense().astype(np.float64))
    total = total + bias.astype(np.float64) + dense_bias[..., None] + 2.0 * c
    np.testing.assert_array_equal(out, (0.25 * np.maximum(total, 0)).astype(np.float32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, s: louver.matmul(x, s, bias=x[:, 0]), r"bias must be \[out\] with out = 48, got shape \[5\]"),
        (lambda x, s: louver.matmul(x, s, dense_bias=x[0]), r"dense_bias must be \[tokens\] with tokens = 5, got shape \[72\]"),
        (lambda x, s: louver.matmul(x, s, scale=np.ones(5, np.float32)), r"scale must be .* shape \[48\], got shape \[5\]"),
        (lambda x, s: louver.matmul(x, s, out=np.empty((48, 5), np.float16)), r"out must have shape \[5, 48\]"),
        (lambda x, s: louver.matmul(x[:, 1:], s), r"x must be \[..., K\] with K = 72, got shape \[5, 71\]"),
        (lambda x, s: louver.matmul(x.astype(np.int8), s), "x and s must have one element type"),
        (lambda x, s: louver.plan("matmul", s, n=5)(x[:, 1:]), "x must be"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(rng: np.random.Generator, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(tokens(rng, M, K), weight(rng))


def test_a_warm_call_only_launches(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, checked: list[str]
) -> None:
    s = weight(rng)
    x, y, bias = Tensor((16, K)), Tensor((16, N)), Tensor((N,))
    louver.matmul(x, s, y, bias=bias)
    gpu.calls.clear()
    for _ in range(3):
        assert louver.matmul(x, s, y, bias=bias) is y
        assert louver.linear(x, s.T, bias, y) is y, "the same product"
    assert {name for name, _ in gpu.calls} == {"cuLaunchKernel"} and checked == ["linear"]
    read = gpu.launches[-1].arguments
    assert (read["M"], read["N"], read["K"], read["bias"]) == (N, 16, K, bias.address)
    assert Map(x.address, K, 16, 2 * K) in read.values()


def test_a_warm_call_tells_a_tensor_from_its_transpose(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator
) -> None:
    """They share what is remembered: of a square weight only the sparse axis tells which product was asked for."""
    s, x = weight(rng, n=K), Tensor((K, K))
    louver.matmul(x, s)
    louver.linear(x, s.T)
    louver.matmul(s.T, x)
    gpu.launches.clear()
    for call in (lambda: louver.matmul(x, s.T), lambda: louver.linear(x, s), lambda: louver.matmul(s, x)):
        with pytest.raises(ValueError, match="sparse along K"):
            call()
    assert not gpu.launches


def test_columns_of_x_are_read_in_place(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s, x = weight(rng), Tensor((64, K), strides=(1, 64))
    for _ in range(2):
        louver.matmul(x, s)
        (product,) = gpu.launches
        gpu.launches.clear()
        assert Map(x.address, 64, K, 128) in product.arguments.values()
    louver.matmul(Tensor((64, K), strides=(1, 65)), s)
    assert len(gpu.launches) == 2, "a copy and a product"


def test_plans_and_captures(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    capturing, s = 0xCA, weight(rng)
    x, y = Tensor((16, K)), Tensor((16, N))
    torch.stream = capturing
    call = r"louver.prepare\(s, n=…, bias=False, out_dtype='f16', layout='k_major'\) before the capture"
    with pytest.raises(RuntimeError, match=call):
        louver.matmul(x, s, y)
    torch.stream = 0
    louver.prepare(s, n=16, bias=False, out_dtype="f16", layout="k_major")
    louver.prepare(s, n=16, kind="matmul")
    loaded = len(gpu.called("cuModuleLoadData"))
    torch.stream = capturing
    assert louver.matmul(x, s, y) is y and louver.plan("matmul", s, n=16, like=x)(x, y) is y
    assert len(gpu.called("cuModuleLoadData")) == loaded
    assert [launch.stream for launch in gpu.launches] == [capturing, capturing]


def test_nothing_is_launched_without_rows(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    y = louver.matmul(Tensor((0, K)), weight(rng))
    assert y.shape == (0, N) and not gpu.launches
