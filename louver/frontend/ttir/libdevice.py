"""Functions of libdevice (`tl.extra.libdevice`) as MLIR operations. Functions that are steps of
`louver.isa.elementwise` stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, IntegerType, f32, i32
from xdsl.ir import Attribute, Operation, SSAValue

from louver.ir.arith import ExtSIOp, ExtUIOp, FPToSIOp, FPToUIOp, RemFOp, SIToFPOp, TruncIOp, UIToFPOp
from louver.ir.comparisons import CmpfOp
from louver.ir.refusal import unsupported
from louver.ir.tile import ExternElementwiseOp, SplatOp
from louver.ir.tile.types import as_tensor, element_of, splat_of, tensor_like
from louver.isa.elementwise import ELEMENTWISE_STEPS

Make: TypeAlias = Callable[[Sequence[SSAValue], Attribute], Operation]
"""The last operation of a function, from operands and result type. An implicit builder inserts the other ones."""


def _plain(op: Callable[..., Operation]) -> Make:
    return lambda operands, to: op(*operands)


def _to(op: Callable[..., Operation], first: Callable[..., Operation] | None = None) -> Make:
    """A conversion to the result's type, optionally of another operation's result."""
    return lambda operands, to: op(operands[0] if first is None else first(operands[0]).results[0], to)


def like(type_: Attribute, element: Attribute) -> Attribute:
    """The element type, or for a tile a tile of it with the same shape."""
    tensor = as_tensor(type_)
    return element if tensor is None else tensor_like(tensor, element)


def _truth(predicate: str, *, size: bool) -> Make:
    """The comparison of a number, or of its magnitude (size), with infinity, as the integer 0 or 1."""

    def make(operands: Sequence[SSAValue], to: Attribute) -> Operation:
        x = math.AbsFOp(operands[0]).result if size else operands[0]
        return ExtUIOp(CmpfOp(x, filled(float("inf"), x.type), predicate).result, to)

    return make


def _same(symbol: str) -> Make:
    """Another function, which is at least as exact."""
    return lambda operands, to: ExternElementwiseOp(PREFIX + symbol, operands)


def _power(operands: Sequence[SSAValue], to: Attribute) -> Operation:
    """The power, with an integer or a number as exponent. Those of the exponents 2 to 4 are products."""
    x, exponent = operands
    constant = _constant(exponent)
    if constant in (2, 3, 4):
        square = arith.MulfOp(x, x)
        return square if constant == 2 else arith.MulfOp(square.result, x if constant == 3 else square.result)
    whole = isinstance(element_of(exponent.type), IntegerType)
    return ExternElementwiseOp(PREFIX + "powf", [x, SIToFPOp(exponent, to).result if whole else exponent])


def _constant(value: SSAValue) -> float | None:
    """The number of a constant, or of a tile of one."""
    given = value.owner.src.owner if isinstance(value.owner, SplatOp) else value.owner
    match given:
        case arith.ConstantOp(value=FloatAttr() | IntegerAttr() as number):
            return number.value.data
        case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as numbers):
            return splat_of(numbers)
        case _:
            return None


def _saturated(operands: Sequence[SSAValue], to: Attribute) -> Operation:
    """The number between 0 and 1; 0 for NaN."""
    zero, limit = (filled(number, to) for number in (0.0, 1.0))
    return arith.MinnumfOp(arith.MaxnumfOp(operands[0], zero).result, limit)


def filled(number: float, type_: Attribute) -> SSAValue:
    """A number as a value of a type: a scalar, or a tile with it in each element. Integers wrap."""
    element = element_of(type_)
    if isinstance(element, IntegerType):
        attribute = IntegerAttr(_wrapped(int(number), element.bitwidth), element.bitwidth)
    else:
        attribute = FloatAttr(number, f32)
    value: SSAValue = arith.ConstantOp(attribute).result
    tensor = as_tensor(type_)
    return value if tensor is None else SplatOp(value, tensor.get_shape()).result


def _wrapped(number: int, bits: int) -> int:
    low = number & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def _sign(operands: Sequence[SSAValue], to: Attribute) -> Operation:
    """The sign bit as an integer."""
    bits = arith.BitcastOp(operands[0], like(to, i32)).result
    return ExtUIOp(TruncIOp(_shifted(bits, 31), like(to, IntegerType(1))).result, to)


def _shifted(value: SSAValue, by: int) -> SSAValue:
    return arith.ShRUIOp(value, filled(by, value.type)).result


def upper_half(operands: Sequence[SSAValue], to: Attribute, *, signed: bool = False) -> Operation:
    """The upper half of a product of 32-bit integers."""
    wide = like(to, IntegerType(64))
    a, b = ((ExtSIOp if signed else ExtUIOp)(each, wide).results[0] for each in operands)
    return TruncIOp(_shifted(arith.MuliOp(a, b).result, 32), to)


def _tangent(operands: Sequence[SSAValue], to: Attribute) -> Operation:
    return arith.DivfOp(math.SinOp(operands[0]).result, math.CosOp(operands[0]).result)


PREFIX = "__nv_"

_FUNCTIONS: dict[str, Make] = {
    "fabsf": _plain(math.AbsFOp),
    "abs": _plain(math.AbsIOp),
    "llabs": _plain(math.AbsIOp),
    "floorf": _plain(math.FloorOp),
    "ceilf": _plain(math.CeilOp),
    "truncf": _plain(math.TruncOp),
    "rintf": _plain(math.RoundEvenOp),
    "nearbyintf": _plain(math.RoundEvenOp),
    "roundf": _plain(math.RoundOp),
    "copysignf": _plain(math.CopySignOp),
    "rsqrtf": _plain(math.RsqrtOp),
    "frsqrt_rn": _plain(math.RsqrtOp),
    "exp2f": _plain(math.Exp2Op),
    "erff": _plain(math.ErfOp),
    "sinf": _plain(math.SinOp),
    "cosf": _plain(math.CosOp),
    "tanf": _tangent,
    "fast_expf": _plain(math.ExpOp),
    "fast_logf": _plain(math.LogOp),
    "fast_log2f": _plain(math.Log2Op),
    "fast_sinf": _plain(math.SinOp),
    "fast_cosf": _plain(math.CosOp),
    "fast_fdividef": _plain(arith.DivfOp),
    "fadd_rn": _plain(arith.AddfOp),
    "fsub_rn": _plain(arith.SubfOp),
    "fmul_rn": _plain(arith.MulfOp),
    "fmaf": _plain(math.FmaOp),
    "fmaf_rn": _plain(math.FmaOp),
    "fmodf": _plain(RemFOp),
    "isnanf": _truth("uno", size=False),
    "isinff": _truth("oeq", size=True),
    "finitef": _truth("olt", size=True),
    "signbitf": _sign,
    "float_as_int": _to(arith.BitcastOp),
    "float_as_uint": _to(arith.BitcastOp),
    "int_as_float": _to(arith.BitcastOp),
    "uint_as_float": _to(arith.BitcastOp),
    "powf": _power,
    "powif": _power,
    "fast_powf": _same("powf"),
    "fast_exp10f": _same("exp10f"),
    "fast_log10f": _same("log10f"),
    "fast_tanhf": _same("tanhf"),
    "fast_tanf": _tangent,
    "saturatef": _saturated,
    "mulhi": lambda operands, to: upper_half(operands, to, signed=True),
    "umulhi": upper_half,
    **{f"{name}2float_rn": _to(SIToFPOp) for name in ("int", "ll")},
    **{f"{name}2float_rn": _to(UIToFPOp) for name in ("uint", "ull")},
    **{f"float2{name}_rz": _to(FPToSIOp) for name in ("int", "ll")},
    **{f"float2{name}_rz": _to(FPToUIOp) for name in ("uint", "ull")},
    **{
        f"float2{name}_{rounding}": _to(made, first)
        for names, made in ((("int", "ll"), FPToSIOp), (("uint", "ull"), FPToUIOp))
        for name in names
        for rounding, first in (("rn", math.RoundEvenOp), ("rd", math.FloorOp), ("ru", math.CeilOp))
    },
    "llrintf": _to(FPToSIOp, math.RoundEvenOp),
    "llroundf": _to(FPToSIOp, math.RoundOp),
}  # fmt: skip
"""Functions by symbol without the prefix `__nv_`."""

_ROUNDED = re.compile(r"[fd]?((?:add|sub|mul|div|rcp|sqrt|rsqrt)_r[nduz])")
_KINDS = re.compile(r"(brev|clz|ffs|popc)ll|u(hadd|rhadd|mul24|mulhi|sad)|(isinf|isnan|signbit)d|u?(mul)64(hi)")
_OWN = ("erf", "finitef", "saturatef", "normcdf")
"""Symbols that end in f and are Triton's names; all that begin with "fast_" do too."""
_RENAMED = {
    "fast_fdividef": "fast_dividef",
    "fabs": "abs",
    "fabsf": "abs",
    "llabs": "abs",
    "powi": "pow",
    "powif": "pow",
}

