"""Elementwise steps of an epilogue: a table of MLIR operations, meanings with NumPy, and f32 instructions.

A new entry is a new step: tile IR with its operation is then read, scheduled and lowered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.isa.convert import RoundToEven, RoundWhole
from louver.isa.floating import Approximate, Fma, Sign
from louver.isa.instruction import Emit
from louver.isa.libdevice import FUNCTIONS, one, polynomial, with_sign
from louver.isa.move import Select
from louver.isa.scalar import Binary, Compare

Values = NDArray[Any]

ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""erf(x) = 1 - (t·a1 + t²·a2 + … + t⁵·a5)·exp(-x²) for x >= 0, with t = 1 / (1 + `ERF_T`·x), to 1.5e-7. Source:
Abramowitz and Stegun, 7.1.26.
"""

ERF_T = 0.3275911


@dataclass(frozen=True, slots=True)
class Step:
    """One elementwise operation on f32.

    operation: its MLIR name, or the symbol of a libdevice function. arity: operands. meaning: for float32 or float64
    arrays. lower: emits it on registers or constants and returns the result register.
    """

    operation: str
    arity: int
    meaning: Callable[..., Values]
    lower: Callable[..., Any]


def _erf_exact(x: Values) -> Values:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _erf(emit: Emit, x: Any) -> Any:
    size = emit(Sign("abs", "f32"), x)
    t = emit(Approximate("rcp"), emit(Fma(), size, ERF_T, 1.0))
    total: Any = ERF[-1]
    for coefficient in reversed(ERF[:-1]):
        total = emit(Fma(), total, t, coefficient)
    falling = _exp(emit, emit(Sign("neg", "f32"), emit(_MULTIPLY, x, x)))
    rest = emit(_MULTIPLY, emit(_MULTIPLY, total, t), falling)
    above = emit(Binary("sub", "f32"), 1.0, rest)
    return emit(Select("f32"), emit(Sign("neg", "f32"), above), above, emit(Compare("lt", "f32"), x, 0.0))


_MULTIPLY = Binary("mul", "f32")


def _exp(emit: Emit, x: Any) -> Any:
    return emit(Approximate("ex2", flush=True), emit(_MULTIPLY, x, math.log2(math.e)))


def _divide(emit: Emit, a: Any, b: Any) -> Any:
    return emit(_MULTIPLY, a, emit(Approximate("rcp"), b))


HALF_PI = tuple(
    float(np.float32(part)) for part in (1.5707963705062866, -4.371138828673793e-08, -1.7151245100059555e-15)
)
"""π/2 as a sum of three f32 numbers, greatest first."""

SIN = (-1 / 6, 1 / 120, -1 / 5040, 1 / 362880)
COS = (-1 / 2, 1 / 24, -1 / 720, 1 / 40320)
"""Coefficients of x² and its powers: sin(x)/x - 1 and cos(x) - 1, to 2^-24 for |x| up to π/4."""

ANGLE_LIMIT = 2.0**20
"""Greatest angle for `sin` and `cos`."""


def _turned(quarter: float) -> Callable[..., Any]:
    """sin(x + quarter · π/2): the distance to a multiple of π/2, then a polynomial by quadrant."""

    def lower(emit: Emit, x: Any) -> Any:
        count = emit(RoundToEven(), emit(_MULTIPLY, x, 2 / math.pi))
        rest, back = x, emit(Sign("neg", "f32"), count)
        for part in HALF_PI:
            rest = emit(Fma(), back, part, rest)
        count = emit(Binary("add", "f32"), count, quarter)
        turns = emit(RoundWhole("floor"), emit(_MULTIPLY, count, 0.25))
        quadrant = emit(Fma(), turns, -4.0, count)
        half = emit(RoundWhole("floor"), emit(_MULTIPLY, quadrant, 0.5))
        odd = emit(Compare("ne", "f32"), emit(Fma(), half, -2.0, quadrant), 0.0)
        square = emit(_MULTIPLY, rest, rest)
        sine = emit(Fma(), emit(_MULTIPLY, polynomial(emit, SIN, square), square), rest, rest)
        cosine = emit(Fma(), polynomial(emit, COS, square), square, 1.0)
        value = emit(Select("f32"), cosine, sine, odd)
        value = emit(Select("f32"), emit(Sign("neg", "f32"), value), value, emit(Compare("ge", "f32"), quadrant, 2.0))
        inside = emit(Compare("le", "f32"), emit(Sign("abs", "f32"), x), ANGLE_LIMIT)
        return emit(Select("f32"), value, math.nan, inside)

    return lower


def _round_away(emit: Emit, x: Any) -> Any:
    """To the nearest whole number, halves away from zero."""
    whole = emit(RoundWhole("trunc"), x)
    left = emit(Sign("abs", "f32"), emit(Binary("sub", "f32"), x, whole))
    further = emit(Binary("add", "f32"), whole, with_sign(emit, 1.0, x))
    return emit(Select("f32"), further, whole, emit(Compare("ge", "f32"), left, 0.5))


def _away_from_zero(x: Values) -> Values:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


