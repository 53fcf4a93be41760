"""The layouts of the parts of a sparse tile, for a layout of the dense one."""

from __future__ import annotations

import numpy as np
import pytest

from louver.ir.tile import BlockedAttr
from louver.ir.tile.metadata import WORD_ENTRIES
from louver.ir.tile.parts import Parts
from louver.isa.metadata import CODE_BITS, GROUPS, MAPS


@pytest.mark.parametrize("columns", [0, 1])
@pytest.mark.parametrize("bits", MAPS)
def test_each_thread_has_the_values_and_codes_of_its_elements(bits: int, columns: int) -> None:
    parts = Parts.of(bits, columns)
    rows, groups = 32, 2 * GROUPS
    size = (rows, groups * parts.map.group)
    shape, metadata = size, (rows // 16, 2 * WORD_ENTRIES)
    if not columns:
        shape, metadata = shape[::-1], metadata[::-1]
    layout = BlockedAttr.default(shape, 4, parts.together, (columns, 1 - columns), whole=True).layout(shape)
    values, entries = parts.values(layout), parts.entries(layout, metadata)
    words = np.arange(32 * 8).reshape(32, 8)
    lanes, places = MAPS[bits].coordinates()
    where = {(int(lanes[t, c]), int(places[t, c])): (t, c) for t, c in np.ndindex(*words.shape)}
    for thread in range(128):
        start, first, entry = (each.of_thread(thread) for each in (layout, values, entries))
        kept = {tuple(np.add(first, at)) for at in values.registers}
        codes = {tuple(np.add(entry, at)) for at in entries.registers}
        for at in layout.registers:
            place = tuple(int(each) for each in np.add(start, at))
            assert parts.value(place) in kept
            assert parts.entry(place) in codes
            row, group = place[1 - columns], place[columns] // parts.map.group
            lane, code = where[row % 16, group % GROUPS]
            stands = (row // 16, group // GROUPS * WORD_ENTRIES + 2 * lane + code // 4)
            assert parts.entry(place) == (stands if columns else stands[::-1])
            assert parts.shift(place) == CODE_BITS * (code % 4)


@pytest.mark.parametrize("columns", [0, 1])
@pytest.mark.parametrize("bits", MAPS)
def test_a_dense_tile_follows_from_its_kept_values(bits: int, columns: int) -> None:
    """The other way round: a thread that has kept values has all elements of their groups."""
    parts = Parts.of(bits, columns)
    size = (32, GROUPS * parts.map.group)
    shape = size if columns else size[::-1]
    dense = BlockedAttr.default(shape, 4, parts.together, (columns, 1 - columns), whole=True).layout(shape)
    kept = parts.values(dense)
    found = parts.dense(kept)
    assert (found.lane, found.warp) == (dense.lane, dense.warp)
    assert sorted(found.registers) == sorted(dense.registers)
    assert {parts.first(at) for at in kept.registers} <= set(dense.registers)


def test_threads_do_not_share_an_entry() -> None:
    layout = BlockedAttr.default((16, 64), 1, 8, whole=True).layout((16, 64))
    with pytest.raises(ValueError, match="a thread has all 16 columns of an entry, got"):
        Parts.of(16, 1).values(layout)
    with pytest.raises(ValueError, match="a thread has all 16 columns of an entry, got"):
        Parts.of(16, 1).dense(BlockedAttr.default((16, 32), 1, 4, whole=True).layout((16, 32)))
