"""Products of f32, 1:2 sparse, read as tf32: rounding, forms, the reference path, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.product_meaning import f32_to_tf32, read_tf32
from louver.library.forms import Metadata, RoundedValues, forms_of

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")


def sparse(rng: np.random.Generator, m: int = 64, k: int = 96) -> louver.SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((m, k)).astype(np.float32), "1:2"), "1:2")


def test_rounding_is_to_nearest_and_ties_go_away_from_zero(rng: np.random.Generator) -> None:
    given = np.concatenate((rng.standard_normal(4096), 2.0 ** rng.integers(-140, 127, 4096))).astype(np.float32)
    found = f32_to_tf32(given).astype(np.float64)
    assert not (found.astype(np.float32).view(np.uint32) & 0x1FFF).any()
    exact = given.astype(np.float64)
    spacing = 2.0 ** (np.maximum(np.frexp(np.abs(exact))[1] - 1, -126) - 10.0)
    assert (np.abs(found - exact) <= spacing / 2).all()
    tie = np.array([0x3F801000, 0xBF801000], np.uint32).view(np.float32)
    assert f32_to_tf32(tie).view(np.uint32).tolist() == [0x3F802000, 0xBF802000]


def test_what_is_not_finite_stays_and_nothing_becomes_infinite() -> None:
    given = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(np.float32).max], np.float32)
    found = f32_to_tf32(given)
    np.testing.assert_array_equal(found[:4], given[:4])
    assert np.signbit(found[3]) and np.isfinite(found[4]) and found[4] <= given[4]
    payload = np.array([0x7F800001, 0xFF801FFF], np.uint32).view(np.float32)
    assert np.isnan(read_tf32(f32_to_tf32(payload))).all() and np.isinf(read_tf32(payload)).all()


def test_products_read_rounded_values_and_the_tensor_keeps_its_own(rng: np.random.Generator) -> None:
    s = sparse(rng)
    forms = forms_of(Schedule.of(tile_n=64, tile_k=32, stages=2), s)
    assert forms == (RoundedValues(), Metadata(), None)
    held = forms.values.host(s).view(np.float32)[:, : s.kept]
    np.testing.assert_array_equal(held, f32_to_tf32(s.values))
    assert (s.values.view(np.uint32) & 0x1FFF).any()


def test_a_problem_s_pattern_goes_with_its_type() -> None:
    with pytest.raises(
        ValueError, match="GPUs have products of 2:4 for f16, .*, u4x2; and of f32 for 1:2, N:M, N:M@L, got 2:4 f32"
    ):
        Problem("linear", "f32", "f32", "f32", pattern="2:4")
    assert Problem("linear", "f32", "f32", "f32").pattern == "1:2" and Problem().pattern == "2:4"
    with pytest.raises(ValueError, match="GPUs have products of 1:2 for f32; and of f16 for 2:4, .*, got 1:2 f16"):
        Problem("linear", pattern="1:2")


@pytest.mark.parametrize("tiny", ["neither", "tokens", "weight"])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_the_reference_path_reads_operands_as_the_kernel_does(rng: np.random.Generator, kind: str, tiny: str) -> None:
    """Values rounded, tokens cut, subnormal numbers too: so an error measured on the host predicts the device's."""
    w, x = np.asarray(sparse(rng).dense()), rng.standard_normal((5, 96)).astype(np.float32)
    if tiny != "neither":
        factors = (np.float32(2.0**100), np.float32(2.0**-127))
        w, x = (each * factor for each, factor in zip((w, x), factors[:: 1 if tiny == "tokens" else -1], strict=True))
    s = louver.compress(w, "1:2")
    y = louver.linear(x, s) if kind == "linear" else louver.matmul(s, np.ascontiguousarray(x.T)).T
    assert y.dtype == np.float32
    cut = (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    cut, rounded = (each.astype(np.float64) for each in (cut, f32_to_tf32(w)))
    exact, magnitude = x.astype(np.float64) @ w.T, np.abs(x).astype(np.float64) @ np.abs(w).T
    assert (np.abs(y - cut @ rounded.T) <= 2.0**-20 * magnitude).all()
    assert (np.abs(y - exact) > 2.0**-16 * magnitude).any()


@pytest.mark.parametrize("pattern", ["1:3", "2:8@4"])
def test_patterns_on_cuda_cores_read_f32_itself(rng: np.random.Generator, pattern: str) -> None:
    w = rng.standard_normal((64, 96)).astype(np.float32)
    s, x = louver.compress(w, pattern, method="magnitude"), rng.standard_normal((5, 96)).astype(np.float32)
    np.testing.assert_allclose(louver.linear(x, s), x.astype(np.float64) @ s.dense().T.astype(np.float64), atol=2e-5)


def test_new_values_are_rounded_again(rng: np.random.Generator) -> None:
    s, x = sparse(rng), np.eye(96, dtype=np.float32)
    louver.linear(x, s)
    s.update_(np.asarray(s.values) * np.float32(3))
    np.testing.assert_array_equal(louver.linear(x, s).T, f32_to_tf32(np.asarray(s.dense())))
