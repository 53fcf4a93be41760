"""Convolutions as products: a loop over the taps of a filter and over parts of the channels of each, counted by one number."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

HIGH, WIDE, CHANNELS, OUT, TAPS = 5, 6, 128, 48, 3


@triton.jit
def convolution(
    x, w, y, HIGH: tl.constexpr, WIDE: tl.constexpr, CHANNELS: tl.constexpr, OUT: tl.constexpr, TAPS: tl.constexpr,
    MASKED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """x [HIGH, WIDE, CHANNELS], w [OUT, TAPS, TAPS, CHANNELS]; MASKED: the channels below which w is read."""
    place, out = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    row, column = place // WIDE, place % WIDE
    parts = (CHANNELS + BK - 1) // BK
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(TAPS * TAPS * parts):
        channel = step % parts * BK + tl.arange(0, BK)
        tap = step // parts
        high, wide = tap // TAPS, tap % TAPS
        r, c = row + high - TAPS // 2, column + wide - TAPS // 2
        inside = (r >= 0) & (r < HIGH) & (c >= 0) & (c < WIDE) & (place < HIGH * WIDE)
        left = tl.load(
            x + (r * WIDE + c)[:, None] * CHANNELS + channel[None, :],
            mask=inside[:, None] & (channel < CHANNELS)[None, :],
            other=0.0,
        )
        at = out[None, :] * (TAPS * TAPS * CHANNELS) + channel[:, None] + high * (TAPS * CHANNELS) + wide * CHANNELS
        right = tl.load(w + at, mask=(channel[:, None] < MASKED) & (out[None, :] < OUT), other=0.0)
        total += tl.dot(left, right)
    tl.store(y + place[:, None] * OUT + out[None, :], total, mask=(place < HIGH * WIDE)[:, None] & (out < OUT)[None, :])


def _expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    parts = [
        padded[i : i + HIGH, j : j + WIDE] @ w[:, i, j].astype(np.float64).T for i in range(TAPS) for j in range(TAPS)
    ]
    return sum(parts[1:], parts[0]).reshape(HIGH * WIDE, OUT)


@pytest.mark.parametrize(
    "shape", [(OUT, TAPS * TAPS * CHANNELS), (OUT, TAPS, TAPS, CHANNELS), (OUT * TAPS * TAPS, CHANNELS)]
)
@pytest.mark.parametrize(("masked", "computed"), [(CHANNELS, False), (96, True)])
def test_taps_and_channels_counted_by_one_number(
    rng: np.random.Generator, masked: int, computed: bool, shape: tuple[int, ...]
) -> None:
    """`step % 2 * 64 + arange(0, 64)` is below 128 channels, so that this mask leaves nothing out. One of 96 channels does. The
    kernel reads the same rows of whatever shape.
    """
    x = rng.standard_normal((HIGH, WIDE, CHANNELS)).astype(np.float16)
    w = louver.prune(rng.standard_normal((OUT, TAPS * TAPS * CHANNELS)).astype(np.float16), "2:4")
    y = np.full((HIGH * WIDE, OUT), np.nan, np.float32)
    kernel, grid = louver.jit(convolution), (1, 1)
    known = {
        "x": x,
        "w": louver.compress(w.reshape(shape), "2:4"),
        "y": y,
        "HIGH": HIGH,
        "WIDE": WIDE,
        "CHANNELS": CHANNELS,
        "OUT": OUT,
    }
    known |= {"TAPS": TAPS, "MASKED": masked, "BM": 32, "BN": 64, "BK": 64}
    assert ("computed addresses" in str(kernel.explain[grid](**known))) is computed
    kernel.emulate[grid](**known)
    read = w.reshape(OUT, TAPS, TAPS, CHANNELS) * (np.arange(CHANNELS) < masked)
    np.testing.assert_allclose(y, _expected(x, read), rtol=1e-3, atol=1e-3)
