"""Checks whether a dense array keeps a pattern, and lists the groups that do not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType, check_switch
from louver.formats.dynamo import opaque
from louver.formats.pattern import Pattern
from louver.formats.rows import Bits, Block, Windows, normal_axis, on_gpu, sparse_operand, to_planes, to_rows
from louver.formats.select import Mask, Slots, kept_of, largest, nonzero
from louver.formats.torch_tensors import detached

LISTED: Final = 8
"""Offending groups that a report names by default. All are counted."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of an array. start: coordinates of its first element. nonzeros: its non-zero elements or vectors.

    in_row: for V:N:M, `nonzeros` counts elements of one row, in a group whose vectors keep the pattern.
    """

    start: tuple[int, ...]
    nonzeros: int
    in_row: bool = False


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `check`.

    exact: the rule was exactly N non-zeros in a group. groups: their number. offending: groups that break the rule.
    first: the first offending groups in row-major order. negative_zeros_dropped: -0.0 that `compress` would change.
    histogram: M + 1 counts; entry i is the number of groups with i non-zero elements, or vectors for N:M@L and V:N:M.
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
        return self.offending == 0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        rule = f"exactly {self.pattern}" if self.exact else str(self.pattern)
        if self.ok:
            return f"{rule} holds in all {self.groups} groups"
        where = ", ".join(
            f"{list(group.start)} has {group.nonzeros}{' in a row' if group.in_row else ''}" for group in self.first
        )
        return f"{rule} fails in {self.offending} of {self.groups} groups; first: {where}"


def joined(reports: Iterable[CheckReport], pattern: Pattern) -> CheckReport:
    """Join the reports on the parts of an array, without the list of groups."""
    groups = offending = dropped = 0
    histogram = [0] * (pattern.m + 1)
    for report in reports:
        groups += report.groups
        offending += report.offending
        dropped += report.negative_zeros_dropped
        histogram = [a + b for a, b in zip(histogram, report.histogram, strict=True)]
    return CheckReport(pattern, False, groups, offending, (), tuple(histogram), dropped)


@opaque
def check(w: Any, pattern: str | Pattern, *, axis: int = -1, exact: bool = False, listed: int = LISTED) -> CheckReport:
    """Count the non-zeros of every group of M along `axis`, and report the groups with more than N. N:M@L counts
    vectors with a non-zero element; groups are in the order of their windows of L rows. In V:N:M a group offends with
    more than 4 such vectors, or with more than 2 non-zeros in a row. -0.0 is zero; NaN is not. A last group that is cut
    off counts as filled with zeros. exact: groups with fewer than N offend too. listed: how many offending groups are
    named. An array on a GPU is checked there. Raises ValueError for an unsupported element type, pattern or axis.
    """
    check_switch("exact", exact)
    w = detached(w)
    if (there := on_gpu(w)) is not None:
        return there.check(w, pattern, axis=axis, exact=exact, listed=listed)
    pattern = Pattern.parse(pattern)
    array, element = sparse_operand(w)
    axis = normal_axis(axis, array.ndim)
    rows, windows = to_rows(array, axis), Windows(array.shape, axis, pattern)
    histogram = np.zeros(pattern.m + 1, np.int64)
    first: list[Group] = []
    seen = offending = dropped = 0
    for block in windows.blocks():
        part = rows[block.rows, block.columns]
        tiles = block.inside.tiles(part)
        slots = Slots.of(to_planes(tiles), element)
        counts = slots.counts
        histogram += np.bincount(counts, minlength=pattern.m + 1)
        bad = counts != pattern.shared if exact else counts > pattern.shared
        dropped += slots.negative_zeros_lost(pattern.shared)
        if len(pattern.levels) > 1:
            of_rows, crowded = _rows(tiles, pattern, element, len(part), exact=exact)
            dropped += _lost_in_rows(tiles, slots, pattern, element)
        else:
            of_rows = crowded = np.zeros((len(counts), 0), np.bool_)
        offends = bad | crowded.any(axis=1)
        offending += int(np.count_nonzero(offends))
        for group in np.flatnonzero(offends).tolist()[: listed - len(first)] if listed else ():
            number = block.number(group, windows)
            if bad[group]:
                first.append(Group(windows.start(number), int(counts[group])))
                continue
            row = int(np.argmax(crowded[group]))
            first.append(Group(windows.start(number, row), int(of_rows[group, row]), in_row=True))
        seen += len(counts)
    return CheckReport(pattern, exact, seen, offending, tuple(first), tuple(int(n) for n in histogram), dropped)


def _rows(
    tiles: Bits, pattern: Pattern, element: ElementType, count: int, *, exact: bool
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """By group of a block of `count` rows: the non-zeros of each row, and whether they are too many, [groups, height]."""
    counts = np.count_nonzero(nonzero(tiles, element), axis=3)
    windows, height, groups = (int(size) for size in tiles.shape[:3])
    bad = counts != pattern.n if exact else counts > pattern.n
    past = np.arange(windows * height).reshape(windows, height, 1) >= count
    by_group = (windows * groups, height)
    return counts.transpose(0, 2, 1).reshape(by_group), (bad & ~past).transpose(0, 2, 1).reshape(by_group)


def _lost_in_rows(tiles: Bits, slots: Slots, pattern: Pattern, element: ElementType) -> int:
    """The number of -0.0 without a slot in their row, in groups that keep the vector pattern."""
    windows, height, groups, m = tiles.shape
    outer, inner = pattern.levels
    keep: Mask = np.ascontiguousarray(largest(slots.keys, outer.n).T).reshape(windows, groups, m)
    kept = kept_of(tiles, keep, inner.m).reshape(windows, height, groups, inner.m)
    whole = (slots.counts <= outer.n).reshape(windows, 1, groups, 1)
    planes = to_planes((kept * whole.astype(kept.dtype)).reshape(windows * height, 1, groups, inner.m))
    return Slots.of(planes, element).negative_zeros_lost(inner.n)


def too_many(windows: Windows, group: int, nonzeros: int, row: int | None = None) -> ValueError:
    """The error for a group, counted over all windows, with more than N non-zeros.

    row: the offending row of a V:N:M window; None when the vectors offend.
    """
    pattern = windows.pattern
    most, kept = pattern.shared, f"non-zero vectors of {pattern.length} elements"
    if pattern.length == 1 or row is not None:
        most, kept = pattern.n, "non-zeros" + ("" if row is None else " of a row")
    return ValueError(
        f"{pattern} allows {most} {kept} in each group of {pattern.m} along axis {windows.axis}, got {nonzeros} in the group at "
        f"{list(windows.start(group, row or 0))}: prune first, or see check() for all such groups"
    )


def too_many_at(windows: Windows, block: Block, level: Pattern, counts: NDArray[np.uint16]) -> ValueError:
    """`too_many` for the first group of a block with more than N non-zeros. counts: of one level."""
    bad = int(np.argmax(counts > level.n))
    tile, group = divmod(bad, block.inside.groups)
    window, row = (tile, None) if level.length > 1 or level == windows.pattern else divmod(tile, windows.height)
    return too_many(windows, block.number(window * block.inside.groups + group, windows), int(counts[bad]), row)
