"""The order of tiles: how many rows of them are walked before the next column, and which of them are neighbours on the GPU."""

from __future__ import annotations

import functools
import math

WAVES_SEEN = 32
"""Waves that are looked at: later ones are like them."""

BANDS = range(1, 9)
"""Heights that are tried, in waves of tiles. A band of whole waves has no wave with rows of two bands."""

GPCS, GPC_SMS = 8, 16
"""GPCs, and SMs of most of them. CTAs that follow each other go to one GPC; clusters take turns among the GPCs. Seen on H200s."""


@functools.lru_cache(maxsize=4096)
def beside(rows: int, columns: int, walked: int, tiles: int, cluster: int) -> tuple[float, float]:
    """The different rows and columns among the tiles of a GPC, each divided by the number of tiles.

    walked: rows that are walked before the next column. tiles: that a GPC works on at a time. cluster: tiles that clusters take, one after
    the other; 0 without clusters.
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
    """The rows of tiles that are walked before the next column, so that a wave of tiles touches the fewest bytes, in the mean.

    rows, columns: of tiles. row_bytes, column_bytes: of the operands of a row of tiles, and of a column. at_once: tiles of a wave. All are at
    least 1.
    """
    if columns == 1 or rows * columns <= at_once:
        return rows
    common = math.gcd(row_bytes, column_bytes)
    return _fewest(rows, columns, row_bytes // common, column_bytes // common, at_once)


@functools.lru_cache(maxsize=4096)
def _fewest(rows: int, columns: int, row_bytes: int, column_bytes: int, at_once: int) -> int:
    """The height whose waves touch the fewest bytes."""

    def touched(walked: int) -> int:
        waves = range(0, min(rows * columns, WAVES_SEEN * at_once), at_once)
        return sum(
            row_bytes * high + column_bytes * wide
            for high, wide in (_touched(rows, columns, walked, start, at_once) for start in waves)
        )

    # A wave of as many bytes of rows as of columns, for outputs with so many columns that bands of waves are low.
    even = math.isqrt(at_once * column_bytes // row_bytes)
    tried = (min(rows, max(1, height)) for height in (*(waves * at_once // columns for waves in BANDS), even))
    return min(dict.fromkeys(tried), key=touched)


def _touched(rows: int, columns: int, walked: int, start: int, at_once: int) -> tuple[int, int]:
    """Rows and columns of the tiles from number `start` on."""
    end, band = min(start + at_once, rows * columns), walked * columns
    first, last = start // band, (end - 1) // band
    begin, stop = start - first * band, end - last * band
    # Of the last band of all there may be fewer rows.
    height = min(walked, rows - last * walked)
    if first == last:
        return min(height, stop - begin), (stop - 1) // height - begin // height + 1
    high = min(walked, band - begin) + (last - first - 1) * walked + min(height, stop)
    wide = columns - begin // walked + (stop - 1) // height + 1
    return high, columns if last - first > 1 else min(columns, wide)
