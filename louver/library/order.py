"""The order of tiles: how many rows of them are walked before the next column, and which of them are neighbours on the GPU."""

from __future__ import annotations

import functools

MOST_WAVES = 64
"""Waves that are looked at: later ones are like them."""

BANDS = range(1, 9)
"""Waves that a band of rows takes, of the bands that are tried: where a band is whole waves, none of them touches rows of two."""


GPCS, GPC_SMS = 8, 16
"""GPCs, and SMs of most of them. CTAs that follow each other go to one GPC; clusters take turns among the GPCs. Seen on H200s."""


@functools.lru_cache(maxsize=4096)
def beside(rows: int, columns: int, walked: int, tiles: int, *, apart: bool) -> tuple[float, float]:
    """Rows and columns, each for one tile, of tiles that a GPC works on at a time.

    walked: rows that are walked before the next column. tiles: how many it has room for. apart: clusters of CTAs take tiles.
    """
    stride = GPCS if apart else 1
    places = [_place(rows, columns, walked, each) for each in range(0, min(rows * columns, tiles * stride), stride)]
    return len({row for row, _ in places}) / len(places), len({column for _, column in places}) / len(places)


def _place(rows: int, columns: int, walked: int, tile: int) -> tuple[int, int]:
    """Row and column of a tile."""
    band, inside = divmod(tile, walked * columns)
    column, row = divmod(inside, min(walked, rows - band * walked))
    return band * walked + row, column


@functools.lru_cache(maxsize=1024)
def walked_rows(rows: int, columns: int, row_bytes: int, column_bytes: int, at_once: int) -> int:
    """The rows of tiles that are walked before the next column, so that a wave of tiles touches the fewest bytes, in the mean.

    rows, columns: of tiles. row_bytes, column_bytes: of the operands of a row of tiles, and of a column. at_once: tiles of a wave.
    """

    def touched(walked: int) -> int:
        waves = range(0, min(rows * columns, MOST_WAVES * at_once), at_once)
        return sum(
            row_bytes * high + column_bytes * wide
            for high, wide in (_touched(rows, columns, walked, start, at_once) for start in waves)
        )

    tried = (min(rows, max(1, waves * at_once // columns)) for waves in BANDS)
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
