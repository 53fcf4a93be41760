"""Tiles in shared memory: where their elements stand, and that rows and columns of chunks touch all banks."""

from __future__ import annotations

import itertools

import pytest

from louver.ir.tile.shared import SharedLayout
from louver.isa.swizzle import BANK_LINE, CHUNK

SHAPES = [(64, 64), (128, 32), (32, 128), (16, 16), (64, 256), (8, 8)]
LAYOUTS = [
    SharedLayout(shape, fast, size)
    for shape, fast, size in itertools.product(SHAPES, (0, 1), (1, 2, 4))
    if shape[fast] * size >= CHUNK
]


def places(layout: SharedLayout) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, layout.shape)))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_element_has_a_place(layout: SharedLayout) -> None:
    offsets = sorted(map(layout.offset, places(layout)))
    assert offsets == list(range(0, layout.bytes, layout.size))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_offsets_are_linear_over_bits(layout: SharedLayout) -> None:
    for place in places(layout):
        parts = [(place[0], 0), (0, place[1] & 5), (0, place[1] & ~5)]
        offset = 0
        for part in parts:
            offset ^= layout.offset(part)
        assert offset == layout.offset(place)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_columns_of_chunks_touch_all_banks(layout: SharedLayout) -> None:
    slow, chunk = 1 - layout.fast, CHUNK // layout.size
    if layout.shape[slow] < 8:
        return
    for row, column in itertools.product(range(0, layout.shape[slow], 8), range(0, layout.shape[layout.fast], chunk)):
        rows = [(at, column) if slow == 0 else (column, at) for at in range(row, row + 8)]
        assert len({layout.offset(place) % BANK_LINE // CHUNK for place in rows}) == BANK_LINE // CHUNK


def test_a_chunk_stays_together() -> None:
    layout = SharedLayout((64, 64), 1, 2)
    assert [layout.offset((9, 16 + number)) - layout.offset((9, 16)) for number in range(8)] == list(range(0, 16, 2))


def test_rows_are_no_shorter_than_a_chunk() -> None:
    with pytest.raises(ValueError, match="16 bytes at least, got 8"):
        SharedLayout((64, 4), 1, 2)
