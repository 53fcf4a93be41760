"""Expected results of a product: float64 values, and the allowed distance of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from louver.formats.pattern import Pattern
from louver.ir.product import selection_of, unit_of
from louver.isa.wgmma import FP8
from louver.library import numerics

F32_UNIT = 2.0**-23
"""Relative error of an f32 step, twice what correct rounding makes of it."""

ACTIVATION_UNIT = 2.0**-20
"""Relative error of an activation's own steps at its argument 0; it grows with the exponent inside."""

LIPSCHITZ = 1.15
"""Greatest slope of an activation."""

CONVERTED = 2.0**-24
"""Relative error of an s32 sum that becomes an f32."""

SMALLEST_F32 = 2.0**-120
"""Below which an activation's exponential may be 0."""


@dataclass(slots=True)
class Expected:
    """A product on its way through its epilogue, arrays [M, N] of float64 of any library (`xp`: torch or NumPy).

    value: exact. error: greatest distance of a right result, rounding of the output apart.
    """

    xp: Any
    value: Any
    error: Any

    def to_f32(self) -> None:
        """An s32 sum becomes f32."""
        self.error = self.error + CONVERTED * abs(self.value)

    def multiply(self, factor: Any) -> None:
        """By a number, [M, 1], [1, N] or [M, N]."""
        self.value = self.value * factor
        self.error = self.error * abs(factor) + F32_UNIT * abs(self.value)

    def add(self, addend: Any) -> None:
        """A vector or matrix, as in `multiply`."""
        self.value = self.value + addend
        self.error = self.error + F32_UNIT * (abs(self.value) + abs(addend))

    def activate(self, name: str) -> None:
        """By an activation of `ACTIVATIONS`."""
        x = self.value
        self.value, inside = ACTIVATIONS[name](self.xp, x)
        own = ACTIVATION_UNIT * (1 + abs(inside)) * abs(self.value) + ABSOLUTE[name] * abs(x) + SMALLEST_F32 * abs(x)
        self.error = LIPSCHITZ * self.error + own

    def gate(self, activation: str) -> None:
        """Of rows whose first half is the gate's and whose second half is up's: activation(gate) · up, half the rows."""
        half = len(self.value) // 2
        gate, up = Expected(self.xp, self.value[:half], self.error[:half]), self.value[half:]
        gate.activate(activation)
        up_error = self.error[half:]
        self.value = gate.value * up
        self.error = (gate.error * (abs(up) + up_error) + up_error * abs(gate.value)) + F32_UNIT * abs(self.value)

    def ratio(self, y: Any, out: str) -> Any:
        """Each result's distance over what is allowed: at most 1 where it is right. y: [M, N], float64 of any values.

        Beyond the range of the output, its end and infinity are both right.
        """
        ends = limits(out)
        value, got = self.xp.clip(self.value, *ends), self.xp.clip(y, *ends)
        allowed = self.error + rounding(out, abs(value) + self.error)
        distance = abs(got - value)
        ratio = distance / self.xp.where(allowed > 0, allowed, 1.0)
        ratio = self.xp.where(allowed > 0, ratio, self.xp.where(distance > 0, math.inf, 0.0))
        return self.xp.where(self.xp.isnan(got), math.inf, ratio)


def product(xp: Any, a: Any, b: Any, operand: str, pattern: str, accumulate: str) -> Expected:
    """`a [M, K] @ b [K, N]` in float64, with the error that accumulation may make (`louver.library.numerics`).

    operand, pattern: of the sparse operand. accumulate: the mode asked for, "auto" for the usual one.
    """
    how = numerics.accumulation(operand, accumulate, unit=unit_of(pattern, operand))
    columns, vectors = a.shape[1], Pattern.parse(pattern)
    if operand in FP8 and selection_of(pattern).indexed:
        # The bound counts the instructions of a 2:4 operand, which stores half of its columns.
        columns = max(columns, 2 * vectors.groups(columns) * vectors.n)
    # Of an output that rounds nothing by itself, so that what is absolute comes from the sums.
    relative, absolute, summed = numerics.coefficients(columns, "s32", how)
    value = a @ b
    return Expected(xp, value, relative * abs(value) + summed * (abs(a) @ abs(b)) + absolute)


def limits(out: str) -> tuple[float, float]:
    """Least and greatest finite value of an output type; infinities for one whose range no product here reaches."""
    return ENDS.get(out, (-math.inf, math.inf))


def rounding(out: str, size: Any) -> Any:
    """The error of rounding values of a size to the output."""
    if out in ("s8", "u8"):
        return 0.5
    return numerics.UNIT_ROUNDOFF[out] * size + numerics.SMALLEST_SUBNORMAL[out] / 2


ENDS = {"f16": (-65504.0, 65504.0), **numerics.LIMITS}

ABSOLUTE = {"relu": 0.0, "silu": 0.0, "gelu": 2.0**-20, "gelu_tanh": 0.0}
"""Error of an activation in terms of its argument: gelu's error function is exact to an absolute bound."""


def _relu(xp: Any, x: Any) -> tuple[Any, Any]:
    return xp.clip(x, 0.0, None), 0.0


def _silu(xp: Any, x: Any) -> tuple[Any, Any]:
    return x / (1 + xp.exp(-x)), x


def _gelu(xp: Any, x: Any) -> tuple[Any, Any]:
    erf = xp.erf if hasattr(xp, "erf") else xp.vectorize(math.erf, otypes=[float])
    return x * (1 + erf(x * math.sqrt(0.5))) / 2, x * x / 2


def _gelu_tanh(xp: Any, x: Any) -> tuple[Any, Any]:
    inside = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return x / (1 + xp.exp(-inside)), inside


ACTIVATIONS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "relu": _relu,
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
"""By name: value and exponent inside, of x."""
