"""The order of tiles: the height of a band of tile rows, and the tiles that run side by side on the GPU.

A launch visits the tiles of a band column by column. A band is the tile rows that are visited before the next column
begins.
"""

from __future__ import annotations

import functools
import math

WAVES_SEEN = 32
"""Waves that are compared. Later waves are like them."""

BANDS = range(1, 9)
"""Band heights to try, in waves of tiles. If a band is a whole number of waves, no wave has rows of two bands."""

GPCS, GPC_SMS = 8, 16
"""The number of GPCs, and of SMs in most GPCs. Consecutive CTAs go to one GPC. Consecutive clusters go to the GPCs
in turn. This was observed on H200s.
"""


@functools.lru_cache(maxsize=4096)
def beside(rows: int, columns: int, walked: int, tiles: int, cluster: int) -> tuple[float, float]:
    """The numbers of different rows and of different columns among the tiles of a GPC, each divided by the number of
    tiles.

    walked: tile rows of a band.
    tiles: tiles that a GPC works on at a time.
    cluster: consecutive tiles that a cluster takes; 0 without clusters.
    """
    taken, distance = (cluster, GPCS * cluster) if cluster else (1, 1)
    starts = range(0, -(-tiles // taken) * distance, distance)
    numbers = [start + each for start in starts for each in range(taken) if start + each < rows * columns]
    places = [_place(rows, columns, walked, number) for number in numbers]
    return len({row for row, _ in places}) / len(places), len({column for _, column in places}) / len(places)


def _place(rows: int, columns: int, walked: int, tile: int) -> tuple[int, int]:
    """Row and column of a tile."""
    band, inside = divmod(tile, walked * columns)
    column, row = divmod(inside, min(walked, rows - band * walked))
    return band * walked + row, column


def walked_rows(rows: int, columns: int, row_bytes: int, column_bytes: int, at_once: int) -> int:
    """The band height, in rows of tiles, for which a wave of tiles touches the fewest bytes on average.

    rows, columns: rows and columns of tiles.
    row_bytes: bytes of the left operand that a row of tiles reads.
    column_bytes: bytes of the right operand that a column of tiles reads.
    at_once: tiles of a wave.

    All sizes are at least 1.
    """
    if columns == 1 or rows * columns <= at_once:
        return rows
    common = math.gcd(row_bytes, column_bytes)
    return _fewest(rows, columns, row_bytes // common, column_bytes // common, at_once)


@functools.lru_cache(maxsize=4096)
def _fewest(rows: int, columns: int, row_bytes: int, column_bytes: int, at_once: int) -> int:
    """The band height whose waves touch the fewest bytes."""

    def touched(walked: int) -> int:
        waves = range(0, min(rows * columns, WAVES_SEEN * at_once), at_once)
        return sum(
            row_bytes * high + column_bytes * wide
            for high, wide in (_touched(rows, columns, walked, start, at_once) for start in waves)
        )

    # A wave of this height touches about as many bytes of rows as of columns. It is tried for outputs with so many
    # columns that bands of whole waves are low.
    even = math.isqrt(at_once * column_bytes // row_bytes)
    tried = (min(rows, max(1, height)) for height in (*(waves * at_once // columns for waves in BANDS), even))
    return min(dict.fromkeys(tried), key=touched)


def _touched(rows: int, columns: int, walked: int, start: int, at_once: int) -> tuple[int, int]:
    """The numbers of rows and columns of tiles that the wave from tile `start` on touches."""
    end, band = min(start + at_once, rows * columns), walked * columns
    first, last = start // band, (end - 1) // band
    begin, stop = start - first * band, end - last * band
    # The last band may have fewer rows.
    height = min(walked, rows - last * walked)
    if first == last:
        return min(height, stop - begin), (stop - 1) // height - begin // height + 1
    high = min(walked, band - begin) + (last - first - 1) * walked + min(height, stop)
    wide = columns - begin // walked + (stop - 1) // height + 1
    return high, columns if last - first > 1 else min(columns, wide)
