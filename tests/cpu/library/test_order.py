"""The order of tiles: the rows that are walked, against a walk tile by tile."""

from __future__ import annotations

import random

import numpy as np
import pytest

import louver
from louver.choose import ranges
from louver.choose.configure import choose
from louver.choose.ranges import beside, walked_rows
from louver.compile.pipeline import compile_product
from louver.compile.signature import parameter_name
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from support.fake_gpu import FakeGpu, FakeTorch, Tensor

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
            assert ranges._touched(rows, columns, np.array(walked), np.array(start), at_once) == expected


def gpcs(tiles: list[Place], each: int, cluster: int) -> list[list[Place]]:
    """The tiles that GPCs work on at first, `each` a GPC: those of one GPC without clusters, or of all."""
    if not cluster:
        return [tiles[:each]]
    places = [*zip((gpc for gpc in ranges.CLUSTER_GPCS for _ in range(cluster)), tiles[: each * 8], strict=False)]
    found = [[place for gpc, place in places if gpc == number] for number in range(8)]
    return [each for each in found if each]


@pytest.mark.parametrize("cluster", [0, 1, 2])
def test_tiles_that_a_gpc_works_on(cluster: int) -> None:
    """Without clusters the first ones; else those of its clusters."""
    for rows, columns, walked, _ in cases(300):
        taken = gpcs(walk(rows, columns, walked), 8, cluster)
        high, wide = (sum(counts) for counts in zip(*map(sizes, taken), strict=True))
        count = sum(map(len, taken))
        assert beside(rows, columns, walked, 8, cluster) == (high / count, wide / count)


@pytest.mark.parametrize(
    ("rows", "columns", "walked"),
    [
        (224, 16, 33),  # A band of 33 rows and 16 columns is four waves of 132 tiles.
        (64, 2, 2),  # 16 tiles have eight rows and two columns.
        (32, 4, 2),
        (16, 8, 4),  # 16 tiles have four rows and four columns.
        (1, 40, 1),
        (40, 1, 40),
    ],
)
def test_bands_are_whole_waves_or_share_columns(rows: int, columns: int, walked: int) -> None:
    assert walked_rows(rows, columns, 64, 128 if columns < 16 else 256, 132) == walked


@pytest.mark.parametrize(("rows", "columns", "walked"), [(32, 2, 8), (28, 2, 8)])
def test_clusters_that_run_at_once_take_a_row_of_each_gpc(rows: int, columns: int, walked: int) -> None:
    assert walked_rows(rows, columns, 64, 128, 66, 1) == walked


def read(rows: int, columns: int, walked: int, row_bytes: int, column_bytes: int, cluster: int) -> float:
    """Bytes that a wave touches, and the share of those that GPCs read."""

    def nbytes(places: list[Place]) -> int:
        high, wide = sizes(places)
        return row_bytes * high + column_bytes * wide

    tiles = walk(rows, columns, walked)
    starts = range(0, len(tiles), 132)[: ranges.WAVES_SEEN]
    waves = sum(nbytes(tiles[start : start + 132]) for start in starts) / len(starts)
    taken = gpcs(tiles, 16, cluster)
    of_gpcs = sum(map(nbytes, taken)) / sum(map(len, taken))
    return waves + ranges.GPC_SHARE * min(132, len(tiles)) * of_gpcs


@pytest.mark.parametrize("columns", [2, 4, 6, 11, 16, 22, 32, 43, 64, 128, 256])
@pytest.mark.parametrize("rows", [8, 33, 64, 224])
def test_few_heights_read_much_less(rows: int, columns: int) -> None:
    """Rows and columns of tiles of 128×256 and 256×192, of 16 bits."""
    for row_bytes, column_bytes, cluster in ((1, 4, 0), (2, 3, 0), (1, 4, 2)):
        chosen = walked_rows(rows, columns, row_bytes, column_bytes, 132, cluster)
        heights = {chosen: 0.0, **dict.fromkeys(range(1, min(rows, 66) + 1), 0.0)}
        found = {each: read(rows, columns, each, row_bytes, column_bytes, cluster) for each in heights}
        assert found[chosen] <= 1.12 * min(found.values())


def test_only_the_ratio_of_bytes_counts() -> None:
    assert walked_rows(64, 40, 3 * 7, 8 * 7, 132) == walked_rows(64, 40, 3 << 20, 8 << 20, 132)
    # Of gathered rows no boxes of the dense operand are read.
    assert 1 <= walked_rows(64, 40, 3, 0, 132) <= 64


def test_a_launch_says_how_many_rows_are_walked(gpu: FakeGpu, torch: FakeTorch) -> None:
    m, n, k = 8192, 4096, 64
    weight = louver.compress(louver.prune(np.ones((m, k), np.float16), "2:4"), "2:4")
    tile = choose(Problem("linear"), m, n, SM_90A, 132, aligned_output=True, k=k, cuts=True).tile
    louver.linear(Tensor((n, k)), weight, out=Tensor((n, m)))
    launch = gpu.only_launch()
    assert launch.grid == 132
    expected = walked_rows(-(-m // tile.m), -(-n // tile.n), tile.m * k, tile.n * k * 2, 132)
    assert launch.arguments["raster"] == expected < m // tile.m


def test_a_fixed_number_of_rows_is_no_parameter() -> None:
    schedule = choose(Problem("linear"), 8192, 4096, SM_90A, 132)
    names = {
        fixed: compile_product(Problem("linear"), schedule.changed(raster=fixed)).signature for fixed in (None, 12)
    }
    assert [any(each.name == "raster" for each in found.parameters) for found in names.values()] == [True, False]
    assert parameter_name("raster") != "raster", "an argument of a user's kernel keeps apart"
