"""The options of a fused epilogue: the reference path, and what is refused before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import PRODUCTS, Problem
from support.fused import EPILOGUES, FULL, FusedOperands, fused_operands

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, N, K = 48, 6, 20


def call(given: FusedOperands, **changed: Any) -> np.ndarray:
    """The library's result, [M, N]."""
    options = {**given.options, "out_dtype": given.problem.out, **changed}
    if given.problem.kind == "linear":
        return louver.linear(np.ascontiguousarray(given.b.T), given.s, **options).T
    return louver.matmul(given.s, given.b, **options)


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize(("a", "out"), [("f16", "f32"), ("bf16", "f16"), ("e4m3", "bf16"), ("s8", "f32")])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_the_reference_path_takes_every_option(
    rng: np.random.Generator, kind: str, a: str, out: str, name: str
) -> None:
    for bias in ("row", None):
        problem = Problem(kind, a, a, out, bias=bias, epilogue=EPILOGUES[name])
        given = fused_operands(rng, problem, M, N, K)
        y = call(given)
        assert y.shape == (M // problem.rows_per_output, N) and y.dtype == element_type(out).numpy
        given.assert_close(y)


def test_against_a_plain_formula(rng: np.random.Generator) -> None:
    given = fused_operands(rng, Problem("linear", "f16", "f16", "f32", bias="row", epilogue=FULL), M, N, K)
    r = {name: np.asarray(value, np.float64) for name, value in given.reads.items()}
    total = given.a.astype(np.float64) @ given.b.astype(np.float64)
    x = r["alpha"] * r["scale"][:, None] * r["dense_scale"] * total + given.bias.astype(np.float64)[:, None]
    x = x + r["dense_bias"] + r["beta"] * r["c"]
    expected = r["out_scale"] * 0.5 * x * (1 + np.vectorize(__import__("math").erf)(x / np.sqrt(2)))
    np.testing.assert_allclose(call(given), expected, rtol=1e-4, atol=1e-4)


def test_a_gated_pair_against_a_plain_formula(rng: np.random.Generator) -> None:
    gate, up = (
        louver.compress(louver.prune(rng.standard_normal((24, K)).astype(np.float16), "2:4"), "2:4") for _ in "ab"
    )
    x, bias = rng.standard_normal((5, K)).astype(np.float16), rng.standard_normal(48).astype(np.float16)
    y = louver.linear(x, louver.gated(gate, up), bias, out_dtype="f32", activation="silu")
    one, other = (x.astype(np.float64) @ s.dense().astype(np.float64).T for s in (gate, up))
    one, other = one + bias[:24], other + bias[24:]
    assert y.shape == (5, 24)
    np.testing.assert_allclose(y, one / (1 + np.exp(-one)) * other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("out", ["e4m3", "e5m2", "s8"])
@pytest.mark.parametrize("a", ["f16", "bf16", "e5m2", "s8", "u8"])
def test_8_bit_outputs(rng: np.random.Generator, a: str, out: str) -> None:
    assert out in PRODUCTS[a, a]
    problem = Problem("matmul", a, a, out, epilogue=Epilogue(scale="tensor", out_scale="number"))
    given = fused_operands(rng, problem, M, N, K)
    given.reads["out_scale"] = 1e5
    y = call(given).astype(np.float64)
    given.assert_close(y.astype(element_type(out).numpy))
    assert y.max() == {"s8": 127, "e4m3": 448, "e5m2": 57344}[out]


def test_numbers_may_take_the_place_of_arrays(rng: np.random.Generator) -> None:
    given = fused_operands(rng, Problem("matmul", out="f32", epilogue=EPILOGUES["scale"]), M, N, K)
    by_arrays = call(given)
    numbers = {name: float(value) for name, value in given.reads.items()}
    np.testing.assert_allclose(call(given, **numbers), by_arrays, rtol=1e-5)
    np.testing.assert_allclose(
        call(given, scale=None, dense_scale=None, alpha=numbers["scale"] * numbers["dense_scale"]), by_arrays, rtol=1e-5
    )
    np.testing.assert_allclose(
        call(given, scale=np.float32(0.5), dense_scale=2), call(given, scale=None, dense_scale=None), rtol=1e-5
    )


def test_shapes_of_vectors(rng: np.random.Generator) -> None:
    s = fused_operands(rng, Problem(), M, N, K).s
    x = rng.standard_normal((2, 3, K)).astype(np.float16)
    scale = rng.uniform(1, 2, (2, 3, 1)).astype(np.float32)
    expected = louver.linear(x, s, out_dtype="f32") * scale
    for given in (scale, scale[..., 0], scale.ravel()):
        np.testing.assert_allclose(louver.linear(x, s, out_dtype="f32", dense_scale=given), expected, rtol=1e-5)
        added = louver.linear(x, s, out_dtype="f32", dense_bias=given)
        np.testing.assert_allclose(added, louver.linear(x, s, out_dtype="f32") + scale, rtol=1e-4, atol=1e-4)
    rows = rng.uniform(1, 2, (M, 1)).astype(np.float32)
    np.testing.assert_allclose(
        louver.linear(x, s, out_dtype="f32", scale=rows), louver.linear(x, s, out_dtype="f32") * rows[:, 0], rtol=1e-5
    )


def test_c_may_be_the_output(rng: np.random.Generator) -> None:
    given = fused_operands(rng, Problem("linear", out="f32"), M, N, K)
    x = np.ascontiguousarray(given.b.T)
    out = rng.standard_normal((N, M)).astype(np.float32)
    expected = out * 0.5 + louver.linear(x, given.s, out_dtype="f32")
    assert louver.linear(x, given.s, c=out, beta=0.5, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    whole = np.zeros((N + 1, M), np.float32)
    with pytest.raises(ValueError, match="must not overlap an input, unless it is c itself"):
        louver.linear(x, given.s, c=whole[1:], out=whole[:-1])


def test_integers_default_to_f16_with_an_epilogue(rng: np.random.Generator) -> None:
    given = fused_operands(rng, Problem("matmul", "s8", "s8", "s32"), M, N, K)
    assert louver.matmul(given.s, given.b).dtype == np.int32
    assert louver.matmul(given.s, given.b, activation="relu").dtype == np.float16


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"bias": f32(M + 1)}, ValueError, "bias must be [out] with out = 48, got shape [49]"),
    ({"bias": np.ones(M, np.int32)}, ValueError, "bias must be of f16 or bf16 or f32"),
    ({"dense_bias": f32(N + 1)}, ValueError, "dense_bias must be [tokens] with tokens = 6, got shape [7]"),
    ({"dense_bias": np.ones(N, np.int32)}, ValueError, "dense_bias must be of f16 or bf16 or f32 for operands of f16"),
    ({"dense_bias": 1.0}, TypeError, "expected an array"),
    ({"scale": f32(M - 1)}, ValueError, "scale must be a number, have one element or have one for each of 48"),
    ({"scale": f32(N)}, ValueError, "scale must be a number, have one element or have one for each of 48"),
    ({"scale": np.ones(M, np.float16)}, ValueError, "scale must be of f32, got f16"),
    ({"dense_scale": f32(M)}, ValueError, "have one for each of 6, shape [6], got shape [48]"),
    ({"dense_scale": np.ones(N)}, ValueError, "float64"),
    ({"out_scale": f32(M)}, ValueError, "out_scale must be a number, have one element, got shape [48]"),
    ({"alpha": f32(1)}, TypeError, "alpha must be a number, got ndarray"),
    ({"alpha": True}, TypeError, "alpha must be a number, got bool"),
    ({"alpha": 1e39}, ValueError, "alpha must be a number that f32 holds, got 1e+39"),
    ({"beta": 1.0}, ValueError, "beta is the factor of c, got one without c"),
    ({"c": f32(N, M - 1)}, ValueError, "c must have the output's shape [6, 48], got [6, 47]"),
    ({"c": np.ones((N, M), np.int8)}, ValueError, "c must be of f16 or bf16 or f32"),
    (
        {"activation": "swish"},
        ValueError,
        "activation must be one of None, 'relu', 'gelu', 'gelu_tanh', 'silu', got 'swish'",
    ),
    ({"activation": "relu", "out_dtype": "s32"}, ValueError, "out_dtype must be"),
]


