"""Infinities and NaN by the reference path: every stored element is multiplied, the zeros that fill up a group included,
and no other one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import stored_elements

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

PATTERNS = [("f16", "2:4"), ("f32", "1:2"), ("bf16", "3:7"), ("f16", "2:8@4"), ("f32", "1:3@2"), ("e5m2", "2:6@V16")]

SPECIAL = (np.inf, -np.inf, np.nan)


def weight(rng: np.random.Generator, dtype: str, pattern: str, shape: tuple[int, ...]) -> louver.SparseTensor:
    """A weight whose groups hold fewer values than they may: some of its stored elements are zeros."""
    w = rng.integers(-4, 5, shape).astype(np.float32) * (rng.random(shape) < 0.6)
    return louver.compress(w.astype(element_type(dtype).numpy), pattern, method="magnitude")


def places(s: louver.SparseTensor) -> np.ndarray:
    """The column of each stored element, [rows, kept], from the indices alone."""
    found = s.unpacked_indices()
    if len(found) < s.rows:
        found = found[s.windows.of_rows()]
    return found + np.arange(s.kept) // s.pattern.n * s.pattern.m


def expected_of(s: louver.SparseTensor, b: np.ndarray) -> np.ndarray:
    """The sum over stored elements for one matrix, in float64. Elements past the end of K meet zeros."""
    padded = np.zeros((s.groups * s.pattern.m, b.shape[1]))
    padded[: len(b)] = b
    values = np.asarray(s.values).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (values[:, :, None] * padded[places(s)]).sum(axis=1)


def dense_operand(rng: np.random.Generator, dtype: str, *shape: int, share: float = 0.02) -> Any:
    b = rng.integers(-4, 5, shape).astype(np.float32)
    special = rng.random(shape) < share
    special.flat[rng.integers(b.size)] = True
    b[special] = rng.choice(SPECIAL, int(special.sum()))
    return b.astype(element_type(dtype).numpy)


@pytest.mark.parametrize("share", [0.02, 1.0])
@pytest.mark.parametrize(("dtype", "pattern"), PATTERNS)
def test_only_stored_elements_meet_an_infinity(
    rng: np.random.Generator, dtype: str, pattern: str, share: float
) -> None:
    s = weight(rng, dtype, pattern, (37, 45))
    b = dense_operand(rng, dtype, 45, 9, share=share)
    expected = expected_of(s, b.astype(np.float64))
    if share < 1:
        assert np.isfinite(expected).any() and not np.isfinite(expected).all()
    results = (
        louver.matmul(s, b, out_dtype="f32"),
        louver.linear(b.T, s, out_dtype="f32").T,
        louver.matmul(np.ascontiguousarray(b.T), s.T, out_dtype="f32").T,
    )
    for y in results:
        np.testing.assert_array_equal(y, expected)


def test_a_stored_zero_makes_nan_of_an_infinity_and_one_that_is_not_stored_nothing() -> None:
    w = np.zeros((2, 8), np.float16)
    w[:, 0] = 1
    s = louver.compress(w, "2:4")
    assert stored_elements(s).tolist() == [[True, True, False, False] * 2] * 2
    b = np.ones((8, 3), np.float16)
    b[1, 0], b[2, 1], b[0, 2] = np.inf, np.inf, np.inf
    np.testing.assert_array_equal(louver.matmul(s, b), [[np.nan, 1, np.inf]] * 2)


@pytest.mark.parametrize(("dtype", "pattern"), PATTERNS[:3])
def test_a_weight_s_own_infinities_are_stored(rng: np.random.Generator, dtype: str, pattern: str) -> None:
    w = np.asarray(weight(rng, dtype, pattern, (37, 45)).dense()).astype(np.float32)
    rows, columns = np.nonzero(w)
    for number, value in zip(rng.integers(len(rows), size=3), SPECIAL, strict=True):
        w[rows[number], columns[number]] = value
    s, b = louver.compress(w.astype(element_type(dtype).numpy), pattern), dense_operand(rng, dtype, 45, 9)
    np.testing.assert_array_equal(louver.matmul(s, b, out_dtype="f32"), expected_of(s, b.astype(np.float64)))


def test_sums_in_f16_skip_what_is_not_stored(rng: np.random.Generator) -> None:
    s = weight(rng, "f16", "2:4", (20, 100))
    b = dense_operand(rng, "f16", 100, 9)
    y = louver.matmul(s, b, out_dtype="f32", accumulate="f16")
    np.testing.assert_array_equal(y, expected_of(s, b.astype(np.float64)))


@pytest.mark.parametrize("own", [False, True], ids=["one weight", "a batch of weights"])
def test_batches(rng: np.random.Generator, own: bool) -> None:
    s = weight(rng, "f16", "2:4", (3, 20, 36) if own else (20, 36))
    b = dense_operand(rng, "f16", 3, 36, 9)
    y = louver.matmul(s, b, out_dtype="f32")
    dense = np.asarray(s.dense()).reshape(-1, 20, 36)
    for entry in range(3):
        one = louver.compress(dense[entry % len(dense)], "2:4")
        np.testing.assert_array_equal(y[entry], expected_of(one, b[entry].astype(np.float64)))


def test_gated_pairs(rng: np.random.Generator) -> None:
    gate, up = (weight(rng, "f16", "2:4", (24, 36)) for _ in range(2))
    x = dense_operand(rng, "f16", 9, 36)
    y = louver.linear(x, louver.gated(gate, up), out_dtype="f32", activation="relu")
    with np.errstate(invalid="ignore"):
        first, second = (expected_of(s, x.T.astype(np.float64)) for s in (gate, up))
        expected = np.where(np.isnan(first), first, np.maximum(first, 0)) * second
    np.testing.assert_array_equal(y.T, expected)
