"""Integers and pointers as polynomials that are exact modulo the size of their type. Scalars and tensors are read alike: a
polynomial is that of each element, because sums and products commute with what only moves elements.

Other than `louver.analysis.affine`, it rejects nothing. What it does not know is an atom, and the same operations on equal
operands are one atom. Values of equal polynomials are equal. Only offsets of pointers may not overflow, as everywhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from louver.analysis.effects import has_no_effect, is_elementwise
from louver.analysis.integers import constant_integer, position
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp
from louver.ir.polynomial import Polynomial
from louver.ir.tile.types import as_tensor, element_bits, element_of

_Moves: TypeAlias = tuple[Hashable, ...]
"""What moves elements, the last operation first."""


@dataclass(slots=True)
class Exact:
    """Reads values of a kernel.

    differences: values that are read as the difference of two others.
    known: results of earlier reads, by the moves of elements.
    """

    differences: Mapping[SSAValue, tuple[SSAValue, SSAValue]] = field(
        default_factory=dict[SSAValue, tuple[SSAValue, SSAValue]]
    )
    known: dict[tuple[SSAValue, _Moves], Polynomial] = field(default_factory=dict[tuple[SSAValue, _Moves], Polynomial])

    def of(self, value: SSAValue, moves: _Moves = ()) -> Polynomial:
        """The polynomial of each element, behind these moves."""
        found = self.known.get((value, moves))
        if found is None:
            found = self.known[value, moves] = self._read(value, moves)
        return found

    def _read(self, value: SSAValue, moves: _Moves) -> Polynomial:
        constant = constant_integer(value)
        if constant is not None:
            return Polynomial.number(constant)
        if value in self.differences:
            whole, less = self.differences[value]
            return self.of(whole, moves) - self.of(less, moves)
        match value.owner:
            case arith.AddiOp(lhs=one, rhs=other) | tt.AddPtrOp(ptr=one, offset=other):
                return self.of(one, moves) + self.of(other, moves)
            case arith.SubiOp(lhs=one, rhs=other):
                return self.of(one, moves) - self.of(other, moves)
            case arith.MuliOp(lhs=one, rhs=other):
                return self.of(one, moves) * self.of(other, moves)
            case tt.SplatOp(src=inner):
                return self.of(inner)
            case tt.BroadcastOp() | tt.ExpandDimsOp() | tt.TransOp() as op:
                return self.of(op.src, (*moves, (_kind(op), op.result.type)))
            case ExtSIOp() as op if (number := self.of(op.input, moves).constant) is not None:
                half = 1 << element_bits(op.input.type) - 1
                return Polynomial.number((number + half) % (2 * half) - half)
            case Operation() as op if has_no_effect(op) and not op.regions:
                return self._computed(op, value, moves)
            case _:
                return Polynomial.atom((value, moves if as_tensor(value.type) else ()))

    def _computed(self, op: Operation, value: SSAValue, moves: _Moves) -> Polynomial:
        """An atom. Elementwise operations commute with moves."""
        if is_elementwise(op):
            types = tuple(element_of(each.type) for each in (*op.operands, value))
            return Polynomial.atom((_kind(op), types, *(self.of(each, moves) for each in op.operands)))
        types = tuple(each.type for each in op.results)
        operands = tuple(map(self.of, op.operands))
        return Polynomial.atom((_kind(op), types, position(value, op.results), operands, moves))


def _kind(op: Operation) -> Hashable:
    """An operation's name and properties. With types and operands, they tell what it computes."""
    return (op.name, frozenset(op.properties.items()))
