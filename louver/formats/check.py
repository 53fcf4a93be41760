"""Checks whether a dense array keeps a pattern, and lists the groups that do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from louver.formats.pattern import Pattern
from louver.formats.rows import Windows, normal_axis, on_gpu, sparse_operand, to_planes, to_rows
from louver.formats.select import Slots

LISTED: Final = 8
"""Offending groups that a report names unless asked for more or fewer; it counts them all."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of an array. start: coordinates of its first element. nonzeros: its elements, or vectors, that are not zero."""

    start: tuple[int, ...]
    nonzeros: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `check`.

    exact: whether groups had to hold exactly N non-zeros rather than at most N. groups: all groups looked at.
    offending: groups that break the rule. first: the first of them in row-major order, at most 8 unless asked for more or fewer.
    histogram: M + 1 counts; entry i is the number of groups with i non-zeros. Of N:M@L a group has M vectors.
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

    Of N:M@L a vector with an element that is not zero counts as one; groups are in the order of their windows of L rows.
    exact: groups with fewer than N offend as well. -0.0 is zero; NaN is not. A last group that is cut off counts as
    filled with zeros. listed: how many offending groups the report names. An array on a GPU is checked there.
    Raises ValueError for an element type, pattern or axis that is not supported.
    """
    if (there := on_gpu(w)) is not None:
        return there.check(w, pattern, axis=axis, exact=exact, listed=listed)
    pattern = Pattern.parse(pattern)
    array, element = sparse_operand(w)
    axis = normal_axis(axis, array.ndim)
    rows, windows = to_rows(array, axis), Windows(array.shape, axis, pattern)
    histogram = np.zeros(pattern.m + 1, np.int64)
    first: list[Group] = []
    seen = offending = dropped = 0
    for block, _ in windows.blocks():
        slots = Slots.of(to_planes(windows.tiles(rows[block])), element)
        counts = slots.counts
        histogram += np.bincount(counts, minlength=pattern.m + 1)
        bad = counts != pattern.n if exact else counts > pattern.n
        offending += int(np.count_nonzero(bad))
        for group in np.flatnonzero(bad)[: listed - len(first)] if listed else ():
            first.append(Group(windows.start(seen + int(group)), int(counts[group])))
        dropped += slots.negative_zeros_lost(pattern.n)
        seen += len(counts)
    return CheckReport(pattern, exact, seen, offending, tuple(first), tuple(int(n) for n in histogram), dropped)


def too_many(windows: Windows, group: int, nonzeros: int) -> ValueError:
    """The error of an array of which that group, counted over all windows, has more than N non-zeros."""
    pattern = windows.pattern
    kept = "non-zeros" if pattern.length == 1 else f"non-zero vectors of {pattern.length} elements"
    return ValueError(
        f"{pattern} allows {pattern.n} {kept} in each group of {pattern.m} along axis {windows.axis}, got {nonzeros} in the group at "
        f"{list(windows.start(group))}: prune first, or see check() for all such groups"
    )
