from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import choose
from louver.choose.tuned import decide, kept
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import target
from louver.library.execute import schedule_for
from louver.library.numerics import compare
from louver.measure import tune as tuning
from louver.measure.protocol import Protocol
from louver.measure.tune import tune
from louver.measure.tune_run import Task, set_up
from louver.runtime.device import require_device

BRIEF = Protocol(rounds=1, burst_seconds=0.005, graph_seconds=0.001, pause_seconds=0.0, rotation_bytes=1)


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def own_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Entries of this test alone; kernels stay where they are, so that they are compiled once."""
    monkeypatch.setattr("louver.choose.tuned.cache_directory", lambda: tmp_path)
    schedule_for.cache_clear()
    yield
    schedule_for.cache_clear()


PROBLEMS = [
    Problem("linear"),
    Problem("linear", "bf16", "bf16", "bf16", bias="row"),
    Problem("matmul", b_layout="n_major"),
    Problem("linear", "e4m3", "e4m3", "f16"),
    Problem("matmul", "s8", "s8", "s32"),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("n", [17, 256])
def test_schedules_are_checked_and_timed(torch: Any, problem: Problem, n: int) -> None:
    place = require_device()
    task = Task(problem, 300, n, 328)
    bench = set_up(torch, task, place, BRIEF)
    base = choose(problem, 300, n, target(place.target), place.sm_count, aligned_output=task.aligned_output)
    times = bench.measure([base, base.changed(raster=4)])
    assert set(times) == {base, base.changed(raster=4)}
    assert all(seconds > 0 for seconds in times.values())
    assert not bench.refused


def test_a_wrong_result_ends_the_tuning(torch: Any) -> None:
    place = require_device()
    bench = set_up(torch, Task(Problem("linear"), 256, 64, 256), place, BRIEF)
    bench.dense[0].mul_(1.5)
    with pytest.raises(ArithmeticError, match=r"computes wrongly: linear 256×64×256 .* out of bounds"):
        bench.measure([Schedule.of(tile_n=64, stages=4)])


def test_what_does_not_compile_is_left_out_with_the_reason(torch: Any) -> None:
    place = require_device()
    bench = set_up(torch, Task(Problem("matmul", "s8", "s8", "s32"), 256, 64, 256), place, BRIEF)
    good, bad = Schedule.of(tile_n=64, tile_k=128, stages=4), Schedule.of(tile_n=40, tile_k=128, stages=4)
    assert set(bench.measure([good, bad])) == {good}
    assert "multiple of 16 up to 256, got 40" in bench.refused[bad]


def test_a_search_ends_with_the_model_or_better(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("louver.measure.tune.ROUNDS", 1)
    tuned = tune(torch, Task(Problem("linear"), 1024, 512, 1024), require_device(), BRIEF)
    assert tuned.gain >= 1
    assert len(tuned.found.times) > 10


def test_prepare_tunes_keeps_and_uses(torch: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr("louver.measure.tune.ROUNDS", 1)
    monkeypatch.setattr(tuning.tune_and_keep, "__defaults__", (BRIEF,))
    dense = louver.prune(rng.standard_normal((256, 328)).astype(np.float16), "2:4")
    s = louver.compress(dense, "2:4")
    louver.prepare(s, n=40, tune=True)
    assert len(list(kept())) == 1
    place = require_device()
    assert decide(Problem("linear"), 256, 40, 328, place, aligned_output=True).origin == "tuned"
    x = torch.randn(40, 328, device="cuda", dtype=torch.float16)
    y = louver.linear(x, s).cpu().numpy()
    wide = x.double().cpu().numpy()
    reference, magnitude = wide @ dense.T.astype(np.float64), np.abs(wide) @ np.abs(dense.T.astype(np.float64))
    assert compare(y.astype(np.float64), reference, magnitude, 328, "f16", "f32").ok


def test_tuning_under_capture_names_prepare(torch: Any, rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((64, 64)).astype(np.float16), "2:4"), "2:4")
    torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match=r"louver.prepare\(s, n=…, tune=True\) before it"), torch.cuda.graph(graph):
        louver.prepare(s, n=16, tune=True)
