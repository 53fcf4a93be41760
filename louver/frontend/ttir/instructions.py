"""Element-wise PTX instructions as operations of tile IR: one table by name.

An instruction has the accuracy of Louver's operation, also where PTX approximates more or flushes small numbers to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerType, bf16, f16, f32, i1
from xdsl.ir import Attribute, Operation, SSAValue

from louver.frontend.ttir.libdevice import PREFIX, filled, like
from louver.ir.arith import FPToSIOp, FPToUIOp, SIToFPOp, UIToFPOp
from louver.ir.comparisons import CmpfOp, CmpiOp, SelectOp
from louver.ir.tile import ExternElementwiseOp

Make: TypeAlias = Callable[..., "Operation | SSAValue"]
"""The result, or its operation, from the sources. An implicit builder inserts the operations."""

TYPES: dict[str, Attribute] = {
    "f32": f32,
    "f16": f16,
    "bf16": bf16,
    "pred": i1,
    **{f"{kind}{bits}": IntegerType(bits) for kind in "bus" for bits in (16, 32, 64)},
}
"""Element types by PTX type."""

IMMEDIATE = "immediate"
"""In place of a PTX type: an integer that is written in the text."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """reads: PTX types of the sources. writes: PTX type of the result. make: gets values, and integers of immediates."""

    reads: tuple[str, ...]
    writes: str
    make: Make


def _of(types: Sequence[str], count: int, names: Mapping[str, Make]) -> dict[str, Instruction]:
    """Instructions by name and type. Their sources and results have one type."""
    return {
        f"{name}.{each}": Instruction((each,) * count, each, make) for name, make in names.items() for each in types
    }


def _exact(name: str) -> Make:
    return lambda *sources: ExternElementwiseOp(PREFIX + name, sources)


def _reciprocal(x: SSAValue) -> Operation:
    return arith.DivfOp(filled(1.0, x.type), x)


def _with_signs(choose: Callable[[SSAValue, SSAValue], Operation]) -> Make:
    """A choice between magnitudes. A number gets the product of both signs."""

    def make(a: SSAValue, b: SSAValue) -> Operation:
        one, other = (arith.BitcastOp(each, like(each.type, TYPES["b32"])).result for each in (a, b))
        signs = arith.BitcastOp(_xor(one, other), a.type).result
        size = choose(math.AbsFOp(a).result, math.AbsFOp(b).result).results[0]
        return SelectOp(CmpfOp(size, size, "oeq").result, math.CopySignOp(size, signs).result, size)

    return make


def _complement(x: SSAValue) -> Operation:
    return arith.XOrIOp(x, filled(-1, x.type))


def _shifted(shift: Callable[[SSAValue, SSAValue], Operation], *, signed: bool = False) -> Make:
    """A shift. By 32 bits or more, all bits are shifted out."""

    def make(x: SSAValue, by: SSAValue) -> Operation:
        last = arith.MinUIOp(by, filled(31, by.type)).result
        found = shift(x, last)
        if signed:
            return found
        return SelectOp(CmpiOp(by, last, "eq").result, found.results[0], filled(0, x.type))

    return make


def _multiply_add(a: SSAValue, b: SSAValue, c: SSAValue) -> Operation:
    return arith.AddiOp(arith.MuliOp(a, b).result, c)


def _by_table(a: SSAValue, b: SSAValue, c: SSAValue, table: int) -> SSAValue:
    """The function of three bits whose values the table's bits are, as a sum modulo 2 of products."""
    terms = [table >> number & 1 for number in range(8)]
    for bit in (1, 2, 4):
        terms = [term ^ terms[number ^ bit] if number & bit else term for number, term in enumerate(terms)]
    products = [
        reduce(_and, [each for each, bit in ((a, 4), (b, 2), (c, 1)) if number & bit] or [filled(-1, a.type)])
        for number, term in enumerate(terms)
        if term
    ]
    return reduce(_xor, products or [filled(0, a.type)])


def _permuted(a: SSAValue, b: SSAValue, selector: int) -> SSAValue:
    """Four of the eight bytes, each by four bits of the selector. With the greatest of them, a byte becomes its sign."""
    total = filled(0, a.type)
    for place in range(4):
        chosen = selector >> 4 * place & 15
        first, word = 8 * (chosen & 3), b if chosen & 4 else a
        if chosen & 8:
            top = arith.ShLIOp(word, filled(24 - first, a.type)).result
            byte = arith.ShRSIOp(top, filled(31, a.type)).result
        else:
            byte = arith.ShRUIOp(word, filled(first, a.type)).result
        moved = arith.ShLIOp(_and(byte, filled(0xFF, a.type)), filled(8 * place, a.type)).result
        total = arith.OrIOp(total, moved).result
    return total


