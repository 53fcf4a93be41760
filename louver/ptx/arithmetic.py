"""Builder methods for scalar instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from louver.isa.bits import TRUTH, CountOnes, Logic3, PermuteBytes
from louver.isa.convert import (
    ConvertInteger,
    Fp8,
    Fp8PairFromF32,
    FromF32,
    Half,
    IntegerToF32,
    IntegerToHalf,
    PairFromF32,
    ToF32,
)
from louver.isa.instruction import Instruction, RegType
from louver.isa.move import Move, Pack, Select
from louver.isa.packed import PackedBinary, PackedOp
from louver.isa.scalar import Binary, Compare, MultiplyAdd, MultiplyWide
from louver.isa.special import ShuffleButterfly, ShuffleIndex, Special
from louver.ptx.core import BuilderCore, Number
from louver.ptx.module import Imm, Reg

Unsigned = Literal["u32", "u64"]


def _register_type(*numbers: Number) -> RegType:
    """The class of the first register among the operands; b32 when all are constants."""
    for number in numbers:
        if isinstance(number, Reg):
            return number.type
    return "b32"


def _unsigned(kind: RegType) -> Unsigned:
    return "u64" if kind == "b64" else "u32"


def _is_zero(number: Number) -> bool:
    return number == 0 or number == Imm(0)


class Arithmetic(BuilderCore):
    """Integers are unsigned, with the 32 or 64 bits of their registers."""

    def _result(self, op: Instruction, kind: RegType, into: Reg | None, *args: Number) -> Reg:
        result = self.reg(kind) if into is None else into
        self.emit(op, result, *args)
        return result

    def _binary(self, name: str, a: Number, b: Number, into: Reg | None = None) -> Reg:
        kind = _register_type(a, b)
        return self._result(Binary(name, _unsigned(kind)), kind, into, a, b)

    def _bitwise(self, name: Literal["and", "or", "xor"], a: Number, b: Number, into: Reg | None = None) -> Reg:
        kind = _register_type(a, b)
        return self._result(Binary(name, "b64" if kind == "b64" else "b32"), kind, into, a, b)

    def add(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        """a + b. Adding 0 to a register emits nothing."""
        if into is None and isinstance(a, Reg) and _is_zero(b):
            return a
        return self._binary("add", a, b, into)

    def sub(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        """a - b. Subtracting 0 from a register emits nothing."""
        if into is None and isinstance(a, Reg) and _is_zero(b):
            return a
        return self._binary("sub", a, b, into)

    def mul_lo(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        """The low half of a · b."""
        return self._binary("mul.lo", a, b, into)

    def mad_lo(self, a: Number, b: Number, c: Number) -> Reg:
        """The low half of a · b + c."""
        kind = _register_type(a, b, c)
        return self._result(MultiplyAdd(_unsigned(kind)), kind, None, a, b, c)

    def mul_wide(self, a: Number, b: Number) -> Reg:
        """The 64-bit product of 32-bit factors."""
        return self._result(MultiplyWide(), "b64", None, a, b)

    def mad_wide(self, a: Number, b: Number, c: Number) -> Reg:
        """The 64-bit product of 32-bit factors, plus a 64-bit c."""
        return self._result(MultiplyWide(add=True), "b64", None, a, b, c)

    def div(self, a: Number, b: Number) -> Reg:
        """a / b, rounded down. Division by 1 emits nothing, by a power of two a shift, which ptxas does not do."""
        if isinstance(a, Reg) and b in (1, Imm(1)):
            return a
        divisor = b.value if isinstance(b, Imm) else b
        if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
            return self.shr(a, divisor.bit_length() - 1)
        return self._binary("div", a, b)

    def min(self, a: Number, b: Number) -> Reg:
        return self._binary("min", a, b)

    def shr(self, a: Number, amount: Number) -> Reg:
        """a >> amount, filled with zeros."""
        return self._binary("shr", a, amount)

    def shl(self, a: Number, amount: Number) -> Reg:
        kind = _register_type(a)
        return self._result(Binary("shl", "b64" if kind == "b64" else "b32"), kind, None, a, amount)

    def and_(self, a: Number, b: Number) -> Reg:
        return self._bitwise("and", a, b)

    def or_(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        return self._bitwise("or", a, b, into)

    def xor(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        return self._bitwise("xor", a, b, into)

    def logic(self, function: Callable[[int, int, int], int], a: Number, b: Number, c: Number) -> Reg:
        """A bitwise function of three 32-bit values, such as `lambda a, b, c: a & b | ~c`."""
        return self._result(Logic3(function(*TRUTH) & 0xFF), "b32", None, a, b, c)

    def permute(self, a: Number, b: Number, selector: Number) -> Reg:
        """Four of the bytes of a (0 to 3) and b (4 to 7), lowest first. Each nibble of the selector names a byte. 8
        more gives copies of its top bit.
        """
        return self._result(PermuteBytes(), "b32", None, a, b, selector)

    def count_ones(self, a: Number) -> Reg:
        return self._result(CountOnes(), "b32", None, a)

    def and_pred(self, a: Reg, b: Reg) -> Reg:
        return self._result(Binary("and", "pred"), "pred", None, a, b)

    def setp(self, compare: str, kind: Literal["s32", "u32", "s64", "u64", "f32"], a: Number, b: Number) -> Reg:
        """A predicate: `a compare b`."""
        return self._result(Compare(compare, kind), "pred", None, a, b)

    def selp(self, a: Number, b: Number, condition: Reg, *, into: Reg | None = None) -> Reg:
        """a where `condition` holds, else b."""
        kind = _register_type(a, b) if into is None else into.type
        return self._result(Select(kind), kind, into, a, b, condition)

    def mov(self, a: Number, *, into: Reg | None = None, kind: RegType | None = None) -> Reg:
        """A copy in a register of `kind`: by default the class of `into`, of `a`, or b32 for a constant."""
        kind = kind or (_register_type(a) if into is None else into.type)
        return self._result(Move(kind), kind, into, a)

    def widen_u64(self, a: Number) -> Reg:
        """The 64-bit register of a 32-bit value."""
        return self._result(ConvertInteger("u64", "u32"), "b64", None, a)

    def low_half(self, a: Reg) -> Reg:
        """The low 16 bits of a 32-bit register."""
        return self._result(ConvertInteger("u16", "u32"), "b16", None, a)

    def pack_b64(self, low: Reg, high: Reg) -> Reg:
        """Two 32-bit registers as one of 64 bits."""
        result = self.reg("b64")
        self.emit(Pack("b64"), result, (low, high))
        return result

    def pack_b32(self, low: Reg, high: Reg) -> Reg:
        """Two 16-bit registers as one of 32 bits."""
        result = self.reg("b32")
        self.emit(Pack("b32"), result, (low, high))
        return result

    def add_f32(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        return self._result(Binary("add", "f32"), "f32", into, a, b)

    def mul_f32(self, a: Number, b: Number) -> Reg:
        return self._result(Binary("mul", "f32"), "f32", None, a, b)

    def packed(self, op: PackedOp, kind: Half, a: Reg, b: Reg) -> Reg:
        """`op` on two 16-bit floats in a register each, see `PackedBinary`."""
        return self._result(PackedBinary(op, kind), "b32", None, a, b)

    def halves(self, a: Reg) -> tuple[Reg, Reg]:
        """The low and the high 16 bits of a 32-bit register."""
        return self.low_half(a), self.low_half(self.shr(a, 16))

    def from_f32(self, to: Half, a: Reg) -> Reg:
        """A 16-bit float, to nearest even."""
        return self._result(FromF32(to), "b16", None, a)

    def pair_from_f32(self, to: Half, low: Reg, high: Reg) -> Reg:
        """Two 16-bit floats in one register."""
        return self._result(PairFromF32(to), "b32", None, high, low)

    def fp8_pair_from_f32(self, to: Fp8, low: Reg, high: Reg) -> Reg:
        """Two 8-bit floats in a 16-bit register. Greater numbers become the greatest finite value."""
        return self._result(Fp8PairFromF32(to), "b16", None, high, low)

    def half_from_s32(self, to: Half, a: Reg) -> Reg:
        """A signed integer as a 16-bit float, to nearest even."""
        return self._result(IntegerToHalf(to, "s32"), "b16", None, a)

    def f32_from_s32(self, a: Reg) -> Reg:
        """A signed integer as f32, to nearest even."""
        return self._result(IntegerToF32("s32"), "f32", None, a)

    def to_f32(self, source: Half, a: Reg) -> Reg:
        return self._result(ToF32(source), "f32", None, a)

    def special(self, name: str) -> Reg:
        return self._result(Special(name), "b32", None)

    def shuffle(self, a: Reg, lane: Number) -> Reg:
        return self._result(ShuffleIndex(), "b32", None, a, lane)

    def shuffle_xor(self, a: Reg, mask: Number) -> Reg:
        """`a` of the lane whose number is the own one xor `mask`, a number below 32."""
        return self._result(ShuffleButterfly(), "b32", None, a, mask)
