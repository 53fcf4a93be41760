from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from louver.choose.configure import (
    DEEP_RING,
    MAX_STAGES,
    MIN_N_MAJOR,
    candidates_for,
    choose,
    choose_for_nest,
    deepest,
    settled,
)
from louver.choose.demand import Demand
from louver.choose.ranges import Ranges
from louver.choose.tile_shapes import TILE_N, TILES
from louver.compile.pipeline import compile_product
from louver.compile.plan.nest import read_nest
from louver.compile.plan.schedule import Schedule
from louver.frontend.builder import build_tile_ir
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem, Tile
from louver.ir.product import ProductNest
from louver.isa.targets import SM_90A


def nest_of(problem: Problem, *tile: int) -> ProductNest:
    return read_nest(build_tile_ir(problem, Tile(*tile)))


K_MAJOR, N_MAJOR = Problem("matmul"), Problem("matmul", b_layout="n_major")
LINEAR = Demand.of_problem(Problem("linear"))
MANY = 1 << 20


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 17, 33, 64, 65, 129, 256, 257, 5000])
def test_tiles_are_no_wider_than_the_narrowest_that_holds_n(n: int) -> None:
    tile_n = choose(K_MAJOR, MANY, n, SM_90A, 132).tile.n
    assert tile_n in {shape.n for shape in TILES}
    holds = next((width for width in TILE_N if width >= n), TILE_N[-1])
    assert tile_n == holds if n <= 64 else 64 <= tile_n <= holds


@pytest.mark.parametrize(
    ("m", "n", "k", "tile"),
    [
        (2560, 1024, 6912, (192, 128)),
        (18944, 128, 3584, (192, 128)),
        (14336, 777, 4096, (192, 160)),
        (8960, 129, 1536, (128, 160)),
        (18944, 64, 3584, (192, 64)),
        (28672, 32, 4096, (256, 32)),
    ],
)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_tiles_leave_few_columns_and_few_sms_without_work(
    dtype: str, m: int, n: int, k: int, tile: tuple[int, int]
) -> None:
    """Tiles of 128×256, 128×128 and 128×64 would leave up to half of the last column, or of the last wave."""
    chosen = choose(Problem("linear", dtype, dtype, "f16"), m, n, SM_90A, 132, aligned_output=True, k=k, cuts=True)
    assert (chosen.tile.m, chosen.tile.n) == tile


def test_lone_tiles_are_for_one_column_of_whole_tiles() -> None:
    lone = [shape for shape in TILES if shape.lone]
    assert lone and all(shape.works(LINEAR) == ("tiles",) and not shape.cuts(LINEAR) for shape in lone)
    sizes = {(shape.m, shape.n) for shape in lone}
    for n in (64, 65, 300, 4096):
        found = {(each.tile.m, each.tile.n) for each, _ in candidates_for(LINEAR, SM_90A, n, bulk=True)}
        assert bool(found & sizes) == (n <= 64)


@pytest.mark.parametrize("n", [1, 8, 63, 64, 65, 300])
def test_n_major_tiles_hold_whole_swizzle_spans(n: int) -> None:
    assert choose(N_MAJOR, MANY, n, SM_90A, 132).tile.n >= MIN_N_MAJOR["wgmma"]


def test_tiles_are_smaller_where_sms_would_idle() -> None:
    for sms, least, most in ((1, 128 * 256, 128 * 256), (132, 64 * 64, 64 * 128)):
        tile = choose(K_MAJOR, 128, 256, SM_90A, sms).tile
        assert least <= tile.m * tile.n <= most
    assert choose(Problem("matmul", batch="both"), 128, 256, SM_90A, 132, batch=132).tile.n == 256


BENCHMARKS = ((4096, 8192), (4096, 4096), (8192, 8192), (6144, 8192), (28672, 4096), (4096, 1024))
"""M and N of the products that are measured most."""


TALLER = ((6144, 8192), (28672, 4096))
"""Those of them whose last wave leaves few SMs idle in tiles of 256×192."""