def _and(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.AndIOp(a, b).result


def _xor(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.XOrIOp(a, b).result


def _convert(op: Callable[[SSAValue, Attribute], Operation], to: str, first: Make | None = None) -> Make:
    """A conversion to a type, of a number that another operation has rounded."""

    def make(x: SSAValue) -> Operation:
        return op(x if first is None else SSAValue.get(first(x)), like(x.type, TYPES[to]))

    return make


def _to_tf32(x: SSAValue) -> Operation:
    """The nearest number of 10 bits behind the point, halves away from zero."""
    bits = arith.BitcastOp(x, like(x.type, TYPES["b32"])).result
    up = arith.AddiOp(bits, filled(0x1000, bits.type)).result
    near = arith.BitcastOp(_and(up, filled(-0x2000, bits.type)), x.type).result
    return SelectOp(CmpfOp(x, x, "oeq").result, near, x)


_ROUNDED: dict[str, Make] = {
    "rni": math.RoundEvenOp,
    "rzi": math.TruncOp,
    "rmi": math.FloorOp,
    "rpi": math.CeilOp,
}
_SUMS: dict[str, Make] = {"add": arith.AddfOp, "sub": arith.SubfOp, "mul": arith.MulfOp}
_CHOICES: dict[str, Callable[[SSAValue, SSAValue], Operation]] = {
    "max": arith.MaxnumfOp,
    "max.NaN": arith.MaximumfOp,
    "min": arith.MinnumfOp,
    "min.NaN": arith.MinimumfOp,
}
_ORDERS = ("lt", "le", "gt", "ge")
_PREDICATES: dict[str, dict[str, str]] = {
    "f32": {
        **{name: f"o{name}" for name in ("eq", "ne", *_ORDERS)},
        **{f"{name}u": f"u{name}" for name in ("eq", "ne", *_ORDERS)},
        "num": "ord",
        "nan": "uno",
    },
    **{f"{sign}32": {"eq": "eq", "ne": "ne"} | {name: sign + name for name in _ORDERS} for sign in "su"},
    "b32": {"eq": "eq", "ne": "ne"},
}
"""Comparisons of MLIR by PTX type and comparison."""


def _compared(type_: str, predicate: str) -> Instruction:
    op = CmpfOp if type_ == "f32" else CmpiOp

    def make(a: SSAValue, b: SSAValue) -> Operation:
        return op(a, b, predicate)

    return Instruction((type_, type_), "pred", make)


def _chosen(a: SSAValue, b: SSAValue, choice: SSAValue) -> Operation:
    return SelectOp(choice, a, b)


def _itself(x: SSAValue) -> SSAValue:
    return x


INSTRUCTIONS: dict[str, Instruction] = {
    **_of(
        ["f32"],
        1,
        {
            "ex2.approx": math.Exp2Op,
            "lg2.approx": math.Log2Op,
            "rcp.approx": _reciprocal,
            "rcp.rn": _exact("frcp_rn"),
            "rsqrt.approx": math.RsqrtOp,
            "sqrt.approx": math.SqrtOp,
            "sqrt.rn": _exact("fsqrt_rn"),
            "sin.approx": math.SinOp,
            "cos.approx": math.CosOp,
            "tanh.approx": math.TanhOp,
            "neg": arith.NegfOp,
            "abs": math.AbsFOp,
            **{f"cvt.{mode}.f32": make for mode, make in _ROUNDED.items()},
        },
    ),
    **_of(
        ["f32"],
        2,
        {
            "div.approx": arith.DivfOp,
            "div.full": arith.DivfOp,
            "div.rn": _exact("fdiv_rn"),
            **{f"{name}{mode}": op for name, op in _SUMS.items() for mode in ("", ".rn")},
            **_CHOICES,
            **{f"{name}.xorsign.abs": _with_signs(op) for name, op in _CHOICES.items()},
        },
    ),
    **_of(["f32"], 3, {"fma.rn": math.FmaOp}),
    **_of(["s32", "u32"], 2, {"add": arith.AddiOp, "sub": arith.SubiOp, "mul.lo": arith.MuliOp}),
    **_of(["s32", "u32"], 3, {"mad.lo": _multiply_add}),
    **_of(["s32"], 2, {"min": arith.MinSIOp, "max": arith.MaxSIOp}),
    **_of(["u32"], 2, {"min": arith.MinUIOp, "max": arith.MaxUIOp}),
    **_of(["b32", "pred"], 2, {"and": arith.AndIOp, "or": arith.OrIOp, "xor": arith.XOrIOp}),
    **_of(["b32", "pred"], 1, {"not": _complement}),
    **_of(["b32"], 2, {"shl": _shifted(arith.ShLIOp)}),
    **_of(["u32", "b32"], 2, {"shr": _shifted(arith.ShRUIOp)}),
    **_of(["s32"], 2, {"shr": _shifted(arith.ShRSIOp, signed=True)}),
    "lop3.b32": Instruction((*("b32",) * 3, IMMEDIATE), "b32", _by_table),
    "prmt.b32": Instruction(("b32", "b32", IMMEDIATE), "b32", _permuted),
    **_of([name for name in TYPES if name not in ("f16", "bf16", "pred")], 1, {"mov": _itself}),
    **{f"selp.{each}": Instruction((each, each, "pred"), each, _chosen) for each in ("f32", "b32", "s32", "u32")},
    **{
        f"setp.{name}.{type_}": _compared(type_, predicate)
        for type_, predicates in _PREDICATES.items()
        for name, predicate in predicates.items()
    },
    **{f"cvt.rn.{each}.f32": Instruction(("f32",), each, _convert(arith.TruncFOp, each)) for each in ("f16", "bf16")},
    **{f"cvt.f32.{each}": Instruction((each,), "f32", _convert(arith.ExtFOp, "f32")) for each in ("f16", "bf16")},
    **{
        f"cvt.rn.f32.{each}": Instruction((each,), "f32", _convert(op, "f32"))
        for each, op in (("s32", SIToFPOp), ("u32", UIToFPOp))
    },
    **{
        f"cvt.{mode}.{each}.f32": Instruction(("f32",), each, _convert(op, each, first))
        for each, op in (("s32", FPToSIOp), ("u32", FPToUIOp))
        for mode, first in _ROUNDED.items()
    },
    "cvt.rna.tf32.f32": Instruction(("f32",), "b32", _to_tf32),
}
"""Instructions by name, without `.ftz`."""
