"""Functions of CUDA's libdevice in f32: their meanings and instructions, by symbol without prefix.

They are more exact than the steps that Triton's own functions become: relative errors stay small near a function's
zeros and for large arguments. `ERRORS` has the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.isa.convert import IntegerToF32, RoundWhole
from louver.isa.floating import Approximate, Fma, Sign, SquareRoot
from louver.isa.instruction import Emit, Instruction
from louver.isa.move import Bitcast, Select
from louver.isa.scalar import Binary, Compare

Values = NDArray[Any]


_MULTIPLY, _ADD, _SUBTRACT, _DIVIDE = (Binary(op, "f32") for op in ("mul", "add", "sub", "div.rn"))


def _parts(number: float) -> tuple[float, float]:
    """A number as a sum of two f32 numbers."""
    high = float(np.float32(number))
    return high, float(np.float32(number - high))


LN2 = _parts(math.log(2))
LOG10_2 = _parts(math.log10(2))


def _select(emit: Emit, condition: Any, one: Any, other: Any) -> Any:
    return emit(Select("f32"), one, other, condition)


def _compare(emit: Emit, compare: str, a: Any, b: Any) -> Any:
    return emit(Compare(compare, "f32"), a, b)


def _size(emit: Emit, x: Any) -> Any:
    return emit(Sign("abs", "f32"), x)


def with_sign(emit: Emit, size: Any, sign: Any) -> Any:
    """The magnitude of `size` with the sign of `sign`."""
    bits = emit(Binary("and", "b32"), emit(Bitcast("b32"), sign), 0x80000000)
    return emit(Bitcast("f32"), emit(Binary("or", "b32"), emit(Bitcast("b32"), _size(emit, size)), bits))


def polynomial(emit: Emit, coefficients: Sequence[float], x: Any) -> Any:
    """The sum of the coefficients times 1, x, x² …"""
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = emit(Fma(), x, total, coefficient)
    return total


WHOLE = 1.5 * 2.0**23
"""Added to a number below 2^22, it rounds to a whole number, which is in the low bits of the sum."""


def _rounded(emit: Emit, x: Any, factor: float) -> Any:
    """x · factor rounded to a whole number below 2^22. This is faster than conversions."""
    return emit(_SUBTRACT, emit(Fma(), x, factor, WHOLE), WHOLE)


def _power_of_two(emit: Emit, whole: Any) -> Any:
    """2 to the power of a whole number from -126 to 127, given as f32."""
    bits = emit(Bitcast("b32"), emit(_ADD, whole, WHOLE + 127))
    return emit(Bitcast("f32"), emit(Binary("shl", "b32"), bits, 23))


def _reduced(emit: Emit, x: Any) -> tuple[Any, Any]:
    """(n, r) with x = n · ln 2 + r, whole n and |r| at most about ln 2 / 2, for |x| below 2^21."""
    count = _rounded(emit, x, math.log2(math.e))
    back = emit(Sign("neg", "f32"), count)
    return count, emit(Fma(), back, LN2[1], emit(Fma(), back, LN2[0], x))


def _exp(emit: Emit, x: Any) -> Any:
    # NaN propagates. Beyond these bounds the result is 0 or infinite.
    inside = emit(Binary("max.NaN", "f32"), emit(Binary("min.NaN", "f32"), x, 105.0), -105.0)
    count, rest = _reduced(emit, inside)
    near = emit(Approximate("ex2", flush=True), emit(_MULTIPLY, rest, math.log2(math.e)))
    # Two factors, because 2^n alone may be out of range.
    half = _rounded(emit, count, 0.5)
    first = emit(_MULTIPLY, near, _power_of_two(emit, half))
    return emit(_MULTIPLY, first, _power_of_two(emit, emit(_SUBTRACT, count, half)))


def _exp10(emit: Emit, x: Any) -> Any:
    """e^(x · ln 10), corrected by the rounding error of the product."""
    high, low = _parts(math.log(10))
    inside = emit(Binary("max.NaN", "f32"), emit(Binary("min.NaN", "f32"), x, 46.0), -46.0)
    product = emit(_MULTIPLY, inside, high)
    rest = emit(Fma(), inside, low, emit(Fma(), inside, high, emit(Sign("neg", "f32"), product)))
    return _corrected(emit, _exp(emit, product), rest)


def _corrected(emit: Emit, power: Any, rest: Any) -> Any:
    """e^(x + rest) from power = e^x, for a small rest. Infinity stays."""
    return _select(emit, _compare(emit, "lt", power, math.inf), emit(Fma(), power, rest, power), power)


EXPM1 = tuple(1 / math.factorial(n) for n in range(2, 8))


def _expm1(emit: Emit, x: Any) -> Any:
    return _select(emit, _compare(emit, "gt", x, 80.0), _exp(emit, x), _expm1_within(emit, x))


def _expm1_within(emit: Emit, x: Any) -> Any:
    """e^x - 1 for x up to 80."""
    inside = emit(Binary("max.NaN", "f32"), emit(Binary("min.NaN", "f32"), x, 80.0), -30.0)
    count, rest = _reduced(emit, inside)
    square = emit(_MULTIPLY, rest, rest)
    near = emit(Fma(), square, polynomial(emit, EXPM1, rest), rest)
    scale = _power_of_two(emit, count)
    found = emit(Fma(), near, scale, emit(_SUBTRACT, scale, 1.0))
    return _select(emit, _compare(emit, "eq", x, 0.0), x, found)


TWO_THIRDS = 0x3F2AAAAB
"""2/3 in f32. Mantissas are reduced to 2/3 … 4/3."""

ATANH = tuple(2 / n for n in (3, 5, 7, 9, 11))
"""Coefficients of s², s⁴ … in log((1 + s)/(1 - s)) / s - 2."""


def _split(emit: Emit, x: Any) -> tuple[Any, Any]:
    """(e, m) with x = 2^e · m and m from 2/3 to 4/3, for positive finite x."""
    tiny = _compare(emit, "lt", x, 2.0**-126)
    bits = emit(Bitcast("b32"), _select(emit, tiny, emit(_MULTIPLY, x, 2.0**24), x))
    exponent = emit(Binary("and", "b32"), emit(Binary("sub", "s32"), bits, TWO_THIRDS), 0xFF800000)
    mantissa = emit(Bitcast("f32"), emit(Binary("sub", "s32"), bits, exponent))
    scaled = emit(_MULTIPLY, emit(IntegerToF32("s32"), exponent), 2.0**-23)
    return _select(emit, tiny, emit(_SUBTRACT, scaled, 24.0), scaled), mantissa


def _quotient(emit: Emit, mantissa: Any) -> tuple[Any, Any, Any, Any]:
    """(m - 1, 1/(m + 1), s, s²) with s = (m - 1)/(m + 1)."""
    less = emit(_SUBTRACT, mantissa, 1.0)
    inverse = emit(Approximate("rcp", flush=True), emit(_ADD, mantissa, 1.0))
    s = emit(_MULTIPLY, less, inverse)
    return less, inverse, s, emit(_MULTIPLY, s, s)


def _special(emit: Emit, x: Any, found: Any) -> Any:
    """`found` for positive finite x, else the result of the approximation: -∞, ∞ or NaN."""
    proper = emit(Binary("and", "pred"), _compare(emit, "gt", x, 0.0), _compare(emit, "lt", x, math.inf))
    return _select(emit, proper, found, emit(Approximate("lg2"), x))


def _logarithm(factor: float, of_two: tuple[float, float]) -> Callable[..., Any]:
    """The natural logarithm times a factor. of_two: the result for 2, in two parts."""

    def lower(emit: Emit, x: Any) -> Any:
        exponent, mantissa = _split(emit, x)
        _, _, s, square = _quotient(emit, mantissa)
        near = emit(Fma(), emit(_MULTIPLY, s, square), polynomial(emit, ATANH, square), emit(_ADD, s, s))
        small = emit(Fma(), exponent, of_two[1], emit(_MULTIPLY, near, factor))
        return _special(emit, x, emit(Fma(), exponent, of_two[0], small))

    return lower


_log = _logarithm(1.0, LN2)


def _log1p(emit: Emit, x: Any) -> Any:
    """log(1 + x), corrected by the rounding error of 1 + x over 1 + x."""
    above = emit(_ADD, x, 1.0)
    lost = emit(_SUBTRACT, x, emit(_SUBTRACT, above, 1.0))
    found = emit(Fma(), lost, emit(Approximate("rcp", flush=True), above), _log(emit, above))
    proper = emit(Binary("and", "pred"), _compare(emit, "gt", above, 0.0), _compare(emit, "lt", above, math.inf))
    found = _select(emit, proper, found, emit(Approximate("lg2", flush=True), above))
    return _select(emit, _compare(emit, "lt", _size(emit, x), 2.0**-24), x, found)


def _tanh(emit: Emit, x: Any) -> Any:
    """t / (t + 2) with t = e^(2|x|) - 1. It is 1 from |x| = 10 on."""
    size = emit(Binary("min.NaN", "f32"), _size(emit, x), 10.0)
    grown = _expm1_within(emit, emit(_ADD, size, size))
    found = emit(_MULTIPLY, grown, emit(Approximate("rcp", flush=True), emit(_ADD, grown, 2.0)))
    return _select(emit, _compare(emit, "lt", size, math.inf), with_sign(emit, found, x), size)


def _half_power(emit: Emit, size: Any) -> Any:
    """e^|x| / 2, finite also where e^|x| just overflows."""
    root = _exp(emit, emit(_MULTIPLY, size, 0.5))
    return emit(_MULTIPLY, emit(_MULTIPLY, root, 0.5), root)


def _cosh(emit: Emit, x: Any) -> Any:
    half = _half_power(emit, _size(emit, x))
    return emit(Fma(), emit(Approximate("rcp", flush=True), half), 0.25, half)


def _sinh(emit: Emit, x: Any) -> Any:
    size = _size(emit, x)
    grown = _expm1_within(emit, emit(Binary("min.NaN", "f32"), size, 1.0))
    inner = emit(Fma(), grown, emit(Approximate("rcp", flush=True), emit(_ADD, grown, 1.0)), grown)
    half = _half_power(emit, size)
    outer = emit(Fma(), emit(Approximate("rcp", flush=True), half), -0.25, half)
    found = _select(emit, _compare(emit, "lt", size, 1.0), emit(_MULTIPLY, inner, 0.5), outer)
    return _select(emit, _compare(emit, "eq", x, x), with_sign(emit, found, x), x)


def _log_in_two(emit: Emit, x: Any) -> tuple[Any, Any]:
    """The natural logarithm of a positive finite number as a sum of two f32 numbers, to about 2^-36 relatively."""
    exponent, mantissa = _split(emit, x)
    less, inverse, s, square = _quotient(emit, mantissa)
    negative = emit(Sign("neg", "f32"), s)
    # The rounding errors of the quotient, its square and its cube.
    lost = emit(_MULTIPLY, inverse, emit(Fma(), negative, less, emit(Fma(), s, -2.0, less)))
    minus = emit(Sign("neg", "f32"), square)
    square_lost = emit(Fma(), s, emit(_ADD, lost, lost), emit(Fma(), s, s, minus))
    cube = emit(_MULTIPLY, square, s)
    cube_lost = emit(Fma(), square, s, emit(Sign("neg", "f32"), cube))
    cube_lost = emit(Fma(), square, lost, emit(Fma(), square_lost, s, cube_lost))
    series = polynomial(emit, [each / 2 for each in ATANH], square)
    rest = emit(Fma(), cube, series, emit(Fma(), cube_lost, series, lost))
    # Half of the result: e · ln 2 / 2 + s + rest.
    total = emit(Fma(), exponent, LN2[0] / 2, s)
    over = emit(_ADD, emit(_SUBTRACT, s, emit(Fma(), exponent, -LN2[0] / 2, total)), rest)
    over = emit(Fma(), exponent, LN2[1] / 2, over)
    high = emit(Fma(), over, 2.0, emit(_ADD, total, total))
    low = emit(Fma(), over, 2.0, emit(_SUBTRACT, emit(_ADD, total, total), high))
    return high, low


def _pow(emit: Emit, x: Any, y: Any) -> Any:
    size = _size(emit, x)
    high, low = _log_in_two(emit, size)
    proper = emit(Binary("and", "pred"), _compare(emit, "gt", size, 0.0), _compare(emit, "lt", size, math.inf))
    high = _select(emit, proper, high, emit(Approximate("lg2", flush=True), size))
    low = _select(emit, proper, low, 0.0)
    product = emit(_MULTIPLY, y, high)
    rest = emit(Fma(), y, high, emit(Sign("neg", "f32"), product))
    rest = emit(Fma(), y, low, rest)
    # An infinite product has no rest.
    bounded = _compare(emit, "lt", _size(emit, product), 200.0)
    found = _corrected(emit, _exp(emit, product), _select(emit, bounded, rest, 0.0))
    whole = _compare(emit, "eq", emit(RoundWhole("floor"), y), y)
    half = emit(_MULTIPLY, y, 0.5)
    even = _compare(emit, "eq", emit(RoundWhole("floor"), half), half)
    odd = emit(Binary("and", "pred"), whole, emit(Binary("xor", "pred"), whole, even))
    found = _select(emit, odd, with_sign(emit, found, x), found)
    # Finite negative numbers only have powers with whole exponents.
    below = emit(Binary("and", "pred"), _compare(emit, "lt", x, 0.0), _compare(emit, "gt", x, -math.inf))
    undefined = emit(Binary("and", "pred"), below, emit(Binary("xor", "pred"), below, whole))
    found = _select(emit, undefined, math.nan, found)
    one = emit(Binary("or", "pred"), _compare(emit, "eq", x, 1.0), _compare(emit, "eq", y, 0.0))
    turning = emit(Binary("and", "pred"), _compare(emit, "eq", x, -1.0), _compare(emit, "eq", _size(emit, y), math.inf))
    return _select(emit, emit(Binary("or", "pred"), one, turning), 1.0, found)


def _cbrt(emit: Emit, x: Any) -> Any:
    """The logarithm and one Newton step. A power of two scales numbers far from 1 first."""
    size = _size(emit, x)
    great, small = _compare(emit, "gt", size, 2.0**60), _compare(emit, "lt", size, 2.0**-60)
    factor = _select(emit, great, 2.0**-60, _select(emit, small, 2.0**60, 1.0))
    back = _select(emit, great, 2.0**20, _select(emit, small, 2.0**-20, 1.0))
    scaled = emit(_MULTIPLY, size, factor)
    near = emit(Approximate("ex2"), emit(_MULTIPLY, emit(Approximate("lg2"), scaled), 1 / 3))
    square = emit(_MULTIPLY, near, near)
    off = emit(Fma(), emit(Sign("neg", "f32"), near), square, scaled)
    better = emit(Fma(), emit(_MULTIPLY, off, 1 / 3), emit(Approximate("rcp"), square), near)
    proper = emit(Binary("and", "pred"), _compare(emit, "gt", size, 0.0), _compare(emit, "lt", size, math.inf))
    return with_sign(emit, _select(emit, proper, emit(_MULTIPLY, better, back), near), x)


ARC = tuple((-1) ** n / (2 * n + 1) for n in range(1, 9))
"""Coefficients of t², t⁴ … in atan(t) / t - 1, to 2^-27 for |t| up to `EIGHTH`."""

EIGHTH = math.tan(math.pi / 8)


def _arc(emit: Emit, ratio: Any) -> Any:
    """The angle of a ratio from 0 to 1: above `EIGHTH`, that of (t - 1)/(t + 1) beside π/4."""
    above = _compare(emit, "gt", ratio, EIGHTH)
    turned = emit(_DIVIDE, emit(_SUBTRACT, ratio, 1.0), emit(_ADD, ratio, 1.0))
    t = _select(emit, above, turned, ratio)
    square = emit(_MULTIPLY, t, t)
    near = emit(Fma(), emit(_MULTIPLY, t, square), polynomial(emit, ARC, square), t)
    return _select(emit, above, emit(_ADD, near, math.pi / 4), near)


def _atan(emit: Emit, x: Any) -> Any:
    size = _size(emit, x)
    above = _compare(emit, "gt", size, 1.0)
    angle = _arc(emit, _select(emit, above, emit(_DIVIDE, 1.0, size), size))
    return with_sign(emit, _select(emit, above, emit(_SUBTRACT, math.pi / 2, angle), angle), x)


def _in_order(emit: Emit, a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """The greater and the lesser magnitude, the lesser one over the greater one (1 for equal ones), and whether a's is greater."""
    a, b = _size(emit, a), _size(emit, b)
    first = _compare(emit, "gt", a, b)
    greater, lesser = _select(emit, first, a, b), _select(emit, first, b, a)
    ratio = _select(emit, _compare(emit, "eq", lesser, greater), 1.0, emit(_DIVIDE, lesser, greater))
    return greater, lesser, ratio, first


