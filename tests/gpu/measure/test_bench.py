from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import louver
from louver.cli import app
from louver.cli.commands import bench as command
from louver.formats.pattern import lifted_pattern
from louver.measure import host
from louver.measure.gemm import measure
from louver.measure.host import measure_host
from louver.measure.machine import forbid_short_sums, tf32_products
from louver.measure.measurement import measure_n_major
from louver.measure.operands import make_operands, verify
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol
from louver.measure.report.gemm import TIMED, read_gemm, types_of
from louver.measure.schedules import measure_schedules

BRIEF = Protocol(
    rounds=2,
    burst_seconds=0.01,
    pause_seconds=0.0,
    rotation_bytes=1,
    most_algorithms=1,
    settle_seconds=0.05,
    sustained_seconds=0.2,
)
"""The default algorithm alone: trying all of a library's algorithms takes minutes, and is only a matter of speed."""


@pytest.fixture
def torch() -> Iterator[Any]:
    """PyTorch, its dense products as exact as a benchmark asks for: their results are held to our bound."""
    torch: Any = pytest.importorskip("torch")
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction
    forbid_short_sums(torch)
    with tf32_products(torch):
        yield torch
    matmul.allow_fp16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction = before


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8", "f32"])
def test_operands_hold_the_same_weights_in_both_forms(torch: Any, dtype: str) -> None:
    operands = make_operands(torch, GemmProblem(96, 32, 224, dtype), sets=2)
    for dense, sparse in zip(operands.dense, operands.sparse, strict=True):
        assert dense.is_cuda and sparse.device == dense.device.index
        assert torch.equal(sparse.dense().view(torch.uint8), dense.view(torch.uint8))
        # Normal numbers cut to integers are 0 now and then.
        assert louver.check(dense, lifted_pattern(dtype), exact=dtype != "s8").ok
    assert not torch.equal(operands.dense[0], operands.dense[1])


def test_verification_finds_one_wrong_output(torch: Any) -> None:
    operands = make_operands(torch, GemmProblem(64, 16, 256, "f16"), sets=2)
    y = (operands.x.double() @ operands.dense[1].double().t()).half()
    assert verify(torch, operands, 1, y).ok
    assert not verify(torch, operands, 0, y).ok
    y[:, 17] += 0.5
    assert not verify(torch, operands, 1, y).ok


@pytest.mark.parametrize(
    ("dtype", "out"),
    [("f16", "f16"), ("bf16", "bf16"), ("e4m3", "f16"), ("s8", "f16"), ("s8", "s32"), ("f32", "f32")],
)
def test_a_problem_is_measured(torch: Any, dtype: str, out: str) -> None:
    problem = GemmProblem(512, 256, 512, dtype, out)
    taken = measure(torch, problem, BRIEF, sustained=True)
    least = {"ours", "dependent", "copy"} | (set() if (dtype, out) == ("s8", "f16") else {"cublas"})
    assert least <= set(taken.row.times_us) <= set(TIMED), taken.notes
    assert taken.row.types == (dtype if dtype == out else f"{dtype}→{out}")
    assert set(taken.sustained) == set(taken.row.times_us) - {"dependent", "copy"}
    assert all(0 <= taken.notes[name]["error_over_bound"] <= 1 for name in ("ours", "dependent"))
    assert len(taken.notes["ours"]["bursts_us"]) == BRIEF.rounds
    assert (taken.n_major is not None) is (problem.bits == 8)
    assert {"operands", "verify", "libraries", "bursts", "sustained"} <= set(taken.seconds)


@pytest.mark.parametrize(("dtype", "out"), [("e4m3", "f16"), ("s8", "s32")])
def test_the_transposing_copy_is_timed_apart(torch: Any, dtype: str, out: str) -> None:
    taken = measure_n_major(torch, make_operands(torch, GemmProblem(512, 528, 1056, dtype, out), sets=2), BRIEF)
    assert taken.copied_bytes == 528 * 1056
    assert taken.copy_us > 0 and taken.product_us > 0
    assert 0 < taken.share < 1


def test_few_algorithms_are_ranked(torch: Any) -> None:
    taken = measure(torch, GemmProblem(512, 256, 512, "f16"), replace(BRIEF, most_algorithms=3, algorithms=1))
    facts = taken.notes["cusparselt"]
    assert "failed" in facts or 1 <= facts["algorithms"] <= 3
    assert {"libraries", "algorithms"} <= set(taken.seconds)


@pytest.mark.parametrize(
    ("dtype", "out"), [("f16", "f16"), ("bf16", "bf16"), ("e4m3", "f16"), ("s8", "s32"), ("f32", "f32")]
)
def test_host_times_are_measured(torch: Any, dtype: str, out: str) -> None:
    found = measure_host(torch, [GemmProblem(256, 16, 256, dtype, out)], calls=4, batches=3)
    times = {taken.name: taken for taken in found.times}
    wanted = {"empty launch", "encode a tensor map", "view of a torch tensor", "plan(x, out=y)", "louver.linear(x, s)"}
    wanted |= {"plan's launch alone", "louver.matmul(s, b)", "torch.empty"}
    if dtype in ("f16", "bf16", "f32"):
        wanted |= {"torch.mm(x, w.t(), out=y)", "louver.linear(x, s, bias)", "F.linear(x, w, bias)"}
    assert wanted <= set(times)
    assert all(0 < taken.least_us <= min(taken.us, taken.p90_us) for taken in times.values())
    assert times["plan(x, out=y)"].types == types_of(dtype, out)


def test_the_command_writes_host_times(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "SHAPE", (256, 16, 256))
    monkeypatch.setattr(command, "measure_host", partial(measure_host, calls=4, batches=3))
    result = CliRunner().invoke(app, ["bench", "host", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "host.json").read_text(encoding="utf-8"))
    assert {"device", "cpu", "date", "protocol", "missing"} <= set(record)
    assert {"louver", "torch", "ptxas", "python"} <= set(record["versions"])
    assert "plan with bias (x, out=y)" in {row["name"] for row in record["rows"]}


def test_the_command_writes_a_record(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "Protocol", lambda: BRIEF)
    shape = ["--shapes", "256x128x256", "--dtype", "f16"]
    result = CliRunner().invoke(app, ["bench", "gemm", *shape, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    record = read_gemm(tmp_path / "gemm.json")
    assert record.rows[0].shape == (256, 128, 256)
    assert {"louver", "torch", "ptxas", "CUDA"} <= set(record.versions)


def test_the_command_stops_when_its_time_is_up(torch: Any, tmp_path: Path) -> None:
    asked = ["--shapes", "256x128x256", "--dtype", "f16", "--budget", "0.001"]
    result = CliRunner().invoke(app, ["bench", "gemm", *asked, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "gemm.json").read_text(encoding="utf-8"))
    assert record["missing"]["problems"] == ["256×128×256 f16"]
    assert not (tmp_path / "gemm.png").exists()


@pytest.mark.parametrize(("dtype", "out"), [("e4m3", "f16"), ("s8", "s32")])
def test_schedules_of_8_bit_products_are_measured(torch: Any, dtype: str, out: str) -> None:
    rungs = measure_schedules(torch, GemmProblem(512, 512, 512, dtype, out), BRIEF)
    assert {"", "tile_k 64", "stages 2"} <= {rung.change for rung in rungs}
    assert next(rung for rung in rungs if not rung.change).schedule.tile.k == 128
    assert [rung.seconds for rung in rungs] == sorted(rung.seconds for rung in rungs)
