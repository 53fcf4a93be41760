"""Conversions between element types, f32 and integers. Source: PTX ISA, cvt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.isa.floating import f32_to_odd
from louver.isa.instruction import Bits, Operand, Pure, RegType, Requirement, output, reads, register
from louver.isa.rule import RuleError
from louver.isa.scalar import CANONICAL_NAN, REGISTER, VALUE, to_bits

Half = Literal["f16", "bf16"]
Fp8 = Literal["e4m3", "e5m2"]

Whole = Literal["s32", "u32", "s64", "u64"]

HALF_NAN = np.uint16(0x7FFF)
"""The NaN result of conversions to f16 and bf16."""

FP8_NAN = np.uint8(0x7F)
"""The NaN result of conversions to e4m3 and e5m2."""

FP8_MAX: dict[Fp8, float] = {"e4m3": 448.0, "e5m2": 57344.0}
"""Greatest finite value of each type. `.satfinite` gives it for everything above."""

FP8_DIGITS: dict[Fp8, tuple[int, int]] = {"e4m3": (3, -6), "e5m2": (2, -14)}
"""Bits of the fraction of each type, and the exponent of its least normal number."""


@dataclass(frozen=True, slots=True)
class FromF32(Pure):
    """`cvt.rn.f16.f32 d, a` (or bf16): to nearest even; overflow gives infinity."""

    to: Half

    opcode = "cvt.rn.{self.to}.f32"
    takes = (output("b16"), *reads("f32", "a"))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        value = inputs[0].view(np.float32)
        with np.errstate(all="ignore"):
            rounded = value.astype(element_type(self.to).numpy).view(np.uint16)
        return (np.where(np.isnan(value), HALF_NAN, rounded),)


@dataclass(frozen=True, slots=True)
class PairFromF32(Pure):
    """`cvt.rn.f16x2.f32 d, a, b` (or bf16x2): a in the upper half, b in the lower."""

    to: Half

    opcode = "cvt.rn.{self.to}x2.f32"
    takes = (output("b32"), *reads("f32", "a", "b"))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        narrow = FromF32(self.to)
        high, low = (narrow.compute(bits)[0].astype(np.uint32) for bits in inputs)
        return (low | high << np.uint32(16),)


@dataclass(frozen=True, slots=True)
class ToF32(Pure):
    """`cvt.f32.f16 d, a` (or bf16): exact. A NaN's payload is unspecified."""

    source: Half

    opcode = "cvt.f32.{self.source}"
    takes = (output("f32"), register("a", "b16"))

    @property
    def requires(self) -> Requirement:
        return Requirement((7, 1)) if self.source == "bf16" else Requirement()

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        result = inputs[0].view(element_type(self.source).numpy).astype(np.float32)
        return (np.where(np.isnan(result), CANONICAL_NAN, result.view(np.uint32)),)


@dataclass(frozen=True, slots=True)
class Fp8PairFromF32(Pure):
    """`cvt.rn.satfinite.e4m3x2.f32 d, a, b` (or e5m2x2): a in the upper byte, b in the lower.

    To nearest even. Greater values, also infinity, give the greatest finite value of their sign.
    """

    to: Fp8

    opcode = "cvt.rn.satfinite.{self.to}x2.f32"
    takes = (output("b16"), *reads("f32", "a", "b"))
    needs = Requirement((8, 1), "sm_89")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        high, low = (fp8_from_f32(self.to, bits.view(np.float32)).astype(np.uint16) for bits in inputs)
        return (low | high << np.uint16(8),)