def _atan2(emit: Emit, y: Any, x: Any) -> Any:
    greater, lesser, ratio, steep = _in_order(emit, y, x)
    nothing = emit(Binary("and", "pred"), _compare(emit, "eq", greater, 0.0), _compare(emit, "eq", lesser, 0.0))
    angle = _arc(emit, _select(emit, nothing, 0.0, ratio))
    angle = _select(emit, steep, emit(_SUBTRACT, math.pi / 2, angle), angle)
    behind = emit(Compare("lt", "s32"), emit(Bitcast("b32"), x), 0)
    return with_sign(emit, _select(emit, behind, emit(_SUBTRACT, math.pi, angle), angle), y)


def _hypot(emit: Emit, x: Any, y: Any) -> Any:
    greater, lesser, ratio, _ = _in_order(emit, x, y)
    found = emit(_MULTIPLY, greater, emit(SquareRoot(), emit(Fma(), ratio, ratio, 1.0)))
    infinite = [_compare(emit, "eq", each, math.inf) for each in (greater, lesser)]
    return _select(emit, emit(Binary("or", "pred"), *infinite), math.inf, found)


def _asin(emit: Emit, x: Any) -> Any:
    """The angle of x over √((1 - x)(1 + x))."""
    rest = emit(_MULTIPLY, emit(_SUBTRACT, 1.0, x), emit(_ADD, 1.0, x))
    return _atan(emit, emit(_DIVIDE, x, emit(SquareRoot(), rest)))


