from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from louver.choose.tuned import Entry, keep, place_of, read_table, tables
from louver.cli.commands import tune as command
from louver.cli.commands.tune import parse_range, tasks
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.measure import machine
from louver.measure.tune import Found, Tuned
from louver.measure.tune_run import Task
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import source_hash
from louver.runtime.device import Device, NoDevice

if TYPE_CHECKING:
    from support.command_line import Cli

PLACE = Device(0, "Some GPU", (9, 0), 132, 232448, 60 << 20, 141 << 30, (13, 0))
BASE, BEST = Schedule.of(stages=4, store="bulk"), Schedule.of(stages=4, store="bulk", raster=4)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOUVER_CACHE_DIR", str(tmp_path))
    return tmp_path / "louver-cache"


def kept(**changed: Any) -> Path:
    place = place_of(Problem("linear"), 512, 512, 512, "Some GPU", aligned_output=True)
    return keep(
        replace(Entry(place, BEST.flat(), 9.5, 10.0, (512, 512, 512), source_hash(), ptxas_version()), **changed)
    )


def test_tasks_of_the_options() -> None:
    found = tasks("4096x8192x8192,64x16x32", "f16,int8", "linear", None, None)
    assert [(task.problem.a, task.problem.out, task.m, task.n) for task in found] == [
        ("f16", "f16", 4096, 8192),
        ("f16", "f16", 64, 16),
        ("s8", "s32", 4096, 8192),
        ("s8", "s32", 64, 16),
    ]
    ranged = tasks("512x1x512", "e4m3", "matmul", "f16", "1..100")
    assert [task.n for task in ranged] == [8, 16, 32, 64, 100]
    assert {(task.problem.out, task.problem.b_layout) for task in ranged} == {("f16", "k_major")}
    assert tasks("512x1x512,512x2x512", "f16", "matmul", None, "7")[0].problem.b_layout == "n_major"
    assert len(tasks("512x1x512,512x2x512", "f16", "matmul", None, "7")) == 1


@pytest.mark.parametrize("text", ["", "a", "1..", "..5", "1-5", "1..x"])
def test_ranges_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"LEAST..GREATEST, such as 1..8192, or one N, got"):
        parse_range(text)


def test_other_types_are_refused(cli: Cli) -> None:
    assert "element types are f16, bf16, e4m3" in cli.refused("tune", "--dtype", "f64")
    assert "a shape is MxNxK" in cli.refused("tune", "--shapes", "4096")
    assert "out must be one of" in cli.refused("tune", "--out-dtype", "f64")


def test_without_a_gpu_there_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "current_device", lambda: NoDevice("no driver here"))
    assert "need a GPU, got none: no driver here" in cli.refused("tune")


def test_show_lists_what_is_kept_and_why_it_is_passed_over(
    cli: Cli, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"problem": {"kind": "linear"}, "sizes": [[32768, 4096, 4096]], "aligned_output": True, "schedule": {}}
    package = tuple(read_table(json.dumps({"device": "NVIDIA H200", "entries": [row]})))
    monkeypatch.setattr(command, "tables", lambda: package)
    kept()
    used = cli("tune", "--show")
    assert used.exit_code == 0, used.output
    assert "Some GPU" in used.output and "raster=4" in used.output and "512×512×512" in used.output
    assert "NVIDIA H200" in used.output and "32768×4096×4096" in used.output
    assert "passed over" not in used.output
    kept(ptxas="1.0")
    (cache / "odd.json").write_text("{")
    shown = cli("tune", "--show").output
    assert "passed over: it was measured with ptxas 1.0" in shown
    assert "odd.json" in shown and "it is damaged" in shown


def test_doctor_counts_tuned_schedules(cli: Cli) -> None:
    kept(louver="0" * 64)
    output = cli("doctor").output
    counts = (
        f"1 of this user, {len(tables())} of the package; 1 passed over, the first because it was measured with another"
    )
    assert counts in output


def test_tuning_says_what_it_found_and_writes_a_table(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fake(torch: Any, wanted: list[Task], place: Device) -> Any:
        for task in wanted:
            yield Tuned(task, Found(BEST, BASE, {BEST: 9e-6, BASE: 10e-6}), {Schedule(): "no"})

    monkeypatch.setattr(command, "require_torch", lambda targets: None)
    monkeypatch.setattr(command, "require_device", lambda: PLACE)
    monkeypatch.setattr(command, "tune_and_keep", fake)
    path = tmp_path / "gpu.json"
    result = cli("tune", "--shapes", "512x512x512,1024x512x512", "--table", path)
    assert result.exit_code == 0, result.output
    line = next(line for line in result.stdout.splitlines() if "linear 512×512×512 f16×f16→f16 k_major" in line)
    assert line.split()[-6:] == ["9.0", "1.111", "raster", "4", "2", "1"]
    assert "2 of 2: linear 1024×512×512" in result.stderr and f"wrote {path}" in result.stderr
    (row,) = json.loads(path.read_text())["entries"]
    assert row["sizes"] == [[512, 512, 512], [1024, 512, 512]]
    entries = list(read_table(path.read_text()))
    assert entries[0].place == place_of(Problem("linear"), 512, 512, 512, "Some GPU", aligned_output=True)
    assert entries[0].schedule == BEST.flat()
    printed = cli("tune", "--shapes", "512x512x512,1024x512x512", "--json")
    document = json.loads(printed.stdout)
    assert document["kind"] == "tune" and document["device"] == "Some GPU"
    first, second = document["tasks"]
    assert (first["sizes"], second["sizes"]) == ([512, 512, 512], [1024, 512, 512])
    assert (first["us"], first["base_us"], first["timed"], first["refused"]) == (9.0, 10.0, 2, 1)
    assert first["schedule"] == BEST.flat() and first["product"] == "linear"
    assert "no such folder: make it first" in cli.refused("tune", "--table", tmp_path / "none" / "x.json")
