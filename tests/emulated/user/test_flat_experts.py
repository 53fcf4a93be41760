"""A batch [E, K, N], sparse along K, that a descriptor of the caller describes as one matrix [E * K, N]."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.flat_experts import flat_experts

E, M = 3, 40
TILE = {"TM": 32, "TN": 64, "TK": 64}


@pytest.mark.parametrize(("k", "n"), [(128, 72), (160, 64), (192, 136)])
def test_matrices_below_each_other_are_computed(rng: np.random.Generator, k: int, n: int) -> None:
    """The last tile of a matrix may end in the next one, where x is 0. Rows of metadata belong to one matrix."""
    x = rng.integers(-3, 4, (E * M, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (E, k, n)).astype(np.float16), "2:4", axis=-2)
    y = np.full((E * M, n), np.nan, np.float32)
    described = louver.TensorDescriptor(louver.compress(w, "2:4", axis=-2), (E * k, n), (n, 1), (64, 64))
    kernel, grid = louver.jit(flat_experts), (2, -(-n // 64), E)
    assert "computed" in str(kernel.explain[grid](x, described, y, M, n, k, **TILE))
    kernel.emulate[grid](x, described, y, M, n, k, **TILE)
    expected = x.reshape(E, M, k).astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_array_equal(y, expected.reshape(E * M, n))


def test_more_rows_than_the_matrices_have_are_refused(rng: np.random.Generator) -> None:
    w = louver.compress(louver.prune(np.ones((E, 128, 64), np.float16), "2:4", axis=-2), "2:4", axis=-2)
    described = louver.TensorDescriptor(w, (E * 128 + 64, 64), (64, 1), (64, 64))
    x, y = np.ones((E * M, 128), np.float16), np.ones((E * M, 64), np.float32)
    with pytest.raises(ValueError, match=r"\[448, 64\]|got 448"):
        louver.jit(flat_experts).emulate[2, 1, E](x, described, y, M, 64, 128, **TILE)
