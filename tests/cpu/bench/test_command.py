"""`louver bench gemm` with measurements made up."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from louver.bench.gemm import Measurement
from louver.bench.problems import SUSTAINED, GemmProblem
from louver.bench.sustained import Sustained
from louver.commands import bench as command
from louver.commands.bench import bench_gemm, problems
from louver.report.gemm import GemmRow

WANTED = [GemmProblem(*SUSTAINED[0], "f16"), GemmProblem(64, 32, 64, "f16"), GemmProblem(64, 32, 64, "s8", "s32")]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul = SimpleNamespace()
    torch = SimpleNamespace(
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=matmul)), cuda=SimpleNamespace(empty_cache=lambda: None)
    )

    def measure(_torch: Any, problem: GemmProblem, _protocol: Any, *, sustained: bool) -> Measurement:
        assert matmul.allow_fp16_reduced_precision_reduction is False
        row = GemmRow(problem.shape, problem.dtype, "linear", {"ours": 10.0, "cublas": 15.0}, problem.out)
        return Measurement(row, {}, {"ours": Sustained(11.0, 1400.0, 690.0)} if sustained else {})

    monkeypatch.setattr(command, "require_torch", lambda: torch)
    monkeypatch.setattr(command, "header", lambda _: {"device": "NVIDIA H200", "versions": {"ptxas": "1"}})
    monkeypatch.setattr(command, "measure", measure)


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
    wanted = problems("f16", "64x32x64", quick=False, accumulate="f16")
    bench_gemm(wanted, tmp_path, sustained=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gemm-f16.json", "gemm-f16.png"]
    with pytest.raises(ValueError, match="a record has one way to accumulate, got auto, f16: measure them apart"):
        bench_gemm([*WANTED, *wanted], tmp_path, sustained=False)
    with pytest.raises(ValueError, match="products of bf16 are measured with accumulate auto, got 'f16': choose other"):
        problems("f16,bf16", None, quick=True, accumulate="f16")


def test_without_time_the_record_says_what_is_missing_and_nothing_is_drawn(machine: None, tmp_path: Path) -> None:
    record = run(tmp_path, 0.001)
    assert record["rows"] == []
    assert record["missing"]["problems"] == [str(problem) for problem in WANTED]
    assert not (tmp_path / "gemm.png").exists()
