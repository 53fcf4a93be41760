"""Classes of N that share a schedule."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import candidates_for, choose
from louver.choose.demand import Demand
from louver.choose.tile_shapes import column_class
from louver.choose.tuned import Decision, decide
from louver.frontend.problem import Problem
from louver.isa.targets import target
from louver.library import execute
from louver.library.prepare import _classes
from support.fake_gpu import FakeGpu, FakeTorch, Tensor

PROBLEMS = pytest.mark.parametrize(
    "problem",
    [
        Problem("linear"),
        Problem("linear", "e4m3", "e4m3", accumulate="promoted"),
        Problem("matmul", b_layout="n_major", accumulate="f16"),
        Problem("matmul", "bf16", "bf16", b_layout="n_major", pattern="2:8@128"),
        Problem("matmul", "f32", "f32", out="f32", b_layout="n_major", pattern="8:32@32"),
    ],
    ids=lambda problem: f"{problem.kind}-{problem.a}-{problem.accumulate}-{problem.pattern}",
)


@PROBLEMS
@pytest.mark.parametrize("dependent", [False, True])
def test_a_class_has_equal_columns_of_each_candidate(problem: Problem, dependent: bool) -> None:
    demand, machine = Demand.of_problem(problem, dependent=dependent), target("sm_90a")
    for n in range(1, 1200):
        greatest = column_class(n)
        found = candidates_for(demand, machine, n, bulk=True)
        assert found == candidates_for(demand, machine, greatest, bulk=True)
        for width in {schedule.tile.n for schedule, _ in found}:
            assert -(-n // width) == -(-greatest // width)


@pytest.mark.sampled(7)
@PROBLEMS
def test_all_n_of_a_class_get_its_schedule(problem: Problem, rng: np.random.Generator) -> None:
    machine = target("sm_90a")
    for m in (1, 300, 9000):
        low, high = sorted(int(n) for n in np.exp(rng.uniform(0, np.log(30_000), 2)))
        high += 1
        classes = list(_classes(low, high))
        for aligned in (False, True):
            for k in (300, 8000):
                chosen = partial(
                    choose, problem, m, target=machine, sm_count=132, aligned_output=aligned, k=k, cuts=True
                )
                for n in {low, high, *range(1, 40), *rng.integers(low, high + 1, 60).tolist()}:
                    assert chosen(n=n) == chosen(n=column_class(n))
                    assert not low <= n <= high or column_class(n) in classes


def test_a_schedule_is_chosen_once_for_a_class(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((136, 72)).astype(np.float16), "2:4"), "2:4")
    chosen: list[int] = []

    def counting(problem: Problem, m: int, n: int, *others: Any, **more: Any) -> Decision:
        chosen.append(n)
        return decide(problem, m, n, *others, **more)

    monkeypatch.setattr(execute, "decide", counting)
    for n in (65, 66, 70, 80):
        louver.linear(Tensor((n, 72)), s)
    assert chosen == [80]
