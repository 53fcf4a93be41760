"""Reconstruction against exact least squares in f64; swaps against every choice of a group."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.pattern import Pattern

torch: Any = pytest.importorskip("torch")

from louver.torch.accuracy.masks import keep  # noqa: E402
from louver.torch.accuracy.methods import reconstruct, swaps  # noqa: E402


class Problem:
    """A weight, its mask, and ‖W x − t‖² with correlated x."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, int], pattern: Pattern) -> None:
        size = shape[1]
        mix = rng.standard_normal((size, size)) / size**0.5 + np.eye(size)
        x = rng.standard_normal((4 * size, size)) @ mix
        self.gram = torch.from_numpy((x.T @ x / len(x)).astype(np.float32))
        self.dense = torch.from_numpy(rng.standard_normal(shape, np.float32))
        drift = torch.from_numpy(rng.standard_normal((size, size), np.float32)) * 0.02
        self.target = self.dense @ (self.gram + drift)
        self.mask = keep(self.dense.square(), pattern)

    def loss(self, w: Any) -> float:
        w = w.double()
        return float(((w @ self.gram.double()) * w - 2 * w * self.target.double()).sum())

    def exact(self, mask: Any) -> Any:
        w = torch.zeros(self.dense.shape, dtype=torch.float64)
        for row, kept in enumerate(mask):
            at = kept.nonzero()[:, 0]
            w[row, at] = torch.linalg.solve(self.gram[at][:, at].double(), self.target[row, at].double())
        return w


@pytest.mark.parametrize("text", ["2:4", "1:2", "3:5", "4:8@3", "2:8@V4"])
@pytest.mark.parametrize("shape", [(5, 24), (7, 61), (12, 128)])
def test_thirty_steps_are_least_squares(text: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    problem = Problem(rng, shape, Pattern.parse(text))
    w = reconstruct(problem.dense, problem.mask, problem.gram, problem.target, 30)
    exact = problem.exact(problem.mask)
    assert not w[~problem.mask].any()
    assert torch.allclose(w.double(), exact, atol=2e-3 * float(exact.abs().max()))
    # The loss is what counts: within a thousandth of what reconstruction gains.
    start = problem.loss(problem.dense * problem.mask)
    assert problem.loss(w) - problem.loss(exact) <= 1e-3 * (start - problem.loss(exact))


def test_many_steps_stay_at_the_solution(rng: np.random.Generator) -> None:
    problem = Problem(rng, (6, 40), Pattern(2, 4))
    w = reconstruct(problem.dense, problem.mask, problem.gram, problem.target, 400)
    assert torch.allclose(w.double(), problem.exact(problem.mask), atol=1e-4)


def test_no_step_keeps_the_values(rng: np.random.Generator) -> None:
    problem = Problem(rng, (6, 40), Pattern(2, 4))
    w = reconstruct(problem.dense, problem.mask, problem.gram, problem.target, 0)
    assert torch.equal(w, problem.dense * problem.mask)


@pytest.mark.parametrize("text", ["2:4", "1:2", "4:8", "2:16", "3:5", "2:4@3", "1:4@64"])
@pytest.mark.parametrize("shape", [(5, 32), (7, 61), (10, 300)])
def test_a_sweep_lowers_the_loss(text: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    pattern = Pattern.parse(text)
    problem = Problem(rng, shape, pattern)
    w, mask = reconstruct(problem.dense, problem.mask, problem.gram, problem.target, 30), problem.mask
    for _ in range(3):
        before = problem.loss(w)
        w, mask = swaps(w, mask, problem.gram, problem.target, pattern)
        assert problem.loss(w) <= before + 1e-5 * abs(before)
        assert louver.check(mask.float().numpy(), text) and not w[~mask].any()
    only = problem.loss(problem.exact(problem.mask))
    assert problem.loss(w) < only or torch.equal(mask, problem.mask)


@pytest.mark.parametrize(("text", "rows"), [("2:4", 1), ("2:3", 1), ("1:4@2", 2)])
def test_the_last_group_has_its_best_set(text: str, rows: int, rng: np.random.Generator) -> None:
    pattern, size = Pattern.parse(text), 4 * Pattern.parse(text).m - 1
    problem = Problem(rng, (rows, size), pattern)
    w, mask = swaps(problem.dense, problem.mask, problem.gram, problem.target, pattern)
    at = size // pattern.m * pattern.m
    best = min(
        problem.loss(_with_group(problem, w, at, chosen))
        for chosen in itertools.combinations(range(at, size), min(pattern.n, size - at))
    )
    assert problem.loss(w) == pytest.approx(best, rel=1e-4)
    assert (mask[:, at:].sum(1) == min(pattern.n, size - at)).all()


def _with_group(problem: Problem, w: Any, at: int, chosen: tuple[int, ...]) -> Any:
    """w with other elements from column `at` on, of least loss given the columns before."""
    w = w.double().clone()
    w[:, at:] = 0
    columns = list(chosen)
    rest = problem.target.double() - w @ problem.gram.double()
    w[:, columns] = torch.linalg.solve(problem.gram[columns][:, columns].double(), rest[:, columns].T).T
    return w


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2:8@V4", "swaps compare the sets of one level, got 2:8@V4: its rows choose among vectors, leave swaps out"),
        ("8:16", "swaps compare up to 128 sets of kept elements, got 12,870 for 8:16: leave swaps out"),
    ],
)
def test_patterns_without_swaps(text: str, message: str, rng: np.random.Generator) -> None:
    pattern = Pattern.parse(text)
    problem = Problem(rng, (8, 32), pattern)
    with pytest.raises(ValueError, match=message):
        swaps(problem.dense, problem.mask, problem.gram, problem.target, pattern)
