"""Numbers that a launch computes: polynomials over SSA values become sizes over names of a call's numbers."""

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
    """The size that a launch computes for a number; None where it cannot. names: of arguments, as the launch knows their numbers."""
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
                # A size fits what it is cut to.
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
