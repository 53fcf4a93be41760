"""Block pointers to a tensor [K, N] that is sparse along K: described, as pointers and descriptors to it are."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import edges, require_block_pointers

M, N = 40, 72
TILE = {"BM": 32, "BN": 64, "BK": 64}
NORMED = {"a product": False, "register tiles": True}


def _launch(rng: np.random.Generator, form: str, length: int, normed: bool, n: int, k: int) -> None:
    w = louver.prune(rng.standard_normal((k, n), np.float32).astype(np.float16), "2:4", axis=0)
    a, c = rng.standard_normal((M, k), np.float32).astype(np.float16), np.full((M, n), np.nan, np.float32)
    given: tuple[Any, ...] = a, louver.compress(w, "2:4", axis=0), c, M, n, k, length
    kernel, grid, flags = louver.jit(edges.turned_blocks), (2, -(-n // 64)), {"FORM": form, "NORMED": normed, **TILE}
    assert "computed" not in str(kernel.explain[grid](*given, **flags))
    kernel.emulate[grid](*given, **flags)
    expected = a.astype(np.float64) @ w.astype(np.float64)
    if normed:
        for first in range(0, n, 64):
            tile = expected[:, first : first + 64]
            tile /= 1 + np.abs(tile).sum(1, keepdims=True)
    np.testing.assert_allclose(c, expected, rtol=2.0**-10, atol=2.0**-12 * np.abs(expected).max())


@pytest.mark.parametrize("normed", NORMED.values(), ids=NORMED)
@pytest.mark.parametrize(
    ("form", "length", "n", "k"),
    [("plain", 0, N, 136), ("L columns", N, N, 136), ("L rows", 136, N, 136), ("unchecked", 0, 128, 192),
     ("rows unchecked", 0, N, 192)],
)  # fmt: skip
def test_blocks_of_columns_are_described(
    rng: np.random.Generator, form: str, length: int, n: int, k: int, normed: bool
) -> None:
    require_block_pointers()
    _launch(rng, form, length, normed, n, k)


@pytest.mark.parametrize(
    ("form", "n", "k", "rule"),
    [
        ("unchecked", N, 192, "reads 128 rows of 'b', which has 72"),
        ("unchecked", 128, 136, "reads 192 elements of each row of 'b', which has 136"),
        ("rows unchecked", N, 136, "reads 192 elements of each row of 'b', which has 136"),
    ],
)
def test_blocks_that_are_not_checked_end_in_the_tensor(
    rng: np.random.Generator, form: str, n: int, k: int, rule: str
) -> None:
    """A product reads zeros there."""
    require_block_pointers()
    _launch(rng, form, 0, False, n, k)
    with pytest.raises(ValueError, match=rule):
        _launch(rng, form, 0, True, n, k)


@pytest.mark.parametrize("normed", NORMED.values(), ids=NORMED)
def test_blocks_of_a_wider_tensor_are_refused(rng: np.random.Generator, normed: bool) -> None:
    require_block_pointers()
    with pytest.raises(ValueError, match="reads 200 rows of 'b', which has 72"):
        _launch(rng, "L columns", 200, normed, N, 136)
