"""How exact a product must be: one bound, used by every test, benchmark and demo.

Elementwise, against float64: |y - ref| <= u_out·|ref| + c·u_acc·Σ|a||b|. `c` counts the rounding errors that add up along
K. They are random in sign for random data, so that c grows as the root of their number; a bound for adversarial data would
grow as the number itself, and would let a missing term pass from K ≈ 4,000 on. Integers accumulate exactly, with c = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.frontend.problem import PROMOTED_COLUMNS, accumulator_of
from louver.isa.wgmma import FP8

UNIT_ROUNDOFF = {
    "f32": 2.0**-24,
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "e4m3": 2.0**-4,
    "e5m2": 2.0**-3,
    "s8": 0.0,
    "s32": 0.0,
}
"""Half the distance from 1 to the next number of each output type; 0 for integers."""

SMALLEST_SUBNORMAL = {
    "f32": 2.0**-149,
    "f16": 2.0**-24,
    "bf16": 2.0**-133,
    "e4m3": 2.0**-9,
    "e5m2": 2.0**-16,
    "s8": 1.0,
    "s32": 0.0,
}
"""Spacing of the numbers around zero, which bounds the rounding of tiny results; s32 outputs are exact."""

LIMITS = {"e4m3": (-448.0, 448.0), "e5m2": (-57344.0, 57344.0), "s8": (-128.0, 127.0)}
"""Least and greatest value of the output types that saturate."""

ACTIVATION_ERROR = 2.0**-20
"""Greatest error of an activation, over the magnitude of its argument: gelu, gelu_tanh and silu are made of the hardware's
approximations of 2^x and 1/x, each within 2^-22 relatively, and of f32 steps. relu is exact."""

ACTIVATION_SLOPE = 1.13
"""Greatest slope of an activation (gelu's is 1.129), by which an error of its argument grows."""

ACCUMULATOR_UNIT = {"f32": 2.0**-23, "fp8": 2.0**-12, "promoted": 2.0**-12, "f16": 2.0**-11, "s32": 0.0}
"""Rounding unit of a sum in tensor cores, by the way to accumulate; "fp8" is the usual way of 8-bit floats.

f32: they truncate, so twice the unit roundoff of the type. fp8: products of 8-bit floats, whose sums the hardware cuts to
about 14 bits although the registers hold f32; 2^-12.0 of Σ|a||b| is the worst error of a single instruction measured on an
H200 with f32 accumulators. promoted: the same inside a group of columns. f16: the type's own; what goes beyond 65,504 on the
way is infinite, and sums near zero are rounded to its subnormal numbers.
"""

ROUNDED_COLUMNS = {"f32": 1, "fp8": 64, "promoted": 64, "f16": 32, "s32": 1}
"""Dense columns that share one rounding error: the fp8 unit is that of an instruction of 64 columns; sums in f16 are rounded
after an instruction of 32 columns (16-bit operands) or 64."""

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a result compares with its float64 reference. worst: greatest error over its bound; at: where."""

    ok: bool
    worst: float
    at: tuple[int, ...]
    violations: int


def accumulation(operand: str, accumulate: str = "auto", *, floating: bool = False) -> str:
    """How sums of products of that element type round: a key of `ACCUMULATOR_UNIT`.

    accumulate: as in `Problem`. floating: they are rounded to f32 for an epilogue, integers too.
    """
    if accumulate in ("f16", "promoted"):
        return accumulate
    if operand in FP8:
        return "fp8"
    return "f32" if floating else accumulator_of(operand)


def coefficients(k: int, out: str, accumulate: str = "f32") -> tuple[float, float, float]:
    """The bound's terms (r, s, t): an element may be wrong by r·|ref| + s + t·Σ|a||b|. For any array library.

    accumulate: a key of `ACCUMULATOR_UNIT`, see `accumulation`. "promoted": the errors of a group are those of its own columns,
    so that over all of K they are in the same proportion to Σ|a||b| as in one group, and f32 additions follow, one a group.
    "f16": each rounding of a sum near zero may be off by half of the smallest subnormal number.
    """
    unit, columns = ACCUMULATOR_UNIT[accumulate], ROUNDED_COLUMNS[accumulate]
    relative, absolute = UNIT_ROUNDOFF[out], SMALLEST_SUBNORMAL[out] / 2
    if accumulate == "promoted":
        groups = math.sqrt(k / PROMOTED_COLUMNS)
        inside = (4.0 + math.sqrt(min(k, PROMOTED_COLUMNS) / columns)) * unit
        return relative, absolute, inside + (4.0 + groups) * ACCUMULATOR_UNIT["f32"]
    if accumulate == "f16":
        absolute += (4.0 + math.sqrt(k / columns)) * SMALLEST_SUBNORMAL["f16"] / 2
    return relative, absolute, (4.0 + math.sqrt(k / columns)) * unit


def bound(reference: Float64, magnitude: Float64, k: int, out: str, accumulate: str = "f32") -> Float64:
    """Greatest allowed error of each element. magnitude: Σ|a||b| (plus |bias|), same shape as `reference`."""
    relative, absolute, summed = coefficients(k, out, accumulate)
    allowed = relative * np.abs(reference) + absolute + summed * magnitude
    return np.asarray(allowed, dtype=np.float64)


def compare(
    y: NDArray[Any], reference: Float64, magnitude: Float64, k: int, out: str, accumulate: str = "f32"
) -> Agreement:
    """Compare `y` with `reference` element by element; NaN agrees with NaN only, infinity with the same infinity.

    The reference is clipped to the range of an output that saturates. accumulate: as in `coefficients`.
    """
    if y.shape != reference.shape:
        raise ValueError(f"result and reference must have one shape, got {y.shape} and {reference.shape}")
    if y.size == 0:
        return Agreement(True, 0.0, (), 0)
    if out in LIMITS:
        reference = np.clip(reference, *LIMITS[out])
    got = y.astype(np.float64)
    finite = np.isfinite(reference)
    same = np.where(np.isnan(reference), np.isnan(got), got == reference)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        ratio = np.abs(got - reference) / bound(reference, magnitude, k, out, accumulate)
    ratio = np.where(finite, np.where(np.isfinite(got), ratio, np.inf), np.where(same, 0.0, np.inf))
    ratio = np.where(got == reference, 0.0, ratio)
    worst = int(np.argmax(ratio))
    return Agreement(
        ok=bool((ratio <= 1.0).all()),
        worst=float(ratio.flat[worst]),
        at=tuple(int(i) for i in np.unravel_index(worst, ratio.shape)),
        violations=int((ratio > 1.0).sum()),
    )
