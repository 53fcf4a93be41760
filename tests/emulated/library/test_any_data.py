"""Data that round as badly as they can, and sums that overflow on the way, through whole kernels on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from adversarial import FAMILIES, Family, adversarial
from louver.compile.plan.schedule import Schedule
from louver.emulator import Latest
from louver.formats.dtypes import element_type
from louver.frontend.problem import Problem
from louver.library.emulate import emulate
from louver.library.numerics import accumulation, compare
from louver.library.reference import exact_product, product
from support.compiled import compiled_product
from support.products import overflowing

MODES = [("f16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("e4m3", "fast"), ("e5m2", "promoted"), ("e4m3", "f16")]


def run(weight: np.ndarray, tokens: np.ndarray, dtype: str, mode: str, out: str) -> np.ndarray:
    """The emulated product [m, n] of a weight [m, k] and tokens [n, k]."""
    problem = Problem("linear", dtype, dtype, out, accumulate=mode)  # type: ignore[arg-type]
    schedule = Schedule.of(tile_n=16, tile_k=1024 // element_type(dtype).bits, stages=2)
    y, _ = emulate(compiled_product(problem, schedule), louver.compress(weight, "2:4"), tokens, order=Latest())
    return y.T


@pytest.mark.parametrize(("dtype", "mode"), MODES)
def test_worst_data_keep_the_bound_for_any_data(rng: np.random.Generator, dtype: str, mode: str) -> None:
    k, how = 1021, accumulation(dtype, mode)
    beyond: set[Family] = set()
    for family in FAMILIES:
        weight, tokens = adversarial(family, rng, dtype, 128, 16, k)
        y = run(weight, tokens, dtype, mode, "f32")
        exact = exact_product(weight, tokens.T)
        found = compare(y, *exact, k, "f32", how, data="any")
        assert found.ok, (family, found)
        if not compare(y, *exact, k, "f32", how).ok:
            beyond.add(family)
    # The emulator rounds once an instruction: only sums in f16 show it.
    assert ("small beside large" in beyond) == (mode == "f16"), beyond


@pytest.mark.parametrize("out", ["f32", "bf16"])
@pytest.mark.parametrize("path", ["emulator", "reference"])
def test_bf16_sums_that_overflow_on_the_way(rng: np.random.Generator, path: str, out: str) -> None:
    weight, tokens = overflowing(rng, 64, 16, 160)
    if path == "emulator":
        y = run(weight, tokens, "bf16", "auto", out)
    else:
        y = product(weight, tokens.T, None, element_type(out).numpy)
    exact, magnitude = exact_product(weight, tokens.T)
    assert (np.abs(exact) < 2.0**127).all() and np.isfinite(y[1::2].astype(np.float64)).all()
    if path == "emulator":
        # NumPy adds in an order of its own, which may avoid the overflow.
        assert not np.isfinite(y[::2].astype(np.float64)).any()
    assert compare(y, exact, magnitude, 160, out).ok