@pytest.mark.parametrize(("options", "error", "rule"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused(rng: np.random.Generator, options: dict[str, Any], error: type[Exception], rule: str) -> None:
    given = fused_operands(rng, Problem("linear"), M, N, K)
    out = np.full((N, M), np.nan, np.float16)
    with pytest.raises(error) as caught:
        louver.linear(np.ascontiguousarray(given.b.T), given.s, **{"out": out, **options})
    assert rule in str(caught.value)
    assert np.isnan(out).all()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"bias": f32(M // 2)}, "bias must be [out] with out = 48, gate and then up, got shape [24]"),
        ({"c": f32(N, M // 2)}, "a gated product takes no c"),
        ({"out": np.zeros((N, M), np.float16)}, "out must have shape [6, 24], got [6, 48]"),
    ],
)
def test_what_gated_products_refuse(rng: np.random.Generator, options: dict[str, Any], rule: str) -> None:
    given = fused_operands(rng, Problem("linear", epilogue=EPILOGUES["gated"]), M, N, K)
    with pytest.raises(ValueError) as caught:
        louver.linear(np.ascontiguousarray(given.b.T), given.s, **options)
    assert rule in str(caught.value)


def test_integers_take_a_floating_bias_where_steps_follow(rng: np.random.Generator) -> None:
    given = fused_operands(rng, Problem("matmul", "s8", "s8", "f32"), M, N, K)
    product: Callable[..., Any] = louver.matmul
    whole, half = np.ones(M, np.int32), np.ones(M, np.float16)
    product(given.s, given.b, bias=whole)
    product(given.s, given.b, bias=half, alpha=1.0)
    with pytest.raises(ValueError, match=r"bias must be of s32 for operands of s8, got f16"):
        product(given.s, given.b, bias=half)
    with pytest.raises(ValueError, match=r"bias must be of f16 or bf16 or f32 for operands of s8, got s32"):
        product(given.s, given.b, bias=whole, alpha=1.0)
