"""The layouts of the parts of a sparse tile, for a layout of the dense one."""

from __future__ import annotations

import numpy as np
import pytest

from louver.ir.tile import BlockedAttr
from louver.ir.tile.metadata import WORD_ENTRIES
from louver.ir.tile.parts import Parts
from louver.isa.metadata import CODE_BITS, GROUPS, MAPS


@pytest.mark.parametrize("together", [2, 4, 16])
@pytest.mark.parametrize("columns", [0, 1])
@pytest.mark.parametrize("bits", MAPS)
def test_each_thread_has_the_values_and_codes_of_its_elements(bits: int, columns: int, together: int) -> None:
    """Those of whole entries, of parts of one, and of parts of a group."""
    parts = Parts.of(bits, columns)
    rows, groups = 32, 2 * GROUPS
    size = (rows, groups * parts.map.group)
    shape, metadata = size, (rows // 16, 2 * WORD_ENTRIES)
    if not columns:
        shape, metadata = shape[::-1], metadata[::-1]
    layout = BlockedAttr.default(shape, 4, together, (columns, 1 - columns), whole=True).layout(shape)
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


@pytest.mark.parametrize("bits", MAPS)
def test_threads_share_a_group_by_two_elements_alone(bits: int) -> None:
    parts = Parts.of(bits, 1)
    layout = BlockedAttr.default((16, 64), 1, 1, whole=True).layout((16, 64))
    with pytest.raises(ValueError, match="a thread has 2 neighbours along K, got"):
        parts.values(layout)
    if parts.kept > 1:
        with pytest.raises(ValueError, match="a thread has 2 neighbours along K, got"):
            parts.dense(layout)
