"""Data that round as badly as they can, and sums that overflow on the way, on a device."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from adversarial import FAMILIES, Family, adversarial
from louver.library.numerics import accumulation, compare
from louver.library.reference import exact_product
from support.device_products import to_numpy, to_torch
from support.products import overflowing

MODES = [("f16", "f32"), ("bf16", "f32"), ("f16", "f16")] + [
    (dtype, mode) for dtype in ("e4m3", "e5m2") for mode in ("fast", "promoted", "f16")
]
"""Element type of both operands, and the way to accumulate."""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("dtype", "mode"), MODES)
@pytest.mark.parametrize("k", [30, 256, 1021, 4096, 16384])
def test_worst_data_keep_the_bound_for_any_data(
    rng: np.random.Generator, dtype: str, mode: str, k: int, family: Family
) -> None:
    weight, tokens = adversarial(family, rng, dtype, 256, 256, k)
    y = louver.linear(to_torch(tokens), louver.compress(weight, "2:4"), out_dtype="f32", accumulate=mode)
    found = compare(to_numpy(y).T, *exact_product(weight, tokens.T), k, "f32", accumulation(dtype, mode), data="any")
    assert found.ok, found


@pytest.mark.parametrize("out", ["f32", "bf16"])
@pytest.mark.parametrize("k", [160, 1000, 4096])
def test_bf16_sums_that_overflow_on_the_way(rng: np.random.Generator, out: str, k: int) -> None:
    weight, tokens = overflowing(rng, 192, 70, k)
    y = louver.linear(to_torch(tokens), louver.compress(weight, "2:4"), out_dtype=out)
    exact, magnitude = exact_product(weight, tokens.T)
    got = to_numpy(y).T
    assert np.isfinite(got[1::2].astype(np.float64)).all()
    found = compare(got, exact, magnitude, k, out, data="any")
    assert found.ok, found