def _acos(emit: Emit, x: Any) -> Any:
    """Twice the angle of √((1 - x)/(1 + x))."""
    half = _atan(emit, emit(SquareRoot(), emit(_DIVIDE, emit(_SUBTRACT, 1.0, x), emit(_ADD, 1.0, x))))
    return emit(_ADD, half, half)


LONG = 2.0**12
"""From here on, x + √(x² ± 1) is 2x."""


def _log_of_twice(emit: Emit, size: Any) -> Any:
    return emit(_ADD, _log(emit, size), math.log(2))


def _asinh(emit: Emit, x: Any) -> Any:
    size = _size(emit, x)
    root = emit(SquareRoot(), emit(Fma(), size, size, 1.0))
    more = emit(_DIVIDE, emit(_MULTIPLY, size, size), emit(_ADD, root, 1.0))
    long = _compare(emit, "gt", size, LONG)
    found = _select(emit, long, _log_of_twice(emit, size), _log1p(emit, emit(_ADD, size, more)))
    return with_sign(emit, found, x)


def _acosh(emit: Emit, x: Any) -> Any:
    more = emit(_SUBTRACT, x, 1.0)
    root = emit(SquareRoot(), emit(_MULTIPLY, more, emit(_ADD, more, 2.0)))
    long = _compare(emit, "gt", x, LONG)
    found = _select(emit, long, _log_of_twice(emit, x), _log1p(emit, emit(_ADD, more, root)))
    return _select(emit, _compare(emit, "ge", x, 1.0), found, math.nan)


