"""Error bounds of products, for all tests, benchmarks and the demo.

Elementwise, against float64: |y - ref| <= u_out·|ref| + c·Σ|a||b|. Two claims give c. For random data, rounding errors along K
are random in sign, and c grows as the root of their number. For any data, c is the worst case: it grows as the number of
instructions along K. docs/numerics.md derives both. Integers accumulate exactly, with c = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import multiplied_as
from louver.frontend.problem import PROMOTED_COLUMNS, accumulator_of
from louver.ir.product import Unit
from louver.isa.prepack import columns_per_load
from louver.isa.wgmma import FP8
from louver.library.ranges import MOST_PARTS

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

LARGEST = {"f32": (2 - 2.0**-23) * 2.0**127, "f16": 65504.0, "bf16": (2 - 2.0**-7) * 2.0**127}
"""Greatest finite number of the types that have infinities."""

Data: TypeAlias = Literal["random", "any"]
"""The knowledge of the operands: random in sign, or nothing."""


@dataclass(frozen=True, slots=True)
class Accumulation:
    """The rounding of sums of sparse products.

    unit: of one rounding of random data. columns: dense columns of K for each of them. instruction: dense columns of one
    instruction. step: greatest error of one instruction, over Σ|a||b| of all columns so far. least: the same where that is near
    zero, absolutely. largest: beyond it a sum is infinite. read: the part of a product that reading its
    operands loses at most.
    """

    unit: float
    columns: int
    instruction: int
    step: float
    least: float
    largest: float
    read: float = 0.0


F32_STEP, FP8_STEP = 18 * 2.0**-23, 34 * 2.0**-13
"""An instruction adds 16 (8-bit operands: 32) stored products and the old sum. Each addend, and the result, is cut to a multiple
of 2^-23 (2^-13) of the greatest one's power of two, so that each loses less than this part of Σ|a||b|."""

F32_LEAST, F16_LEAST = F32_STEP * 2.0**-126, SMALLEST_SUBNORMAL["f16"] / 2
"""Below 2^-126 addends are cut to the same multiples as there; sums in f16 are rounded to nearest."""

TF32_READ = 2.0**-11 + 2.0**-10 + 2.0**-21
"""Operands of f32 are read as tf32, of 11 bits: values of the weight are rounded, those of the dense operand cut."""

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
"""By the way to accumulate, see `accumulation`.

"f32": tensor cores truncate, so the unit is twice the unit roundoff of f32. "fp8": 8-bit floats, whose sums keep about 14 bits
although the registers hold f32. 2^-12.0 of Σ|a||b| is the worst error of one instruction measured on an H200 with random data.
"promoted": the same inside a group of columns. "f16" and "fp8 in f16": each instruction rounds its sum to f16, near zero to f16's
subnormal numbers. "fma": CUDA cores round each product and its addition once, to nearest. Hopper's adder keeps two bits more than "f32" assumes (docs/numerics.md), so that errors there are a quarter.
"""

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The distance of a result from its float64 reference. worst: greatest error over its bound; at: its index."""

    ok: bool
    worst: float
    at: tuple[int, ...]
    violations: int


def accumulation(operand: str, accumulate: str = "auto", *, floating: bool = False, unit: Unit = "wgmma") -> str:
    """The rounding of sums of products of that element type: a key of `ACCUMULATIONS`.

    accumulate: as in `Problem`. floating: they are rounded to f32 for an epilogue, integers too. unit: the multiplier.
    """
    if unit == "fma":
        return unit
    if accumulate == "f16":
        return "fp8 in f16" if operand in FP8 else "f16"
    if accumulate == "promoted":
        return accumulate
    if operand in FP8:
        return "fp8"
    if multiplied_as(operand) == "tf32":
        return "tf32"
    return "f32" if floating else accumulator_of(operand)


def coefficients(k: int, out: str, accumulate: str = "f32", data: Data = "random") -> tuple[float, float, float]:
    """The bound's terms (r, s, t): an element may be wrong by r·|ref| + s + t·Σ|a||b|. For any array library.

    accumulate: a key of `ACCUMULATIONS`. data: "any" gives the bound of the worst case.
    """
    way = ACCUMULATIONS[accumulate]
    # Of promoted sums the errors of a group are in proportion to Σ|a||b| over its columns, so over all of K as in one group.
    inside = min(k, PROMOTED_COLUMNS) if accumulate == "promoted" else k
    groups = k / PROMOTED_COLUMNS if accumulate == "promoted" else 0.0
    roundings, steps = inside / way.columns, math.ceil(inside / way.instruction)
    if way.largest == LARGEST["f16"]:
        # Sums of ranges of K are rounded to f16 once more each. Of f32 sums a range's first instruction has no old sum to cut: that is
        # more than adding the range costs.
        ranges = min(k // columns_per_load("f16"), MOST_PARTS)
        roundings, steps = roundings + ranges, steps + ranges
    if data == "any":
        count, relative = float(steps), UNIT_ROUNDOFF[out]
        # Sums that were rounded up are greater than Σ|a||b|, by as much as they are wrong.
        summed = math.expm1(steps * way.step) + math.ceil(groups) * ACCUMULATIONS["f32"].unit + way.read
    else:
        # Operands that are cut make all products smaller, so the sum; the rest of what reading loses is random in sign.
        count, relative = 4.0 + math.sqrt(roundings), UNIT_ROUNDOFF[out] + way.read
        summed = count * way.unit + 4.0 * way.read / math.sqrt(max(k, 1))
        if groups:
            summed += (4.0 + math.sqrt(groups)) * ACCUMULATIONS["f32"].unit
    absolute = SMALLEST_SUBNORMAL[out] / 2 + count * way.least
    return relative, absolute, summed


def bound(
    reference: Float64, magnitude: Float64, k: int, out: str, accumulate: str = "f32", data: Data = "random"
) -> Float64:
    """Greatest allowed error of each element. magnitude: Σ|a||b| (plus |bias|), same shape as `reference`."""
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
    """Compare `y` with `reference` element by element. accumulate, data: as in `coefficients`.

    A result is right if it is what a number within the bound of the reference rounds to: infinity, or the end of a type that
    saturates, stands for all numbers beyond. Where Σ|a||b| passes the accumulator's maximum, a partial sum may be infinite, so
    that infinity and NaN are right too. A reference of NaN or infinity asks for the same.
    """
    if y.shape != reference.shape:
        raise ValueError(f"result and reference must have one shape, got {y.shape} and {reference.shape}")
    if y.size == 0:
        return Agreement(True, 0.0, (), 0)
    got = y.astype(np.float64)
    # The results of infinities and NaN, and the size from which on results are infinite.
    least, most = LIMITS.get(out, (-math.inf, math.inf))
    nan = 0.0 if out == "s8" else math.nan
    infinite = _infinite_from(out)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        wanted = np.where(np.isnan(reference), nan, np.clip(reference, least, most))
        # An infinite result stands for its nearest number.
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
    """The least number that rounds to infinity, half of a spacing beyond the greatest; infinity for types without."""
    unit = UNIT_ROUNDOFF[out]
    return LARGEST[out] * (2 - unit) / (2 - 2 * unit) if out in LARGEST else math.inf


def _same(a: Float64, b: Float64 | float) -> NDArray[np.bool_]:
    return (a == b) | (np.isnan(a) & np.isnan(b))
