"""Checks whether a dense array keeps a pattern, and lists the groups that do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType
from louver.formats.pattern import Pattern
from louver.formats.rows import Bits, group_start, normal_axis, on_gpu, row_blocks, sparse_operand, to_groups, to_rows
from louver.formats.select import count_per_group, negative_zeros, nonzero

LISTED: Final = 8
"""Offending groups that a report names unless asked for more or fewer; it counts them all."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of an array. start: coordinates of its first element. nonzeros: how many of its elements are not zero."""

    start: tuple[int, ...]
    nonzeros: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `check`.

    exact: whether groups had to hold exactly N non-zeros rather than at most N. groups: all groups looked at.
    offending: groups that break the rule. first: the first of them in row-major order, at most 8 unless asked for more or fewer.
    histogram: M + 1 counts; entry i is the number of groups with i non-zeros.
    negative_zeros_dropped: how many -0.0 `compress` would turn into +0.0 for want of a free slot in their group.
    """

    pattern: Pattern
    exact: bool
    groups: int
    offending: int
    first: tuple[Group, ...]
    histogram: tuple[int, ...]
    negative_zeros_dropped: int

    @property
    def ok(self) -> bool:
        """Whether every group keeps the pattern."""
        return self.offending == 0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        rule = f"exactly {self.pattern}" if self.exact else str(self.pattern)
        if self.ok:
            return f"{rule} holds in all {self.groups} groups"
        where = ", ".join(f"{list(group.start)} has {group.nonzeros}" for group in self.first)
        return f"{rule} fails in {self.offending} of {self.groups} groups; first: {where}"


def check(w: Any, pattern: str | Pattern, *, axis: int = -1, exact: bool = False, listed: int = LISTED) -> CheckReport:
    """Count the non-zeros of every group of M along `axis` and report the groups with more than N.

    exact: groups with fewer than N offend as well. -0.0 is zero; NaN is not. A last group that is cut off counts as
    filled with zeros. listed: how many offending groups the report names. An array on a GPU is checked there.
    Raises ValueError for an element type, pattern or axis that is not supported.
    """
    if (there := on_gpu(w)) is not None:
        return there.check(w, pattern, axis=axis, exact=exact, listed=listed)
    pattern = Pattern.of_elements(pattern)
    array, element = sparse_operand(w)
    axis = normal_axis(axis, array.ndim)
    histogram = np.zeros(pattern.m + 1, np.int64)
    first: list[Group] = []
    seen = offending = dropped = 0
    for counts, negative in _group_counts(to_rows(array, axis), pattern, element):
        histogram += np.bincount(counts, minlength=pattern.m + 1)
        bad = counts != pattern.n if exact else counts > pattern.n
        offending += int(np.count_nonzero(bad))
        for group in np.flatnonzero(bad)[: listed - len(first)] if listed else ():
            first.append(Group(group_start(seen + int(group), array.shape, axis, pattern), int(counts[group])))
        dropped += negative_zeros_lost(counts, negative, pattern)
        seen += len(counts)
    return CheckReport(pattern, exact, seen, offending, tuple(first), tuple(int(n) for n in histogram), dropped)


def too_many(pattern: Pattern, axis: int, nonzeros: int, start: tuple[int, ...]) -> ValueError:
    """The error of an array with a group that has more than N non-zeros, the first of which starts there."""
    return ValueError(
        f"{pattern} allows {pattern.n} non-zeros in each group of {pattern.m} along axis {axis}, got {nonzeros} in the group at "
        f"{list(start)}: prune first, or see check() for all such groups"
    )


def negative_zeros_lost(counts: NDArray[np.uint16], negative: NDArray[np.uint16] | None, pattern: Pattern) -> int:
    """How many -0.0 find no slot, over groups with at most N non-zeros. counts, negative: non-zeros and -0.0 a group."""
    if negative is None or not negative.any():
        return 0
    lost = negative.astype(np.int32) + counts - pattern.n
    return int(lost[(lost > 0) & (counts <= pattern.n)].sum())


def _group_counts(
    rows: Bits, pattern: Pattern, element: ElementType
) -> Iterator[tuple[NDArray[np.uint16], NDArray[Any] | None]]:
    """Non-zeros and -0.0 of each group, block by block."""
    for block in row_blocks(*rows.shape):
        planes = np.ascontiguousarray(to_groups(rows[block], pattern).T)
        negative = negative_zeros(planes, element)
        yield (
            count_per_group(nonzero(planes, element)),
            None if negative is None else count_per_group(negative),
        )
