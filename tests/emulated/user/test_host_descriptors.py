"""Descriptors of the host that show a sparse tensor in other sizes: matrices below each other, some of its rows or columns."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import described

EXPERTS, M, N, K = 3, 64, 128, 128


@pytest.mark.parametrize("way", ["emulated", "interpreted"])
@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((EXPERTS * N, K), (K, 1)),
        ((EXPERTS * N - 5, K), (K, 1)),
        ((2 * N, K), (K, 1)),
        ((EXPERTS * N, K // 2), (K, 1)),
        ((EXPERTS * N, K - 4), (K, 1)),
    ],
)
@pytest.mark.parametrize("stored", [(EXPERTS, N, K), (EXPERTS * N, K)], ids=["matrices", "rows"])
def test_rows_and_columns_outside_of_the_descriptor_are_zeros(
    rng: np.random.Generator, stored: tuple[int, ...], shape: tuple[int, int], strides: tuple[int, int], way: str
) -> None:
    w = louver.prune(rng.standard_normal((EXPERTS * N, K)).astype(np.float16), "2:4")
    x = rng.standard_normal((M, K)).astype(np.float16)
    y = np.full((EXPERTS, M, N), np.nan, np.float32)
    seen = louver.TensorDescriptor(louver.compress(w.reshape(stored), "2:4"), shape, strides, (64, 64))
    kernel = louver.jit(described.rows_of_experts)
    (kernel if way == "interpreted" else kernel.emulate)[(N // 64, EXPERTS)](x, seen, y, N, K, 64, 64, 64)
    inside = np.zeros((EXPERTS * N, K))
    inside[: shape[0], : shape[1]] = w[: shape[0], : shape[1]]
    expected = np.einsum("mk,enk->emn", x.astype(np.float64), inside.reshape(EXPERTS, N, K))
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=0.02)


@pytest.mark.parametrize(
    ("shape", "strides", "message"),
    [
        ((EXPERTS * N, K), (K + 16, 1), "rows are 128 elements apart, got a stride of 144"),
        ((EXPERTS * N + 16, K), (K, 1), "reads 400 rows of 'w', which has 384|got .*400"),
        ((EXPERTS * N, 2 * K), (K, 1), "reads rows of 'w', 128 elements, .*got 256"),
        ((EXPERTS * N, K - 2), (K, 1), "whole groups of 4 from their start, got 126"),
    ],
)
def test_descriptors_that_do_not_fit_are_refused(
    rng: np.random.Generator, shape: tuple[int, int], strides: tuple[int, int], message: str
) -> None:
    w = louver.compress(rng.standard_normal((EXPERTS * N, K)).astype(np.float16), "2:4", method="magnitude")
    x, y = np.ones((M, K), np.float16), np.full((EXPERTS, M, N), np.nan, np.float32)
    seen = louver.TensorDescriptor(w, shape, strides, (64, 64))
    with pytest.raises(ValueError, match=message):
        louver.jit(described.rows_of_experts).emulate[(N // 64, EXPERTS)](x, seen, y, N, K, 64, 64, 64)
    assert np.isnan(y).all()
