"""`prune_matrix`: methods, refinements, damping and errors of one matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.pattern import Pattern

torch: Any = pytest.importorskip("torch")

from louver.torch.accuracy import matrix  # noqa: E402
from louver.torch.accuracy.matrix import DAMPINGS, Method, Pruned, prune_matrix, relative_error  # noqa: E402
from louver.torch.accuracy.moments import Moments  # noqa: E402

METHODS = [
    Method("magnitude"),
    Method("wanda"),
    Method("sparsegpt"),
    Method("magnitude", reconstruct=5),
    Method("wanda", correct=True, reconstruct=5),
    Method("sparsegpt", correct=True, reconstruct=5, damping=0.01),
    Method("admm", correct=True),
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
@pytest.mark.parametrize("shape", [(7, 13), (48, 163)])
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


@pytest.mark.parametrize("scale", [1, 1e-30, 1e30])
def test_magnitude_is_prune(scale: float, rng: np.random.Generator) -> None:
    w = rng.standard_normal((33, 35), np.float32) * np.float32(scale)
    pruned = prune_matrix(torch.from_numpy(w), Pattern(2, 4), Method())
    assert np.array_equal(pruned.weight.numpy(), louver.prune(w, "2:4"))
    assert pruned.error is None and pruned.damping is None


def test_held_out_tokens_choose_the_damping(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    # 70 tokens of 64 features: little damping fits their noise.
    x, other = correlated(rng, 2070, 64).split((70, 2000))
    w = torch.from_numpy(rng.standard_normal((40, 64), np.float32))
    method, errors = Method("sparsegpt", reconstruct=30), dict[float, float]()
    chosen = prune_matrix(w, Pattern(2, 4), method, moments_of(x), [moments_of(other)])
    for damping in DAMPINGS:
        monkeypatch.setattr(matrix, "DAMPINGS", (damping,))
        errors[damping] = prune_matrix(w, Pattern(2, 4), method, moments_of(x), [moments_of(other)]).error
    best = min(errors, key=errors.__getitem__)
    assert chosen.damping == best > 0.01 and chosen.error == errors[best] < 0.95 * errors[0.001]
    # Without other texts, and without refinements, nothing is chosen.
    assert prune_matrix(w, Pattern(2, 4), method, moments_of(x)).damping == matrix.DAMPING
    assert prune_matrix(w, Pattern(2, 4), Method("sparsegpt"), moments_of(x), [moments_of(other)]).damping == 0.03
    # Two texts choose by the product of their errors.
    texts = [moments_of(other), moments_of(x)]
    both = prune_matrix(w, Pattern(2, 4), Method("sparsegpt", reconstruct=20), moments_of(x), texts)
    apart = [relative_error(w, both.weight, text) for text in texts]
    assert both.error == pytest.approx(math.sqrt(apart[0] * apart[1]), rel=1e-6)


def test_corrected_weights_answer_for_the_pruned_inputs(rng: np.random.Generator) -> None:
    dense_x = correlated(rng, 400, 24)
    x = dense_x + 0.3 * torch.from_numpy(rng.standard_normal((400, 24), np.float32))
    w = torch.from_numpy(rng.standard_normal((10, 24), np.float32))
    both = moments_of(x, dense_x)
    # All elements are kept: only the correction changes values, to least squares.
    pruned = prune_matrix(w, Pattern(4, 4), Method("sparsegpt", correct=True, damping=0.0), both)
    exact = torch.linalg.lstsq(x.double(), dense_x.double() @ w.double().T).solution.T
    assert torch.allclose(pruned.weight.double(), exact, atol=1e-3)
    plain, corrected = (
        prune_matrix(w, Pattern(2, 4), Method("sparsegpt", correct, reconstruct=30, damping=0.001), both).error
        for correct in (False, True)
    )
    assert corrected < 0.95 * plain


@pytest.mark.parametrize("name", ["magnitude", "wanda", "sparsegpt"])
@pytest.mark.parametrize("swaps", [0, 2])
def test_reconstruction_and_swaps_lower_the_error(name: str, swaps: int, rng: np.random.Generator) -> None:
    x = correlated(rng, 500, 64)
    w = torch.from_numpy(rng.standard_normal((20, 64), np.float32))
    errors = [
        prune_matrix(
            w, Pattern(2, 4), Method(name, reconstruct=steps, swaps=sweeps, damping=0.001), moments_of(x)
        ).error
        for steps, sweeps in ((0, 0), (30, 0), (30, swaps))
    ]
    assert errors[1] < 0.9 * errors[0]
    assert errors[2] < errors[1] if swaps else errors[2] == errors[1]


@pytest.mark.parametrize("text", ["2:4", "4:8", "4:8@4", "2:8@V8"])
def test_admm_chooses_better_masks(text: str, rng: np.random.Generator) -> None:
    ratios = []
    for size in (64, 128):
        x = correlated(rng, 8 * size, size)
        w = torch.from_numpy(rng.standard_normal((64, size), np.float32))
        greedy, joint = (
            prune_matrix(w, Pattern.parse(text), Method(name, reconstruct=30, damping=0.01), moments_of(x)).error
            for name in ("sparsegpt", "admm")
        )
        ratios.append(joint / greedy)
    assert np.exp(np.log(ratios).mean()) < 0.97


def test_endless_damping_keeps_the_values(rng: np.random.Generator) -> None:
    dense_x, x = correlated(rng, 100, 16), correlated(rng, 100, 16)
    w = torch.from_numpy(rng.standard_normal((9, 16), np.float32))
    for name in ("magnitude", "sparsegpt", "admm"):
        method = Method(name, correct=True, reconstruct=30, damping=1e6)
        pruned = prune_matrix(w, Pattern(2, 4), method, moments_of(x, dense_x))
        assert torch.allclose(pruned.weight, w * pruned.mask, atol=1e-4)
        assert name == "admm" or np.allclose(pruned.weight.numpy(), louver.prune(w.numpy(), "2:4"), atol=1e-4)


def test_reconstruction_takes_a_fifth_of_the_error_of_sparsegpt(rng: np.random.Generator) -> None:
    ratios = []
    for size in (96, 160, 256):
        x = correlated(rng, 8 * size, size)
        w = torch.from_numpy(rng.standard_normal((64, size), np.float32))
        plain, rebuilt = (
            prune_matrix(w, Pattern(2, 4), Method("sparsegpt", reconstruct=steps, damping=0.01), moments_of(x)).error
            for steps in (0, 30)
        )
        ratios.append(rebuilt / plain)
    assert np.exp(np.log(ratios).mean()) <= 0.8


@pytest.mark.parametrize("name", ["wanda", "sparsegpt"])
@pytest.mark.parametrize("damping", [0.0, 0.01])
def test_inputs_that_are_always_zero(name: str, damping: float, rng: np.random.Generator) -> None:
    x = correlated(rng, 100, 16)
    x[:, [1, 6, 7]] = 0
    w = torch.from_numpy(rng.standard_normal((9, 16), np.float32))
    pruned = prune_matrix(w, Pattern(2, 4), Method(name, reconstruct=20, swaps=1, damping=damping), moments_of(x))
    assert pruned.silent == 3 and (pruned.raised > 0) == (damping == 0)
    assert pruned.weight.isfinite().all() and louver.check(pruned.weight.numpy(), "2:4")
    kept = pruned.mask[:, [1, 6, 7]]
    assert torch.allclose(pruned.weight[:, [1, 6, 7]][kept], w[:, [1, 6, 7]][kept], atol=1e-5)


@pytest.mark.parametrize("tokens", [0, 3])
def test_inputs_that_never_occur_leave_the_magnitudes(tokens: int, rng: np.random.Generator) -> None:
    w = torch.from_numpy(rng.standard_normal((9, 16), np.float32))
    nothing = moments_of(torch.zeros(tokens, 16))
    pruned = prune_matrix(w, Pattern(2, 4), Method("sparsegpt", reconstruct=3), nothing, [nothing])
    assert np.allclose(pruned.weight.numpy(), louver.prune(w.numpy(), "2:4"))
    assert pruned.silent == 16 and pruned.error == 0.0


def test_dependent_inputs_raise_the_damping(rng: np.random.Generator) -> None:
    x = correlated(rng, 300, 32)
    x[:, 20] = x[:, 3] - 2 * x[:, 8]
    w = torch.from_numpy(rng.standard_normal((9, 32), np.float32))
    pruned = prune_matrix(w, Pattern(2, 4), Method("sparsegpt", reconstruct=30, damping=0.0), moments_of(x))
    assert pruned.damping == pruned.raised > 0
    given = prune_matrix(w, Pattern(2, 4), Method("sparsegpt", reconstruct=30, damping=0.001), moments_of(x))
    assert given.damping == 0.001 and given.raised == 0.0
    assert pruned.error < 1.5 * given.error


def test_a_weight_of_16_bits(rng: np.random.Generator) -> None:
    x = correlated(rng, 300, 32)
    w = torch.from_numpy(rng.standard_normal((9, 32), np.float32)).bfloat16()
    method = Method("sparsegpt", reconstruct=30, damping=0.01)
    pruned = prune_matrix(w.requires_grad_(), Pattern(2, 4), method, moments_of(x))
    same = prune_matrix(w.float(), Pattern(2, 4), method, moments_of(x))
    assert torch.equal(pruned.weight, same.weight) and not pruned.weight.requires_grad


def test_what_is_not_finite_comes_first(rng: np.random.Generator) -> None:
    w, x = torch.from_numpy(rng.standard_normal((9, 16), np.float32)), correlated(rng, 100, 16)
    good = moments_of(x)
    x[7, 3] = np.nan
    for moments, held_out in ((moments_of(x), good), (good, moments_of(x))):
        with pytest.raises(ArithmeticError, match="the inputs have NaN, infinity .* got them in 1 of 16 features"):
            prune_matrix(w, Pattern(2, 4), Method("wanda"), moments, [held_out])
    w[2, 5] = np.inf
    with pytest.raises(ArithmeticError, match="the weight has NaN or infinity: repair it, or skip the layer"):
        prune_matrix(w, Pattern(2, 4), Method())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "gpt"}, "a method is one of magnitude, wanda, sparsegpt, admm, got 'gpt'"),
        ({"reconstruct": -1}, "reconstruct is a number of rounds, 0 or more, got -1"),
        ({"swaps": 1.0}, "swaps is a number of rounds, 0 or more, got 1.0"),
        ({"reconstruct": True}, "reconstruct is a number of rounds, 0 or more, got True"),
        ({"damping": -0.1}, "damping is 0 or more, or None, got -0.1"),
        ({"damping": float("nan")}, "damping is 0 or more, or None, got nan"),
        (
            {"name": "wanda", "correct": True},
            'correct=True changes values, which wanda alone leaves: use method="spars',
        ),
    ],
)
def test_methods_that_there_are_not(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Method(**options)


@pytest.mark.parametrize(
    ("text", "method", "features", "message"),
    [
        ("2:4", Method("wanda"), None, "wanda needs moments of the inputs: give a calibration"),
        ("2:4", Method(swaps=1), None, "magnitude, swaps=1 needs moments of the inputs: give a calibration"),
        ("2:4", Method("wanda"), 15, "moments of 16 features are needed, got 15"),
        ("2:4", Method("sparsegpt", correct=True), 16, "correct=True needs moments with the dense model's inputs"),
        ("2:8@V4", Method("wanda", swaps=1), 16, "swaps compare the sets of one level, got 2:8@V4"),
    ],
)
def test_moments_that_do_not_fit(text: str, method: Method, features: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prune_matrix(
            torch.ones(4, 16), Pattern.parse(text), method, None if features is None else Moments(features, "cpu")
        )


@pytest.mark.parametrize("w", [torch.ones(4), torch.ones(0, 4), torch.ones(4, 4, dtype=torch.int32)])
def test_weights_that_are_no_matrix(w: Any) -> None:
    with pytest.raises(ValueError, match=r"a weight is a floating matrix \[R, K\] with elements, got torch"):
        prune_matrix(w, Pattern(2, 4), Method())
