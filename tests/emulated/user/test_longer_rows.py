"""A sparse tensor whose rows a kernel reads several at a time as one, such as the weight of a convolution in four axes."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.longer_rows import product


@pytest.mark.parametrize("shape", [(40, 6, 64), (240, 64), (40, 3, 2, 64)])
def test_a_product_reads_rows_of_any_shape(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    m, n, k = 48, 40, 384
    x = rng.standard_normal((m, k)).astype(np.float16)
    w = louver.prune(rng.standard_normal((n, k)).astype(np.float16), "2:4")
    s, kernel = louver.compress(w.reshape(shape), "2:4"), louver.jit(product)
    sizes = {"M": m, "N": n, "K": k, "stride": k, "BM": 128, "BN": 128, "BK": 64}
    for _ in range(2):
        y = np.full((m, n), np.nan, np.float32)
        assert kernel.explain[1, 1](x, s, y, **sizes).family == "product"
        kernel.emulate[1, 1](x, s, y, **sizes)
        dense = s.dense().reshape(n, k).astype(np.float64)
        np.testing.assert_allclose(y, x.astype(np.float64) @ dense.T, rtol=1e-3, atol=1e-2)
        s.update_(rng.standard_normal(s.values.shape).astype(np.float16))


def test_rows_that_hold_several_of_the_kernels_are_refused(rng: np.random.Generator) -> None:
    w = louver.prune(rng.standard_normal((20, 768)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((48, 384)).astype(np.float16), np.full((48, 40), np.nan, np.float32)
    with pytest.raises(ValueError, match="rows are 768 elements apart, got a stride of 384"):
        louver.jit(product).emulate[1, 1](x, louver.compress(w, "2:4"), y, 48, 40, 384, 384, BM=128, BN=128, BK=64)


@pytest.mark.parametrize("shape", [(40, 1, 1, 384), (20, 2, 384)])
def test_matrices_of_few_rows_are_read_as_one(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    m, n, k = 48, 40, 384
    x, y = rng.standard_normal((m, k)).astype(np.float16), np.full((m, n), np.nan, np.float32)
    s = louver.compress(louver.prune(rng.standard_normal(shape).astype(np.float16), "2:4"), "2:4")
    sizes = {"M": m, "N": n, "K": k, "stride": k, "BM": 128, "BN": 128, "BK": 64}
    explained = louver.jit(product).explain[1, 1](x, s, y, **sizes)
    assert "computed" not in str(explained)
    louver.jit(product).emulate[1, 1](x, s, y, **sizes)
    np.testing.assert_allclose(
        y, x.astype(np.float64) @ s.dense().reshape(n, k).astype(np.float64).T, rtol=1e-3, atol=1e-2
    )
