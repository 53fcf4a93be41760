"""Stream-K: a program multiplies a share of all steps, so that no launch knows where its tiles begin. They come by boxes, and report."""

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
def shares(x, w, y, N, K, swk, swn, SHARE, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y += x w for SHARE steps of BK in each program, tile after tile."""
    m, k, steps = tl.arange(0, BM), tl.arange(0, BK), tl.cdiv(K, BK)
    start = tl.program_id(0) * SHARE
    last = tl.minimum(start + SHARE, steps * (N // BN))
    while start < last:
        tile, first = start // steps, start % steps
        end = tl.minimum(start + steps - first, last)
        n = tile * BN + tl.arange(0, BN)
        x_at = x + m[:, None] * K + k[None, :] + first * BK
        w_at = w + k[:, None] * swk + n[None, :] * swn + first * (BK * swk)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for _ in range(start, end):
            total = tl.dot(tl.load(x_at), tl.load(w_at), total)
            x_at += BK
            w_at += BK * swk
        tl.atomic_add(y + m[:, None] * N + n[None, :], total)
        start = end


ACROSS = pytest.mark.parametrize("across", [False, True], ids=["sparse along the last axis", "along the last but one"])


def _given(rng: np.random.Generator, across: bool, columns: int) -> tuple[list[object], np.ndarray, np.ndarray]:
    m, n, k, tile = 64, 256, 320, (64, 64, 64)
    x = rng.integers(-3, 4, (m, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(np.float16), "2:4")
    kept = louver.compress(np.ascontiguousarray(w.T), "2:4", axis=0) if across else louver.compress(w, "2:4")
    y = np.zeros((m, columns), np.float32)
    strides = (n, 1) if across else (1, k)
    return [x, kept, y, columns, k, *strides, 7, *tile], y, x.astype(np.float64) @ w.astype(np.float64).T


@ACROSS
def test_tiles_of_shares_come_by_boxes(rng: np.random.Generator, across: bool) -> None:
    given, y, wanted = _given(rng, across, 256)
    kernel = louver.jit(shares)
    kernel.emulate[(3,)](*given)
    np.testing.assert_array_equal(y, wanted)
    explained = kernel.explain[(3,)](*given)
    assert "computed addresses" not in str(explained) and "cp.async.bulk.tensor" in explained.ptx


@triton.jit
def known_shares(
    x, w, y, N: tl.constexpr, K: tl.constexpr, swk: tl.constexpr, swn: tl.constexpr, SHARE,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """`shares` with all sizes and strides compiled in."""
    shares(x, w, y, N, K, swk, swn, SHARE, BM, BN, BK)


@ACROSS
def test_tiles_of_shares_in_rows_of_a_known_length(rng: np.random.Generator, across: bool) -> None:
    given, y, wanted = _given(rng, across, 256)
    louver.jit(known_shares).emulate[(3,)](*given)
    np.testing.assert_array_equal(y, wanted)


def test_a_tile_behind_the_last_column_is_reported(rng: np.random.Generator) -> None:
    """In memory, the columns behind the last one are those of the next row."""
    given, _, _ = _given(rng, True, 320)
    with pytest.raises(louver.AddressError):
        louver.jit(shares).emulate[(4,)](*given)
