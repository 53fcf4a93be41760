"""Interprets `arith` and `math` on scalars and tensors.

Integers wrap on overflow. Floating-point operations are computed in float64 and rounded once to the result type. So
f32, f16 and bf16 have correctly rounded results. Approximations of hardware are not modelled.

Numbers of a wider type are rounded to element types of tile IR once, and to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr
from xdsl.ir import Operation

from louver.formats.dtypes import element_type
from louver.ir.arith import ExtSIOp, ExtUIOp, FPToSIOp, FPToUIOp, SIToFPOp, TruncIOp, UIToFPOp
from louver.ir.comparisons import CmpfOp, CmpiOp, SelectOp
from louver.ir.elementwise import STEP_OPERATIONS
from louver.ir.interpret.values import Array, Fault, Pointers, Value, View, dtype_of, shape_of
from louver.ir.tile import ClampFOp, ExternElementwiseOp, FpToFpOp
from louver.ir.tile.types import splat_of
from louver.isa.convert import FP8_MAX
from louver.isa.elementwise import ELEMENTWISE_STEPS
from louver.isa.floating import f32_to_odd

LIMITS = {element_type(name).numpy: limit for name, limit in FP8_MAX.items()}
"""The largest finite value of each 8-bit float type. These types saturate."""


def rounded(values: Array, to: np.dtype[Any]) -> Array:
    """Round floating-point values to a floating-point dtype, to nearest even.

    8-bit floats saturate, others become infinite.
    """
    with np.errstate(all="ignore"):
        if values.dtype == to or to.itemsize >= 4:
            return values.astype(to)
        limit = LIMITS.get(to)
        wide = values.astype(np.float64)
        clipped = wide if limit is None else np.clip(wide, -limit, limit)
        return np.asarray(f32_to_odd(clipped)).astype(to)


def towards_zero(values: Array, to: np.dtype[Any]) -> Array:
    """Round floating-point values to a floating-point dtype, towards zero.

    Infinity stays, except in 8-bit floats, which saturate.
    """
    nearest = np.atleast_1d(rounded(values, to))
    wide = np.atleast_1d(values).astype(np.float64)
    with np.errstate(all="ignore"):
        too_far = (np.abs(nearest.astype(np.float64)) > np.abs(wide)) & ~np.isnan(wide)
    # The next number towards zero has the raw bits minus one.
    bits = nearest.view(f"u{to.itemsize}") - too_far.astype(f"u{to.itemsize}")
    return bits.view(to).reshape(np.shape(values))


def integers(values: Array, to: np.dtype[Any]) -> Array:
    """Round floating-point values to integers, towards zero. Values out of range saturate, and NaN becomes 0."""
    limits = np.iinfo(to)
    wide = np.trunc(values.astype(np.float64))
    # The largest int64 is not a float64, so the code compares and selects.
    safe = np.where((wide > limits.min) & (wide < float(limits.max)), wide, 0.0).astype(to)
    return np.where(wide >= float(limits.max), limits.max, np.where(wide <= limits.min, limits.min, safe)).astype(to)


Handler: TypeAlias = Callable[[Any, Sequence[Any]], Sequence[Value]]
"""Computes the results of an operation from the values of its operands."""


def _signed(values: Array) -> Array:
    """Integers without a change; true becomes -1."""
    return -values.astype(np.int8) if values.dtype == np.bool_ else values


def _unsigned(values: Array) -> Array:
    """The same bits as unsigned integers."""
    return values.astype(np.uint8) if values.dtype == np.bool_ else values.astype(f"u{values.dtype.itemsize}")


def _wrapped(values: Array, to: np.dtype[Any]) -> Array:
    """The low bits as an integer dtype."""
    values = np.asarray(values)
    return (values & 1) != 0 if to == np.bool_ else values.astype(to)


def _whole(meaning: Callable[..., Any], read: Callable[[Array], Array]) -> Handler:
    def run(op: Operation, values: Sequence[Any]) -> Sequence[Value]:
        with np.errstate(all="ignore"):
            result = meaning(*(read(value) for value in values))
        return (_wrapped(result, dtype_of(op.results[0].type)),)

    return run


def _divisor(meaning: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
    def checked(a: Array, b: Array) -> Any:
        if (b == 0).any():
            raise Fault("an integer division needs a divisor other than 0")
        return meaning(a, b)

    return checked


def _quotient(a: Array, b: Array) -> Array:
    """The quotient, rounded towards zero."""
    return (a - np.fmod(a, b)) // b


def _shifted(meaning: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
    def checked(a: Array, b: Array) -> Any:
        bits = a.dtype.itemsize * 8
        if ((b < 0) | (b >= bits)).any():
            raise Fault(f"a shift of {bits}-bit integers is by 0 to {bits - 1} bits")
        return meaning(a, b)

    return checked


def _floating(meaning: Callable[..., Any]) -> Handler:
    def run(op: Operation, values: Sequence[Any]) -> Sequence[Value]:
        with np.errstate(all="ignore"):
            result = np.asarray(meaning(*(value.astype(np.float64) for value in values)))
        return (rounded(result, dtype_of(op.results[0].type)),)

    return run


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    return a * b + c


_SIGNED: dict[type[Operation], Callable[..., Any]] = {
    arith.AddiOp: np.add,
    arith.SubiOp: np.subtract,
    arith.MuliOp: np.multiply,
    arith.DivSIOp: _divisor(_quotient),
    arith.FloorDivSIOp: _divisor(np.floor_divide),
    arith.CeilDivSIOp: _divisor(lambda a, b: -(-a // b)),
    arith.RemSIOp: _divisor(np.fmod),
    arith.MinSIOp: np.minimum,
    arith.MaxSIOp: np.maximum,
    arith.AndIOp: np.bitwise_and,
    arith.OrIOp: np.bitwise_or,
    arith.XOrIOp: np.bitwise_xor,
    arith.ShLIOp: _shifted(np.left_shift),
    arith.ShRSIOp: _shifted(np.right_shift),
    ExtSIOp: np.asarray,
    TruncIOp: np.asarray,
    arith.IndexCastOp: np.asarray,
    math.AbsIOp: np.abs,
}

_UNSIGNED: dict[type[Operation], Callable[..., Any]] = {
    arith.DivUIOp: _divisor(np.floor_divide),
    arith.CeilDivUIOp: _divisor(lambda a, b: a // b + (a % b != 0)),
    arith.RemUIOp: _divisor(np.remainder),
    arith.MinUIOp: np.minimum,
    arith.MaxUIOp: np.maximum,
    arith.ShRUIOp: _shifted(np.right_shift),
    ExtUIOp: np.asarray,
}

_FLOATING: dict[type[Operation], Callable[..., Any]] = {
    **{op: ELEMENTWISE_STEPS[name].meaning for name, op in STEP_OPERATIONS.items()},
    arith.ExtFOp: np.asarray,
    arith.TruncFOp: np.asarray,
    math.AcosOp: np.arccos,
    math.AcoshOp: np.arccosh,
    math.AsinOp: np.arcsin,
    math.AsinhOp: np.arcsinh,
    math.Atan2Op: np.arctan2,
    math.AtanOp: np.arctan,
    math.AtanhOp: np.arctanh,
    math.CbrtOp: np.cbrt,
    math.CoshOp: np.cosh,
    math.ExpM1Op: np.expm1,
    math.FmaOp: _multiply_add,
    math.Log10Op: np.log10,
    math.Log1pOp: np.log1p,
    math.PowFOp: np.power,
    math.SinhOp: np.sinh,
    math.TanOp: np.tan,
}

_INTEGERS: dict[str, Callable[[Array, Array], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compare_integers(op: CmpiOp, values: Sequence[Any]) -> Sequence[Value]:
    predicate = op.name_of_predicate
    read = _unsigned if predicate.startswith("u") else _signed
    return (np.asarray(_INTEGERS[predicate[-2:]](*map(read, values))),)


def _compare_floats(op: CmpfOp, values: Sequence[Any]) -> Sequence[Value]:
    a, b = values
    unordered = np.asarray(np.isnan(a) | np.isnan(b))
    match op.name_of_predicate:
        case "true" | "false" as name:
            return (np.full(unordered.shape, name == "true"),)
        case "ord":
            return (~unordered,)
        case "uno":
            return (unordered,)
        case name:
            holds = np.asarray(_INTEGERS[name[1:]](a, b))
            return (holds | unordered if name.startswith("u") else holds & ~unordered,)


def _select(op: SelectOp, values: Sequence[Any]) -> Sequence[Value]:
    condition, one, other = values
    if isinstance(one, Pointers):
        return (one.chosen(condition, other),)
    if isinstance(one, View):
        return (one if condition else other,)
    return (np.where(condition, cast(Array, one), cast(Array, other)),)


def _constant(op: arith.ConstantOp, values: Sequence[Any]) -> Sequence[Value]:
    type_ = op.result.type
    dtype, shape = dtype_of(type_), shape_of(type_)
    match op.value:
        case IntegerAttr() | FloatAttr():
            found: Any = op.value.value.data
        case DenseIntOrFPElementsAttr():
            number = splat_of(op.value)
            found = np.reshape(cast(Any, op.value.get_values()), shape) if number is None else number
        case _:
            raise Fault("a constant is a number, or a tensor of numbers")
    wide: Array = np.broadcast_to(np.asarray(found), shape)
    return (_wrapped(wide, dtype) if wide.dtype.kind in "iub" else rounded(wide, dtype),)


def _extern(op: ExternElementwiseOp, values: Sequence[Any]) -> Sequence[Value]:
    return _floating(ELEMENTWISE_STEPS[op.symbol.data].meaning)(op, values)


def _to_float(read: Callable[[Array], Array]) -> Handler:
    return lambda op, values: (rounded(read(values[0]).astype(np.float64), dtype_of(op.results[0].type)),)


def _to_unsigned(op: Operation, values: Sequence[Any]) -> Sequence[Value]:
    to = dtype_of(op.results[0].type)
    return (integers(values[0], np.dtype(f"u{to.itemsize}")).astype(to),)


def _bitcast(op: arith.BitcastOp, values: Sequence[Any]) -> Sequence[Value]:
    return (values[0].view(dtype_of(op.results[0].type)),)


def _clamp(op: ClampFOp, values: Sequence[Any]) -> Sequence[Value]:
    x, low, high = values
    if op.propagate_nan.data == "all":
        return (np.asarray(np.minimum(np.maximum(x, low), high)),)
    return (np.asarray(np.fmin(np.fmax(x, low), high)),)


def _convert(op: FpToFpOp, values: Sequence[Any]) -> Sequence[Value]:
    to = dtype_of(op.result.type)
    cut = op.rounding is not None and op.rounding.data == "rtz"
    return (towards_zero(values[0], to) if cut else rounded(values[0], to),)


ARITHMETIC: dict[type[Operation], Handler] = {
    **{op: _whole(meaning, _signed) for op, meaning in _SIGNED.items()},
    **{op: _whole(meaning, _unsigned) for op, meaning in _UNSIGNED.items()},
    **{op: _floating(meaning) for op, meaning in _FLOATING.items()},
    arith.ConstantOp: _constant,
    arith.BitcastOp: _bitcast,
    SIToFPOp: _to_float(_signed),
    UIToFPOp: _to_float(_unsigned),
    FPToSIOp: lambda op, values: (integers(values[0], dtype_of(op.results[0].type)),),
    FPToUIOp: _to_unsigned,
    CmpiOp: _compare_integers,
    CmpfOp: _compare_floats,
    SelectOp: _select,
    ClampFOp: _clamp,
    ExternElementwiseOp: _extern,
    FpToFpOp: _convert,
}
"""The meaning of each operation."""