def _atanh(emit: Emit, x: Any) -> Any:
    size = _size(emit, x)
    ratio = emit(_DIVIDE, emit(_ADD, size, size), emit(_SUBTRACT, 1.0, size))
    return with_sign(emit, emit(_MULTIPLY, _log1p(emit, ratio), 0.5), x)


def _ten_to(x: Values) -> Values:
    return np.power(10.0, x)


def _reciprocal(emit: Emit, x: Any) -> Any:
    return emit(_DIVIDE, 1.0, x)


def one(instruction: Instruction) -> Callable[..., Any]:
    """Emits one instruction."""

    def lower(emit: Emit, *args: Any) -> Any:
        return emit(instruction, *args)

    return lower


FUNCTIONS: dict[str, tuple[int, Callable[..., Values], Callable[..., Any]]] = {
    "expf": (1, np.exp, _exp),
    "exp10f": (1, _ten_to, _exp10),
    "expm1f": (1, np.expm1, _expm1),
    "logf": (1, np.log, _log),
    "log2f": (1, np.log2, _logarithm(math.log2(math.e), (1.0, 0.0))),
    "log10f": (1, np.log10, _logarithm(math.log10(math.e), LOG10_2)),
    "log1pf": (1, np.log1p, _log1p),
    "tanhf": (1, np.tanh, _tanh),
    "sinhf": (1, np.sinh, _sinh),
    "coshf": (1, np.cosh, _cosh),
    "cbrtf": (1, np.cbrt, _cbrt),
    "atanf": (1, np.arctan, _atan),
    "atan2f": (2, np.arctan2, _atan2),
    "asinf": (1, np.arcsin, _asin),
    "acosf": (1, np.arccos, _acos),
    "asinhf": (1, np.arcsinh, _asinh),
    "acoshf": (1, np.arccosh, _acosh),
    "atanhf": (1, np.arctanh, _atanh),
    "hypotf": (2, np.hypot, _hypot),
    "powf": (2, np.power, _pow),
    "sqrtf": (1, np.sqrt, one(SquareRoot())),
    "fsqrt_rn": (1, np.sqrt, one(SquareRoot())),
    "fdiv_rn": (2, np.divide, one(_DIVIDE)),
    "frcp_rn": (1, np.reciprocal, _reciprocal),
}
"""Number of operands of each function, its meaning for float32 or float64 arrays, and its instructions."""
