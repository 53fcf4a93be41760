"""Lowers integers and addresses as sums with a constant. Elements that differ by constants share a base register.

An addition still gives each element a register. The assembler removes registers that are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from xdsl.dialects import arith
from xdsl.ir import Operation

from louver.analysis.runs import counts, wraps_whole
from louver.compile.lower.tiles.facts import WHOLE, Facts, Sum
from louver.compile.lower.tiles.numbers import bits_of, compute, element_bytes, is_integer
from louver.compile.lower.tiles.state import Lowering
from louver.ir import arith as ours
from louver.ir.comparisons import SelectOp
from louver.ir.tile import AddPtrOp, PointerType
from louver.ir.tile.types import element_of
from louver.isa.convert import ConvertInteger
from louver.isa.instruction import REGISTER_BITS, RegType
from louver.isa.scalar import MultiplyWide
from louver.ptx.module import Reg

Made: TypeAlias = dict[Hashable, Reg]
"""The registers that one operation has computed, by a key that says how."""


def summed(low: Lowering, op: Operation, operands: Sequence[Reg], made: Made) -> Reg | None:
    """An integer or address as a sum with a constant; None for other operations, and if no such sum is known."""
    rule = _RULES.get(type(op))
    if rule is None or any(register.type not in ("b32", "b64") for register in operands) or _is_short(op):
        return None
    return rule(low, op, operands, made)


def _is_short(op: Operation) -> bool:
    """Whether an operation uses integers of 8 or 16 bits, which are extended after each operation."""
    elements = [element_of(value.type) for value in (*op.operands, *op.results)]
    return any(is_integer(element) and bits_of(element) not in (32, 64) for element in elements)


def _once(made: Made, key: Hashable, make: Callable[[], Reg]) -> Reg:
    if key not in made:
        made[key] = make()
    return made[key]


def plus_constant(low: Lowering, base: Reg | None, constant: int, kind: RegType, made: Made) -> Reg:
    """The register of a sum."""
    bits = REGISTER_BITS[kind]
    constant = (constant + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    if base is None:
        return low.constant(constant, kind)
    if constant == 0:
        return base

    def make() -> Reg:
        found = low.k.add(base, constant) if constant > 0 else low.k.sub(base, -constant)
        low.known.is_sum(found, base, constant)
        return found

    return _once(made, (base, constant), make)


def _added(low: Lowering, op: Operation, operands: Sequence[Reg], made: Made) -> Reg:
    a, b = (low.known.sum_of(each) for each in operands)
    minus = isinstance(op, arith.SubiOp)
    constant = a.constant - b.constant if minus else a.constant + b.constant
    if a.base is None or b.base is None:
        base = a.base or b.base
        if minus and a.base is None and b.base is not None:
            zero = low.constant(0, operands[0].type)
            # Negation changes the remainder.
            facts = Facts(_of(low, b.base).multiple)
            base = _once(made, ("-", b.base), lambda: _with(low, low.k.sub(zero, cast(Reg, b.base)), facts))
    else:
        one, other = a.base, b.base

        def make() -> Reg:
            facts = _of(low, one).plus(_of(low, other))
            if minus:
                facts = Facts(min(_of(low, one).multiple, _of(low, other).multiple))
            return _with(low, low.k.sub(one, other) if minus else low.k.add(one, other), facts)

        base = _once(made, ("-" if minus else "+", one, other), make)
    return plus_constant(low, base, constant, operands[0].type, made)


def _of(low: Lowering, base: Reg | None) -> Facts:
    return Facts() if base is None else low.known.facts_of(base)


def _with(low: Lowering, register: Reg, facts: Facts) -> Reg:
    if facts != Facts():
        low.known.has(register, facts)
    return register


def _multiplied(low: Lowering, op: Operation, operands: Sequence[Reg], made: Made) -> Reg | None:
    a, b = (low.known.sum_of(each) for each in operands)
    if a.base is not None and b.base is not None:
        return None
    (factor, other) = (a.constant, b) if a.base is None else (b.constant, a)
    if factor == 0 or other.base is None:
        return plus_constant(low, None, factor * other.constant, operands[0].type, made)
    kind, base = operands[0].type, other.base

    def make() -> Reg:
        by = low.constant(factor, kind)
        return _with(low, low.k.mul_lo(base, by), low.known.facts_of(base).scaled(factor))

    product = base if factor == 1 else _once(made, ("*", base, factor), make)
    return plus_constant(low, product, factor * other.constant, kind, made)


def _extended(low: Lowering, op: Operation, operands: Sequence[Reg], made: Made) -> Reg | None:
    (register,) = operands
    found = low.known.sum_of(register)
    if found.base is None:
        return plus_constant(low, None, found.constant, "b64", made) if found.constant >= 0 else None
    base, facts = found.base, low.known.facts_of(found.base)
    if found.constant and not facts.takes(found.constant):
        return None
    # After the extension, a remainder modulo 2^32 is only valid for numbers that are not negative.
    kept = facts if facts.period < WHOLE or facts.most < WHOLE // 2 else Facts(facts.multiple)
    wide = _once(made, ("wide", base), lambda: _with(low, low.emit(ConvertInteger("s64", "s32"), base), kept))
    return plus_constant(low, wide, found.constant, "b64", made)


def _moved(low: Lowering, op: AddPtrOp, operands: Sequence[Reg], made: Made) -> Reg:
    """Add an offset in elements to an address. Offsets of 32 bits do not overflow."""
    size = element_bytes(cast(PointerType, element_of(op.ptr.type)).pointee, op)
    pointer, offset = (low.known.sum_of(each) for each in operands)
    constant = pointer.constant + offset.constant * size
    if pointer.base is None or offset.base is None:
        return plus_constant(low, pointer.base or offset.base, constant, "b64", made)
    base, by = pointer.base, offset.base

    def make() -> Reg:
        if by.type == "b64" and low.in_chunks:
            # Pointers of several rows have the same offset, which is multiplied once.
            found = low.k.add(base, _once(made, ("*", by), lambda: low.k.shl(by, size.bit_length() - 1)))
        elif by.type == "b64":
            found = low.k.mad_lo(by, size, base)
        else:
            found = low.emit(MultiplyWide("s32", add=True), by, size, base)
        multiple = min(low.known.facts_of(by).multiple * (size & -size), low.known.facts_of(base).multiple)
        return _with(low, found, Facts(multiple))

    return plus_constant(low, _once(made, ("at", base, by), make), constant, "b64", made)


def _divided(low: Lowering, op: Operation, operands: Sequence[Reg], made: Made) -> Reg | None:
    """A quotient or a remainder. Neighbours of one group have the quotient of the first one, and its remainder plus a constant."""
    number, by = (low.known.sum_of(each) for each in operands)
    if number.base is None and by.base is None and number.constant >= 0 and by.constant > 0:
        found = None, divmod(number.constant, by.constant)[isinstance(op, arith.RemSIOp | arith.RemUIOp)]
    else:
        found = _of_first(low, op, operands, made)
    return None if found is None else plus_constant(low, *found, operands[0].type, made)


def _of_first(low: Lowering, op: Operation, operands: Sequence[Reg], made: Made) -> tuple[Reg | None, int] | None:
    """The result of a division, as a sum: that for the first of neighbours, and how far the element is behind it. None if no group
    is known, and the number may be negative.
    """
    number, by = (low.known.sum_of(each) for each in operands)
    group = min(_of(low, number.base).multiple, low.known.facts_of(operands[1]).multiple)
    remainder = isinstance(op, arith.RemSIOp | arith.RemUIOp)
    group = min(
        group, wraps_whole(op) if remainder else WHOLE if isinstance(op, arith.DivUIOp) or counts(op.operands[0]) else 1
    )
    kind, after = operands[0].type, number.constant % group
    before = number.constant - after
    found = _of_natural(low, op, Sum(number.base, before), operands[1], made)
    if found is None and group == 1:
        return None

    def make() -> Reg:
        return _derived(low, op, (plus_constant(low, number.base, before, kind, made), operands[1]))

    base, constant = found or (_once(made, ("first", number.base, before, by), make), 0)
    return base, constant + (after if remainder else 0)


def _of_natural(low: Lowering, op: Operation, number: Sum, by: Reg, made: Made) -> tuple[Reg | None, int] | None:
    """The same for a number that is not negative, and a constant divisor: a base and whole groups, where the base alone is divided,
    or does not reach the next group. None for other numbers.
    """
    divisor, base = low.known.sum_of(by), number.base
    most = None if base is None else low.known.most_of(base)
    if base is None or most is None or divisor.base is not None or divisor.constant < 1 or number.constant < 0:
        return None
    if most + number.constant >= WHOLE // 2:
        return None
    divides = isinstance(op, arith.DivSIOp | arith.DivUIOp)
    groups, after = divmod(number.constant, divisor.constant)
    if most + after < divisor.constant:
        return (None, groups) if divides else (base, after)
    if after:
        return None
    found = _once(made, ("of", base, divisor), lambda: _derived(low, op, (base, by)))
    return found, groups if divides else 0


def _derived(low: Lowering, op: Operation, operands: Sequence[Reg]) -> Reg:
    """The result of an operation that is not a sum with a constant, with its facts."""
    found = compute(low, op, tuple(operands))
    derived(low, op, operands, found)
    return found


_Rule: TypeAlias = Callable[[Lowering, Any, Sequence[Reg], Made], "Reg | None"]

_RULES: dict[type[Operation], _Rule] = {
    arith.AddiOp: _added,
    arith.SubiOp: _added,
    arith.MuliOp: _multiplied,
    arith.RemSIOp: _divided,
    arith.RemUIOp: _divided,
    arith.DivSIOp: _divided,
    arith.DivUIOp: _divided,
    ours.ExtSIOp: _extended,
    AddPtrOp: _moved,
}


def derived(low: Lowering, op: Operation, operands: Sequence[Reg], result: Reg) -> None:
    """Record facts about the result of an operation that is not a sum with a constant."""
    if result.type not in ("b32", "b64"):
        return
    facts = [low.known.facts_of(each) for each in operands if each.type in ("b32", "b64")]
    most = low.known.most_of(operands[0])
    found: Facts | None = None
    match op:
        case arith.MuliOp():
            found = facts[0].times(facts[1])
        case ours.ExtSIOp() | arith.IndexCastOp() if facts:
            found = Facts(facts[0].multiple)
        case arith.MinSIOp() | arith.MaxSIOp() | arith.MinUIOp() | arith.MaxUIOp() | arith.RemSIOp() | SelectOp() if (
            facts
        ):
            found = Facts(min(each.multiple for each in facts))
        case arith.DivSIOp() | arith.DivUIOp() | arith.ShRSIOp() | arith.ShRUIOp():
            by = low.known.sum_of(operands[1])
            if by.base is None and by.constant > 0:
                divisor = by.constant if isinstance(op, arith.DivSIOp | arith.DivUIOp) else 1 << min(by.constant, 63)
                multiple = facts[0].multiple
                whole = low.known.sum_of(operands[0])
                if isinstance(op, arith.DivUIOp) and whole.base is not None and 0 <= whole.constant < divisor:
                    # An addend below the divisor does not change the quotient if the other one is a multiple of the
                    # divisor.
                    multiple = low.known.facts_of(whole.base).multiple
                if multiple % divisor == 0:
                    found = Facts(multiple // divisor)
                if most is not None:
                    found = replace(found or Facts(), period=WHOLE, most=most // divisor)
        case _:
            pass
    if isinstance(op, arith.RemSIOp | arith.RemUIOp) and most is not None:
        by = low.known.sum_of(operands[1])
        if by.base is None and by.constant > 0:
            found = replace(found or Facts(), period=WHOLE, most=min(most, by.constant - 1))
    if found is not None and found != Facts() and low.known.sum_of(result) == Sum(result, 0):
        low.known.has(result, found)
