"""Rows that wrap (`rows % N`) and a mask of the load that excludes the wrapped ones: boxes, though results reach sums of all rows."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl


@triton.jit
def back(x, w, y, M, N, K, MASKED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y[m, k] += |x w^T| w: the rows of w are columns of the first dot and steps of the second one."""
    m, k = tl.arange(0, BM), tl.arange(0, BK)
    own = tl.program_id(0) * BN + tl.arange(0, BN)
    n = own % N
    logits = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = tl.load(x + (m % M)[:, None] * K + (first + k)[None, :])
        logits = tl.dot(left, tl.load(w + n[None, :] * K + (first + k)[:, None]), logits)
    logits = tl.where((own < N)[None, :], tl.abs(logits), 0.0).to(x.dtype.element_ty)
    for first in range(0, K, BK):
        at = w + n[:, None] * K + (first + k)[None, :]
        tile = tl.load(at, mask=(own < N)[:, None], other=0.0) if MASKED else tl.load(at)
        out = y + (m % M)[:, None] * K + (first + k)[None, :]
        tl.atomic_add(out, tl.dot(logits, tile), mask=(m < M)[:, None])


@pytest.mark.parametrize(("n", "programs"), [(64, 1), (72, 2), (56, 2), (128, 2)])
@pytest.mark.parametrize("masked", [True, False], ids=["masked", "multiplied by zeros"])
def test_rows_that_a_mask_excludes_do_not_wrap(rng: np.random.Generator, n: int, programs: int, masked: bool) -> None:
    m, k = 50, 128
    x = rng.integers(-3, 4, (m, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(np.float16), "2:4")
    logits = np.abs(x.astype(np.float64) @ w.astype(np.float64).T).astype(np.float16).astype(np.float64)
    given = {"x": x, "w": louver.compress(w, "2:4"), "y": np.zeros((m, k), np.float32), "M": m, "N": n, "K": k}
    given |= {"MASKED": masked, "BM": 64, "BN": 64, "BK": 64}
    kernel = louver.jit(back)
    # Without the mask, the rows of the last tile are other rows, unless N is whole tiles. A mask of zeros is not followed to them.
    assert ("w is read at computed addresses" in str(kernel.explain[(programs,)](**given))) == (
        not masked and n % 64 > 0
    )
    kernel.emulate[(programs,)](**given)
    np.testing.assert_allclose(given["y"], logits @ w.astype(np.float64), rtol=2.0**-20)


@triton.jit
def chosen(x, w, y, rows, M, N, K, BM: tl.constexpr, BK: tl.constexpr):
    """y[m] += x[m] · w[rows[m]], a part of K in each program."""
    own, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BK + tl.arange(0, BK)
    m = own % M
    left = tl.load(x + m[:, None] * K + k[None, :])
    right = tl.load(w + tl.load(rows + m)[:, None] * K + k[None, :])
    tl.atomic_add(y + own, tl.sum((left * right).to(tl.float32), 1), mask=own < M)


@pytest.mark.parametrize("number", [np.int32, np.int64])
def test_row_numbers_do_not_narrow_the_accesses_of_a_tile(rng: np.random.Generator, number: type) -> None:
    """A thread loads 16 bytes at a time, whatever the width of row numbers is."""
    m, n, k = 70, 33, 512
    x = rng.integers(-3, 4, (m, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(np.float16), "2:4")
    rows = rng.integers(0, n, m).astype(number)
    expected = (x.astype(np.float64) * w[rows]).sum(1)
    given = {"x": x, "w": louver.compress(w, "2:4"), "y": np.zeros(m, np.float32), "rows": rows}
    given |= {"M": m, "N": n, "K": k, "BM": 64, "BK": 256}
    kernel = louver.jit(chosen)
    ptx = kernel.explain[(2, 2)](**given, num_warps=8).ptx
    assert ptx.count("ld.global.v4.b32") == 3 * 64 * 256 // (256 * 16)
    kernel.emulate[(2, 2)](**given, num_warps=8)
    np.testing.assert_array_equal(given["y"], expected)
