"""A tile from memory that is added to the sums of a transposed product is loaded in rows, as it lies, and exchanged."""

from __future__ import annotations

import numpy as np
import pytest

import louver

pytest.importorskip("triton")

from support.triton import added_rows as kernels

TILE = {"BM": 64, "BN": 128, "R": 64}


@pytest.mark.parametrize(("m", "n"), [(128, 256), (72, 144)])
@pytest.mark.parametrize("name", ["added_once", "added_in_turn"])
def test_added_tiles_are_loaded_in_rows(rng: np.random.Generator, name: str, m: int, n: int) -> None:
    x, base = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, 64), (m, n)))
    w = louver.prune(rng.standard_normal((n, 64)).astype(np.float16), "2:4")
    y = np.full((m, n), np.nan, np.float16)
    given = y, x, louver.compress(w, "2:4"), base, m, n
    kernel, grid = louver.jit(getattr(kernels, name)), (-(-m // 64), -(-n // 128) if name == "added_once" else 1)
    # The sums lie along columns. Single elements of 16 bits would be loads of a column of `base`.
    assert "ld.global.b16" not in kernel.explain[grid](*given, **TILE).ptx
    kernel.emulate[grid](*given, **TILE)
    exact = np.maximum(x, 0).astype(np.float64) @ w.astype(np.float64).T + base.astype(np.float64)
    np.testing.assert_allclose(y, exact, rtol=2e-3, atol=2e-3)
