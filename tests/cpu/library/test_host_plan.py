"""Plans without a GPU: the reference path, with the rules of a device."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from support.products import assert_exact, operands

quiet = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, N, K = 40, 24, 72


@pytest.fixture
def given(rng: np.random.Generator) -> Any:
    return operands(rng, M, N, K)


@quiet
@pytest.mark.parametrize("example", [False, True])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_a_plan_computes_without_a_gpu(given: Any, kind: Any, example: bool) -> None:
    x = np.ascontiguousarray(given.b.T) if kind == "linear" else given.b
    p = louver.plan(kind, given.s, N, like=x if example else None)
    assert p.device is None and "on the host, by the reference path" in repr(p)
    out = np.full((N, M) if kind == "linear" else (M, N), np.nan, np.float16)
    assert p(x, out=out) is out
    for y in (out, p(x)):
        assert y.dtype == np.float16
        assert_exact(y.T if kind == "linear" else y, given)


@quiet
def test_options_change_from_call_to_call(given: Any, rng: np.random.Generator) -> None:
    x, scale = np.ascontiguousarray(given.b.T), rng.uniform(1, 2, N).astype(np.float32)
    p = louver.plan(
        "linear", given.s, N, bias=given.bias, dense_scale=scale, alpha=1.0, activation="relu", out_dtype="f32"
    )
    for alpha in (1.0, -2.0):
        expected = louver.linear(
            x, given.s, given.bias, dense_scale=scale, alpha=alpha, activation="relu", out_dtype="f32"
        )
        np.testing.assert_array_equal(p(x, alpha=alpha), expected)
    with pytest.raises(ValueError, match="got options for .* make another plan"):
        p(x, c=np.zeros((N, M), np.float16))


@quiet
def test_a_batch_is_planned(given: Any, rng: np.random.Generator) -> None:
    b = rng.integers(-4, 5, (3, K, N)).astype(np.float16)
    p = louver.plan("matmul", given.s, N, like=b)
    np.testing.assert_array_equal(p(b), given.a.astype(np.float32) @ b)


def test_the_notice_is_given_once_and_names_the_caller(given: Any) -> None:
    x = np.ascontiguousarray(given.b.T)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        p = louver.plan("linear", given.s, N)
        p(x)
        louver.linear(x, given.s)
    (notice,) = seen
    assert "reference path on the CPU: no GPU: none for this test" in str(notice.message)
    assert notice.filename == __file__


@pytest.mark.parametrize("call", [lambda s, b: s @ b, lambda s, b: louver.matmul(s, b), lambda s, b: b.T @ s.T])
def test_the_notice_names_the_caller_of_every_way(given: Any, call: Any) -> None:
    with pytest.warns(UserWarning, match="by the reference path") as seen:
        call(given.s, given.b)
    assert [notice.filename for notice in seen] == [__file__]


def halves(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float16)


WRONG: list[tuple[Any, Any, str]] = [
    (halves(N, K + 4)[:, :K].T, None, r"x must be \[..., K\] with K = 72"),
    (halves(N, K).astype(ml_dtypes.bfloat16), None, "one element type, got bf16 and f16"),
    (
        halves(N, K + 4)[:, :K],
        None,
        "reads its dense operand in place, k_major with address and row pitch multiples of 16",
    ),
    (halves(N, 2 * K)[:, ::2], None, "reads its dense operand in place"),
    (halves(N, K), halves(N, M + 1), r"out must have shape \[24, 40\]"),
    (halves(N, K), np.ones((N, M), np.float32), "out must have element type f16, got f32"),
    (halves(N, K), halves(M, N).T, "rows must be contiguous"),
    (halves(N, K), np.lib.stride_tricks.as_strided(halves(N * M), (N, M), (16, 2)), "must not overlap each other"),
]


@quiet
@pytest.mark.parametrize(("x", "out", "rule"), WRONG)
def test_the_rules_are_those_of_a_device(given: Any, x: np.ndarray, out: Any, rule: str) -> None:
    before = None if out is None else out.copy()
    p = louver.plan("linear", given.s, N)
    with pytest.raises(ValueError, match=rule):
        p(x, out=out)
    if out is not None:
        np.testing.assert_array_equal(out, before)


@quiet
def test_plans_of_no_product_are_refused_without_a_gpu(given: Any) -> None:
    s: SparseTensor = given.s
    for arguments, rule in (
        ({"kind": "conv"}, "kind is 'linear' or 'matmul', got 'conv'"),
        ({"n": "16"}, "n is an integer from 0 to 2,147,483,647, got str"),
        ({"n": None}, "n is an integer from 0 to 2,147,483,647, got NoneType"),
        ({"n": True}, "n is an integer from 0 to 2,147,483,647, got bool"),
        ({"n": 2**31}, "n is an integer from 0 to 2,147,483,647, got 2147483648"),
        ({"batch": "2"}, "batch is an integer from 0 to 2,147,483,647, got str"),
        ({"like": np.ones((4, K))}, "x must be of f16, got float64"),
        ({"like": [1.0]}, "x: expected an array"),
        ({"bias": halves(M + 1)}, r"bias must be \[out\]"),
    ):
        with pytest.raises((TypeError, ValueError), match=rule):
            louver.plan(**{"kind": "linear", "s": s, "n": 16, **arguments})
