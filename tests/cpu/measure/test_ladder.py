"""`louver bench ladder` with made-up times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from louver.choose.configure import choose, deepest
from louver.cli.commands import bench as command
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.measure import ladder as bench
from louver.measure.ladder import BASELINE, LADDERS, SHAPE, TILE, change_between, climb, ladder
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol
from louver.measure.report.ladder import read_ladder
from louver.ptx.assembler import assemble

CLAIMS = {"e4m3": [430.0, 586.0, 718.0, 1401.0], "f16": [457.0, 531.0, 784.0]}
"""The worklog's two tables."""


@pytest.mark.parametrize("dtype", LADDERS)
def test_every_rung_is_one_change_from_the_one_below(dtype: str) -> None:
    rungs = ladder(dtype)
    assert rungs[0].schedule == BASELINE and rungs[0].change == "baseline"
    for below, above in zip(rungs, rungs[1:], strict=False):
        names = {name for name, value in above.schedule.flat().items() if value != below.schedule.flat()[name]}
        assert len(names) == 1 or names <= set(TILE)
        assert names <= set(TILE) or above.change == f"{min(names)} {above.schedule.flat()[min(names)]}"
    assert [rung.claim for rung in rungs if rung.claim is not None] == CLAIMS[dtype]


def test_the_library_choice_is_on_the_ladder() -> None:
    chosen = choose(Problem("linear"), *SHAPE[:2], SM_90A, 132, aligned_output=True)
    assert chosen in [rung.schedule for rung in ladder("f16")]


@pytest.mark.parametrize("dtype", LADDERS)
def test_every_rung_fits_and_the_deepest_are(dtype: str) -> None:
    problem = Problem("linear", dtype, dtype, "f16")
    for rung in ladder(dtype):
        assert rung.schedule.ring.stages <= deepest(problem, rung.schedule, SM_90A).ring.stages, rung.change
    deep = next(rung.schedule for rung in ladder(dtype) if rung.change == "stages 5")
    assert deep == deepest(problem, deep, SM_90A)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("dtype", LADDERS)
@pytest.mark.parametrize(
    "index", [0, 1, 5, 6, *(pytest.param(i, marks=pytest.mark.slow) for i in (2, 3, 4, *range(7, 24)))]
)
def test_rungs_assemble_cleanly(dtype: str, index: int) -> None:
    rungs = ladder(dtype)
    if index < len(rungs):
        assembly = assemble(compile_product(Problem("linear", dtype, dtype, "f16"), rungs[index].schedule).ptx)
        assert assembly.clean, (rungs[index].change, assembly.warnings, assembly.kernels)


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({}, "none"),
        ({"raster": 4, "stages": 4}, "stages, raster"),
        ({"tile_n": 128, "stages": 8}, "tile_n, stages"),
    ],
)
def test_a_rung_with_more_than_one_change_is_refused(change: Mapping[str, Any], got: str) -> None:
    with pytest.raises(ValueError, match=f"differs from the one below by one field, .* got {got}: give each change"):
        climb(Schedule(), [(change, None)])


def test_a_tile_is_one_change() -> None:
    wide = Schedule().changed(tile_m=192, tile_n=192, consumers=3)
    assert change_between(Schedule(), wide) == "tile 192×192, 3 consumers"


def test_other_types_have_no_ladder() -> None:
    with pytest.raises(ValueError, match="the ladder is for e4m3 or f16, got 's8'"):
        command.dtypes("f16,s8")
    assert command.dtypes("e4m3, f16") == ("e4m3", "f16")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Protocol]:
    asked: list[Protocol] = []

    def time_schedules(
        _torch: Any, gemm: GemmProblem, schedules: Mapping[str, Schedule], protocol: Protocol
    ) -> dict[str, float]:
        assert gemm.shape == (4096, 8192, 8192) and gemm.out == "f16"
        asked.append(protocol)
        return {name: 1e-3 / (1 + index) for index, name in enumerate(schedules)}

    torch = SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: None))
    monkeypatch.setattr(bench, "time_schedules", time_schedules)
    monkeypatch.setattr(command, "require_torch", lambda: torch)
    monkeypatch.setattr(command, "header", lambda _: {"device": "NVIDIA H200", "versions": {"ptxas": "1"}})
    return asked


def test_the_command_shows_writes_and_draws(timed: list[Protocol], tmp_path: Path) -> None:
    result = command.bench_ladder(("e4m3", "f16"), tmp_path, quick=True)
    assert timed == [bench.QUICK] * 2
    text = "\n".join(result.lines())
    # 2·4096·8192·8192 in a millisecond, and in half of it.
    assert "baseline" in text and "550" in text and "13.9%" in text and "430" in text
    assert "specialized True" in text and "1100" in text and "+100%" in text and "27.8%" in text
    record = read_ladder(tmp_path / "ladder.json")
    assert [found.dtype for found in record.ladders] == ["e4m3", "f16"]
    assert [len(found.rungs) for found in record.ladders] == [len(ladder(dtype)) for dtype in ("e4m3", "f16")]
    kept = json.loads((tmp_path / "ladder.json").read_text(encoding="utf-8"))["ladders"][0]["rungs"]
    assert [Schedule.of(**rung["schedule"]) for rung in kept] == [rung.schedule for rung in ladder("e4m3")]
    assert (tmp_path / "ladder.png").read_bytes().startswith(b"\x89PNG")
