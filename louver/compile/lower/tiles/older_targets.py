"""Conversions and atomics, exact also where the target has no instruction for them."""

from __future__ import annotations

from contextlib import nullcontext

from louver.compile.lower.tiles.state import Lowering
from louver.isa.convert import (
    FP8_DIGITS,
    FP8_MAX,
    FP8_NAN,
    ConvertInteger,
    F32ToInteger,
    Fp8,
    Fp8PairFromF32,
    HalfPairFromFp8,
    IntegerToF32,
    IntegerToHalf,
)
from louver.isa.memory import AtomicCompareAndSwap
from louver.isa.move import Bitcast
from louver.isa.scalar import Binary
from louver.ptx.module import Address, Reg

FRACTION = 23
"""Bits of the fraction of f32."""

BIAS = 127
"""Bias of the exponent of f32."""

INFINITY = 0x7F800000
"""The bits of infinity in f32. Those of NaN are greater."""


def fp8_to_f32(low: Lowering, register: Reg, name: Fp8) -> Reg:
    """Convert an 8-bit float to f32, exactly, also where the target has no instruction for it."""
    k, form = low.k, HalfPairFromFp8(name)
    if low.provides(form):
        return k.to_f32("f16", k.low_half(low.emit(form, register)))
    byte = low.emit(ConvertInteger("u32", "u16"), register)
    if name == "e5m2":
        # f16 has the same exponent and eight more bits of the fraction.
        return k.to_f32("f16", k.low_half(k.shl(byte, 8)))
    # As f32, the exponent counts from -127 instead of -7. The product is exact for subnormal numbers too.
    magnitude = k.and_(byte, 0x7F)
    bits = k.or_(k.shl(magnitude, 20), k.shl(k.and_(byte, 0x80), 24))
    number = k.mul_f32(low.emit(Bitcast("f32"), bits), 2.0**120)
    return k.selp(low.constant(float("nan"), "f32"), number, k.setp("eq", "u32", magnitude, 0x7F))


def fp8_from_f32(low: Lowering, register: Reg, name: Fp8) -> Reg:
    """Round f32 to an 8-bit float, to nearest even, in the low byte. Greater numbers become the greatest finite one."""
    k = low.k
    if low.provides(Fp8PairFromF32(name)):
        return k.fp8_pair_from_f32(name, register, low.constant(0.0, "f32"))
    digits, exponent = FP8_DIGITS[name]
    cut, least = FRACTION - digits, 2.0**exponent
    bits = low.emit(Bitcast("b32"), register)
    magnitude = k.and_(bits, 0x7FFFFFFF)
    finite = low.emit(Binary("min", "f32"), low.emit(Bitcast("f32"), magnitude), FP8_MAX[name])
    # Half of the last bit that stays, or just less if that bit is even, carries into it where the rest rounds up.
    whole = low.emit(Bitcast("b32"), finite)
    last = k.and_(k.shr(whole, cut), 1)
    rounded = k.shr(k.add(k.add(whole, last), (1 << (cut - 1)) - 1), cut)
    normal = low.emit(Binary("sub", "u32"), rounded, (BIAS - 1 + exponent) << digits)
    # Added to a power of two whose last bit is that of a subnormal number, the fraction is its code.
    power = least * 2.0 ** (FRACTION - digits)
    shifted = low.emit(Bitcast("b32"), k.add_f32(finite, power))
    subnormal = k.and_(shifted, (1 << FRACTION) - 1)
    code = k.selp(subnormal, normal, k.setp("lt", "f32", finite, least))
    signed = k.or_(code, k.and_(k.shr(bits, 24), 0x80))
    return k.low_half(k.selp(low.constant(int(FP8_NAN), "b32"), signed, k.setp("gt", "u32", magnitude, INFINITY)))


def integer_to_half(low: Lowering, register: Reg, form: IntegerToHalf) -> Reg:
    """Convert an integer, rounded once, also where the target has no instruction for it."""
    if low.provides(form):
        return low.emit(form, register)
    kind = form.source
    cut = low.emit(IntegerToF32(kind, "rz"), register)
    # A set last bit in place of all lost ones (round to odd) makes the second rounding the only one.
    lost = low.k.setp("ne", kind, low.emit(F32ToInteger(kind, "rzi"), cut), register)
    odd = low.k.selp(low.constant(1, "b32"), low.constant(0, "b32"), lost)
    return low.k.from_f32(form.to, low.emit(Bitcast("f32"), low.k.or_(low.emit(Bitcast("b32"), cut), odd)))


def add_by_swaps(low: Lowering, pointer: Reg, value: Reg, guard: Reg | None) -> Reg:
    """Add in bf16 where the target has no instruction for it. Returns the old value.

    A sum of f32 has more than twice the digits of bf16, so a sum that is rounded again is as if rounded once.
    """
    k = low.k
    # Compared with memory: the first attempt succeeds if it holds zero, and tells its content otherwise.
    expected = low.copy(low.constant(0, "b16"))
    addend = k.to_f32("bf16", value)
    with nullcontext() if guard is None else k.if_(guard), k.loop() as attempts:
        total = k.from_f32("bf16", k.add_f32(k.to_f32("bf16", expected), addend))
        found = k.reg("b16")
        k.emit(AtomicCompareAndSwap("b16"), found, Address(pointer), expected, total)
        before, now = (low.emit(ConvertInteger("u32", "u16"), each) for each in (expected, found))
        k.mov(found, into=expected)
        attempts.repeat_if(k.setp("ne", "u32", before, now))
    return expected
