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


def _sequences(rng: np.random.Generator, outputs: int, rows: int = N) -> tuple[list[object], np.ndarray, np.ndarray]:
    """The arguments of `described.gated_sequences` for 3 sequences and weights of `rows` rows, its output for `outputs` of them,
    and the reference.
    """
    x = rng.standard_normal((EXPERTS, 40, K)).astype(np.float16)
    weights = [louver.prune(rng.standard_normal((rows, K)).astype(np.float16) / 8, "2:4") for _ in range(2)]
    gate, up = (np.einsum("bmk,nk->bmn", x.astype(np.float64), each) for each in weights)
    y = np.full((outputs, 40, rows), np.nan, np.float16)
    described = [louver.TensorDescriptor(louver.compress(each, "2:4"), (rows, K), (K, 1), (64, 64)) for each in weights]
    views = [louver.TensorDescriptor(each, each.shape, (each[0].size, each.shape[2], 1), block)
             for each, block in ((x, (1, 32, 64)), (y, (1, 32, 64)))]  # fmt: skip
    return [views[0], *described, views[1], 40, K, 32, 64, 64], y, gate / (1 + np.exp(-gate)) * up


@pytest.mark.parametrize(("rows", "family"), [(N, "product"), (N - 8, "product"), (N - 4, "register tiles")])
def test_a_batch_of_gated_tiles_is_a_product_with_shared_weights(
    rng: np.random.Generator, rows: int, family: str
) -> None:
    """Rows of the gate and the value are joined in eights."""
    given, y, expected = _sequences(rng, EXPERTS, rows)
    kernel, grid = louver.jit(described.gated_sequences), (2 * N // 64, EXPERTS)
    assert kernel.explain[grid](*given).family == family
    kernel.emulate[grid](*given)
    np.testing.assert_allclose(y, expected, rtol=2**-9, atol=0.02)


def test_a_batch_of_another_size_than_the_output_is_refused(rng: np.random.Generator) -> None:
    given, y, _ = _sequences(rng, EXPERTS - 1)
    with pytest.raises(ValueError, match="x.shape.0 and y.shape.0 are equal, got 3 and 2"):
        louver.jit(described.gated_sequences).emulate[(2 * N // 64, EXPERTS)](*given)
    assert np.isnan(y).all()
