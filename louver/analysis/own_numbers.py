"""Reads indices that are their own number below a size, and any other number from there on: rows of a tile that wrap, or
are limited to rows of a tensor. The size may count from where a program has moved a pointer to, as in
`arange % min(BLOCK, N - start)`: `access.py` adds the move.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from louver.analysis.atoms import Wrapped
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.polynomial import Polynomial


def own_number(
    op: arith.RemSIOp | arith.MinSIOp | SelectOp, integer: Callable[[SSAValue], Polynomial]
) -> Wrapped | None:
    """The index and the size of `index % size`, `min(index, size - 1)` and `tl.where(index < size, index, …)`, or None.

    integer: reads a number or a tile of numbers.
    """
    match op:
        case arith.RemSIOp():
            return Wrapped(integer(op.lhs), integer(op.rhs), again=True)
        case arith.MinSIOp():
            return Wrapped(integer(op.lhs), integer(op.rhs) + 1)
        case SelectOp(cond=SSAValue(owner=CmpiOp() as inside)) if (found := upper_bound(inside)) is not None:
            index, size, more = found
            if (whole := integer(index)) == integer(op.lhs):
                return Wrapped(whole, integer(size) + more)
        case _:
            pass
    return None


def upper_bound(op: CmpiOp, *, holds: bool = True) -> tuple[SSAValue, SSAValue, int] | None:
    """The number that a comparison keeps below another one, that one, and what is added to it; None for equality.

    holds: whether the comparison is true there, or false.
    """
    relation = op.name_of_predicate[1:]
    if relation[0] not in "lg":
        return None
    low, high = (op.lhs, op.rhs) if (relation[0] == "l") is holds else (op.rhs, op.lhs)
    return low, high, int((relation[1] == "e") is holds)
