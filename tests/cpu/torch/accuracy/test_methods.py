"""SparseGPT against its definition in f64 and against problems solved by hand; damping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.pattern import Pattern

torch: Any = pytest.importorskip("torch")

from louver.torch.accuracy.masks import keep  # noqa: E402
from louver.torch.accuracy.methods import Damped, sparsegpt, wanda  # noqa: E402


def gram_of(rng: np.random.Generator, size: int, tokens: int) -> Any:
    x = rng.standard_normal((tokens, size)) @ (rng.standard_normal((size, size)) / size**0.5 + np.eye(size))
    return torch.from_numpy((x.T @ x / tokens).astype(np.float32))


def by_definition(w: Any, gram: Any, pattern: Pattern) -> tuple[Any, Any]:
    """Optimal brain surgeon from left to right, with the inverse of every trailing part of H, in f64."""
    w, h = w.double().clone(), gram.double()
    mask = torch.ones_like(w, dtype=torch.bool)
    size = w.shape[1]
    inverses = [torch.linalg.inv(h[j:, j:]) for j in range(size)]
    for start in range(0, size, pattern.m):
        stop = min(start + pattern.m, size)
        first = torch.stack([inverses[j][0, 0] for j in range(start, stop)])
        mask[:, start:stop] = keep(w[:, start:stop].square() / first, pattern)
        for j in range(start, stop):
            lost = torch.where(mask[:, j], 0.0, w[:, j])
            w[:, j:] -= lost[:, None] * inverses[j][0] / inverses[j][0, 0]
    return w * mask, mask


@pytest.mark.parametrize("text", ["2:4", "1:2", "6:8", "5:200", "2:4@3", "4:8@64", "2:8@V8"])
@pytest.mark.parametrize("shape", [(5, 30), (17, 133), (6, 300)])
def test_sparsegpt_is_its_definition(text: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    pattern, gram = Pattern.parse(text), gram_of(rng, shape[1], 2 * shape[1])
    w = torch.from_numpy(rng.standard_normal(shape, np.float32))
    damped = Damped.of(gram, 0.01)
    weight, mask = sparsegpt(w, damped.inverse_root, pattern)
    expected, chosen = by_definition(w, damped.gram, pattern)
    assert torch.equal(mask, chosen)
    assert torch.allclose(weight.double(), expected, rtol=1e-4, atol=1e-4)


def test_transposable_sparsegpt_keeps_both_axes_and_makes_up_for_its_zeros(rng: np.random.Generator) -> None:
    gram = gram_of(rng, 60, 120)
    w = torch.from_numpy(rng.standard_normal((20, 60), np.float32))
    damped = Damped.of(gram, 0.01)
    weight, mask = sparsegpt(w, damped.inverse_root, Pattern(2, 4), transposable=True)
    for axis in (0, 1):
        report = louver.check(mask.float().numpy(), "2:4", axis=axis, exact=True)
        assert report.ok
    assert torch.equal(weight != 0, mask)
    lost = [float(((each - w) @ gram * (each - w)).sum()) for each in (weight, w * mask)]
    assert lost[0] < 0.9 * lost[1]


def test_two_rows_by_hand() -> None:
    # H of a pair is [[2, 1], [1, 2]]; the pairs are independent. The worth of an element is w² · 3 / 2 if it is first of
    # a pair, w² · 2 if second. A first element leaves half of itself to the second, as the least squares do.
    pair = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    w = torch.tensor([[1.0, 3.0, 2.0, 1.0], [3.0, 1.0, 1.0, 1.0]])
    damped = Damped.of(torch.block_diag(pair, pair), 0.0)
    weight, mask = sparsegpt(w, damped.inverse_root, Pattern(1, 2))
    assert mask.tolist() == [[False, True, True, False], [True, False, False, True]]
    assert torch.allclose(weight, torch.tensor([[0.0, 3.5, 2.0, 0.0], [3.0, 0.0, 0.0, 1.5]]), atol=1e-6)
    assert damped.raised == 0.0


@pytest.mark.parametrize("text", ["2:4", "3:5", "2:4@3", "2:8@V8"])
def test_sparsegpt_of_independent_inputs_is_wanda(text: str, rng: np.random.Generator) -> None:
    pattern = Pattern.parse(text)
    w = torch.from_numpy(rng.standard_normal((9, 41), np.float32))
    gram = torch.diag(torch.from_numpy(rng.random(41, np.float32) + 0.01))
    weight, mask = sparsegpt(w, Damped.of(gram, 0.0).inverse_root, pattern)
    assert torch.equal(mask, wanda(w, gram, pattern)) and torch.equal(weight, w * mask)


def test_the_factors_are_of_the_damped_gram(rng: np.random.Generator) -> None:
    gram = gram_of(rng, 37, 80)
    damped = Damped.of(gram, 0.1)
    expected = gram.double() + 0.1 * gram.diagonal().double().mean() * torch.eye(37).double()
    root = damped.inverse_root
    assert torch.allclose(damped.gram.double(), expected, rtol=1e-6)
    assert torch.equal(root, root.triu()) and torch.allclose(
        root.T @ root @ expected, torch.eye(37).double(), atol=1e-9
    )
    target = torch.from_numpy(rng.standard_normal((3, 37), np.float32))
    assert torch.allclose(damped.solve(target).double(), target.double() @ torch.linalg.inv(expected), atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 10, 39])
def test_damping_rises_for_dependent_inputs(tokens: int, rng: np.random.Generator) -> None:
    gram = gram_of(rng, 40, tokens)
    damped = Damped.of(gram, 0.0)
    assert 0 < damped.raised == damped.damping <= 1e-3
    assert Damped.of(gram, 0.01).raised == 0.0
    weight, _ = sparsegpt(
        torch.from_numpy(rng.standard_normal((8, 40), np.float32)), damped.inverse_root, Pattern(2, 4)
    )
    assert louver.check(weight.numpy(), "2:4") and weight.isfinite().all()


def test_rounding_that_factorizes_is_refused(rng: np.random.Generator) -> None:
    # Rounding makes this singular matrix factorizable in f64, with pivots that mean nothing.
    column = rng.standard_normal((50, 1))
    x = np.concatenate([column, column], 1)
    gram = torch.from_numpy((x.T @ x).astype(np.float32))
    gram[0, 0] *= 1 + 2.0**-23
    assert not int(torch.linalg.cholesky_ex(gram.double()).info)
    assert Damped.of(gram, 0.0).raised > 0
