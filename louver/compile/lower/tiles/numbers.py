"""Lowers arithmetic on one element: operations of `arith` and `math`, and conversions between element types.

f16 and bf16 are computed in f32, and rounded after each operation. Integers of 8 and 16 bits are extended again after
each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, cast

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import BFloat16Type, Float32Type, IndexType, IntegerType
from xdsl.ir import Attribute, Operation

from louver.compile.lower.tiles.constant_divisors import divided, rest
from louver.compile.lower.tiles.facts import Test
from louver.compile.lower.tiles.older_targets import fp8_from_f32, fp8_to_f32, integer_to_half
from louver.compile.lower.tiles.state import Byte, Lowering, Registers, register_class
from louver.ir import arith as ours
from louver.ir.comparisons import CmpfOp, CmpiOp, SelectOp
from louver.ir.elementwise import step_of
from louver.ir.refusal import unsupported
from louver.ir.tile import (
    BYTE_FLOATS,
    ELEMENTS,
    AddPtrOp,
    ClampFOp,
    FpToFpOp,
    PointerCastOp,
    PointerType,
    PtrToIntOp,
    element_name,
)
from louver.ir.tile.types import element_of
from louver.isa.bits import ExtractField, PermuteBytes
from louver.isa.convert import ConvertInteger, F32ToInteger, Fp8, IntegerToF32, IntegerToHalf
from louver.isa.elementwise import ELEMENTWISE_STEPS
from louver.isa.floating import Fma, Sign
from louver.isa.instruction import REGISTER_BITS
from louver.isa.move import Bitcast
from louver.isa.scalar import Binary, Compare, ScalarType
from louver.ptx.module import Reg

Rule: TypeAlias = Callable[[Lowering, Any, Registers], Reg]
"""Lowers an operation on these operands, and returns the register of its result."""


def bits_of(element: Attribute) -> int:
    """Bits of an integer."""
    return 64 if isinstance(element, IndexType) else cast(IntegerType, element).width.data


def is_integer(element: Attribute) -> bool:
    """Whether elements are integers of a fixed width, signless or unsigned."""
    return isinstance(element, IntegerType)


def is_unsigned(element: Attribute) -> bool:
    """Whether registers hold integers with zeros above their bits."""
    return element == ELEMENTS["u8"]


def signed_type(bits: int, *, unsigned: bool = False) -> Literal["s32", "u32", "s64", "u64"]:
    """The scalar type of the register for integers of `bits` bits."""
    wide = bits == 64
    if unsigned:
        return "u64" if wide else "u32"
    return "s64" if wide else "s32"


def extended(low: Lowering, register: Reg, element: Attribute) -> Reg:
    """Extend integers of 8 and 16 bits to the form that registers hold."""
    bits = bits_of(element)
    if bits not in (8, 16):
        return register
    if is_unsigned(element):
        return low.k.and_(register, (1 << bits) - 1)
    return low.emit(ExtractField("s32"), register, 0, bits)


def without_sign(low: Lowering, register: Reg, bits: int) -> Reg:
    """Set the bits above integers of 8 and 16 bits to zero."""
    return low.k.and_(register, (1 << bits) - 1) if bits in (8, 16) else register


# --- floating point ------------------------------------------------------------------------------------------------
def to_f32(low: Lowering, register: Reg, element: Attribute) -> Reg:
    """Convert a floating-point number to f32."""
    if isinstance(element, Float32Type):
        return register
    name = element_name(element)
    if register in low.rounded:
        return low.rounded[register]
    if name in ("f16", "bf16"):
        return low.k.to_f32(name, register)
    return fp8_to_f32(low, register, cast(Fp8, name))


def from_f32(low: Lowering, register: Reg, element: Attribute) -> Reg:
    """Round f32 to a floating-point type, to nearest even. 8-bit floats saturate."""
    if isinstance(element, Float32Type):
        return register
    name = element_name(element)
    if name in ("f16", "bf16"):
        return low.k.from_f32(name, register)
    return fp8_from_f32(low, register, cast(Fp8, name))


def _floating(low: Lowering, op: Operation, operands: Registers) -> Reg:
    """Compute a step of `louver.isa.elementwise` in f32."""
    name = step_of(op)
    assert name is not None
    element = element_of(op.results[0].type)
    wide = [to_f32(low, each, element) for each in operands]
    return from_f32(low, ELEMENTWISE_STEPS[name].lower(low.emit, *wide), element)


def _in_f32(compute: Callable[..., Reg]) -> Rule:
    """A rule for all floating-point types, from an operation on f32."""

    def rule(low: Lowering, op: Operation, operands: Registers) -> Reg:
        element = element_of(op.results[0].type)
        wide = [to_f32(low, each, element) for each in operands]
        return from_f32(low, compute(low, *wide), element)

    return rule


def _clamp(low: Lowering, op: ClampFOp, operands: Registers) -> Reg:
    suffix = ".NaN" if op.propagate_nan.data == "all" else ""
    element = element_of(op.result.type)
    x, least, most = (to_f32(low, each, element) for each in operands)
    above = low.emit(Binary(f"max{suffix}", "f32"), x, least)
    return from_f32(low, low.emit(Binary(f"min{suffix}", "f32"), above, most), element)


def _resized(low: Lowering, op: Operation, operands: Registers) -> Reg:
    """Convert floating-point numbers to another type."""
    source, result = (element_of(value.type) for value in (op.operands[0], op.results[0]))
    if isinstance(op, FpToFpOp) and op.rounding is not None and op.rounding.data != "rtne":
        raise unsupported("a conversion must round to nearest even (rtne)", op, "leave fp_downcast_rounding out")
    wide = to_f32(low, operands[0], source)
    found = from_f32(low, wide, result)
    if isinstance(result, BFloat16Type) and any(isinstance(use.operation, arith.ExtFOp) for use in op.results[0].uses):
        # The upper half of a pair is the f32 of the same value. ptxas rounds single numbers at a quarter of the rate of pairs.
        pair = low.k.pair_from_f32("bf16", low.constant(0.0, "f32"), wide)
        low.rounded[found] = low.emit(Bitcast("f32"), pair)
    return found


# --- integers ------------------------------------------------------------------------------------------------------
def _whole(name: str, *, unsigned: bool = False) -> Rule:
    def rule(low: Lowering, op: Operation, operands: Registers) -> Reg:
        element = element_of(op.results[0].type)
        if operands[0].type == "pred":
            logic = {"add": "xor", "sub": "xor", "mul.lo": "and"}
            if name not in logic:
                raise unsupported("booleans support and, or, xor and comparisons", op, "convert them to integers first")
            return low.emit(Binary(logic[name], "pred"), *operands)
        bits = bits_of(element)
        a, b = (without_sign(low, each, bits) for each in operands) if unsigned else operands
        by = _divisor(low, b) if name in ("div", "rem") else b
        if isinstance(by, int) and (quotient := divided(low, a, by, bits, unsigned=unsigned)) is not None:
            return quotient if name == "div" else rest(low, a, by, quotient)
        if name in ("div", "rem") and bits == REGISTER_BITS["b64"] and isinstance(by, Reg):
            return _divided_as_narrow(low, Binary(name, signed_type(bits, unsigned=unsigned)), a, by)
        return extended(low, low.emit(Binary(name, signed_type(bits, unsigned=unsigned)), a, by), element)

    return rule


def _divided_as_narrow(low: Lowering, division: Binary, a: Reg, b: Reg) -> Reg:
    """A 64-bit division. It takes some hundred instructions, so numbers that fit 32 bits use a 32-bit division."""
    k = low.k
    found = k.reg("b64")
    with k.if_(k.setp("eq", "u64", k.shr(k.or_(a, b), 32), 0)) as fits:
        narrow = [low.emit(ConvertInteger("u32", "u64"), each) for each in (a, b)]
        k.emit(ConvertInteger("u64", "u32"), found, low.emit(Binary(division.op, "u32"), *narrow))
    with fits.otherwise():
        k.emit(division, found, a, b)
    return found


def _divisor(low: Lowering, register: Reg) -> Reg | int:
    """The constant in a register; else the register."""
    known = low.known.sum_of(register)
    return register if known.base is not None or known.constant == 0 else known.constant


def _logic(name: str) -> Rule:
    def rule(low: Lowering, op: Operation, operands: Registers) -> Reg:
        kind: ScalarType = cast(ScalarType, operands[0].type)
        found = low.emit(Binary(name, kind), *operands)
        if kind == "pred":
            low.tests[found] = Test(name, operands)
        return found

    return rule


def _shift(name: str, *, unsigned: bool = False) -> Rule:
    def rule(low: Lowering, op: Operation, operands: Registers) -> Reg:
        element = element_of(op.results[0].type)
        bits = bits_of(element)
        value, amount = operands
        value = without_sign(low, value, bits) if unsigned else value
        kind: ScalarType = signed_type(bits, unsigned=unsigned)
        if name == "shl":
            kind = "b64" if bits == 64 else "b32"
        if amount.type == "b64":
            amount = low.emit(ConvertInteger("u32", "u64"), amount)
        return extended(low, low.emit(Binary(name, kind), value, amount), element)

    return rule


def _divided(upwards: bool) -> Rule:
    """Quotients rounded down, or up."""

    def rule(low: Lowering, op: Operation, operands: Registers) -> Reg:
        element = element_of(op.results[0].type)
        kind = signed_type(bits_of(element))
        a, b = operands
        by = _divisor(low, b)
        quotient = divided(low, a, by, bits_of(element)) if isinstance(by, int) else None
        quotient = low.emit(Binary("div", kind), a, by) if quotient is None else quotient
        left = low.emit(Binary("sub", kind), a, low.emit(Binary("mul.lo", kind), quotient, b))
        inexact = low.k.setp("ne", kind, left, 0)
        # If the signs of remainder and divisor differ, rounding towards zero has rounded up.
        apart = low.k.setp("lt", kind, low.k.xor(left, b), 0)
        wrong = low.k.and_pred(inexact, low.inverted(apart) if upwards else apart)
        moved = low.k.add(quotient, 1) if upwards else low.emit(Binary("sub", kind), quotient, 1)
        return low.k.selp(moved, quotient, wrong)

    return rule


def _absolute(low: Lowering, op: Operation, operands: Registers) -> Reg:
    element = element_of(op.results[0].type)
    kind = "s64" if bits_of(element) == 64 else "s32"
    return extended(low, low.emit(Sign("abs", kind), operands[0]), element)


def _extend(low: Lowering, op: Operation, operands: Registers) -> Reg:
    source, result = (bits_of(element_of(value.type)) for value in (op.operands[0], op.results[0]))
    signed, (register,) = isinstance(op, ours.ExtSIOp), operands
    if source == 1:
        one = low.k.selp(low.constant(-1 if signed else 1, "b32"), low.constant(0, "b32"), register)
    else:
        one = register if signed or source == 32 else without_sign(low, register, source)
    if result < 64:
        return one
    return low.emit(ConvertInteger("s64", "s32") if signed else ConvertInteger("u64", "u32"), one)


def _truncate(low: Lowering, op: Operation, operands: Registers) -> Reg:
    (register,) = operands
    if register.type == "b64":
        register = low.emit(ConvertInteger("u32", "u64"), register)
    element = element_of(op.results[0].type)
    if bits_of(element) == 1:
        return low.k.setp("ne", "u32", low.k.and_(register, 1), 0)
    return extended(low, register, element)


def _index(low: Lowering, op: Operation, operands: Registers) -> Reg:
    source, result = (bits_of(element_of(value.type)) for value in (op.operands[0], op.results[0]))
    if (source == 64) == (result == 64):
        return operands[0]
    return low.emit(ConvertInteger("u32", "u64") if source == 64 else ConvertInteger("s64", "s32"), operands[0])


# --- between both --------------------------------------------------------------------------------------------------
def _to_floating(low: Lowering, op: Operation, operands: Registers) -> Reg:
    source, result = (element_of(value.type) for value in (op.operands[0], op.results[0]))
    signed, (register,), bits = isinstance(op, ours.SIToFPOp), operands, bits_of(source)
    if bits == 8 and register in low.bytes:
        return from_f32(low, _from_byte(low, low.bytes[register], signed), result)
    if bits == 1:
        register = low.k.selp(low.constant(-1 if signed else 1, "b32"), low.constant(0, "b32"), register)
    elif not signed:
        register = without_sign(low, register, bits)
    kind = signed_type(bits, unsigned=not signed)
    name = element_name(result)
    if name in ("f16", "bf16"):
        return integer_to_half(low, register, IntegerToHalf(name, kind))
    return from_f32(low, low.emit(IntegerToF32(kind), register), result)


def _from_byte(low: Lowering, byte: Byte, signed: bool) -> Reg:
    """Convert an 8-bit integer to f32 by two instructions, which have four times the rate of a conversion.

    The integer becomes the last bits of the f32 number 2^23. Then 2^23 is subtracted. For signed integers, the sign bit
    is flipped before, so 128 is subtracted too.
    """
    word, extra = (byte.flipped, 128) if signed else (byte.word, 0)
    bits = low.emit(PermuteBytes(), word, low.constant(0x4B000000, "b32"), 0x7440 | byte.number)
    return low.emit(Binary("sub", "f32"), low.emit(Bitcast("f32"), bits), float(2**23 + extra))


def _to_whole(low: Lowering, op: Operation, operands: Registers) -> Reg:
    """Convert to an integer, rounded towards zero. Numbers out of range saturate."""
    source, result = (element_of(value.type) for value in (op.operands[0], op.results[0]))
    bits, signed = bits_of(result), isinstance(op, ours.FPToSIOp)
    if bits == 1:
        raise unsupported(
            "floating-point numbers convert to integers of 8 to 64 bits", op, "for a boolean, compare with 0"
        )
    kind = signed_type(bits, unsigned=not signed)
    whole = low.emit(F32ToInteger(kind, "rzi"), to_f32(low, operands[0], source))
    if bits < 32:
        most = (1 << (bits - signed)) - 1
        whole = low.emit(Binary("min", kind), whole, low.constant(most, "b32"))
        if signed:
            whole = low.emit(Binary("max", kind), whole, low.constant(-most - 1, "b32"))
        return extended(low, whole, result)
    return whole


def _bitcast(low: Lowering, op: Operation, operands: Registers) -> Reg:
    kinds = [register_class(element_of(value.type), op) for value in (op.operands[0], op.results[0])]
    (register,) = operands
    match kinds:
        case ["f32", "b32"] | ["b32", "f32"]:
            return low.emit(Bitcast(cast(Literal["b32", "f32"], kinds[1])), register)
        case ["b16", "b32"]:
            return extended(low, low.emit(ConvertInteger("u32", "u16"), register), element_of(op.results[0].type))
        case ["b32", "b16"]:
            narrow = without_sign(low, register, bits_of(element_of(op.operands[0].type)))
            return low.k.low_half(narrow)
        case _ if kinds[0] == kinds[1]:
            return register
        case _:
            raise unsupported(
                "a bitcast needs a type of the same width, up to 32 bits", op, "cast between types of one width"
            )


# --- comparisons and choices ---------------------------------------------------------------------------------------
def _compare_integers(low: Lowering, op: CmpiOp, operands: Registers) -> Reg:
    predicate = op.name_of_predicate
    element = element_of(op.lhs.type)
    if operands[0].type == "pred":
        if predicate not in ("eq", "ne"):
            raise unsupported("booleans are compared by == and != only", op, "convert them to integers first")
        differ = low.emit(Binary("xor", "pred"), *operands)
        return differ if predicate == "ne" else low.inverted(differ)
    if isinstance(element, PointerType):
        return low.emit(Compare(predicate[-2:], "u64"), *operands)
    kind = signed_type(bits_of(element), unsigned=predicate.startswith("u"))
    found = low.emit(Compare(predicate[-2:], kind), *operands)
    low.tests[found] = Test(predicate, operands)
    return found


_OPPOSITE = {"ueq": "ne", "ugt": "le", "uge": "lt", "ult": "ge", "ule": "gt", "une": "eq"}
"""For each unordered comparison, which is true for NaN, the ordered comparison that is its opposite."""


def _compare_floats(low: Lowering, op: CmpfOp, operands: Registers) -> Reg:
    element = element_of(op.lhs.type)
    a, b = (to_f32(low, each, element) for each in operands)
    match op.name_of_predicate:
        case "true" | "false" as name:
            return low.constant(int(name == "true"), "pred")
        case "ord" | "uno" as name:
            both = low.k.and_pred(low.k.setp("eq", "f32", a, a), low.k.setp("eq", "f32", b, b))
            return both if name == "ord" else low.inverted(both)
        case name if name in _OPPOSITE:
            return low.inverted(low.k.setp(_OPPOSITE[name], "f32", a, b))
        case name:
            return low.k.setp(name[1:], "f32", a, b)


def _select(low: Lowering, op: SelectOp, operands: Registers) -> Reg:
    condition, one, other = operands
    return choose(low, condition, one, other)


def choose(low: Lowering, condition: Reg, one: Reg, other: Reg) -> Reg:
    """`one` if the condition is true, else `other`."""
    if one.type != "pred":
        return low.k.selp(one, other, condition)
    taken = low.k.and_pred(condition, one)
    left = low.k.and_pred(low.inverted(condition), other)
    return low.emit(Binary("or", "pred"), taken, left)


def _add_pointer(low: Lowering, op: AddPtrOp, operands: Registers) -> Reg:
    """Add an offset in elements to an address."""
    pointer, offset = operands
    pointee = cast(PointerType, element_of(op.ptr.type)).pointee
    size = element_bytes(pointee, op)
    if offset.type == "b64":
        return low.k.mad_lo(offset, size, pointer)
    wide = low.emit(ConvertInteger("s64", "s32"), offset)
    return low.k.mad_lo(wide, size, pointer)


def _as_it_is(low: Lowering, op: Operation, operands: Registers) -> Reg:
    """The operand without a change: a pointer cast does not change an address."""
    return operands[0]


def element_bytes(element: Attribute, op: Operation) -> int:
    """Bytes of an element in memory, 1 for a boolean, which is loaded and stored as an integer of 8 bits. Rejects `op` for
    element types that tiles do not support.
    """
    kind = register_class(element, op)
    if kind == "pred":
        return 1
    if is_integer(element):
        return bits_of(element) // 8
    if kind == "b16":
        return 1 if element in BYTE_FLOATS else 2
    return 8 if kind == "b64" else 4


def _multiply_add(low: Lowering, a: Reg, b: Reg, c: Reg) -> Reg:
    return low.emit(Fma(), a, b, c)


RULES: dict[type[Operation], Rule] = {
    arith.AddiOp: _whole("add"),
    arith.SubiOp: _whole("sub"),
    arith.MuliOp: _whole("mul.lo"),
    arith.DivSIOp: _whole("div"),
    arith.DivUIOp: _whole("div", unsigned=True),
    arith.RemSIOp: _whole("rem"),
    arith.RemUIOp: _whole("rem", unsigned=True),
    arith.FloorDivSIOp: _divided(upwards=False),
    arith.CeilDivSIOp: _divided(upwards=True),
    arith.MinSIOp: _whole("min"),
    arith.MaxSIOp: _whole("max"),
    arith.MinUIOp: _whole("min", unsigned=True),
    arith.MaxUIOp: _whole("max", unsigned=True),
    arith.AndIOp: _logic("and"),
    arith.OrIOp: _logic("or"),
    arith.XOrIOp: _logic("xor"),
    arith.ShLIOp: _shift("shl"),
    arith.ShRSIOp: _shift("shr"),
    arith.ShRUIOp: _shift("shr", unsigned=True),
    arith.IndexCastOp: _index,
    arith.ExtFOp: _resized,
    arith.TruncFOp: _resized,
    FpToFpOp: _resized,
    ours.UIToFPOp: _to_floating,
    ours.FPToUIOp: _to_whole,
    arith.BitcastOp: _bitcast,
    ours.SIToFPOp: _to_floating,
    ours.FPToSIOp: _to_whole,
    ours.ExtSIOp: _extend,
    ours.ExtUIOp: _extend,
    ours.TruncIOp: _truncate,
    math.AbsIOp: _absolute,
    math.FmaOp: _in_f32(_multiply_add),
    CmpiOp: _compare_integers,
    CmpfOp: _compare_floats,
    SelectOp: _select,
    ClampFOp: _clamp,
    AddPtrOp: _add_pointer,
    PtrToIntOp: _as_it_is,
    PointerCastOp: _as_it_is,
}
"""The rules of operations on elements, without the steps of `louver.isa.elementwise`."""


def compute(low: Lowering, op: Operation, operands: Sequence[Reg]) -> Reg:
    """The result of an operation on one element. Rejects operations without a rule."""
    rule = RULES.get(type(op))
    if rule is None and step_of(op) is not None:
        rule = _floating
    if rule is None:
        raise unsupported(f"{op.name} is not computed on tiles in registers", op)
    return rule(low, op, tuple(operands))
