"""Quotients and remainders by constants, by shifts and products.

The assembler computes a division by a constant like any other one, by a reciprocal: 20 to 26 instructions.
"""

from __future__ import annotations

from louver.compile.lower.tiles.facts import WHOLE
from louver.compile.lower.tiles.state import Lowering
from louver.isa.convert import ConvertInteger
from louver.isa.instruction import REGISTER_BITS
from louver.isa.scalar import Binary, MultiplyWide, ScalarType
from louver.ptx.module import Reg

_HALF = WHOLE // 2
_NARROW = REGISTER_BITS["b32"]


def divided(low: Lowering, number: Reg, by: int, bits: int, *, unsigned: bool = False) -> Reg | None:
    """A quotient, rounded towards zero; None if only a division computes it."""
    if by < 1 or bits < _NARROW:
        return None
    if by & (by - 1) == 0:
        return _shifted(low, number, by, bits, unsigned=unsigned)
    return _multiplied(low, number, by) if bits == _NARROW and not unsigned else None


def rest(low: Lowering, number: Reg, by: int, quotient: Reg) -> Reg:
    """What a quotient leaves of a number."""
    if by & (by - 1) == 0:
        return low.k.sub(number, low.k.shl(quotient, by.bit_length() - 1))
    return low.k.sub(number, low.k.mul_lo(quotient, by))


def _shifted(low: Lowering, number: Reg, by: int, bits: int, *, unsigned: bool) -> Reg:
    shift, wide = by.bit_length() - 1, bits == REGISTER_BITS["b64"]
    signed: ScalarType = "s64" if wide else "s32"
    plain: ScalarType = "u64" if wide else "u32"
    if not shift:
        return number
    if not unsigned and low.known.facts_of(number).multiple % by and low.known.most_of(number) is None:
        # Negative numbers are rounded up.
        sign = low.emit(Binary("shr", signed), number, bits - 1)
        number = low.k.add(number, low.emit(Binary("shr", plain), sign, bits - shift))
    return low.emit(Binary("shr", plain if unsigned else signed), number, shift)


def _multiplied(low: Lowering, number: Reg, by: int) -> Reg:
    """The upper half of the product with 2^(32 + shift) / by, rounded up.

    It is too great by less than 1 / by for numbers from -2^31 to 2^31 - 1, if the rounding added at most 2^(shift + 1).
    Source: Granlund and Montgomery, Division by Invariant Integers using Multiplication (1994).
    """
    shift = next(each for each in range(_NARROW) if -(WHOLE << each) % by <= 2 << each)
    factor = -(-(WHOLE << shift) // by)
    product = low.emit(MultiplyWide("s32"), number, factor if factor < _HALF else factor - WHOLE)
    found = low.emit(ConvertInteger("u32", "u64"), low.emit(Binary("shr", "s64"), product, _NARROW))
    found = found if factor < _HALF else low.k.add(found, number)
    found = low.emit(Binary("shr", "s32"), found, shift) if shift else found
    # Negative quotients were rounded down.
    return low.k.add(found, low.emit(Binary("shr", "u32"), number, _NARROW - 1))
