"""Two halves of one sparse weight in one kernel, on the emulator."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver
from louver.measure.forms import wide

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.gated_halves import gate_and_up, of_fixed_sizes

M, K = 40, 144


Array = np.ndarray


def drawn(rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    """The operands, and a poisoned output."""
    x = rng.standard_normal((M, K)).astype(np.float16)
    w = louver.prune(rng.standard_normal((2, n, K)).astype(np.float16), "2:4")
    return x, w, np.full((M, n), np.nan, np.float16)


def check(y: Array, x: Array, w: Array) -> None:
    gate, up = (wide(x) @ wide(each).T for each in w)
    expected = gate / (1 + np.exp(-gate)) * up
    np.testing.assert_allclose(y, expected, rtol=0, atol=2.0**-8 * np.abs(expected).max())


@pytest.mark.parametrize("wrap", [False, True], ids=["masked", "wrapped"])
@pytest.mark.parametrize("rows", [False, True], ids=["given", "counted"])
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize(("n", "described"), [(80, True), (64, True), (72, False)])
def test_the_second_half_is_described_where_it_begins_with_whole_metadata(
    rng: np.random.Generator, n: int, described: bool, axes: int, rows: bool, wrap: bool
) -> None:
    x, w, y = drawn(rng, n)
    given = louver.compress(w if axes == 3 else w.reshape(2 * n, K), "2:4")
    sizes = {
        "M": M,
        "N": n,
        "K": K,
        "stride_wn": K,
        "half": n * K,
        "WRAP": wrap,
        "ROWS": rows,
        "BM": 32,
        "BN": 32,
        "BK": 64,
    }
    kernel, grid = louver.jit(gate_and_up), (-(-M // 32), -(-n // 32))
    if described:
        assert "computed" not in str(kernel.explain[grid](x, given, y, **sizes))
    kernel.emulate[grid](x, given, y, **sizes)
    check(y, x, w)


@pytest.mark.parametrize(("n", "described"), [(80, True), (72, False)])
def test_fixed_sizes_are_described(rng: np.random.Generator, n: int, described: bool) -> None:
    x, w, y = drawn(rng, n)
    kernel, grid = louver.jit(of_fixed_sizes), (-(-M // 32), -(-n // 32))
    given = (x, louver.compress(w.reshape(2 * n, K), "2:4"), y, M, n, K, 32, 32, 64)
    assert ("computed" in str(kernel.explain[grid](*given))) is not described
    kernel.emulate[grid](*given)
    check(y, x, w)
