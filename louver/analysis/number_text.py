"""Numbers that a launch computes from its arguments, as text: "+ * 2 K 15" is 2·K + 15, operators first.

The operators are +, -, *, / (rounded down, of numbers that are not negative), < (the least) and > (the greatest). Other words are
integers and names of numbers; programs along an axis are "programs:x".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import cast

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from louver.analysis.atoms import Part
from louver.analysis.index_numbers import literal
from louver.analysis.integers import constant_integer
from louver.analysis.polynomial import Polynomial
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.tile import GetNumProgramsOp, Index
from louver.ir.tile.syntax import AXES


def number_text(value: Polynomial, names: Mapping[SSAValue, str]) -> str | None:
    """A number that a launch can compute; None for others. names: of arguments, as the launch knows their numbers."""
    terms: list[str] = []
    for monomial, factor in value:
        factors = [] if factor == 1 and monomial else [str(factor)]
        for atom, power in monomial:
            text = _atom(atom, names)
            if text is None:
                return None
            factors += [text] * power
        terms.append(_joined("*", sorted(factors)))
    return _joined("+", sorted(terms)) if terms else "0"


def _joined(operator: str, parts: list[str]) -> str:
    return " ".join([*[operator] * (len(parts) - 1), *parts])


def _atom(atom: Hashable, names: Mapping[SSAValue, str]) -> str | None:
    match atom:
        case Part(whole, by):
            text = number_text(whole, names)
            return None if text is None else f"/ {text} {by}"
        case SSAValue():
            return _value(atom, names)
        case _:
            return None


_OPERATORS: Mapping[type, str] = {
    arith.AddiOp: "+",
    arith.SubiOp: "-",
    arith.MuliOp: "*",
    arith.DivSIOp: "/",
    arith.DivUIOp: "/",
    arith.MinSIOp: "<",
    arith.MaxSIOp: ">",
}


def _value(value: SSAValue, names: Mapping[SSAValue, str]) -> str | None:
    constant = constant_integer(value)
    if constant is not None:
        return str(constant)
    op = value.owner
    match op:
        case ExtSIOp() | TruncIOp():
            return _value(op.input, names)
        case GetNumProgramsOp():
            return f"programs:{AXES[op.axis.value.data]}"
        case _ if (operator := _OPERATORS.get(type(op))) is not None:
            parts = [_value(each, names) for each in cast(Operation, op).operands]
            return None if None in parts else f"{operator} {parts[0]} {parts[1]}"
        case _:
            return names.get(value)


_MEANINGS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "<": min,
    ">": max,
}


def value_of(text: str, numbers: Mapping[str, int | float]) -> int:
    """The number of a text. Raises ValueError for a quotient that is rounded another way in a kernel."""
    return _read(iter(text.split(" ")), numbers)


def _read(words: Iterator[str], numbers: Mapping[str, int | float]) -> int:
    word = next(words)
    if word in _MEANINGS or word == "/":
        left, right = _read(words, numbers), _read(words, numbers)
        if word != "/":
            return _MEANINGS[word](left, right)
        if left < 0 or right < 1:
            raise ValueError(f"a size is divided as numbers that are not negative are, got {left} / {right}")
        return left // right
    if word.lstrip("-").isdigit():
        return int(word)
    return int(numbers[word.replace(":", " ")])


def size_text(index: Index, names: Mapping[SSAValue, str]) -> str | None:
    """A size or stride, as `louver.user.sizes` reads it: factors joined by *, or an argument / a number or / another one."""
    number = literal(index)
    if number is not None or isinstance(index, int):
        return str(number)
    match index.owner:
        case ExtSIOp(input=value) | TruncIOp(input=value):
            return size_text(value, names)
        case GetNumProgramsOp(axis=axis):
            return f"programs {'xyz'[axis.value.data]}"
        case arith.MuliOp(lhs=left, rhs=right):
            factors = [size_text(each, names) for each in (left, right)]
            if None in factors or any("/" in str(each) for each in factors):
                return None
            return "*".join(sorted(factor for each in factors for factor in str(each).split("*")))
        case arith.DivSIOp(lhs=whole, rhs=by):
            name, divisor = size_text(whole, names), size_text(by, names)
            if name is None or divisor is None or not {"*", "/"}.isdisjoint(name + divisor) or divisor == "0":
                return None
            return f"{name}/{divisor}"
        case _:
            return names.get(index)
