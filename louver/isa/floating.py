"""f32 arithmetic beyond two operands: fma, sign, square root, fast approximations. Source: PTX ISA, Floating Point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from louver.isa.instruction import Bits, Operand, Pure, Requirement, output, reads
from louver.isa.rule import RuleError
from louver.isa.scalar import CANONICAL_NAN, REGISTER

F64 = NDArray[np.float64]


def fused(a: F64, b: F64, c: F64) -> F64:
    """a · b + c in float64, rounded to odd, for exact a · b. Rounding it again to a type half as wide is correct."""
    product = a * b
    total = product + c
    # The rounding error of the sum (Knuth's two-sum), whichever operand is greater.
    back = total - product
    error = (product - (total - back)) + (c - back)
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0) & (total.view(np.int64) & 1 == 0)
    return np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def f32_to_odd(value: F64) -> NDArray[np.float32]:
    """float64 to float32, rounded to odd where inexact. Rounding it again to a 16-bit type is correct."""
    near = value.astype(np.float32)
    inexact = (near != value) & ~np.isnan(value) & (near.view(np.int32) & 1 == 0)
    return np.where(inexact, np.nextafter(near, np.where(value > near, np.inf, -np.inf).astype(np.float32)), near)


@dataclass(frozen=True, slots=True)
class Fma(Pure):
    """`fma.rn.f32 d, a, b, c`: a · b + c, rounded once; NaN results are canonical."""

    opcode = "fma.rn.f32"
    takes = (output("f32"), *reads("f32", "a", "b", "c"))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        with np.errstate(all="ignore"):
            a, b, c = (bits.view(np.float32).astype(np.float64) for bits in inputs)
            result = fused(a, b, c).astype(np.float32)
        return (np.where(np.isnan(result), CANONICAL_NAN, result.view(np.uint32)),)


@dataclass(frozen=True, slots=True)
class Sign(Pure):
    """`neg.type d, a` or `abs.type d, a`. The least integer stays unchanged."""

    op: Literal["neg", "abs"]
    type: Literal["s32", "s64", "f32"]

    opcode = "{self.op}.{self.type}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output(REGISTER[self.type]), *reads(REGISTER[self.type], "a")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        bits = inputs[0]
        if self.type == "f32":
            sign = np.uint32(1 << 31)
            return (bits ^ sign if self.op == "neg" else bits & ~sign,)
        signed = bits.view(np.int32 if self.type == "s32" else np.int64)
        result = -signed if self.op == "neg" else np.abs(signed)
        return (result.view(bits.dtype),)


APPROXIMATIONS: dict[str, Callable[[F64], F64]] = {
    "ex2": np.exp2,
    "rcp": np.reciprocal,
    "tanh": np.tanh,
    "lg2": np.log2,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
}
"""The exact function of each approximation."""

APPROXIMATION_ERROR: dict[str, float] = {
    "ex2": 2.0**-22,
    "rcp": 2.0**-22,
    "tanh": 2.0**-10,
    "lg2": 2.0**-21,
    "rsqrt": 2.0**-21,
    "sqrt": 2.0**-22,
}
"""Bounds of the hardware's relative error. The PTX ISA states 2 ulp, 1 ulp, 2^-11, 2^-22, 2^-22.9 and 2^-23. All bounds
but that of ex2 are at least twice as wide. The bound of lg2 is absolute for results below 1.
"""


def approximation_error(op: str, exact: F64) -> F64:
    """Absolute error bounds of the hardware, for exact results."""
    return APPROXIMATION_ERROR[op] * np.maximum(np.abs(exact), 1.0 if op == "lg2" else 0.0)


@dataclass(frozen=True, slots=True)
class Approximate(Pure):
    """`op.approx.f32 d, a`: fast 2^a, 1/a, tanh(a), log2(a), 1/sqrt(a) or sqrt(a).

    flush: `ftz`, one instruction of the hardware: subnormal operands and results become zeros of their sign. `compute`
    rounds the exact result correctly; the hardware is within `approximation_error` of it.
    """

    op: Literal["ex2", "rcp", "tanh", "lg2", "rsqrt", "sqrt"]
    flush: bool = False

    takes = (output("f32"), *reads("f32", "a"))
    needs = Requirement()

    def __post_init__(self) -> None:
        if self.op not in APPROXIMATIONS:
            raise RuleError(f"the approximations are {', '.join(APPROXIMATIONS)}, got {self.op!r}")

    @property
    def mnemonic(self) -> str:
        return f"{self.op}.approx{'.ftz' if self.flush else ''}.f32"

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        x = inputs[0].view(np.float32)
        with np.errstate(all="ignore"):
            result = APPROXIMATIONS[self.op]((_flushed(x) if self.flush else x).astype(np.float64)).astype(np.float32)
        result = _flushed(result) if self.flush else result
        return (np.where(np.isnan(result), CANONICAL_NAN, result.view(np.uint32)),)


def _flushed(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.abs(x) < np.finfo(np.float32).smallest_normal, np.copysign(np.float32(0), x), x)


@dataclass(frozen=True, slots=True)
class SquareRoot(Pure):
    """`sqrt.rn.f32 d, a`: to nearest even; NaN results are canonical."""

    opcode = "sqrt.rn.f32"
    takes = (output("f32"), *reads("f32", "a"))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        with np.errstate(all="ignore"):
            result = np.sqrt(inputs[0].view(np.float32))
        return (np.where(np.isnan(result), CANONICAL_NAN, result.view(np.uint32)),)