_INSTEAD = {
    "erfc": "1 - tl.erf(x)",
    "fdim": "tl.maximum(x - y, 0.0)",
    "ldexp": "x * tl.exp2(n.to(tl.float32))",
    "scalbn": "x * tl.exp2(n.to(tl.float32))",
    "rhypot": "1.0 / libdevice.hypot(x, y)",
    "rcbrt": "1.0 / libdevice.cbrt(x)",
    "normcdf": "0.5 + 0.5 * tl.erf(x * 0.70710678)",
    "sinpi": "tl.sin(x * 3.14159265)",
    "cospi": "tl.cos(x * 3.14159265)",
}
"""What to write for a function, by Triton's name."""


def triton_name(symbol: str) -> str:
    """The function's name in `tl.extra.libdevice`: `hypot` for `__nv_hypotf`, `div_rn` for `__nv_fdiv_rn`."""
    name = symbol.removeprefix(PREFIX)
    if found := _ROUNDED.fullmatch(name) or _KINDS.fullmatch(name):
        return "".join(part for part in found.groups() if part)
    name = _RENAMED.get(name, name).replace("fmaf_", "fma_")
    return name if name.startswith("fast_") or name in _OWN else name.removesuffix("f")


def respell(op: ExternElementwiseOp) -> Operation | None:
    """The last operation of a function's replacement; None for a function that stays. Rejects unsupported functions."""
    symbol = op.symbol.data
    make = _FUNCTIONS.get(symbol.removeprefix(PREFIX))
    if make is None and symbol in ELEMENTWISE_STEPS:
        return None
    if make is None:
        name = triton_name(symbol)
        known = sorted({triton_name(each) for each in (*ELEMENTWISE_STEPS, *_FUNCTIONS) if _is_plain(each)})
        raise unsupported(
            f"libdevice.{name} is not supported for {element_of(op.result.type)}",
            op,
            f"write {_INSTEAD[name]}" if name in _INSTEAD else f"use one of {', '.join(known)}",
        )
    return make(op.srcs, op.result.type)


def _is_plain(symbol: str) -> bool:
    """Whether a key of either table is a function of libdevice."""
    return symbol.startswith(PREFIX) or symbol in _FUNCTIONS