@pytest.mark.parametrize(("m", "n"), BENCHMARKS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8"])
def test_products_that_fill_the_sms_take_large_tiles(dtype: str, m: int, n: int) -> None:
    chosen = choose(Problem("linear", dtype, dtype, "f16"), m, n, SM_90A, 132, aligned_output=True)
    tile = (chosen.tile.m, chosen.tile.n)
    assert tile == (256, 192) if (m, n) in TALLER else tile in ((128, 256), (256, 192))
    if (m, n) == (8192, 8192):
        # As fast as each other (`docs/perf-log/49-gpcs.md`).
        assert tile == ((256, 192) if dtype in ("e4m3", "s8") else (128, 256))
    assert chosen.ring.stages == 4


def test_tall_tiles_are_for_bulk_stores_and_sums_of_one_kind() -> None:
    def tile(problem: Problem, *, aligned: bool = True, batch: int = 1, m: int = 6144) -> tuple[int, int]:
        chosen = choose(problem, m, 8192, SM_90A, 132, aligned_output=aligned, batch=batch)
        return chosen.tile.m, chosen.tile.n

    assert tile(Problem("linear")) == (256, 192)
    assert tile(Problem("linear", batch="both"), batch=2, m=3072) == (256, 192)
    assert tile(Problem("matmul", b_layout="n_major", batch="both", out="f32"), batch=2, m=3072) == (256, 192)
    assert tile(Problem("linear"), aligned=False) == (128, 256)
    assert tile(Problem("linear", out="e4m3")) == (128, 256)
    assert tile(Problem("linear", epilogue=Epilogue(c="f16", activation="gelu"))) == (256, 192)
    assert tile(Problem("linear", bias="row", epilogue=Epilogue(c="f16"))) == (128, 256)
    assert tile(Problem("linear", accumulate="f16")) == (256, 256)
    assert tile(Problem("linear", "e4m3", "e4m3", "f16", accumulate="promoted")) == (128, 192)


@pytest.mark.parametrize(("problem", "m"), [(Problem("linear"), 28672), (Problem("linear", "s8", "s8", "f32"), 57344)])
def test_a_lone_column_of_tiles_asks_nothing_of_the_l2_cache(problem: Problem, m: int) -> None:
    """There the values are read once, and the dense operand by every tile: to keep the values would be the wrong way round."""
    for n in (192, 256, 384, 512, 768):
        chosen = choose(problem, m, n, SM_90A, 132, aligned_output=True)
        if chosen.tile.n == 256 or (chosen.tile.m, chosen.tile.n) == (256, 192):
            assert chosen.order.l2 == ("even" if n <= chosen.tile.n else "values")
        else:
            assert chosen.order.l2 == "even"


@pytest.mark.parametrize(("m", "n"), [(1024, 1024), (2048, 512), (1024, 256), (512, 2048)])
def test_small_products_are_spread_over_more_sms(m: int, n: int) -> None:
    chosen = choose(K_MAJOR, m, n, SM_90A, 132)
    tiles = -(-m // chosen.tile.m) * -(-n // chosen.tile.n)
    assert -(-m // 128) * -(-n // 256) < tiles <= 132


def test_bulk_stores_only_where_the_output_allows() -> None:
    assert choose(K_MAJOR, MANY, 256, SM_90A, 132).store.way == "direct"
    assert choose(K_MAJOR, MANY, 256, SM_90A, 132, aligned_output=True).store.way == "bulk"


@pytest.mark.parametrize("kind", ["linear", "matmul"])
@pytest.mark.parametrize(
    ("operand", "out", "least"), [("s8", "s32", 8), ("f16", "f32", 8), ("bf16", "f16", 16), ("e4m3", "e4m3", 32)]
)
def test_every_width_of_output_is_stored_in_bulk(kind: str, operand: str, out: str, least: int) -> None:
    problem = Problem(kind, operand, operand, out)
    for n in TILE_N:
        schedule = choose(problem, MANY, n, SM_90A, 132, aligned_output=True)
        assert schedule.tile.n == n
        assert schedule.store.way == ("bulk" if n >= least else "direct")


@pytest.mark.parametrize(
    "problem", [Problem("linear", "s8", "s8", "s32"), Problem("matmul", out="f32"), K_MAJOR], ids=["s32", "f32", "f16"]
)
def test_staging_costs_one_stage(problem: Problem) -> None:
    direct = choose(problem, MANY, 256, SM_90A, 132)
    assert choose(problem, MANY, 256, SM_90A, 132, aligned_output=True).ring.stages == direct.ring.stages - 1


@pytest.mark.parametrize(
    "problem",
    [
        K_MAJOR,
        N_MAJOR,
        Problem("linear", bias="row"),
        Problem("linear", "s8", "s8", "s32"),
        Problem("matmul", "e4m3", "e4m3", "e4m3"),
    ],
    ids=["k", "n", "linear", "s32", "e4m3"],
)
def test_the_ring_is_as_deep_as_shared_memory_holds(problem: Problem) -> None:
    deeper = 0
    for n, aligned in itertools.product(TILE_N, (False, True)):
        schedule = choose(problem, MANY, n, SM_90A, 132, aligned_output=aligned)
        stages = schedule.ring.stages
        assert 2 <= stages <= MAX_STAGES
        held = compile_product(problem, schedule).signature.shared_bytes
        assert held <= SM_90A.max_shared_bytes
        many, most_bytes = DEEP_RING
        if stages >= many:
            stage = held - compile_product(problem, schedule.changed(stages=stages - 1)).signature.shared_bytes
            deepest_of = min(MAX_STAGES, max(many, most_bytes // stage))
            assert stages == deepest_of or held + stage > SM_90A.max_shared_bytes
        else:
            deeper += 1
            with pytest.raises(ValueError, match="shared memory"):
                compile_product(problem, schedule.changed(stages=stages + 1))
    assert deeper


@pytest.mark.parametrize(
    ("n", "whole", "stages"), [(640, 0, {64: 8, 96: 6, 128: 5, 160: 5, 192: 4}), (640, 132, None), (192, 0, None)]
)
def test_rings_of_pairs_that_share_columns_are_shallow(n: int, whole: int, stages: dict[int, int] | None) -> None:
    for schedule, _ in candidates_for(LINEAR, SM_90A, n, bulk=True):
        if not schedule.pairs or schedule.tile.m != 128 or schedule.tile.n >= n:
            continue
        columns, deep = -(-n // schedule.tile.n), schedule.ring.stages
        expected = stages[schedule.tile.n] if stages and columns >= 4 else deep
        assert settled(LINEAR, schedule, Ranges(200, whole, 2, 64), n, SM_90A).ring.stages == expected <= deep


def test_a_tile_that_does_not_fit_is_refused() -> None:
    small = replace(SM_90A, max_shared_bytes=64 << 10)
    with pytest.raises(ValueError, match="two stages of .* do not fit the 65536 bytes .* use a smaller tile"):
        deepest(K_MAJOR, Schedule.of(tile_n=256), small)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize(
    "problem",
    [
        K_MAJOR,
        N_MAJOR,
        Problem("linear", bias="row"),
        Problem("linear", "s8", "s8", "s32"),
        Problem("matmul", "e4m3", "e4m3", "f16"),
        Problem("linear", accumulate="f16"),
        Problem("linear", epilogue=Epilogue(activation="gelu")),
        Problem("linear", epilogue=Epilogue(activation="silu", gated=True)),
    ],
    ids=lambda problem: f"{problem.kind} {problem.a} {problem.accumulate} {problem.epilogue.activation}",
)
def test_a_user_s_kernel_gets_the_library_s_schedule(problem: Problem, aligned: bool) -> None:
    for n in (64, 512):
        expected = choose(problem, MANY, n, SM_90A, 132, aligned_output=aligned)
        found = nest_of(problem, expected.tile.m, expected.tile.n, expected.tile.k)
        assert choose_for_nest(found, SM_90A, aligned_output=aligned) == expected


@pytest.mark.parametrize(
    ("tile", "consumers"), [((64, 256), 1), ((128, 256), 2), ((192, 192), 3), ((256, 128), 2), ((320, 64), None)]
)
def test_warpgroups_go_by_the_user_s_tile(tile: tuple[int, int], consumers: int | None) -> None:
    nest = nest_of(K_MAJOR, *tile, 64)
    if consumers is None:
        with pytest.raises(ValueError, match="tile_m"):
            choose_for_nest(nest, SM_90A, aligned_output=True)
    else:
        assert choose_for_nest(nest, SM_90A, aligned_output=True).roles.consumers == consumers


def test_a_tile_that_is_not_for_the_user_s_operands_does_not_decide_about_warpgroups() -> None:
    """The library has 192×128 with three consumers for 2:4. Three lists of rows leave no room for two stages."""
    gathered = Problem("matmul", "bf16", "bf16", "bf16", pattern="4:8@64", b_layout="n_major")
    assert choose_for_nest(nest_of(gathered, 192, 128, 128), SM_90A, aligned_output=True).roles.consumers == 1


def test_fields_that_the_user_fixes_are_kept_and_the_rest_goes_by_them() -> None:
    nest = nest_of(K_MAJOR, 256, 64, 64)
    assert choose_for_nest(nest, SM_90A, aligned_output=False, fixed={"consumers": 4}).roles.consumers == 4
    fixed = choose_for_nest(nest, SM_90A, aligned_output=True, fixed={"store": "direct", "cluster": 2})
    assert (fixed.store.way, fixed.order.cluster) == ("direct", 2)
    assert fixed.ring.stages == choose_for_nest(nest, SM_90A, aligned_output=False).ring.stages
    assert choose_for_nest(nest, SM_90A, aligned_output=True, fixed={"stages": 3}).ring.stages == 3
    alone = {"specialized": False, "consumers": 1, "in_flight": 0}
    assert choose_for_nest(nest_of(K_MAJOR, 64, 64, 64), SM_90A, aligned_output=False, fixed=alone).ring.stages == 1
    with pytest.raises(ValueError, match="tile_m must be a multiple of 64 × consumers"):
        choose_for_nest(nest, SM_90A, aligned_output=False, fixed={"consumers": 3})


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        ("2:4", 1000),
        ("2:8@64", 250),
        ("3:5@128", 600),
        ("3:7@192", 429),
        ("4:8@32", 750),
        ("1:8@33", 234),
        ("2:8", 1000),
    ],
)
def test_the_model_counts_rows_that_a_list_is_likely_to_have(pattern: str, rows: int) -> None:
    """Of a window what it keeps; of several 1 - (1 - N / M)^windows, two of 33 rows in a block of 64."""
    demand = Demand.of_problem(Problem("matmul", pattern=pattern, b_layout="n_major"))
    assert demand.depth(1000) == rows


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("4:8@128", (128, 256, 64, 4)),
        ("4:8@256", (128, 256, 64, 4)),
        ("4:8@64", (128, 256, 32, 5)),
        ("4:8@192", (128, 256, 32, 5)),
        ("4:8@32", (64, 128, 64, 8)),
        ("2:8@V64", (64, 128, 64, 8)),
    ],
)
def test_tiles_of_two_lists_take_short_steps(pattern: str, expected: tuple[int, ...]) -> None:
    """Not those whose metadata is for longer steps, and of windows of fewer rows none."""
    problem = Problem("matmul", "bf16", "bf16", "bf16", pattern=pattern, b_layout="n_major")
    flat = choose(problem, 4096, 8192, SM_90A, 132, aligned_output=True, k=8192).flat()
    assert tuple(flat[name] for name in ("tile_m", "tile_n", "tile_k", "stages")) == expected
