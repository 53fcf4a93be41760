"""Products of f32, 1:2 sparse, on the GPU: exact on small integers, within the bound on others, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.library import host
from louver.library.numerics import compare
from louver.library.reference import exact_product
from louver.runtime.device import NoDevice
from support.device_products import to_numpy, to_torch

SIZES = {"whole": (512, 512, 1024), "odd": (300, 333, 1001), "few": (1024, 1, 4096), "tiny": (1, 1, 1)}


@pytest.mark.parametrize("size", SIZES)
def test_products_are_exact(rng: np.random.Generator, torch: Any, size: str) -> None:
    m, n, k = SIZES[size]
    w = louver.prune(rng.integers(-4, 5, (m, k)).astype(np.float32), "1:2")
    s, x = louver.compress(w, "1:2"), rng.integers(-4, 5, (n, k)).astype(np.float32)
    expected, _ = exact_product(w, x.T)
    np.testing.assert_array_equal(to_numpy(louver.linear(to_torch(x), s)).T, expected)
    np.testing.assert_array_equal(to_numpy(louver.matmul(s, to_torch(np.ascontiguousarray(x.T)))), expected)
    np.testing.assert_array_equal(to_numpy(louver.matmul(to_torch(x), s.T)).T, expected)


@pytest.mark.parametrize("size", SIZES)
def test_the_bound_is_kept_and_the_bits_repeat(rng: np.random.Generator, torch: Any, size: str) -> None:
    m, n, k = SIZES[size]
    w = louver.prune(rng.standard_normal((m, k)).astype(np.float32), "1:2")
    s, x = louver.compress(w, "1:2"), rng.standard_normal((n, k)).astype(np.float32)
    tokens = to_torch(x)
    first = louver.linear(tokens, s)
    expected, magnitude = exact_product(w, x.T)
    agreement = compare(to_numpy(first).T, expected, magnitude, k, "f32", "tf32")
    assert agreement.ok, agreement
    y = torch.empty_like(first)
    for _ in range(20):
        y.fill_(float("nan"))
        louver.linear(tokens, s, out=y)
        assert torch.equal(y, first)


@pytest.mark.filterwarnings("ignore:louver computes by the reference path")
@pytest.mark.parametrize("tiny", [False, True])
def test_the_host_reads_operands_as_the_device_does(
    rng: np.random.Generator, torch: Any, monkeypatch: pytest.MonkeyPatch, tiny: bool
) -> None:
    """The two differ by the rounding of sums only, subnormal operands included."""
    w = louver.prune(rng.standard_normal((128, 96)).astype(np.float32), "1:2")
    x = rng.standard_normal((40, 96)).astype(np.float32)
    if tiny:
        w, x = w * np.float32(2.0**100), x * np.float32(2.0**-127)
    s = louver.compress(w, "1:2")
    found = to_numpy(louver.linear(to_torch(x), s))
    monkeypatch.setattr(host, "current_device", lambda: NoDevice("none for this test"))
    expected = louver.linear(x, s)
    scale = np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64)).T
    assert (np.abs(found - expected) <= 2.0**-18 * scale).all()
