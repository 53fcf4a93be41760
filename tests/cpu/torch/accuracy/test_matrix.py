"""`prune_matrix`: methods, refinements, damping and errors of one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.pattern import Pattern

torch: Any = pytest.importorskip("torch")

from louver.torch.accuracy.matrix import DAMPINGS, Method, Pruned, prune_matrix  # noqa: E402
from louver.torch.accuracy.moments import Moments  # noqa: E402

METHODS = [
    Method("magnitude"),
    Method("wanda"),
    Method("sparsegpt"),
    Method("magnitude", reconstruct=5),
    Method("wanda", correct=True, reconstruct=5),
    Method("sparsegpt", correct=True, reconstruct=5, damping=0.01),
]
PATTERNS = ["2:4", "1:2", "6:8", "3:5", "1:16", "2:4@3", "4:8@32", "2:8@V8", "2:5@V3"]


def correlated(rng: np.random.Generator, tokens: int, size: int) -> Any:
    """Inputs whose features are correlated and differ in size, as those of models."""
    mix = rng.standard_normal((size, size)) / size**0.5 + np.eye(size)
    scale = np.exp(rng.standard_normal(size))
    return torch.from_numpy((rng.standard_normal((tokens, size)) @ mix * scale).astype(np.float32))


def moments_of(x: Any, dense_x: Any = None) -> Moments:
    moments = Moments(x.shape[-1], x.device, dense=dense_x is not None)
    moments.add(x, dense_x)
    return moments


def output_error(w: Any, pruned: Pruned, x: Any, dense_x: Any) -> float:
    target, x = dense_x.double() @ w.double().T, x.double()
    return float((target - x @ pruned.weight.double().T).square().sum() / target.square().sum())


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("text", PATTERNS)
@pytest.mark.parametrize("shape", [(7, 13), (33, 35), (48, 160)])
def test_masks_are_legal_and_the_error_is_told(
    method: Method, text: str, shape: tuple[int, int], rng: np.random.Generator
) -> None:
    size = shape[1]
    w = torch.from_numpy(rng.standard_normal(shape, np.float32))
    before = w.clone()
    dense_x = correlated(rng, 300, size)
    x = dense_x + 0.1 * torch.from_numpy(rng.standard_normal((300, size), np.float32))
    pruned = prune_matrix(w, Pattern.parse(text), method, moments_of(x, dense_x))
    assert pruned.weight.dtype == torch.float32 and pruned.weight.shape == shape
    assert torch.equal(w, before)
    assert not pruned.weight[~pruned.mask].any() and pruned.weight.isfinite().all()
    assert louver.check(pruned.weight.numpy(), text)
    assert louver.check(torch.where(pruned.mask, 1.0, 0.0).numpy(), text)
    assert pruned.error == pytest.approx(output_error(w, pruned, x, dense_x), rel=1e-4, abs=1e-6)
    assert pruned.raised == 0.0 and pruned.silent == 0


def test_magnitude_is_prune(rng: np.random.Generator) -> None:
    w = rng.standard_normal((33, 35), np.float32)
    pruned = prune_matrix(torch.from_numpy(w), Pattern(2, 4), Method())
    assert np.array_equal(pruned.weight.numpy(), louver.prune(w, "2:4"))
    assert pruned.error is None and pruned.damping is None


def test_held_out_tokens_choose_the_damping(rng: np.random.Generator) -> None:
    # 70 tokens of 64 features: little damping fits their noise.
    x, other = correlated(rng, 2070, 64).split((70, 2000))
    w = torch.from_numpy(rng.standard_normal((40, 64), np.float32))
    errors = {}
    for damping in DAMPINGS:
        method = Method("sparsegpt", reconstruct=20, damping=damping)
        errors[damping] = prune_matrix(w, Pattern(2, 4), method, moments_of(x), moments_of(other)).error
    best = min(errors, key=errors.__getitem__)
    chosen = prune_matrix(w, Pattern(2, 4), Method("sparsegpt", reconstruct=20), moments_of(x), moments_of(other))
    assert best != DAMPINGS[0] and chosen.damping == best and chosen.error == errors[best]
