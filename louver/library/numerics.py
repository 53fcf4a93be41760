"""Error bounds of products, for all tests, benchmarks and the demo.

The bound for each element, against float64, is |y - ref| <= u_out·|ref| + c·Σ|a||b|. There are two bounds c:

- For random data, rounding errors along K are random in sign, and c grows with the root of their number.
- For any data, c is the worst case, and grows with the number of instructions along K.

docs/rounding.md derives both. Integers accumulate exactly: c = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.choose.ranges import MOST_PARTS
from louver.formats.dtypes import multiplied_as
from louver.frontend.problem import PROMOTED_COLUMNS, accumulator_of
from louver.ir.product import Unit
from louver.isa.metadata import columns_per_load
from louver.isa.targets import FP8_FP6_FP4

UNIT_ROUNDOFF = {
    "f32": 2.0**-24,
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "e4m3": 2.0**-4,
    "e5m2": 2.0**-3,
    "s8": 0.0,
    "s32": 0.0,
}
"""Half the distance from 1 to the next number, for each output type; 0 for integers."""

SMALLEST_SUBNORMAL = {
    "f32": 2.0**-149,
    "f16": 2.0**-24,
    "bf16": 2.0**-133,
    "e4m3": 2.0**-9,
    "e5m2": 2.0**-16,
    "s8": 1.0,
    "s32": 0.0,
}
"""Spacing of the numbers around zero, for each output type. It bounds the rounding of tiny results. s32 outputs are
exact.
"""

LIMITS = {"e4m3": (-448.0, 448.0), "e5m2": (-57344.0, 57344.0), "s8": (-128.0, 127.0)}
"""Least and greatest value of the output types that saturate."""

ACTIVATION_ERROR = 2.0**-20
"""Greatest error of an activation, divided by the magnitude of its argument. gelu, gelu_tanh and silu use f32 steps and
the hardware's approximations of 2^x and 1/x, whose relative errors are at most 2^-22. relu is exact.
"""

ACTIVATION_SLOPE = 1.13
"""Greatest slope of an activation; gelu's is 1.129. An error of the argument grows by at most this factor."""

LARGEST = {"f32": (2 - 2.0**-23) * 2.0**127, "f16": 65504.0, "bf16": (2 - 2.0**-7) * 2.0**127}
"""Greatest finite number of each type with infinities."""

Data: TypeAlias = Literal["random", "any"]
"""The assumption about the operands: random signs, or none."""


@dataclass(frozen=True, slots=True)
class Accumulation:
    """The rounding of sums of sparse products.

    unit: relative error of one rounding of random data.
    columns: dense columns of K for one rounding.
    instruction: dense columns of K of one instruction.
    step: greatest error of one instruction, divided by Σ|a||b| of all columns up to it.
    least: greatest absolute error of one instruction with sums near zero.
    largest: greatest finite sum.
    read: greatest relative error of a product from the conversion of its operands.
    """

    unit: float
    columns: int
    instruction: int
    step: float
    least: float
    largest: float
    read: float = 0.0


F32_STEP, FP8_STEP = 18 * 2.0**-23, 34 * 2.0**-13
"""An instruction adds 16 stored products (32 for 8-bit operands) and the old sum. Each addend and the result are
truncated to a multiple of 2^-23 (2^-13) times the power of two of the greatest addend. So each loses less than 2^-23
(2^-13) of Σ|a||b|.
"""

F32_LEAST, F16_LEAST = F32_STEP * 2.0**-126, SMALLEST_SUBNORMAL["f16"] / 2
"""If the greatest addend is below 2^-126, addends are truncated to the same multiples as at 2^-126. Sums in f16 are
rounded to nearest.
"""

TF32_READ = 2.0**-11 + 2.0**-10 + 2.0**-21
"""Operands of f32 are read as tf32, which has 11 bits. Values of the weight are rounded; the dense operand is
truncated.
"""

