"""The order of tiles: the rows that are walked, against a walk tile by tile."""

from __future__ import annotations

import random

import pytest

from louver.library import order
from louver.library.order import BANDS, beside, walked_rows

Place = tuple[int, int]


def walk(rows: int, columns: int, walked: int) -> list[Place]:
    """All tiles, row and column, in their order."""
    bands = [range(first, min(first + walked, rows)) for first in range(0, rows, walked)]
    return [(row, column) for band in bands for column in range(columns) for row in band]


def sizes(places: list[Place]) -> tuple[int, int]:
    return len({row for row, _ in places}), len({column for _, column in places})


def cases(count: int) -> list[tuple[int, int, int, int]]:
    draw = random.Random(5)
    found = [
        (draw.randint(1, 60), draw.randint(1, 30), draw.randint(1, 50), draw.randint(1, 140)) for _ in range(count)
    ]
    return [(rows, columns, min(walked, rows), at_once) for rows, columns, walked, at_once in found]


def test_what_a_wave_touches() -> None:
    for rows, columns, walked, at_once in cases(300):
        tiles = walk(rows, columns, walked)
        for start in range(0, len(tiles), at_once):
            expected = sizes(tiles[start : start + at_once])
            assert order._touched(rows, columns, walked, start, at_once) == expected


def test_tiles_that_a_gpc_works_on() -> None:
    for rows, columns, walked, _ in cases(300):
        tiles = walk(rows, columns, walked)
        for apart in (False, True):
            found = tiles[: 8 * 8 : 8] if apart else tiles[:8]
            high, wide = sizes(found)
            assert beside(rows, columns, walked, 8, apart=apart) == (high / len(found), wide / len(found))


@pytest.mark.parametrize(
    ("rows", "columns", "walked"),
    [
        (448, 4, 33),  # A band of 33 rows and 4 columns is one wave of 132 tiles.
        (224, 16, 33),  # Of 16 columns four waves.
        (20, 4, 20),  # All tiles are one wave.
        (1, 40, 1),
        (40, 1, 40),
    ],
)
def test_bands_are_whole_waves(rows: int, columns: int, walked: int) -> None:
    assert walked_rows(rows, columns, 64, 256, 132) == walked


def test_no_other_band_touches_less() -> None:
    """Within the bands that are tried, and all rows as long as a column of tiles."""
    for rows, columns, _, at_once in cases(60):
        tried = {min(rows, max(1, waves * at_once // columns)) for waves in BANDS}

        def touched(walked: int, rows: int = rows, columns: int = columns, at_once: int = at_once) -> int:
            tiles = walk(rows, columns, walked)
            waves = (
                sizes(tiles[start : start + at_once]) for start in range(0, len(tiles), at_once)[: order.MOST_WAVES]
            )
            return sum(3 * high + 8 * wide for high, wide in waves)

        assert touched(walked_rows(rows, columns, 3, 8, at_once)) == min(map(touched, tried))
