"""Gate and up projection by turns, in neighbouring columns of a tile: two products of neighbouring rows, brought by bulk copies."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.by_turns import by_turns, by_turns_of_known_size

E, M = 2, 40


@pytest.mark.parametrize("axes", ["E * N", "E, N", "E, 2, N // 2"])
@pytest.mark.parametrize(("n", "k", "scaled"), [(160, 128, False), (256, 136, True)])
def test_experts_by_turns(rng: np.random.Generator, n: int, k: int, scaled: bool, axes: str) -> None:
    """The last tile of a half wraps to its first rows, which are not stored."""
    x = rng.standard_normal((E * M, k), np.float32).astype(np.float16)
    w = louver.prune(rng.standard_normal((E, n, k), np.float32).astype(np.float16), "2:4")
    scales, y = rng.standard_normal((E, n), np.float32), np.full((E * M, n // 2), np.nan, np.float32)
    shape = {"E * N": (E * n, k), "E, N": (E, n, k), "E, 2, N // 2": (E, 2, n // 2, k)}[axes]
    sparse = louver.compress(w.reshape(shape), "2:4")
    kernel, grid = louver.jit(by_turns), (2, -(-n // 128), E)
    given = x, sparse, scales, y, M, n, k, n * k, scaled
    assert "addresses in w are computed" not in str(kernel.explain[grid](*given, TM=32, TN=128, TK=64))
    report = kernel.emulate[grid](*given, TM=32, TN=128, TK=64)
    total = x.reshape(E, M, k).astype(np.float64) @ w.astype(np.float64).swapaxes(1, 2)
    total *= scales[:, None] if scaled else 1
    expected = (total[..., : n // 2] * total[..., n // 2 :]).reshape(E * M, -1)
    np.testing.assert_allclose(y, expected, rtol=2.0**-8, atol=2.0**-8 * np.abs(expected).max())
    # Values of both halves in each step.
    assert report.bulk_loads >= 2 * -(-k // 64) * 2 * -(-n // 128) * E


@pytest.mark.parametrize(("n", "k"), [(256, 128), (192, 72)])
def test_columns_by_turns(rng: np.random.Generator, n: int, k: int) -> None:
    x = rng.integers(-3, 4, (M, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(np.float16), "2:4")
    y = np.full((M, n // 2), np.nan, np.float32)
    kernel, grid = louver.jit(by_turns_of_known_size), (2, -(-n // 128))
    given = x, louver.compress(w, "2:4"), y, M, n, k
    assert "computed" not in str(kernel.explain[grid](*given, TM=32, TN=128, TK=64))
    kernel.emulate[grid](*given, TM=32, TN=128, TK=64)
    total = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_array_equal(y, total[:, : n // 2] + 2 * total[:, n // 2 :])
