"""Materializes a polynomial as operations at the place where its value is needed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, IntegerType, i32, i64
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.atoms import Iteration
from louver.compile.rewrite.insert import insert
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.polynomial import Extreme, Monomial, Part, Polynomial
from louver.ir.refusal import unsupported
from louver.ir.tile import FuncOp
from louver.ir.walk import ancestor_in

Integer: TypeAlias = IntegerType[Any, Any]


@dataclass(frozen=True, slots=True)
class Maker:
    """Computes numbers before an operation, with the source line of `like`.

    known: the polynomials of values of the kernel.
    places: the positions of values in the kernel.
    start: the place for quotients of values that are known there. In a loop they would be computed again in each step.
    """

    before: Operation
    like: Operation
    known: Mapping[SSAValue, Polynomial]
    places: Mapping[SSAValue, int]
    start: Operation | None = None

    def value(self, polynomial: Polynomial, type_: Integer) -> SSAValue:
        """The value of a polynomial. Rejects polynomials that cannot be computed at this place."""
        found = self._known(polynomial)
        return self._sum(polynomial, type_) if found is None else self._as(found, type_)

    def _known(self, polynomial: Polynomial) -> SSAValue | None:
        for value, known in self.known.items():
            if known == polynomial and isinstance(value.type, IntegerType) and dominates(value, self.before):
                return value
        return None

    def _sum(self, polynomial: Polynomial, type_: Integer) -> SSAValue:
        total: SSAValue | None = None
        for monomial, factor in self.terms(polynomial):
            product = self._number(factor, type_) if factor != 1 or not monomial else None
            for atom, power in sorted(monomial, key=lambda each: self._place(each[0])):
                for _ in range(power):
                    value = self._as(self._atom(atom), type_)
                    product = value if product is None else self._made(arith.MuliOp(value, product))
            assert product is not None
            total = product if total is None else self._made(arith.AddiOp(total, product))
        return self._number(0, type_) if total is None else total

    def _atom(self, atom: Hashable) -> SSAValue:
        match atom:
            case SSAValue() if dominates(atom, self.before):
                return atom
            case Iteration(loop) if dominates(number := loop.body.block.args[0], self.before):
                first, step = self._as(loop.lb, i64), self._as(loop.step, i64)
                return self._made(arith.DivSIOp(self._made(arith.SubiOp(self._as(number, i64), first)), step))
            case Part() if (found := self._known(Polynomial.atom(atom))) is not None:
                return found
            case Part(whole, by):
                early = self.start is not None and all(
                    isinstance(each, SSAValue) and dominates(cast(SSAValue, each), self.start)
                    for each in whole.leaves | by.leaves
                )
                maker = replace(self, before=self.start, start=None) if early else self
                type_ = _width(whole, by)
                return maker._made(arith.DivSIOp(maker.value(whole, type_), maker._sum(by, type_)))
            case Extreme(kind, one, other):
                made = arith.MinSIOp if kind == "min" else arith.MaxSIOp
                type_ = _width(one, other)
                return self._made(made(self.value(one, type_), self.value(other, type_)))
            case _:
                raise unsupported(
                    "a tile's start and size must be computed before the tile is loaded or stored", self.like
                )

    def terms(self, polynomial: Polynomial) -> list[tuple[Monomial, int]]:
        """The terms, which are a set, in one order, so that operations have the same order in every run."""
        return sorted(polynomial, key=self._term_place)

    def _term_place(self, term: tuple[Monomial, int]) -> tuple[object, ...]:
        monomial, factor = term
        return (sorted((self._place(atom), power) for atom, power in monomial), factor)

    def _place(self, atom: Hashable) -> tuple[object, ...]:
        match atom:
            case SSAValue():
                return (0, self.places[atom])
            case Iteration(loop):
                return (1, self.places[loop.body.block.args[0]])
            case Part() | Extreme():
                return (2, *(sorted(map(self._term_place, part)) for part in reversed(atom.parts)))
            case _:
                raise AssertionError(f"no number: {atom}")

    def _as(self, value: SSAValue, type_: Integer) -> SSAValue:
        given = cast(Integer, value.type)
        if given == type_:
            return value
        wider = given.width.data < type_.width.data
        return self._made(ExtSIOp(value, type_) if wider else TruncIOp(value, type_))

    def _number(self, value: int, type_: Integer) -> SSAValue:
        return self._made(arith.ConstantOp(IntegerAttr(value, type_)))

    def _made(self, op: Operation) -> SSAValue:
        return insert(self.before, op, self.like).results[0]


def _width(*numbers: Polynomial) -> Integer:
    """The width of a quotient, minimum or maximum of numbers.

    A 64-bit division takes several times as long as a 32-bit one.
    """
    return i32 if all(map(_is_narrow, numbers)) else i64


def _is_narrow(number: Polynomial) -> bool:
    """Whether a number fits 32 bits: a constant, a value of this width, or a quotient or extreme of such numbers."""
    if number.constant is not None:
        return abs(number.constant) < 1 << 31
    (atom, *others) = number.atoms
    if others or number != Polynomial.atom(atom):
        return False
    if isinstance(atom, Part | Extreme):
        return all(map(_is_narrow, atom.parts))
    return isinstance(atom, SSAValue) and cast(SSAValue, atom).type == i32


def earliest(op: Operation, polynomial: Polynomial) -> Operation:
    """The operation before which a number that `op` uses can be computed: `op`, or the outermost one around it."""
    leaves = [leaf.loop.body.block.args[0] if isinstance(leaf, Iteration) else leaf for leaf in polynomial.leaves]
    values = [cast(SSAValue, leaf) for leaf in leaves if isinstance(leaf, SSAValue)]
    while (
        not isinstance(around := op.parent_op(), FuncOp | None)
        and len(values) == len(leaves)
        and all(dominates(each, around) for each in values)
    ):
        op = around
    return op


def places(function: FuncOp) -> dict[SSAValue, int]:
    """The position of each value in a kernel."""
    found: list[SSAValue] = list(function.body.block.args)
    for op in function.body.walk():
        found += [
            *op.results,
            *(argument for region in op.regions for block in region.blocks for argument in block.args),
        ]
    return {value: place for place, value in enumerate(found)}


def dominates(value: SSAValue, op: Operation) -> bool:
    """Whether `value` is defined whenever `op` runs."""
    home = value.owner if isinstance(value.owner, Block) else value.owner.parent
    inner = ancestor_in(home, op)
    return inner is not None and (isinstance(value.owner, Block) or value.owner.is_before_in_block(inner))
