"""Values that are equal because equal operations compute them from equal operands."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from louver.analysis.integers import literal
from louver.ir.tile import Index


def equal(one: SSAValue, other: SSAValue) -> bool:
    """Whether equal operations compute both values from equal operands."""
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
    """`equal` for entries of index lists."""
    if isinstance(one, int) or isinstance(other, int) or literal(one) is not None:
        return literal(one) == literal(other)
    return equal(one, other)


def equal_indices(one: Sequence[Index], other: Sequence[Index]) -> bool:
    """`equal` for index lists."""
    return len(one) == len(other) and all(map(equal_index, one, other))