def _remainder(emit: Emit, a: Any, b: Any) -> Any:
    """a - b · trunc(a / b), exact for quotients below 2^24. A finite number divided by infinity stays."""
    whole = emit(RoundWhole("trunc"), emit(Binary("div.rn", "f32"), a, b))
    left = emit(Fma(), emit(Sign("neg", "f32"), whole), b, a)
    # If the quotient was rounded up, the rest has the other sign.
    over = emit(Compare("lt", "f32"), emit(_MULTIPLY, left, with_sign(emit, 1.0, a)), 0.0)
    back = emit(Binary("add", "f32"), left, with_sign(emit, b, a))
    left = with_sign(emit, emit(Select("f32"), back, left, over), a)
    infinite = emit(Compare("eq", "f32"), emit(Sign("abs", "f32"), b), math.inf)
    finite = emit(Compare("lt", "f32"), emit(Sign("abs", "f32"), a), math.inf)
    return emit(Select("f32"), a, left, emit(Binary("and", "pred"), infinite, finite))


def _log(emit: Emit, x: Any) -> Any:
    return emit(_MULTIPLY, emit(Approximate("lg2"), x), math.log(2))


def _reciprocal_root(x: Values) -> Values:
    return 1.0 / np.sqrt(x)


ELEMENTWISE_STEPS: dict[str, Step] = {
    "add": Step("arith.addf", 2, np.add, one(Binary("add", "f32"))),
    "subtract": Step("arith.subf", 2, np.subtract, one(Binary("sub", "f32"))),
    "multiply": Step("arith.mulf", 2, np.multiply, one(_MULTIPLY)),
    "divide": Step("arith.divf", 2, np.divide, _divide),
    "negate": Step("arith.negf", 1, np.negative, one(Sign("neg", "f32"))),
    "maximum": Step("arith.maximumf", 2, np.maximum, one(Binary("max.NaN", "f32"))),
    "minimum": Step("arith.minimumf", 2, np.minimum, one(Binary("min.NaN", "f32"))),
    "maximum_number": Step("arith.maxnumf", 2, np.fmax, one(Binary("max", "f32"))),
    "minimum_number": Step("arith.minnumf", 2, np.fmin, one(Binary("min", "f32"))),
    "exp": Step("math.exp", 1, np.exp, _exp),
    "exp2": Step("math.exp2", 1, np.exp2, one(Approximate("ex2", flush=True))),
    "tanh": Step("math.tanh", 1, np.tanh, one(Approximate("tanh"))),
    "erf": Step("math.erf", 1, _erf_exact, _erf),
    "round_even": Step("math.roundeven", 1, np.rint, one(RoundToEven())),
    "absolute": Step("math.absf", 1, np.abs, one(Sign("abs", "f32"))),
    "floor": Step("math.floor", 1, np.floor, one(RoundWhole("floor"))),
    "ceil": Step("math.ceil", 1, np.ceil, one(RoundWhole("ceil"))),
    "truncate": Step("math.trunc", 1, np.trunc, one(RoundWhole("trunc"))),
    "square_root": Step("math.sqrt", 1, np.sqrt, one(Approximate("sqrt"))),
    "reciprocal_root": Step("math.rsqrt", 1, _reciprocal_root, one(Approximate("rsqrt"))),
    "log": Step("math.log", 1, np.log, _log),
    "log2": Step("math.log2", 1, np.log2, one(Approximate("lg2"))),
    "sin": Step("math.sin", 1, np.sin, _turned(0.0)),
    "cos": Step("math.cos", 1, np.cos, _turned(1.0)),
    "round_away": Step("math.round", 1, _away_from_zero, _round_away),
    "copy_sign": Step("math.copysign", 2, np.copysign, with_sign),
    "remainder": Step("arith.remf", 2, np.fmod, _remainder),
    **{f"__nv_{name}": Step(f"__nv_{name}", *function) for name, function in FUNCTIONS.items()},
}
"""The steps by name.

- maximum, minimum: NaN if an operand is NaN. maximum_number, minimum_number: a number wins over NaN.
- divide: a · (1/b) with the hardware's reciprocal, to 2^-21 relatively; 1/b is infinite for |b| up to 2^-128.
- exp: to (1 + |x|)·2^-22 relatively. exp2, tanh: by the hardware, to 2^-22 and 2^-10 relatively.
- exp, exp2: results below 2^-126 are 0. remainder: exact for quotients below 2^24.
- erf: to 2^-21 absolutely. sin, cos: to 2^-21 absolutely; NaN for |x| above 2^20.
- square_root: to 2^-22 relatively. reciprocal_root, log, log2: to 2^-21 relatively, logarithms below 1 absolutely.
- Functions of libdevice: see `louver.isa.libdevice.ERRORS`.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """Selects one of two numbers by comparing two others; the second one if a compared number is NaN.

    predicate: the comparison's name in MLIR. compare: in PTX. holds: the comparison of arrays.
    """

    predicate: str
    compare: str
    holds: Callable[..., NDArray[np.bool_]]

    def meaning(self, a: Values, b: Values, x: Values, y: Values) -> Values:
        return np.where(self.holds(a, b), x, y)

    def lower(self, emit: Emit, a: Any, b: Any, x: Any, y: Any) -> Any:
        """Emit it in f32 on registers or constants: x if the comparison of a and b holds, else y."""
        return emit(Select("f32"), x, y, emit(Compare(self.compare, "f32"), a, b))


CHOICES: dict[str, Choice] = {
    "where_equal": Choice("oeq", "eq", np.equal),
    "where_greater": Choice("ogt", "gt", np.greater),
    "where_greater_equal": Choice("oge", "ge", np.greater_equal),
    "where_less": Choice("olt", "lt", np.less),
    "where_less_equal": Choice("ole", "le", np.less_equal),
}
"""Steps of four operands: two to compare, two to choose from."""
