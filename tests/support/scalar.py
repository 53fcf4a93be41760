"""Random registers and exact rounding, for tests of scalar instructions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

WIDTH = {"pred": 1, "u16": 16, "s16": 16, "b16": 16, "u32": 32, "s32": 32, "b32": 32, "u64": 64, "s64": 64, "b64": 64}
STORAGE = {1: np.bool_, 16: np.uint16, 32: np.uint32, 64: np.uint64}

FORMATS = {"f32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}
"""Exponent and mantissa bits."""


def signed(value: int, width: int) -> int:
    """Two's complement."""
    return value - (1 << width) if value >> (width - 1) else value


def integers(bits: np.ndarray, kind: str) -> list[int]:
    """Registers as Python integers of a type."""
    return [signed(int(x), WIDTH[kind]) if kind[0] == "s" else int(x) for x in bits]


def lanes(values: Iterable[int], kind: str) -> np.ndarray:
    """Python integers as registers, cut to the width."""
    width = WIDTH[kind]
    return np.array([value & ((1 << width) - 1) for value in values], dtype=STORAGE[width])


def random_integers(rng: np.random.Generator, kind: str) -> np.ndarray:
    """32 lanes: full-range values, small ones, and the edges of the range."""
    width = WIDTH[kind]
    if width == 1:
        return rng.integers(0, 2, 32).astype(np.bool_)
    full = [int.from_bytes(rng.bytes(width // 8), "little") for _ in range(16)]
    small = rng.integers(-9, 10, 10).tolist()
    edges = [0, 1, -1, 1 << (width - 1), (1 << (width - 1)) - 1, -2]
    values = lanes([*full, *small, *edges], kind)
    rng.shuffle(values)
    return values


def random_floats(rng: np.random.Generator, near: str = "f32") -> np.ndarray:
    """32 lanes of f32 bits: any bits, ordinary values, ties of the type `near`, and the special values."""
    any_bits = random_integers(rng, "u32")[:8]
    ordinary = rng.normal(size=8).astype(np.float32).view(np.uint32)
    kept = {"f32": 23, "f16": 10, "bf16": 7, "e4m3": 3, "e5m2": 2}[near]
    half_way = (1 << (23 - kept)) >> 1
    ties = (rng.normal(size=8).astype(np.float32).view(np.uint32) & np.uint32(-2 * half_way % (1 << 32))) | np.uint32(
        half_way
    )
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 65519.0, 3.4e38], np.float32).view(np.uint32)
    values = np.concatenate([any_bits, ordinary, ties, special])
    rng.shuffle(values)
    return values


def rounded(value: Fraction | float, kind: str) -> int:
    """The bits of the float nearest to an exact value, ties to even; canonical NaN; float zeros keep their sign."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    top = exponent_bits + mantissa_bits
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    if isinstance(value, float):
        if math.isnan(value):
            return (1 << top) - 1
        sign = int(math.copysign(1, value) < 0) << top
        if value == 0 or math.isinf(value):
            return sign | (infinity if value else 0)
    exact = Fraction(value)
    sign = int(exact < 0) << top
    exact = abs(exact)
    least = 2 - (1 << (exponent_bits - 1))
    exponent = max(_floor_log2(exact), least)
    units = exact / Fraction(2) ** (exponent - mantissa_bits)
    whole = round(units)  # Fraction rounds ties to even
    # A carry into the next binade, or out of the subnormals, is a carry into the exponent field.
    bits = whole + ((exponent - least) << mantissa_bits)
    return sign | min(bits, infinity)


def _floor_log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1
