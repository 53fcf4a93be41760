"""`louver bench gemm` with measurements made up."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from louver.cli import app
from louver.cli.commands import bench as command
from louver.cli.commands.bench import bench_gemm, problems
from louver.compile.plan.schedule import Schedule
from louver.measure.host import HostTime, HostTimes
from louver.measure.measurement import Measurement
from louver.measure.problems import SUSTAINED, GemmProblem
from louver.measure.report.gemm import GemmRow
from louver.measure.schedules import Rung
from louver.measure.sustained import Sustained

WANTED = [GemmProblem(*SUSTAINED[0], "f16"), GemmProblem(64, 32, 64, "f16"), GemmProblem(64, 32, 64, "s8", "s32")]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul = SimpleNamespace(allow_tf32=False)
    torch = SimpleNamespace(
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=matmul)), cuda=SimpleNamespace(empty_cache=lambda: None)
    )

    def measure(_torch: Any, problem: GemmProblem, _protocol: Any, *, sustained: bool) -> Measurement:
        assert (matmul.allow_fp16_reduced_precision_reduction, matmul.allow_tf32) == (False, True)
        row = GemmRow(problem.shape, problem.dtype, "linear", {"ours": 10.0, "cublas": 15.0}, problem.out)
        return Measurement(row, {}, {"ours": Sustained(11.0, 1400.0, 690.0)} if sustained else {})

    monkeypatch.setattr(command, "require_torch", lambda: torch)
    monkeypatch.setattr(
        command, "header", lambda _: {"device": "NVIDIA H200", "versions": {"ptxas": "1", "commit": "abc"}, "date": "1"}
    )
    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "require_device", lambda: "the device")
    monkeypatch.setattr(command, "compile_ahead", lambda wanted, place: len(wanted) if place == "the device" else 0)


def run(out: Path, budget: float | None) -> dict[str, Any]:
    result = bench_gemm(WANTED, out, sustained=True, budget=budget)
    record = json.loads((out / "gemm.json").read_text(encoding="utf-8"))
    assert json.loads(result.json()) == record
    return record


def test_all_problems_are_measured_and_drawn(machine: None, tmp_path: Path) -> None:
    record = run(tmp_path, None)
    assert [row["shape"] for row in record["rows"]] == [list(problem.shape) for problem in WANTED]
    assert [bool(row["sustained"]) for row in record["rows"]] == [True, False, False]
    assert "missing" not in record
    assert (tmp_path / "gemm.png").is_file()


def test_another_way_to_accumulate_has_files_of_its_own(machine: None, tmp_path: Path) -> None:
    wanted = problems("f16", "64x32x64", accumulate="f16")
    bench_gemm(wanted, tmp_path, sustained=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gemm-f16.json", "gemm-f16.png"]
    bench_gemm(WANTED, tmp_path, sustained=False, suite="tokens")
    assert (tmp_path / "gemm-tokens.json").is_file()
    with pytest.raises(ValueError, match="a record has one way to accumulate, got auto, f16: measure them apart"):
        bench_gemm([*WANTED, *wanted], tmp_path, sustained=False)
    with pytest.raises(ValueError, match="products of bf16 are measured with accumulate auto, got 'f16': choose other"):
        problems("f16,bf16", None, "quick", accumulate="f16")


def test_without_time_the_record_says_what_is_missing_and_nothing_is_drawn(machine: None, tmp_path: Path) -> None:
    record = run(tmp_path, 0.001)
    assert record["rows"] == []
    assert record["missing"]["problems"] == [str(problem) for problem in WANTED]
    assert not (tmp_path / "gemm.png").exists()


class Killed(BaseException):
    """The end of a process."""


def test_a_killed_run_is_continued_and_measures_what_is_missing(
    machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, log = command.measure, list[str]()

    def measured(torch: Any, problem: GemmProblem, *rest: Any, **options: Any) -> Measurement:
        if len(log) == 2:
            raise Killed
        log.append(str(problem))
        return whole(torch, problem, *rest, **options)

    monkeypatch.setattr(command, "measure", measured)
    with pytest.raises(Killed):
        bench_gemm(WANTED, tmp_path, sustained=True)
    begun = tmp_path / "gemm.json"
    first = json.loads(begun.read_text(encoding="utf-8"))
    assert len(first["rows"]) == 2 and first["missing"]["problems"] == sorted({*map(str, WANTED)} - {*log})
    with pytest.raises(Killed):
        bench_gemm(WANTED, tmp_path, sustained=True)
    assert json.loads(begun.read_text(encoding="utf-8")) == first, (
        "a run that is killed before its first row leaves the file"
    )
    log.clear()
    ahead = list[Any]()
    monkeypatch.setattr(command, "compile_ahead", lambda wanted, _: ahead.extend(wanted) or 0)
    monkeypatch.setattr(
        command, "header", lambda _: {"device": "NVIDIA H200", "versions": {"ptxas": "1", "commit": "abc"}, "date": "2"}
    )
    bench_gemm(WANTED, tmp_path / "next", sustained=True, begun=begun)
    assert log == first["missing"]["problems"] == [str(problem) for problem in ahead]
    second = json.loads((tmp_path / "next" / "gemm.json").read_text(encoding="utf-8"))
    assert [row["shape"] for row in second["rows"]] == [list(problem.shape) for problem in WANTED]
    assert [row for row in second["rows"] if "date" not in row] == first["rows"]
    assert [row["date"] for row in second["rows"] if "date" in row] == ["2"]
    assert second["date"] == "1" and "missing" not in second
    assert json.loads(begun.read_text(encoding="utf-8")) == first


def test_the_command_takes_a_record_to_continue(machine: None, tmp_path: Path) -> None:
    asked = ["gemm", "--shapes", "64x32x64", "--dtype", "f16"]
    printed(tmp_path, *asked)
    found, notes = printed(tmp_path / "next", *asked, "--continue", str(tmp_path / "gemm.json"))
    assert found == json.loads((tmp_path / "gemm.json").read_text(encoding="utf-8"))
    assert "kernels compiled ahead: 0, 0 s" in notes and "TFLOP/s (" not in notes


def test_another_gpus_record_is_refused_before_anything_is_measured(
    machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench_gemm(WANTED, tmp_path, sustained=False)
    monkeypatch.setattr(
        command, "header", lambda _: {"device": "NVIDIA H100", "versions": {"ptxas": "1", "commit": "abc"}, "date": "2"}
    )
    monkeypatch.setattr(command, "measure", lambda *_, **__: 1 / 0)
    asked = ["bench", "gemm", "--continue", str(tmp_path / "gemm.json"), "--out", str(tmp_path / "next")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 2
    assert "the same device, here NVIDIA H100, got NVIDIA H200 in gemm.json: continue it where it" in result.stderr
    assert not (tmp_path / "next").exists()


def printed(out: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """A suite's JSON and its notes. Nothing else is on standard output, as text or as JSON."""
    command = ["bench", *arguments, "--out", str(out)]
    assert "NVIDIA H200" in CliRunner().invoke(app, command).stdout
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def test_gemm_prints_its_record(machine: None, tmp_path: Path) -> None:
    found, notes = printed(tmp_path, "gemm", "--shapes", "64x32x64", "--dtype", "f16")
    assert found == json.loads((tmp_path / "gemm.json").read_text(encoding="utf-8"))
    assert found["kind"] == "gemm" and found["rows"][0]["shape"] == [64, 32, 64]
    assert (
        notes.startswith("kernels compiled ahead: 1, 0 s\n64×32×64 f16: Louver")
        and f"wrote {tmp_path / 'gemm.json'}\n" in notes
    )


def test_schedules_print_their_record(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rungs = [Rung("stages 3", Schedule.of(stages=3), 9e-6), Rung("", Schedule.of(stages=4), 10e-6)]
    monkeypatch.setattr(command, "measure_schedules", lambda *_, **__: rungs)
    found, _ = printed(tmp_path, "schedules", "--shapes", "64x32x64")
    assert (found["schema"], found["kind"]) == (1, "schedules")
    kept = json.loads((tmp_path / "schedules.json").read_text(encoding="utf-8"))
    assert kept.items() <= found.items()
    assert [row["us"] for row in found["rows"][0]["schedules"]] == [9.0, 10.0]


def test_host_times_print_their_record(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"device": "NVIDIA H200", "cpu": "fast", "versions": {}, "date": "2026-01-02"}
    monkeypatch.setattr(command, "host_header", lambda _: facts)
    times = HostTimes([HostTime("empty launch", 2.5, 2.4, 2.6)], {"torch.mm": "why"})
    monkeypatch.setattr(command, "measure_host", lambda *_: times)
    found, _ = printed(tmp_path, "host")
    assert found == json.loads((tmp_path / "host.json").read_text(encoding="utf-8"))
    assert found["kind"] == "host" and found["missing"] == {"torch.mm": "why"}
