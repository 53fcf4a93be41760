from __future__ import annotations

import pytest

from louver.frontend.problem import Problem
from louver.measure.schedules import candidates
from louver.runtime.device import Device

PLACE = Device(0, "a Hopper", (9, 0), 132, 232448, 60 << 20, 141 << 30, (13, 0))


@pytest.mark.parametrize(
    ("dtype", "out", "tile_k", "store"),
    [
        ("f16", "f16", 64, "bulk"),
        ("e4m3", "f16", 128, "bulk"),
        ("s8", "f16", 128, "bulk"),
        ("s8", "s32", 128, "bulk"),
    ],
)
def test_alternatives_differ_from_the_choice_in_what_they_say(dtype: str, out: str, tile_k: int, store: str) -> None:
    found = candidates(Problem("linear", a=dtype, b=dtype, out=out), 4096, 8192, PLACE)
    assert found[""].tile.k == tile_k
    assert found[""].store.way == store
    assert f"tile_k {tile_k}" not in found
    assert found[f"tile_k {192 - tile_k}"].tile.k == 192 - tile_k
    assert ("store direct" in found) is (store == "bulk")
    assert len(set(found.values())) == len(found)


def test_a_part_of_the_alternatives_by_name() -> None:
    found = candidates(Problem("linear"), 4096, 8192, PLACE, only="tile_m 256, tile_n 192")
    assert list(found) == ["", "tile_m 256, tile_n 192, staging 96"]
