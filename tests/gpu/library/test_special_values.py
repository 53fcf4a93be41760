"""Infinities and NaN.

Every stored value takes part in the product, the zeros that fill up a group included: where the dense operand holds an
infinity or NaN, they give NaN, as zeros of a dense matrix do. Zeros that are not stored take no part.
"""

from __future__ import annotations

import numpy as np
import pytest

import louver
from support.device_products import FORMS, Form, compute, dense_operand, guarded, output_shape, result
from support.products import Operands, assert_exact, operands

SPECIAL = [np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("m", "n", "k"), [(200, 70, 300), (33, 9, 7)])
def test_in_the_dense_operand(rng: np.random.Generator, form: Form, value: float, m: int, n: int, k: int) -> None:
    given = operands(rng, m, n, k)
    clean = given.b.astype(np.float64)
    row, column = k - 1, n // 2
    given.b[row, column] = value
    y = result(form, compute(form, given, dense_operand(form, given.b), out_dtype="f32")).astype(np.float64)
    expected = given.a.astype(np.float64) @ clean
    others = np.arange(n) != column
    np.testing.assert_array_equal(y[:, others], expected[:, others])
    touching = given.a[:, row].astype(np.float64)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(y[touching != 0, column], touching[touching != 0] * value)
    rest = y[touching == 0, column]
    assert (np.isnan(rest) | (rest == expected[touching == 0, column])).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_stored_zero_times_infinity_is_nan(form: Form) -> None:
    a = np.zeros((64, 64), np.float16)
    a[:, 0] = 1
    s = louver.compress(a, "2:4")
    stored = np.array([np.count_nonzero(row) for row in s.values])
    assert (stored == 1).all() and s.kept == 32
    b = np.full((64, 8), np.inf, np.float16)
    b[0] = 3
    given = Operands(a, s, b, np.zeros(64, np.float16))
    y = result(form, compute(form, given, dense_operand(form, b)))
    assert np.isnan(y).all()


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("form", FORMS)
def test_in_the_sparse_operand(rng: np.random.Generator, form: Form, value: float) -> None:
    given = operands(rng, 200, 70, 300)
    a = given.a.copy()
    row, column = 77, int(np.flatnonzero(a[77])[3])
    a[row, column] = value
    b = np.where(given.b == 0, np.float16(1), given.b)
    special = Operands(a, louver.compress(a, "2:4"), b, given.bias)
    y = result(form, compute(form, special, dense_operand(form, b), out_dtype="f32")).astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("form", FORMS)
def test_what_lies_around_an_operand_takes_no_part(rng: np.random.Generator, form: Form) -> None:
    # The buffer around the view is NaN, its rows' ends too, at an alignment that is read in place.
    for m, n, k in ((70, 24, 40), (129, 65, 65), (64, 130, 257)):
        given = operands(rng, m, n, k)
        inner = n if form == "matmul n_major" else k
        dense = dense_operand(form, given.b, gap=16 - inner % 8)
        assert_exact(result(form, compute(form, given, dense)), given)


@pytest.mark.parametrize("form", FORMS)
def test_too_large_results_become_infinite(rng: np.random.Generator, form: Form) -> None:
    given = operands(rng, 70, 40, 512)
    big = given.b * np.float16(64)
    loud = Operands(given.a * np.float16(64), louver.compress(given.a * np.float16(64), "2:4"), big, given.bias)
    target = guarded(output_shape(form, loud), "f16")
    compute(form, loud, dense_operand(form, big), out=target.view)
    y = result(form, target.view)
    assert np.isinf(y).any()
    with np.errstate(over="ignore"):
        assert_exact(y, loud)
