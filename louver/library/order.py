"""The order of tiles: the height of a band of tile rows, and the tiles that run side by side on the GPU.

A launch visits the tiles of a band column by column. A band is the tile rows that are visited before the next column
begins.
"""

from __future__ import annotations

import functools
import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.intp]

WAVES_SEEN = 32
"""Waves that are compared. Later waves are like them."""

PARTS = range(1, 9)
"""Waves of a band to try, and columns of a wave. If a band is a whole number of waves, no wave has rows of two bands."""

LOW_BANDS = (2, 4, 8, 16)
"""Other band heights to try, in rows of tiles. With few columns of tiles, a GPC then reads few rows and few columns."""

GPC_SHARE = 0.1
"""Weight of a byte that GPCs read from the L2 cache, beside one that a wave reads from memory. With 0.1 to 0.25, most
times in `docs/perf-log/58-gpc-order.md` hardly differ.
"""

GPCS = 8
"""The number of GPCs. Consecutive CTAs without clusters go to one GPC."""

CLUSTER_GPCS = np.array((*(0,) * 4, *(*range(GPCS),) * 4, *(*range(1, GPCS),) * 4))
"""The GPC of each cluster of two CTAs, as observed on two H200s."""


def tiles_of_cluster(parts: int, ctas: int, *, pairs: bool) -> int:
    """The number of consecutive tiles that a cluster takes; 0 without clusters.

    The two CTAs of a pair take neighbouring tiles, or the two ranges of one tile. The CTAs of other clusters take one
    tile of the cluster.

    parts: ranges of each tile.
    ctas: CTAs of a cluster.
    """
    if pairs:
        return -(-2 // parts)
    return min(ctas - 1, 1)


@functools.lru_cache(maxsize=4096)
def beside(rows: int, columns: int, walked: int, tiles: int, cluster: int) -> tuple[float, float]:
    """The numbers of different rows and of different columns among the tiles of a GPC, each divided by the number of
    tiles.

    walked: tile rows of a band.
    tiles: tiles that a GPC works on at a time.
    cluster: see `tiles_of_cluster`.
    """
    numbers = np.arange(min(GPCS * tiles if cluster else tiles, rows * columns))
    gpcs = CLUSTER_GPCS[numbers // cluster % len(CLUSTER_GPCS)] if cluster else 0
    row, column = _place(rows, columns, walked, numbers)
    high, wide = len(np.unique(gpcs * rows + row)), len(np.unique(gpcs * columns + column))
    return high / len(numbers), wide / len(numbers)


def _place(rows: int, columns: int, walked: int, tiles: Numbers) -> tuple[Numbers, Numbers]:
    """Rows and columns of tiles."""
    band, inside = np.divmod(tiles, walked * columns)
    column, row = np.divmod(inside, np.minimum(walked, rows - band * walked))
    return band * walked + row, column


def walked_rows(rows: int, columns: int, row_bytes: int, column_bytes: int, at_once: int, cluster: int = 0) -> int:
    """The band height, in rows of tiles, for which waves and GPCs read the fewest bytes.

    rows, columns: rows and columns of tiles.
    row_bytes: bytes of the left operand that a row of tiles reads.
    column_bytes: bytes of the right operand that a column of tiles reads.
    at_once: tiles of a wave. Ranges of a tile run beside each other and count once.
    cluster: see `tiles_of_cluster`.

    All sizes but `cluster` are at least 1.
    """
    if columns == 1:
        return rows
    common = math.gcd(row_bytes, column_bytes)
    return _fewest(rows, columns, row_bytes // common, column_bytes // common, at_once, cluster)


@functools.lru_cache(maxsize=4096)
def _fewest(rows: int, columns: int, row_bytes: int, column_bytes: int, at_once: int, cluster: int) -> int:
    """The band height with the fewest bytes; of equal ones the lowest."""
    wave = min(at_once, rows * columns)
    # For outputs of many columns, bands of whole waves are low. Then a wave may have a part of a band's columns.
    waves = (each * at_once // columns for each in PARTS)
    # The two tiles of a cluster may share a row. Without clusters, neighbours share a column: it has more bytes.
    low = (1, *LOW_BANDS, rows) if cluster else (*LOW_BANDS, rows)
    tried = low if wave < at_once else (*low, *waves, *(at_once // each for each in PARTS))
    heights = np.unique(np.clip(tried, 1, rows))
    starts = np.arange(0, min(rows * columns, WAVES_SEEN * at_once), at_once)
    high, wide = _touched(rows, columns, heights[:, np.newaxis], starts, at_once)
    by_waves = (row_bytes * high + column_bytes * wide).mean(1)
    best, chosen = math.inf, rows
    for each in np.argsort(by_waves, kind="stable"):
        # The tiles of GPCs take longer to count.
        if by_waves[each] >= best:
            break
        height = int(heights[each])
        share = beside(rows, columns, height, max(1, at_once // GPCS), cluster)
        by_gpcs = wave * (row_bytes * share[0] + column_bytes * share[1])
        best, chosen = min((best, chosen), (by_waves[each] + GPC_SHARE * by_gpcs, height))
    return chosen


def _touched(rows: int, columns: int, walked: Numbers, starts: Numbers, at_once: int) -> tuple[Numbers, Numbers]:
    """The numbers of rows and columns of tiles that the waves from these tiles on touch."""
    ends, band = np.minimum(starts + at_once, rows * columns), walked * columns
    first, last = starts // band, (ends - 1) // band
    begin, stop = starts - first * band, ends - last * band
    # The last band may have fewer rows.
    height = np.minimum(walked, rows - last * walked)
    high = np.minimum(walked, band - begin) + (last - first - 1) * walked + np.minimum(height, stop)
    wide = np.where(
        last - first > 1, columns, np.minimum(columns, columns - begin // walked + (stop - 1) // height + 1)
    )
    alone = first == last
    high = np.where(alone, np.minimum(height, stop - begin), high)
    return high, np.where(alone, (stop - 1) // height - begin // height + 1, wide)
