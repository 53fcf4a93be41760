"""Scalar instructions: integer arithmetic, two-operand f32 arithmetic, logic and comparison.

Operands are registers or constants unless a form states otherwise. Source: PTX ISA, Integer Arithmetic, Floating Point,
Comparison and Selection, Logic and Shift.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from louver.isa.instruction import STORAGE, Bits, Operand, Pure, RegType, output, reads
from louver.isa.rule import RuleError

ScalarType = Literal["s32", "u32", "s64", "u64", "b16", "b32", "b64", "f32", "pred"]
"""Types that scalar instructions name."""

REGISTER: dict[str, RegType] = {
    "s32": "b32",
    "u32": "b32",
    "b32": "b32",
    "s64": "b64",
    "u64": "b64",
    "b64": "b64",
    "b16": "b16",
    "f32": "f32",
    "pred": "pred",
}
"""The register class that holds each type."""

VALUE: dict[str, type[np.generic]] = {
    "s32": np.int32,
    "u32": np.uint32,
    "b32": np.uint32,
    "s64": np.int64,
    "u64": np.uint64,
    "b64": np.uint64,
    "b16": np.uint16,
    "f32": np.float32,
    "pred": np.bool_,
}
"""The NumPy type that computes with each type."""

UNCHANGED = frozenset(kind for kind, type_ in VALUE.items() if type_ is STORAGE[REGISTER[kind]])
"""Types whose NumPy type is also the storage type of their registers."""

SHIFTS = ("shl", "shr")

Values = NDArray[Any]
Function = Callable[[Values, Values], Values]


def values(bits: Bits, kind: str) -> Values:
    """Registers as values of a type."""
    value = VALUE[kind]
    return bits if bits.dtype == value else bits.view(value)


def to_bits(result: Values, kind: str) -> Bits:
    """Values of a type as registers."""
    storage = STORAGE[REGISTER[kind]]
    return result if result.dtype == storage else result.astype(VALUE[kind], copy=False).view(storage)


def _clamped(amount: Values, shifted: Values) -> Values:
    """The amount, at most the register width. NumPy then shifts out all bits, as PTX does."""
    return np.minimum(amount, 8 * shifted.itemsize).astype(shifted.dtype)


def _quotient(a: Values, b: Values) -> Values:
    """a / b towards zero; all ones where b is 0, which PTX leaves undefined."""
    nonzero = np.where(b == 0, np.ones_like(b), b)
    if a.dtype.kind == "u":
        return np.where(b == 0, ~np.zeros_like(a), a // nonzero)
    unsigned = f"u{a.dtype.itemsize}"
    size = (np.abs(a).view(unsigned) // np.abs(nonzero).view(unsigned)).view(a.dtype)
    return np.where(b == 0, ~np.zeros_like(a), np.where((a < 0) != (b < 0), -size, size))


def _remainder(a: Values, b: Values) -> Values:
    """The remainder of `_quotient`; `a` where b is 0, which PTX leaves undefined."""
    return np.where(b == 0, a, a - _quotient(a, b) * b)


def _extreme(greater: bool, *, spread_nan: bool = False) -> Function:
    """The lesser or greater float, with -0 below +0. A number wins over NaN unless `spread_nan`."""

    def choose(a: Values, b: Values) -> Values:
        first = np.where(a == b, np.signbit(a), a < b) | np.isnan(b)
        if greater:
            first = np.where(a == b, np.signbit(b), a > b) | np.isnan(b)
        chosen = np.where(first & ~np.isnan(a), a, b)
        return np.where(np.isnan(a), a, np.where(np.isnan(b), b, chosen)) if spread_nan else chosen

    return choose


INTEGER: dict[str, Function] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": np.minimum,
    "max": np.maximum,
    "div": _quotient,
    "rem": _remainder,
    "shr": lambda a, b: a >> _clamped(b, a),
}
BITWISE: dict[str, Function] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << _clamped(b, a),
}
FLOATING: dict[str, Function] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div.rn": lambda a, b: a / b,
    "min": _extreme(greater=False),
    "max": _extreme(greater=True),
    "min.NaN": _extreme(greater=False, spread_nan=True),
    "max.NaN": _extreme(greater=True, spread_nan=True),
}
COMPARE: dict[str, Function] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}

CANONICAL_NAN = np.uint32(0x7FFFFFFF)
"""The NaN result of f32 arithmetic, for all NaN operands."""

OPERATIONS: dict[str, dict[str, Function]] = {
    **dict.fromkeys(("s32", "u32", "s64", "u64"), INTEGER),
    **dict.fromkeys(("b16", "b32", "b64"), BITWISE),
    "pred": {name: BITWISE[name] for name in ("and", "or", "xor")},
    "f32": FLOATING,
}
"""The operations of `Binary` for each type."""


@dataclass(frozen=True, slots=True)
class Binary(Pure):
    """`op.type d, a, b`. op: of INTEGER for s and u types, BITWISE for b types (pred has no shl), FLOATING for f32.

    Integers wrap. f32 rounds to nearest even; NaN results are canonical. Shift amounts are u32 and clamp at the width.
    """

    op: str
    type: ScalarType

    def __post_init__(self) -> None:
        if self.type not in OPERATIONS:
            raise RuleError(f"scalar types are {', '.join(OPERATIONS)}, got {self.type!r}")
        known = OPERATIONS[self.type]
        if self.op not in known:
            raise RuleError(f"{self.type} has the operations {', '.join(known)}, got {self.op!r}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        kind = REGISTER[self.type]
        return output(kind), *reads(kind, "a"), *reads("b32" if self.op in SHIFTS else kind, "b")

    @property
    def mnemonic(self) -> str:
        """`.rn` prevents the assembler from fusing a product and a sum."""
        rounded = ".rn" if self.type == "f32" and self.op in ("add", "sub", "mul") else ""
        return f"{self.op}{rounded}.{self.type}"

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        a, b = inputs
        function = OPERATIONS[self.type][self.op]
        if self.type in UNCHANGED:
            return (function(a, b),)
        if self.type == "f32":
            with np.errstate(all="ignore"):
                result = function(a.view(np.float32), b.view(np.float32))
            return (np.where(np.isnan(result), CANONICAL_NAN, result.view(np.uint32)),)
        return (to_bits(function(values(a, self.type), b if self.op in SHIFTS else values(b, self.type)), self.type),)


@dataclass(frozen=True, slots=True)
class MultiplyWide(Pure):
    """`mul.wide.u32 d, a, b`, or with `add` `mad.wide.u32 d, a, b, c`: factors of 32 bits, c and d of 64 bits."""

    type: Literal["u32", "s32"] = "u32"
    add: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output("b64"), *reads("b32", "a", "b"), *reads("b64", *(["c"] if self.add else []))

    @property
    def mnemonic(self) -> str:
        return f"{'mad' if self.add else 'mul'}.wide.{self.type}"

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        wide: type[np.generic] = np.uint64 if self.type == "u32" else np.int64
        product = values(inputs[0], self.type).astype(wide) * values(inputs[1], self.type).astype(wide)
        result = product.view(np.uint64)
        return (result + inputs[2] if self.add else result,)


@dataclass(frozen=True, slots=True)
class MultiplyAdd(Pure):
    """`mad.lo.type d, a, b, c`: the low half of a · b + c."""

    type: Literal["u32", "s32", "u64", "s64"] = "u32"

    opcode = "mad.lo.{self.type}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output(REGISTER[self.type]), *reads(REGISTER[self.type], "a", "b", "c")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        a, b, c = (values(bits, self.type) for bits in inputs)
        with np.errstate(all="ignore"):
            return (to_bits(a * b + c, self.type),)


@dataclass(frozen=True, slots=True)
class Compare(Pure):
    """`setp.compare.type p, a, b`. compare: eq, ne, lt, le, gt, ge. f32 is ordered: false for NaN, also `ne`."""

    compare: str
    type: Literal["s32", "u32", "s64", "u64", "f32"]

    opcode = "setp.{self.compare}.{self.type}"

    def __post_init__(self) -> None:
        if self.compare not in COMPARE:
            raise RuleError(f"a comparison is one of {', '.join(COMPARE)}, got {self.compare!r}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output("pred", "p"), *reads(REGISTER[self.type], "a", "b")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        a, b = (values(bits, self.type) for bits in inputs)
        result = COMPARE[self.compare](a, b)
        if self.type == "f32":
            result = result & ~(np.isnan(a) | np.isnan(b))
        return (result,)


@dataclass(frozen=True, slots=True)
class Not(Pure):
    """`not.type d, a`."""

    type: Literal["b16", "b32", "b64", "pred"]

    opcode = "not.{self.type}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output(REGISTER[self.type]), *reads(REGISTER[self.type], "a")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        return (~inputs[0],)
