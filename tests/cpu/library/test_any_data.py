"""The bounds for any data against a search for the worst: constructed families, and hill climbing from the worst of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from adversarial import FAMILIES, adversarial
from louver.formats.dtypes import element_type
from louver.library.numerics import Data, coefficients
from support.adders import Adder, Emulated, Truncating, summed

Float64 = np.ndarray
K = 1024
CASES = 24
ROUNDS = 60


@dataclass(frozen=True)
class Model:
    """accumulate: the bound's key. beyond_random: whether the search must pass the bound for random data."""

    adder: Adder
    dtype: str
    accumulate: str
    beyond_random: bool


MODELS = {
    "emulator, f32": Model(Emulated("f32"), "f16", "f32", False),
    "emulator, f16": Model(Emulated("f16"), "f16", "f16", True),
    "no extra bit": Model(Truncating(23), "f16", "f32", True),
    "Ampere": Model(Truncating(24), "bf16", "f32", True),
    "Hopper": Model(Truncating(25), "f16", "f32", True),
    "Hopper, sums in f16": Model(Truncating(25, None), "f16", "f16", True),
    "Hopper, 8 bits": Model(Truncating(13, 13), "e4m3", "fp8", True),
    "Hopper, 8 bits, sums in f16": Model(Truncating(13, None), "e5m2", "fp8 in f16", True),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", MODELS)
def test_no_data_passes_the_bound(rng: np.random.Generator, name: str) -> None:
    model = MODELS[name]
    worst = max(climb(rng, model, *start(rng, model, family)) for family in FAMILIES)
    assert worst <= 1
    least = share(model, "random") / share(model, "any")
    assert (worst > least) == model.beyond_random, "a bound for any data, and one for random data"


def share(model: Model, data: Data) -> float:
    return coefficients(K, "f32", model.accumulate, data)[2]


def start(rng: np.random.Generator, model: Model, family: str) -> tuple[Float64, Float64]:
    """The worst of a family's cases: stored factors [CASES, K / 2] of each side."""
    weight, tokens = adversarial(family, rng, model.dtype, 256, 256, K)  # type: ignore[arg-type]
    kept = np.arange(K) % 4 < 2
    a, b = weight[:, kept].astype(np.float64), tokens[:, kept].astype(np.float64)
    worst = np.argsort(-ratio(model, a, b))[:CASES]
    return a[worst], b[worst]


def ratio(model: Model, a: Float64, b: Float64) -> Float64:
    """Errors over their bounds, [cases]."""
    y = summed(model.adder, a, b, 16 * 16 // element_type(model.dtype).bits)
    exact, magnitude = (a * b).sum(axis=1), np.abs(a * b).sum(axis=1)
    _, absolute, size = coefficients(K, "f32", model.accumulate, "any")
    return np.abs(y - exact) / (absolute + size * magnitude)


def climb(rng: np.random.Generator, model: Model, a: Float64, b: Float64) -> float:
    """Change some factors of each case by a power of two, a sign or a random factor; keep what is worse."""
    numpy = element_type(model.dtype).numpy
    found = ratio(model, a, b)
    for _ in range(ROUNDS):
        changes = rng.choice([0.5, 2.0, -1.0, 1.0], a.shape) * rng.choice([1.0, rng.uniform(0.9, 1.1)], a.shape)
        chosen = rng.random(a.shape) < rng.choice([0.002, 0.02, 0.2])
        other = np.clip(np.where(chosen, a * changes, a), -256, 256).astype(numpy).astype(np.float64)
        new = ratio(model, other, b)
        a, found = np.where((new > found)[:, None], other, a), np.maximum(new, found)
        a, b = b, a
    return float(found.max())