def fp8_from_f32(to: Fp8, value: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The bits of 8-bit floats, as `Fp8PairFromF32` makes them."""
    limit = FP8_MAX[to]
    with np.errstate(invalid="ignore"):
        rounded = np.clip(value, -limit, limit).astype(element_type(to).numpy).view(np.uint8)
    return np.where(np.isnan(value), FP8_NAN, rounded)


@dataclass(frozen=True, slots=True)
class HalfPairFromFp8(Pure):
    """`cvt.rn.f16x2.e4m3x2 d, a` (or e5m2x2): two bytes as two f16, exact. NaN becomes canonical."""

    source: Fp8

    opcode = "cvt.rn.f16x2.{self.source}x2"
    takes = (output("b32"), register("a", "b16"))
    needs = Requirement((8, 1), "sm_89")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        halves = inputs[0].view(element_type(self.source).numpy).astype(np.float16)
        bits = np.where(np.isnan(halves), HALF_NAN, halves.view(np.uint16))
        return (np.ascontiguousarray(bits).view(np.uint32),)


@dataclass(frozen=True, slots=True)
class IntegerToF32(Pure):
    """`cvt.rn.f32.s32 d, a` (or u32, s64, u64): to nearest even (`rn`), or towards zero (`rz`)."""

    source: Whole
    rounding: Literal["rn", "rz"] = "rn"

    opcode = "cvt.{self.rounding}.f32.{self.source}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output("f32"), *reads(REGISTER[self.source], "a")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        whole = inputs[0].view(VALUE[self.source])
        near = whole.astype(np.float32)
        if self.rounding == "rz":
            # Exact: float64 cannot hold all 64-bit integers, but Python's can.
            above = [abs(int(value)) > abs(exact) for value, exact in zip(near.tolist(), whole.tolist(), strict=True)]
            near = np.where(above, np.nextafter(near, np.float32(0)), near)
        return (near.view(np.uint32),)


@dataclass(frozen=True, slots=True)
class IntegerToHalf(Pure):
    """`cvt.rn.f16.s32 d, a` (or bf16, from u32, s64, u64): to nearest even, rounded once; overflow gives infinity."""

    to: Half
    source: Whole

    opcode = "cvt.rn.{self.to}.{self.source}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output("b16"), *reads(REGISTER[self.source], "a")

    @property
    def requires(self) -> Requirement:
        return Requirement((7, 8), "sm_90") if self.to == "bf16" else Requirement()

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        with np.errstate(over="ignore"):
            odd = f32_to_odd(inputs[0].view(VALUE[self.source]).astype(np.float64))
            return (odd.astype(element_type(self.to).numpy).view(np.uint16),)


@dataclass(frozen=True, slots=True)
class F32ToInteger(Pure):
    """`cvt.rni.s32.f32 d, a` (to nearest even) or `.rzi` (towards zero), or u32, s64, u64: saturates; NaN gives 0."""

    to: Whole
    rounding: Literal["rni", "rzi"] = "rni"

    opcode = "cvt.{self.rounding}.{self.to}.f32"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output(REGISTER[self.to]), *reads("f32", "a")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        value = inputs[0].view(np.float32)
        value = np.where(np.isnan(value), np.float32(0), value).astype(np.float64)
        whole = np.rint(value) if self.rounding == "rni" else np.trunc(value)
        limits = np.iinfo(cast(Any, VALUE[self.to]))
        # float64 cannot hold the greatest 64-bit integer, so compare and select.
        above, below = whole >= float(limits.max), whole <= float(limits.min)
        inside = np.where(above | below, 0, whole).astype(VALUE[self.to])
        found = np.where(above, limits.max, np.where(below, limits.min, inside)).astype(VALUE[self.to])
        return (to_bits(found, self.to),)


@dataclass(frozen=True, slots=True)
class RoundToEven(Pure):
    """`cvt.rni.f32.f32 d, a`: to the nearest whole number, ties to the even one; NaN results are canonical."""

    opcode = "cvt.rni.f32.f32"
    takes = (output("f32"), *reads("f32", "a"))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        value = inputs[0].view(np.float32)
        return (np.where(np.isnan(value), CANONICAL_NAN, np.rint(value).view(np.uint32)),)


WHOLE_ROUNDINGS: dict[str, tuple[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]]] = {
    "floor": ("rmi", np.floor),
    "ceil": ("rpi", np.ceil),
    "trunc": ("rzi", np.trunc),
}
"""PTX name and meaning of each rounding to whole numbers."""


@dataclass(frozen=True, slots=True)
class RoundWhole(Pure):
    """`cvt.rmi.f32.f32 d, a` (floor), `rpi` (ceil) or `rzi` (trunc): a whole number as f32; NaN results are canonical."""

    to: Literal["floor", "ceil", "trunc"]

    takes = (output("f32"), *reads("f32", "a"))

    def __post_init__(self) -> None:
        if self.to not in WHOLE_ROUNDINGS:
            raise RuleError(f"numbers are rounded to whole ones by {', '.join(WHOLE_ROUNDINGS)}, got {self.to!r}")

    @property
    def mnemonic(self) -> str:
        return f"cvt.{WHOLE_ROUNDINGS[self.to][0]}.f32.f32"

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        value = inputs[0].view(np.float32)
        return (np.where(np.isnan(value), CANONICAL_NAN, WHOLE_ROUNDINGS[self.to][1](value).view(np.uint32)),)


INTEGER_CONVERSIONS: dict[tuple[str, str], tuple[RegType, RegType]] = {
    ("u64", "u32"): ("b64", "b32"),
    ("s64", "s32"): ("b64", "b32"),
    ("u32", "u64"): ("b32", "b64"),
    ("u32", "u16"): ("b32", "b16"),
    ("s32", "s16"): ("b32", "b16"),
    ("u16", "u32"): ("b16", "b32"),
}
"""(to, source): register classes of conversions that keep, extend or cut bits."""

_WIDTH: dict[RegType, int] = {"b16": 16, "b32": 32, "b64": 64}


@dataclass(frozen=True, slots=True)
class ConvertInteger(Pure):
    """`cvt.to.source d, a`: extends by the sign of the source type, or keeps the low bits."""

    to: str
    source: str

    opcode = "cvt.{self.to}.{self.source}"

    def __post_init__(self) -> None:
        if (self.to, self.source) not in INTEGER_CONVERSIONS:
            known = ", ".join(f"{to} from {source}" for to, source in INTEGER_CONVERSIONS)
            raise RuleError(f"integer conversions are {known}, got {self.to} from {self.source}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        to, source = INTEGER_CONVERSIONS[self.to, self.source]
        return output(to), *reads(source, "a")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        to, source = (_WIDTH[kind] for kind in INTEGER_CONVERSIONS[self.to, self.source])
        sign = "i" if self.source[0] == "s" else "u"
        return (inputs[0].view(f"{sign}{source // 8}").astype(f"{sign}{to // 8}").view(f"u{to // 8}"),)
