"""Models of what one instruction does to a sum: the emulator's, and adders that align their addends and cut them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.isa.product_meaning import multiply

Float64 = NDArray[np.float64]

Adder: TypeAlias = Callable[[Float64, Float64, Float64], Float64]
"""Sums [cases] and the factors of products [cases, n] to new sums [cases]."""


@dataclass(frozen=True)
class Emulated:
    """The emulator's: an exact sum, rounded once to its type. d: "f32" or "f16"."""

    d: str

    def __call__(self, total: Float64, a: Float64, b: Float64) -> Float64:
        new = [
            multiply(("f16", "f16", self.d), row[None], column[:, None], None, old.reshape(1, 1))[0, 0]
            for old, row, column in zip(total, a, b, strict=True)
        ]
        return np.array(new, np.float64)


@dataclass(frozen=True)
class Truncating:
    """Addends are cut to multiples of 2^-bits of the greatest exponent's power of two, then the sum to its type.

    Source: Fasi, Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores (2021): `bits` is 23 on Volta. Khattak and
    Mikaitis, Accurate models of NVIDIA tensor cores (2025): 24 on Ampere; on Hopper 25 for 16-bit operands and 13 for 8-bit ones.
    d_bits: of the fraction of a sum in f32, truncated; None: in f16, rounded to nearest.
    """

    bits: int
    d_bits: int | None = 23

    def __call__(self, total: Float64, a: Float64, b: Float64) -> Float64:
        addends = np.concatenate([a * b, total[:, None]], axis=1)
        exponents = np.concatenate([_exponent(a) + _exponent(b), _exponent(total)[:, None]], axis=1)
        top = np.where(addends == 0, -126, exponents).max(axis=1, keepdims=True)
        unit = np.exp2(top - self.bits)
        exact = (np.trunc(addends / unit) * unit).sum(axis=1)
        if self.d_bits is None:
            return exact.astype(np.float16).astype(np.float64)
        last = np.exp2(_exponent(exact) - self.d_bits)
        return np.trunc(exact / last) * last


def _exponent(x: Float64) -> NDArray[np.int64]:
    return np.frexp(x)[1].astype(np.int64) - 1


def summed(adder: Adder, a: Float64, b: Float64, stored: int) -> Float64:
    """Sums [cases] of products of a and b [cases, K], `stored` of them an instruction."""
    total = np.zeros(len(a))
    for first in range(0, a.shape[1], stored):
        total = adder(total, a[:, first : first + stored], b[:, first : first + stored])
    return total
