"""Products of f32, 1:2 sparse, read as tf32: rounding, forms, the reference path, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.product_meaning import f32_to_tf32
from louver.library.forms import Metadata, RoundedValues, forms_of


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


def test_products_read_rounded_values_and_the_tensor_keeps_its_own(rng: np.random.Generator) -> None:
    s = sparse(rng)
    forms = forms_of(Schedule.of(tile_n=64, tile_k=32, stages=2), s)
    assert forms == (RoundedValues(), Metadata(), None)
    held = forms.values.host(s).view(np.float32)[:, : s.kept]
    np.testing.assert_array_equal(held, f32_to_tf32(s.values))
    assert (s.values.view(np.uint32) & 0x1FFF).any()


def test_the_reference_path_computes_in_f32(rng: np.random.Generator) -> None:
    s, x = sparse(rng), rng.standard_normal((5, 96)).astype(np.float32)
    y = louver.linear(x, s)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, x.astype(np.float64) @ s.dense().T.astype(np.float64), atol=1e-4)
    np.testing.assert_array_equal(louver.matmul(s, np.ascontiguousarray(x.T)).shape, (64, 5))


def test_a_problem_s_pattern_goes_with_its_type() -> None:
    with pytest.raises(ValueError, match="the tensor cores multiply f32 as 1:2, got 2:4"):
        Problem("linear", "f32", "f32", "f32", pattern="2:4")
    assert Problem("linear", "f32", "f32", "f32").pattern == "1:2" and Problem().pattern == "2:4"
    with pytest.raises(ValueError, match="the tensor cores multiply f16 as 2:4, got 1:2"):
        Problem("linear", pattern="1:2")
