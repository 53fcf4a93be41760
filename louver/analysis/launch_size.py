"""Numbers that a launch computes: a polynomial over SSA values becomes a size over the names of a call's numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import cast

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from louver.analysis.affine import Affine
from louver.ir.arith import TruncIOp
from louver.ir.polynomial import Extreme, Polynomial, Size, programs
from louver.ir.tile import GetNumProgramsOp, Index


def launch_size(value: Polynomial | Index, names: Mapping[SSAValue, str]) -> Size | None:
    """The number as a size that a launch can compute, or None. names: of the arguments that a launch knows."""
    affine = Affine()

    def leaf(atom: Hashable) -> Size | None:
        if not isinstance(atom, SSAValue):
            return None
        value = cast(SSAValue, atom)
        if value in names:
            return Polynomial.atom(names[value])
        match value.owner:
            case GetNumProgramsOp(axis=axis):
                return Polynomial.atom(programs(axis.value.data))
            case TruncIOp(input=inner):
                # The truncation is exact: a size fits in the shorter type.
                return affine.integer(inner).over(leaf)
            case arith.DivSIOp(lhs=one, rhs=other) | arith.DivUIOp(lhs=one, rhs=other):
                whole, by = (affine.integer(each).over(leaf) for each in (one, other))
                return None if whole is None or by is None else whole // by
            case arith.MinSIOp(lhs=one, rhs=other):
                return Extreme("min", affine.integer(one), affine.integer(other)).over(leaf)
            case arith.MaxSIOp(lhs=one, rhs=other):
                return Extreme("max", affine.integer(one), affine.integer(other)).over(leaf)
            case _:
                return None

    return (value if isinstance(value, Polynomial) else affine.index(value)).over(leaf)
