"""Values that are equal because the same operations compute them from the same values."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from louver.analysis.integers import literal
from louver.ir.tile import Index


def equal(one: SSAValue, other: SSAValue) -> bool:
    """Whether both are made in the same way of the same values."""
    if one is other:
        return True
    first, second = one.owner, other.owner
    if not isinstance(first, Operation) or type(first) is not type(second) or not isinstance(second, Operation):
        return False
    if first.regions or first.properties != second.properties or len(first.operands) != len(second.operands):
        return False
    if list(first.results).index(one) != list(second.results).index(other) or one.type != other.type:  # pyright: ignore[reportArgumentType]
        return False
    return all(equal(a, b) for a, b in zip(first.operands, second.operands, strict=True))


def equal_index(one: Index, other: Index) -> bool:
    """The same of entries of index lists."""
    if isinstance(one, int) or isinstance(other, int) or literal(one) is not None:
        return literal(one) == literal(other)
    return equal(one, other)


def equal_indices(one: Sequence[Index], other: Sequence[Index]) -> bool:
    """The same of index lists."""
    return len(one) == len(other) and all(map(equal_index, one, other))
