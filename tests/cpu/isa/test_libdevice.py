"""Functions of libdevice, evaluated instruction by instruction: within their bounds, approximations off by all that they may be."""

from __future__ import annotations

import numpy as np
import pytest

from louver.isa.libdevice import FUNCTIONS
from support.evaluate import evaluator

COUNT = 20_000

ERRORS = {
    **dict.fromkeys(FUNCTIONS, 2.0**-20),
    "expf": 2.0**-21,
    **dict.fromkeys(("sqrtf", "fsqrt_rn", "fdiv_rn", "frcp_rn"), 2.0**-24),
}
"""Greatest relative error of results that are normal f32 numbers."""


def evaluate(name: str, operands: list[np.ndarray], off: float) -> np.ndarray:
    """The result of the instructions. off: part of their allowed error that approximations have."""
    with np.errstate(all="ignore"):
        return FUNCTIONS[name][2](evaluator(off), *operands)


def exact(name: str, operands: list[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return FUNCTIONS[name][1](*(each.astype(np.float64) for each in operands))


def draw(rng: np.random.Generator) -> np.ndarray:
    """Numbers of all magnitudes, near 0, near 1, and up to where exponentials end."""
    magnitudes = 2.0 ** rng.uniform(-40, 40, COUNT) * rng.choice([-1, 1], COUNT)
    parts = [
        magnitudes,
        rng.standard_normal(COUNT) * 3,
        1 + rng.uniform(-1e-3, 1e-3, COUNT),
        rng.uniform(-100, 100, COUNT),
    ]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("off", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors(rng: np.random.Generator, name: str, off: float) -> None:
    operands = [draw(rng) for _ in range(FUNCTIONS[name][0])]
    if name == "powf":
        operands = [np.abs(operands[0]), rng.uniform(-30, 30, operands[0].size).astype(np.float32)]
    found, wanted = evaluate(name, operands, off), exact(name, operands)
    normal = (np.abs(wanted) > 2.0**-126) & (np.abs(wanted) < 2.0**128 * (1 - ERRORS[name]))
    assert normal.sum() > COUNT // 2
    error = np.abs(found[normal] - wanted[normal]) / np.abs(wanted[normal])
    assert (error <= ERRORS[name]).all(), (error.max(), [each[normal][error.argmax()] for each in operands])


SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1,
    -1,
    1e-40,
    -1e-40,
    88.8,
    -104,
    200,
    -200,
    1e38,
    2,
    -2,
    3,
    0.5,
    -3.5,
    1e-30,
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str) -> None:
    """Infinities, NaN, zeros of both signs, subnormals and what overflows, in all pairs."""
    numbers = np.array(SPECIAL, np.float32)
    operands = [numbers] if FUNCTIONS[name][0] == 1 else [each.ravel() for each in np.meshgrid(numbers, numbers)]
    found = evaluate(name, operands, 0.0)
    with np.errstate(all="ignore"):
        wanted = exact(name, operands).astype(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=ERRORS[name], atol=1e-44)
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(wanted[zero]))
