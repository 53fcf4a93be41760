"""Of the largest or least element that a loop keeps, each thread carries its own part: no step exchanges anything."""

from __future__ import annotations

import numpy as np
import pytest

import louver

pytest.importorskip("triton")

from support.triton import loop_extremes as kernels


@pytest.mark.parametrize("rows", [16, 64, 128])
@pytest.mark.parametrize("least", [False, True])
def test_products_of_a_step_stay_in_their_threads(rng: np.random.Generator, rows: int, least: bool) -> None:
    m, n, k = 140, 216, 64
    q = rng.standard_normal((m, k)).astype(np.float16)
    d = louver.prune(rng.standard_normal((n, k)).astype(np.float16), "2:4")
    y = np.full(m, np.nan, np.float32)
    given = (q, louver.compress(d, "2:4"), y, m, n, k, rows, 64, least)
    kernel, grid = louver.jit(kernels.most_alike), (-(-m // rows),)
    kernel.emulate[grid](*given)
    products = q.astype(np.float64) @ np.asarray(d).astype(np.float64).T
    np.testing.assert_allclose(y, products.min(1) if least else products.max(1), rtol=1e-4, atol=1e-3)
    ptx = kernel.explain[grid](*given).ptx
    end = ptx.index("bra.uni loop_", ptx.index("mma"))
    step = ptx[ptx.rindex(ptx[end:].split()[1].rstrip(";") + ":", 0, end) : end]
    assert "mma" in step and "shfl" not in step and "st.shared" not in step


def test_integers(rng: np.random.Generator) -> None:
    x = rng.integers(-(2**31) + 1, 2**31 - 1, (70, 300), np.int32)
    most, least = np.zeros(70, np.int32), np.zeros(70, np.int32)
    louver.jit(kernels.extremes_of_rows).emulate[5,](x, most, least, 70, 300, 16, 64)
    np.testing.assert_array_equal(most, x.max(1))
    np.testing.assert_array_equal(least, x.min(1))