ACCUMULATIONS = {
    "f32": Accumulation(2.0**-23, 1, 32, F32_STEP, F32_LEAST, LARGEST["f32"]),
    "fp8": Accumulation(2.0**-12, 64, 64, FP8_STEP, F32_LEAST, LARGEST["f32"]),
    "promoted": Accumulation(2.0**-12, 64, 64, FP8_STEP, F32_LEAST, LARGEST["f32"]),
    "f16": Accumulation(2.0**-11, 32, 32, 2.0**-11 + F32_STEP, F16_LEAST, LARGEST["f16"]),
    "fp8 in f16": Accumulation(2.0**-11, 32, 64, 2.0**-11 + FP8_STEP, F16_LEAST, LARGEST["f16"]),
    "tf32": Accumulation(2.0**-23, 1, 16, F32_STEP, F32_LEAST, LARGEST["f32"], TF32_READ),
    "fma": Accumulation(2.0**-24, 1, 1, 2.0**-24, SMALLEST_SUBNORMAL["f32"] / 2, LARGEST["f32"]),
    "s32": Accumulation(0.0, 1, 32, 0.0, 0.0, math.inf),
}
"""The rounding for each way to accumulate, see `accumulation`.

"f32": tensor cores truncate, so the unit is twice the unit roundoff of f32. Hopper's adder keeps two more bits than
    assumed here (docs/rounding.md), so its errors are a quarter.
"fp8": 8-bit floats. Their sums keep about 14 bits, although registers hold f32. 2^-12.0 of Σ|a||b| is the worst error
    of one instruction that was measured on an H200 with random data.
"promoted": as "fp8" inside a group of columns.
"f16", "fp8 in f16": each instruction rounds its sum to f16, near zero to f16's subnormal numbers.
"fma": CUDA cores round each product and its addition once, to nearest.
"""

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The comparison of a result with its float64 reference.

    worst: greatest ratio of an error to its bound.
    at: index of that element.
    violations: number of elements beyond their bounds.
    """

    ok: bool
    worst: float
    at: tuple[int, ...]
    violations: int


def accumulation(operand: str, accumulate: str = "auto", *, floating: bool = False, unit: Unit = "wgmma") -> str:
    """The key in `ACCUMULATIONS` for products of an element type.

    accumulate: see `Problem`.
    floating: whether sums are rounded to f32 for an epilogue, also those of integers.
    unit: the unit that multiplies.
    """
    if unit == "fma":
        return unit
    if accumulate == "f16":
        return "fp8 in f16" if operand in FP8_FP6_FP4 else "f16"
    if accumulate == "promoted":
        return accumulate
    if operand in FP8_FP6_FP4:
        return "fp8"
    if multiplied_as(operand) == "tf32":
        return "tf32"
    return "f32" if floating else accumulator_of(operand)


def coefficients(k: int, out: str, accumulate: str = "f32", data: Data = "random") -> tuple[float, float, float]:
    """The terms (r, s, t) of the bound: an element may differ by r·|ref| + s + t·Σ|a||b|. They are plain numbers, for
    any array library.

    accumulate: a key of `ACCUMULATIONS`.
    data: "any" gives the bound of the worst case.
    """
    way = ACCUMULATIONS[accumulate]
    # With promoted sums, the errors of a group are proportional to Σ|a||b| of its columns. So the errors of all groups
    # together have the bound of a single group, with Σ|a||b| over all of K.
    inside = min(k, PROMOTED_COLUMNS) if accumulate == "promoted" else k
    groups = k / PROMOTED_COLUMNS if accumulate == "promoted" else 0.0
    roundings, steps = inside / way.columns, math.ceil(inside / way.instruction)
    if way.largest == LARGEST["f16"]:
        # The sum of each range of K is rounded to f16 once more. f32 sums need no such term: the first instruction of a
        # range has no old sum to truncate, which saves more than the addition of the range costs.
        ranges = min(k // columns_per_load("f16"), MOST_PARTS)
        roundings, steps = roundings + ranges, steps + ranges
    if data == "any":
        count, relative = float(steps), UNIT_ROUNDOFF[out]
        # A partial sum can exceed Σ|a||b| of its columns by its error, so the factors 1 + step multiply.
        summed = math.expm1(steps * way.step) + math.ceil(groups) * ACCUMULATIONS["f32"].unit + way.read
    else:
        # Truncated operands make all products smaller, and so the sum: a relative error. The rest of the error of
        # reading is random in sign.
        count, relative = 4.0 + math.sqrt(roundings), UNIT_ROUNDOFF[out] + way.read
        summed = count * way.unit + 4.0 * way.read / math.sqrt(max(k, 1))
        if groups:
            summed += (4.0 + math.sqrt(groups)) * ACCUMULATIONS["f32"].unit
    absolute = SMALLEST_SUBNORMAL[out] / 2 + count * way.least
    return relative, absolute, summed


def bound(
    reference: Float64, magnitude: Float64, k: int, out: str, accumulate: str = "f32", data: Data = "random"
) -> Float64:
    """The greatest allowed error of each element. magnitude: Σ|a||b| (plus |bias|), with the shape of `reference`."""
    relative, absolute, summed = coefficients(k, out, accumulate, data)
    allowed = relative * np.abs(reference) + absolute + summed * magnitude
    return np.asarray(allowed, dtype=np.float64)


def compare(
    y: NDArray[Any],
    reference: Float64,
    magnitude: Float64,
    k: int,
    out: str,
    accumulate: str = "f32",
    data: Data = "random",
) -> Agreement:
    """Compare `y` with `reference` element by element. accumulate, data: see `coefficients`.

    A result is correct if some number within the bound of the reference rounds to it. Infinity, or the limit of a
    saturating type, stands for all numbers beyond it. If Σ|a||b| exceeds the accumulator's maximum, a partial sum can
    be infinite, so infinity and NaN are correct too. If the reference is NaN or infinity, the result must be the same.
    """
    if y.shape != reference.shape:
        raise ValueError(f"result and reference must have one shape, got {y.shape} and {reference.shape}")
    if y.size == 0:
        return Agreement(True, 0.0, (), 0)
    got = y.astype(np.float64)
    # The results for infinities and for NaN, and the least number that rounds to infinity.
    least, most = LIMITS.get(out, (-math.inf, math.inf))
    nan = 0.0 if out == "s8" else math.nan
    infinite = _infinite_from(out)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        wanted = np.where(np.isnan(reference), nan, np.clip(reference, least, most))
        # An infinite result stands for the number nearest to the reference among those that round to infinity.
        near = np.where(np.isinf(got), np.clip(wanted, -infinite, infinite), wanted)
        error = np.abs(np.clip(got, -infinite, infinite) - near)
        ratio = np.where(error == 0, 0.0, error / bound(near, magnitude, k, out, accumulate, data))
        summed = coefficients(k, out, accumulate, data)[2]
        may_overflow = ~(magnitude * (1 + summed) <= ACCUMULATIONS[accumulate].largest)
    overflowed = (got == least) | (got == most) | _same(got, nan)
    ratio = np.where(may_overflow & overflowed, 0.0, ratio)
    ratio = np.where(np.isfinite(reference), ratio, np.where(_same(got, wanted), 0.0, np.inf))
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    worst = int(np.argmax(ratio))
    return Agreement(
        ok=bool((ratio <= 1.0).all()),
        worst=float(ratio.flat[worst]),
        at=tuple(int(i) for i in np.unravel_index(worst, ratio.shape)),
        violations=int((ratio > 1.0).sum()),
    )


def _infinite_from(out: str) -> float:
    """The least number that rounds to infinity: half a spacing above the greatest finite number. Infinity for types
    without infinities.
    """
    unit = UNIT_ROUNDOFF[out]
    return LARGEST[out] * (2 - unit) / (2 - 2 * unit) if out in LARGEST else math.inf


def _same(a: Float64, b: Float64 | float) -> NDArray[np.bool_]:
    return (a == b) | (np.isnan(a) & np.isnan(b))
