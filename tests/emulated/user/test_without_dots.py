"""Kernels that multiply a sparse matrix without a dot: what a step moves between threads, and how it sums."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.choose.occupancy import TINY

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton.language as tl

from support.triton import without_dots as kernels

HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def step_of(ptx: str) -> str:
    """The text of the loop over K."""
    (label, begin), *_ = [(each[1], each.end()) for each in re.finditer(r"^(\w+):", ptx, re.M)]
    ends = [each.start() for each in re.finditer(rf"bra(?:\.uni)? {label};", ptx)]
    assert ends, "the kernel has a loop"
    return ptx[begin : ends[-1]]


def run(kernel: Any, grid: tuple[int, ...], given: dict[str, Any]) -> str:
    """Run the kernel, and return the text of its loop."""
    jit = louver.jit(kernel)
    found = jit.explain[grid](**given)
    assert found.family == "register tiles"
    jit.emulate[grid](**given)
    return step_of(found.ptx)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", HALVES)
def test_a_sum_down_columns_moves_nothing_before_it(rng: np.random.Generator, kind: str, wide: bool) -> None:
    """w lies along K, so threads have neighbours along K, and sum them before anything moves between threads."""
    n, k, dtype = 128, 256, HALVES[kind]
    x, w = rng.standard_normal(k).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    w = louver.prune(w.T.copy(), "2:4").T
    given = {"x": x, "w": louver.compress(np.ascontiguousarray(w), "2:4", axis=0), "y": np.zeros(n, np.float32)}
    step = run(kernels.down_columns, (1,), {**given, "N": n, "K": k, "BN": 128, "BK": 128, "WIDE": wide})
    assert "bar.sync" not in step and "st.shared" not in step, "no element is exchanged by shared memory"
    assert ("shfl" in step) == (not wide), "f32 totals are summed over threads behind the loop"
    assert wide or len(re.findall(r"cvt\.rn\S*\.f32", step)) <= 16, "elements are summed in pairs"
    expected = x.astype(np.float64) @ w.astype(np.float64)
    rtol = 1e-5 if wide else {"f16": 4e-3, "bf16": 4e-2}[kind]
    np.testing.assert_allclose(given["y"], expected, rtol=0, atol=rtol * np.abs(expected).max())


@pytest.mark.parametrize("sum_", ["float32", "float16"])
def test_a_total_is_summed_over_threads_behind_the_loop(rng: np.random.Generator, sum_: str) -> None:
    n, k = 64, 512
    x, w = rng.standard_normal(k).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    w = louver.prune(w, "2:4")
    y = np.zeros(n, sum_)
    given = {"x": x, "w": louver.compress(w, "2:4"), "y": y, "N": n, "K": k, "BN": 32, "BK": 128}
    step = run(kernels.along_rows, (2,), {**given, "SUM": getattr(tl, sum_)})
    assert "shfl" not in step and "bar.sync" not in step
    assert sum_ == "float32" or "add.rn.f32" not in step, "f16 is summed in pairs"
    expected = w.astype(np.float64) @ x.astype(np.float64) + 1.5
    atol = (1e-5 if sum_ == "float32" else 1e-2) * np.abs(expected).max()
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=0, atol=atol)


def test_a_number_is_summed_over_threads_behind_the_loop(rng: np.random.Generator) -> None:
    rows, k = 3, 2048
    x, w = rng.standard_normal(k).astype(np.float16), rng.standard_normal((rows, k)).astype(np.float16)
    w = louver.prune(w, "2:4")
    y = np.zeros(rows, np.float32)
    step = run(kernels.whole_number, (rows,), {"x": x, "w": louver.compress(w, "2:4"), "y": y, "K": k, "BK": 1024})
    assert "shfl" not in step and "bar.sync" not in step
    np.testing.assert_allclose(y, w.astype(np.float64) @ x.astype(np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", HALVES)
def test_tiles_of_three_axes_keep_only_kept_elements(rng: np.random.Generator, kind: str) -> None:
    """The tile is read as a matrix, which is summed before its rows become two axes."""
    m, n, k, dtype = 16, 32, 128, HALVES[kind]
    x, w = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((m, n, k)).astype(dtype)
    w = louver.prune(w, "2:4")
    y = np.zeros((m, n), dtype)
    given = {"x": x, "w": louver.compress(w, "2:4"), "y": y, "N": n, "K": k, "BM": 16, "BN": 16, "BK": 64}
    step = run(kernels.batch, (1, 2), given)
    assert "shfl" not in step
    expected = np.einsum("mnk,mk->mn", w.astype(np.float64), x.astype(np.float64))
    atol = {"f16": 4e-3, "bf16": 4e-2}[kind] * np.abs(expected).max()
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=0, atol=atol)


def test_a_mask_of_elements_goes_behind_the_load(rng: np.random.Generator) -> None:
    """What the mask leaves out adds nothing, even where it is infinite, and groups may be masked in part."""
    n, k = 48, 304
    x, w = rng.standard_normal(k).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    x[rng.random(k) < 0.4] = 0
    w = louver.prune(w, "2:4").T
    finite = np.where((x == 0)[:, None], 0, w).astype(np.float64)
    w = np.where((x == 0)[:, None] & (w != 0), np.float16("inf"), w)
    y = np.zeros(n, np.float32)
    given = {"x": x, "w": louver.compress(np.ascontiguousarray(w), "2:4", axis=0), "y": y, "N": n, "K": k}
    step = run(kernels.where_not_zero, (3,), {**given, "BN": 16, "BK": 128})
    assert "atom" not in step and "red." not in step, "the tile is described: no address is checked"
    np.testing.assert_allclose(y, x.astype(np.float64) @ finite, rtol=1e-5, atol=1e-4)


def test_two_ctas_of_many_warps_share_an_sm(rng: np.random.Generator) -> None:
    """A CTA of 16 warps waits for row numbers and then for rows; another one computes meanwhile."""
    m, d, count, dtype = 100, 256, 40, ml_dtypes.bfloat16
    e, w = rng.standard_normal((m, d)).astype(dtype), rng.standard_normal((count, d)).astype(dtype)
    w, rows, out = louver.prune(w, "2:4"), rng.integers(0, count, m), np.zeros(m, np.float32)
    given = {"e": e, "w": louver.compress(w, "2:4"), "rows": rows, "out": out, "M": m, "D": d, "BM": 128, "BD": 256}
    kernel = louver.jit(kernels.chosen_rows, num_warps=16)
    found = kernel.explain[1024, 16](**given)
    assert ".minnctapersm 2" in found.ptx
    spilled = re.search(r"moves (\d+) bytes of registers to memory", str(found))
    assert spilled is None or int(spilled[1]) <= TINY, "few spills are hidden, and told"
    assert found.ptx.count("ld.global.b64") == 4, "a thread has four rows, whose numbers serve values and codes"
    kernel.emulate[1, 1](**given)
    exact = (e.astype(np.float64) * w[rows].astype(np.float64)).sum(1)
    np.testing.assert_allclose(out, exact, rtol=0, atol=2e-2 * np.abs(exact).max())


@pytest.mark.parametrize("columns", [32, 64, 256])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, ml_dtypes.float8_e4m3fn])
def test_codes_come_in_rows(rng: np.random.Generator, dtype: Any, columns: int) -> None:
    """Each thread has the codes of its own elements, of all widths of elements and of parts of words of metadata."""
    m, d, count = 48, 256, 40
    if columns == 32 and np.dtype(dtype).itemsize == 1:
        pytest.skip("a word of metadata has 64 columns of bytes")
    e, w = ((9 * rng.standard_normal((rows, d))).astype(dtype) for rows in (m, count))
    w, rows = louver.prune(w, "1:2" if dtype is np.float32 else "2:4"), rng.integers(0, count, m)
    given = {"e": e, "w": louver.compress(w, "1:2" if dtype is np.float32 else "2:4"), "rows": rows, "M": m, "D": d}
    out = np.zeros(m, np.float32)
    louver.jit(kernels.chosen_rows).emulate[3, d // columns](**given, out=out, BM=16, BD=columns, WIDE=True)
    exact = (e.astype(np.float64) * w[rows].astype(np.float64)).sum(1)
    np.testing.assert_allclose(out, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("last", [False, True])
def test_totals_of_loops_in_a_loop(rng: np.random.Generator, last: bool) -> None:
    """The inner loop's total is added to the outer one's. What is read of each step is summed over threads there."""
    parts, n, k = 3, 32, 256
    x, w = rng.standard_normal((parts, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    w = louver.prune(w, "2:4")
    y = np.zeros(n, np.float32)
    given = {"x": x, "w": louver.compress(w, "2:4"), "y": y, "P": parts, "N": n, "K": k, "BN": 32, "BK": 128}
    step = run(kernels.of_parts, (1,), {**given, "LAST": last})
    assert ("shfl" in step) == last
    wide = w.astype(np.float64)
    exact = wide @ x.astype(np.float64).sum(0) + last * (wide[:, 128:] @ x[-1, 128:].astype(np.float64))
    np.testing.assert_allclose(y, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
