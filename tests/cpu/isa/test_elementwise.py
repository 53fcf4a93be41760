from __future__ import annotations

import numpy as np
import pytest

from louver.frontend.epilogue import ACTIVATIONS
from louver.isa.elementwise import ANGLE_LIMIT, CHOICES, ELEMENTWISE_STEPS
from louver.library.numerics import ACTIVATION_ERROR, ACTIVATION_SLOPE
from support.evaluate import evaluator

emit = evaluator()


def arguments() -> np.ndarray:
    """f32 numbers of every size, both signs."""
    sizes = np.logspace(-40, 38, 20000, base=10).astype(np.float32)
    near = np.linspace(-20, 20, 200001).astype(np.float32)
    return np.concatenate([sizes, -sizes, near, [0.0, -0.0]]).astype(np.float32)


TOLERANCE = {
    "divide": 2.0**-21, "exp2": 2.0**-22, "tanh": 2.0**-10, "reciprocal_root": 2.0**-21, "log": 2.0**-21, "log2": 2.0**-21,
}  # fmt: skip
"""Relative errors that the table states; steps that are not here are exactly rounded."""


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE_STEPS if not name.startswith("__nv_")])
def test_lowerings_compute_what_their_steps_mean(rng: np.random.Generator, name: str) -> None:
    step = ELEMENTWISE_STEPS[name]
    x = arguments()
    if name in ("exp", "exp2"):
        x = x[np.abs(x) < 80]
    if name in ("log", "log2", "square_root", "reciprocal_root"):
        x = x[x >= 0]
    if name in ("sin", "cos"):
        x = np.concatenate(
            [x[np.abs(x) <= ANGLE_LIMIT], rng.uniform(-ANGLE_LIMIT, ANGLE_LIMIT, 50000).astype(np.float32)]
        )
    y = rng.permutation(x)
    operands = (x, y)[: step.arity]
    with np.errstate(all="ignore"):
        got = step.lower(emit, *operands).astype(np.float64)
        exact = step.meaning(*(operand.astype(np.float64) for operand in operands))
        rounded = exact.astype(np.float32).astype(np.float64)
        error = np.abs(got - exact)
    # 1/b is far from f32's least and greatest numbers; the hardware's approximations flush nothing.
    inside = np.isfinite(rounded) & np.isfinite(got)
    if name == "divide":
        inside &= (np.abs(y) > 2.0**-100) & (np.abs(y) < 2.0**100) & (np.abs(exact) > 2.0**-120)
    if name == "remainder":
        # The quotient has no more than 24 bits.
        inside &= np.abs(x) * 2.0**-24 < np.abs(y)
    assert inside.mean() > 0.5
    if name in ("erf", "sin", "cos"):
        assert error.max() < 2.0**-21
    elif name == "exp":
        assert (error <= (1 + np.abs(x)) * 2.0**-22 * exact + 2.0**-149).all()
    elif name in TOLERANCE:
        assert (error[inside] <= TOLERANCE[name] * np.abs(exact[inside]) + 2.0**-149).all()
    else:
        np.testing.assert_array_equal(got[inside], rounded[inside])


@pytest.mark.parametrize("name", ["maximum", "minimum", "maximum_number", "minimum_number"])
def test_extremes_of_nan(name: str) -> None:
    a, b = np.float32([np.nan, 1, np.nan]), np.float32([1, np.nan, np.nan])
    got = ELEMENTWISE_STEPS[name].lower(emit, a, b)
    np.testing.assert_array_equal(got, ELEMENTWISE_STEPS[name].meaning(a, b))
    assert np.isnan(got).tolist() == ([False, False, True] if "number" in name else [True, True, True])


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_beyond_the_limit_are_refused_as_nan(name: str) -> None:
    beyond = np.nextafter(np.float32(ANGLE_LIMIT), np.float32(np.inf))
    got = ELEMENTWISE_STEPS[name].lower(emit, np.float32([beyond, -beyond, 1e38, np.inf, -np.inf, np.nan]))
    assert np.isnan(got).all()
    exact = ELEMENTWISE_STEPS[name].meaning(np.float64([ANGLE_LIMIT, -ANGLE_LIMIT]))
    got = ELEMENTWISE_STEPS[name].lower(emit, np.float32([ANGLE_LIMIT, -ANGLE_LIMIT]))
    assert (np.abs(got - exact) < 2.0**-21).all()


@pytest.mark.parametrize("name", ["log", "log2", "square_root", "reciprocal_root"])
def test_roots_and_logarithms_of_what_has_none(name: str) -> None:
    with np.errstate(all="ignore"):
        x = np.float32([-1.0, -np.inf, np.nan, 0.0, np.inf])
        np.testing.assert_array_equal(ELEMENTWISE_STEPS[name].lower(emit, x), ELEMENTWISE_STEPS[name].meaning(x))


@pytest.mark.parametrize("name", CHOICES)
def test_choices_compute_what_they_mean(rng: np.random.Generator, name: str) -> None:
    numbers = np.float32([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0**-149])
    a, b = (part.ravel() for part in np.meshgrid(numbers, numbers))
    x, y = rng.standard_normal((2, a.size)).astype(np.float32)
    got = CHOICES[name].lower(emit, a, b, x, y)
    np.testing.assert_array_equal(got, CHOICES[name].meaning(a, b, x, y))
    assert (got[np.isnan(a) | np.isnan(b)] == y[np.isnan(a) | np.isnan(b)]).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_keep_their_bound(name: str) -> None:
    x = arguments()

    def lowered(step: str, /, *operands: np.ndarray | float) -> np.ndarray:
        return ELEMENTWISE_STEPS[step].lower(emit, *operands)

    def exact(step: str, /, *operands: np.ndarray | float) -> np.ndarray:
        return ELEMENTWISE_STEPS[step].meaning(*(np.asarray(operand, np.float64) for operand in operands))

    with np.errstate(all="ignore"):
        got = ACTIVATIONS[name](lowered, x).astype(np.float64)
        want = ACTIVATIONS[name](exact, x.astype(np.float64))
    error = np.abs(got - want)
    # Half of the bound is left to the hardware's approximations, which are rounded correctly here.
    assert (error <= ACTIVATION_ERROR / 2 * np.abs(x) + 2.0**-149).all()
    if name == "relu":
        np.testing.assert_array_equal(got, np.maximum(x, 0))
    slope = np.abs(np.diff(want[40000:240000]) / np.diff(x[40000:240000].astype(np.float64)))
    assert slope.max() <= ACTIVATION_SLOPE
    assert np.isnan(ACTIVATIONS[name](lowered, np.full(1, np.nan, np.float32))).all()
