"""A batch [E, K, N], sparse along K, that a kernel reads as one matrix [E * K, N]."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import require_block_pointers
from support.triton.flat_experts import flat_experts, flat_experts_by_blocks, flat_experts_by_pointers

E, M = 3, 40
TILE = {"TM": 32, "TN": 64, "TK": 64}


def drawn(rng: np.random.Generator, k: int, n: int) -> tuple[Any, Any, Any, Any]:
    """x, the sparse weight, an output and the output in float64."""
    x = rng.integers(-3, 4, (E * M, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (E, k, n)).astype(np.float16), "2:4", axis=-2)
    expected = (x.reshape(E, M, k).astype(np.float64) @ w.astype(np.float64)).reshape(E * M, n)
    return x, louver.compress(w, "2:4", axis=-2), np.full((E * M, n), np.nan, np.float32), expected


@pytest.mark.parametrize(("k", "n", "computed"), [(128, 72, False), (160, 64, True), (192, 136, False)])
def test_matrices_below_each_other(rng: np.random.Generator, k: int, n: int, computed: bool) -> None:
    """Where the last tile of a matrix ends in the next one, where x is 0, addresses are computed."""
    x, w, y, expected = drawn(rng, k, n)
    described = louver.TensorDescriptor(w, (E * k, n), (n, 1), (64, 64))
    kernel, grid = louver.jit(flat_experts), (2, -(-n // 64), E)
    assert ("addresses in w are computed" in str(kernel.explain[grid](x, described, y, M, n, k, **TILE))) is computed
    kernel.emulate[grid](x, described, y, M, n, k, **TILE)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("by", [flat_experts_by_pointers, flat_experts_by_blocks])
def test_matrices_below_each_other_by_pointers(by: Any, checked: bool, rng: np.random.Generator) -> None:
    if by is flat_experts_by_blocks:
        require_block_pointers()
    k, n = 192, 72
    x, w, y, expected = drawn(rng, k, n)
    kernel, grid = louver.jit(by), (2, 2, E) if by is flat_experts_by_pointers else (2, 2)
    explained = kernel.explain[grid](x, w, y, M, n, k, E, checked, **TILE)
    assert "computed" not in str(explained) and "cp.async.bulk.tensor.3d" in explained.ptx
    kernel.emulate[grid](x, w, y, M, n, k, E, checked, **TILE)
    np.testing.assert_array_equal(y, expected)


def test_tiles_that_end_in_the_next_matrix(rng: np.random.Generator) -> None:
    """The rows of one matrix are no whole tiles, so the others are read, too: addresses are computed."""
    k, n = 160, 64
    x, w, y, _ = drawn(rng, k, n)
    kernel, grid = louver.jit(flat_experts_by_pointers), (2, 1, E)
    assert "computed" in str(kernel.explain[grid](x, w, y, M, n, k, E, True, **TILE))


def test_more_rows_than_the_matrices_have_are_refused(rng: np.random.Generator) -> None:
    w = louver.compress(louver.prune(np.ones((E, 128, 64), np.float16), "2:4", axis=-2), "2:4", axis=-2)
    described = louver.TensorDescriptor(w, (E * 128 + 64, 64), (64, 1), (64, 64))
    x, y = np.ones((E * M, 128), np.float16), np.ones((E * M, 64), np.float32)
    with pytest.raises(ValueError, match=r"\[448, 64\]|got 448"):
        louver.jit(flat_experts).emulate[2, 1, E](x, described, y, M, 64, 128, **TILE)
