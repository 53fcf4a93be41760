"""Calls of the library on GPUs without warpgroup products: their kernels, run on the emulator by what a launch binds."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import louver
from louver.compile.plan.register_tiles import RegisterTiles
from support.fake_gpu import FakeGpu, FakeTorch
from support.tile_gpu import SHARED, TileGpu

M, N, K = 72, 40, 136


@pytest.mark.parametrize("capability", [each for each in SHARED if each != (9, 0)])
def test_linear_runs_on_every_capability(
    gpu: FakeGpu,
    torch: FakeTorch,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    capability: tuple[int, int],
) -> None:
    card = TileGpu(gpu, monkeypatch, capability)
    w = louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((N, K)).astype(np.float16), np.full((N, M), np.nan, np.float16)
    bias = rng.standard_normal(M).astype(np.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        louver.linear(card.on(x), louver.compress(w, "2:4"), card.on(bias), card.on(y), activation="relu")
    expected = np.maximum(x.astype(np.float64) @ w.astype(np.float64).T + bias, 0)
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-2)
    (made,) = card.ran
    assert isinstance(made.schedule, RegisterTiles)
    major, minor = capability
    assert made.schedule.target.startswith(f"sm_{major}{minor}")
    assert made.signature.shared_bytes <= SHARED[capability] << 10
