"""Tensor maps of boxes: sizes and strides of a call, and arrays that bulk copies cannot read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from louver.compile.signature import BoxParameter
from louver.isa.bulk import TensorMap
from louver.library.rows import Held, RecentMaps, tensor_map
from support.sizes import sizes

BOX = BoxParameter("x_box", "x", "address", 2, sizes("K", None), sizes("S"), (64, 32), 128)


def test_rows_that_nothing_bounds_end_with_the_array() -> None:
    # The last row is shorter than its pitch.
    held = 2 * (9 * 64 + 48)
    found = tensor_map(BOX, Held(4096, held), {"K": 48, "S": 64})
    assert found == TensorMap(4096, 2, (48, 10), (128,), (64, 32), 128)


@pytest.mark.parametrize(
    ("numbers", "address", "rule"),
    [
        ({"K": 48, "S": 63}, 4096, "strides are multiples of 16 bytes"),
        ({"K": 48, "S": 64}, 4098, "the address must be a multiple of 16 bytes"),
        ({"K": 0, "S": 64}, 4096, "each dimension has 1 to"),
        ({"K": 48, "S": 0}, 4096, "strides are multiples of 16 bytes under 2.40, got 0"),
    ],
)
def test_what_bulk_copies_cannot_read_is_an_error(numbers: dict[str, int], address: int, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        tensor_map(BOX, Held(address, 2 * (9 * 64 + 48)), numbers)


@pytest.mark.parametrize("columns", [48, 64, 192, 640])
def test_every_row_with_an_element_of_the_array_is_in_the_map(columns: int) -> None:
    """Whatever bounds the columns: a mask may be wider than a row, and a pointer may move past it."""
    found = tensor_map(BOX, Held(4096, 2 * (9 * 64 + 48)), {"K": columns, "S": 64})
    assert found.shape == (columns, 10)


def test_boxes_that_may_begin_before_the_array_are_an_error() -> None:
    box = replace(BOX, least=sizes("K - 8", "S"))
    assert tensor_map(box, Held(4096, 2 * 640), {"K": 8, "S": 64}).shape == (8, 10)
    with pytest.raises(ValueError, match=r"boxes of 'x' begin in the array if K - 8 is at least 0, got -1"):
        tensor_map(box, Held(4096, 2 * 640), {"K": 7, "S": 64})


@pytest.mark.parametrize(("columns", "rule"), [(64, None), (65, "whose neighbours are then 65 elements apart, got 64")])
def test_rows_that_begin_anywhere_do_not_overlap(columns: int, rule: str | None) -> None:
    """Else a row below 0 may have elements of the array."""
    box, numbers = replace(BOX, free=1), {"K": columns, "S": 64}
    if rule is None:
        assert tensor_map(box, Held(4096, 2 * 640), numbers).shape == (64, 10)
        return
    with pytest.raises(ValueError, match=f"boxes of 'x' begin anywhere along a dimension, {rule}"):
        tensor_map(box, Held(4096, 2 * 640), numbers)


def test_heads_may_be_nearer_to_each_other_than_their_rows_reach() -> None:
    """Heads of T·64 elements, found at head·64 times T: the last one ends with the array."""
    heads = BoxParameter("k_box", "k", "address", 2, sizes("64", "T", None), sizes("64", "T"), (64, 64, 1), 128)
    assert tensor_map(heads, Held(4096, 2 * 3 * 128 * 64), {"T": 128}).shape == (64, 128, 3 * 64)


@pytest.mark.parametrize(("n", "rows"), [(1, 1), (31, 31), (32, 32), (33, 1), (100, 4)])
def test_a_tail_has_the_rows_that_whole_boxes_leave(n: int, rows: int) -> None:
    (along,) = sizes("N")
    tail = replace(BOX, sizes=sizes("K", "N"), along=along)
    held = Held(4096, 2 * 64 * n)
    assert tensor_map(tail, held, {"K": 48, "S": 64, "N": n}).box == (64, rows)
    kept = RecentMaps()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("louver.library.rows.encode", lambda found: found)
        found = [kept(tail, Held(4096, 2 * 64 * 128), {"K": 48, "S": 64, "N": each}) for each in (n, 128, n)]
    assert [each.box for each in found] == [(64, rows), (64, 32), (64, rows)]


def test_codes_follow_metadata() -> None:
    """A tile that begins in the tensor never reaches what is no code, nor leaves the array."""
    metadata = replace(BOX, part="metadata", sizes=(None, None))
    found = tensor_map(metadata, Held(4096, 2 * ((5 + 16) * 64 + 1024)), {"S": 64})
    assert found.shape == (64 + 1024, 5 + 16)
