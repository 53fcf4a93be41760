"""A dense dot whose sums meet those of a sparse dot has the orientation of that dot: no step exchanges sums."""

from __future__ import annotations

import numpy as np
import pytest

import louver

pytest.importorskip("triton")

from support.triton import added_sums as kernels


def steps(ptx: str) -> str:
    """The text of the loop that holds the products."""
    begin, end = (find("mma.sp" if "wgmma" not in ptx else "wgmma.mma_async.sp") for find in (ptx.index, ptx.rindex))
    return ptx[ptx.rindex("loop_", 0, begin) : ptx.index("bra.uni loop_", end)]


@pytest.mark.parametrize("tile", [{"TM": 64, "TN": 64, "TK": 32}, {"TM": 16, "TN": 32, "TK": 32}])
def test_an_adapter_adds_to_the_sums_of_the_weight(rng: np.random.Generator, tile: dict[str, int]) -> None:
    m, n, k, r = 72, 64, 96, 16
    x, a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, r), (r, n)))
    w = louver.prune(rng.standard_normal((k, n)).astype(np.float16), "2:4", axis=0)
    y = np.full((m, n), np.nan, np.float32)
    given = (x, louver.compress(w, "2:4", axis=0), a, b, y, m, n, k, 0.25)
    kernel, grid = louver.jit(kernels.adapted), (-(-m // tile["TM"]), n // tile["TN"])
    kernel.emulate[grid](*given, **tile, R=r)
    exact = x.astype(np.float64)
    wanted = exact @ w.astype(np.float64) + 0.25 * (exact @ a.astype(np.float64)) @ b.astype(np.float64)
    np.testing.assert_allclose(y, wanted, rtol=5e-3, atol=0.2)
    # Sums are stored to shared memory behind the loop only, to write wide rows of y.
    assert steps(kernel.explain[grid](*given, **tile, R=r).ptx).count("st.shared.") == 0


def test_a_gate_multiplies_the_sums_of_the_weight(rng: np.random.Generator) -> None:
    m, n, k, tile = 72, 64, 96, {"TM": 64, "TN": 64, "TK": 32}
    x, w, g = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k), (n, k)))
    w, y = louver.prune(w, "2:4"), np.full((m, n), np.nan, np.float32)
    given = (x, louver.compress(w, "2:4"), g, y, m, n, k)
    kernel, grid = louver.jit(kernels.gated), (-(-m // 64), n // 64)
    kernel.emulate[grid](*given, **tile)
    wanted = np.zeros((m, n))
    for at in range(0, k, 32):
        left, one, two = (each[:, at : at + 32].astype(np.float64) for each in (x, w, g))
        wanted += (left @ one.T) * np.maximum(left @ two.T, 0)
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=0.05)
    assert "st.shared." not in steps(kernel.explain[grid](*given, **tile).ptx)
