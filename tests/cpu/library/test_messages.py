"""The messages for arguments of another kind than is asked for: the rule, the argument that was got, in the names of the call."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from support.refusals import sparse

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, N, K = 16, 5, 32
X = np.ones((N, K), np.float16)
ODD: dict[str, Any] = {
    "None": None,
    "a list": [1.0],
    "a text": "abc",
    "a bool": True,
    "a complex": 1j,
    "NaN": float("nan"),
    "a huge integer": 10**5000,
    "a negative integer": -1,
    "a fraction": Decimal("0.5"),
    "an object": object(),
    "a type": np.float16,
    "float64": np.ones((N, K)),
    "complex": np.ones((N, K), np.complex64),
    "objects": np.ones((N, K), object),
    "structures": np.zeros((N, K), [("a", "f2"), ("b", "f2")]),
    "texts": np.full((N, K), "a"),
    "dates": np.zeros((N, K), "M8[s]"),
    "other byte order": np.ones((N, K), ">f2"),
    "no dimension": np.array(1, np.float16),
    "masked": np.ma.masked_array(X),
    "of other shape": np.ones((3, 3, 3), np.float16),
}


@pytest.fixture
def s() -> SparseTensor:
    return sparse(shape=(M, K))


CALLS: dict[str, Callable[[SparseTensor, Any], Any]] = {
    "x": lambda s, v: louver.linear(v, s),
    "b": lambda s, v: louver.matmul(s, v),
    "s": lambda s, v: louver.linear(X, v),
    "bias": lambda s, v: louver.linear(X, s, v),
    "out": lambda s, v: louver.linear(X, s, out=v),
    "out_dtype": lambda s, v: louver.linear(X, s, out_dtype=v),
    "accumulate": lambda s, v: louver.linear(X, s, accumulate=v),
    "alpha": lambda s, v: louver.linear(X, s, alpha=v),
    "beta": lambda s, v: louver.linear(X, s, c=np.zeros((N, M), np.float16), beta=v),
    "scale": lambda s, v: louver.linear(X, s, scale=v),
    "dense_scale": lambda s, v: louver.linear(X, s, dense_scale=v),
    "out_scale": lambda s, v: louver.linear(X, s, out_scale=v),
    "dense_bias": lambda s, v: louver.linear(X, s, dense_bias=v),
    "c": lambda s, v: louver.linear(X, s, c=v),
    "activation": lambda s, v: louver.linear(X, s, activation=v),
    "kind": lambda s, v: louver.plan(v, s, N),
    "n": lambda s, v: louver.plan("linear", s, v),
    "layout": lambda s, v: louver.plan("matmul", s, N, layout=v),
    "batch": lambda s, v: louver.plan("matmul", s, N, batch=v),
    "like": lambda s, v: louver.plan("linear", s, N, like=v),
    "a plan's x": lambda s, v: louver.plan("linear", s, N)(v),
    "prepare's n": lambda s, v: louver.prepare(s, v),
    "prepare's epilogue": lambda s, v: louver.prepare(s, N, epilogue=v),
    "w": lambda s, v: louver.compress(v, "2:4"),
    "pattern": lambda s, v: louver.prune(X, v),
    "axis": lambda s, v: louver.prune(X, "2:4", axis=v),
    "method": lambda s, v: louver.prune(X, "2:4", method=v),
    "Pattern": lambda s, v: louver.Pattern(v, 4),
    "Pattern.parse": lambda s, v: louver.Pattern.parse(v),
    "gated": lambda s, v: louver.gated(s, v),
    "update_": lambda s, v: s.update_(v),
    "s @": lambda s, v: s @ v,
    "@ s.T": lambda s, v: v @ s.T,
    "Epilogue": lambda s, v: louver.Epilogue(alpha=v),
}

LEGAL = {
    *((name, "None") for name in ("bias", "out", "out_dtype", "scale", "dense_scale", "out_scale", "dense_bias", "c")),
    *((name, "None") for name in ("alpha", "beta", "activation", "layout", "batch", "like")),
    *((name, number) for name in ("alpha", "beta", "scale", "dense_scale", "out_scale") for number in ("NaN", "a negative integer")),
    ("out_dtype", "a type"),
    ("axis", "a negative integer"),
    ("Epilogue", "a bool"),
}  # fmt: skip

RAW = (
    "truth value of",
    "only integer scalar",
    "Exceeds the limit",
    "object has no attribute",
    "object is not",
    "unhashable",
    "Cannot compare",
    "expected str",
    "cannot unpack",
    "not supported between",
    "too large to convert",
)
"""Pieces of what Python and NumPy say where nobody has checked."""


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("argument", CALLS)
def test_no_message_is_python_s_own(s: SparseTensor, argument: str, name: str) -> None:
    if (argument, name) in LEGAL:
        CALLS[argument](s, ODD[name])
        return
    with pytest.raises((TypeError, ValueError)) as caught:
        CALLS[argument](s, ODD[name])
    message = str(caught.value)
    assert "got" in message and len(message) < 400, message
    assert not any(each in message for each in RAW), message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: louver.Pattern(None, 4), r"a pattern's n is an integer, as in louver.Pattern\(2, 4\), got NoneType"),  # type: ignore[arg-type]
        (lambda s: louver.Pattern("2:4", 4), "a pattern's n is an integer, .* got str"),  # type: ignore[arg-type]
        (lambda s: louver.Pattern.parse(None), 'a pattern is a text such as "2:4", or a louver.Pattern, got NoneType'),
        (lambda s: louver.compress(X, f"{'9' * 5000}:4"), "a pattern's numbers have at most 18 digits, got 5000"),
        (lambda s: louver.check(X, "2:4", axis=None), "the sparse axis is an integer from -2 to 1, got NoneType"),  # type: ignore[arg-type]
        (lambda s: louver.check(X, "2:4", axis=1.0), "the sparse axis is an integer from -2 to 1, got float"),  # type: ignore[arg-type]
        (lambda s: louver.linear(X, s, alpha=10**400), "alpha must be a number that f32 holds, got a larger integer"),
        (lambda s: louver.plan("linear", s, 10**400), "n is an integer from 0 to 2,147,483,647, got one of 1329 bits"),
        (lambda s: louver.linear(np.ma.masked_array(X), s), "x: all elements of an array must have values, got a masked array: fill .* filled"),
        (lambda s: louver.linear(X, s, np.ma.masked_array(X[0])), "bias: all elements of an array must have values"),
        (lambda s: louver.prune(np.ma.masked_array(X), "2:4"), "whose elements all have values, got a masked one"),
        (lambda s: louver.linear(X.astype("f8"), s), "x must be of f16, got float64: convert it first"),
        (lambda s: louver.linear(X, s, np.ones(M)), "bias must be of f16 or bf16 or f32, got float64: convert it first"),
        (lambda s: louver.linear(X, s, scale=np.ones(M)), "scale must be of f32, got float64: convert it first"),
        (lambda s: louver.linear(X, s, out=np.ones((N, M))), "out must be of f16 or bf16 or f32 or .* got float64"),
        (lambda s: louver.linear(X, s, out_dtype="float64"), "out_dtype must be f16, bf16, .* got float64"),
        (lambda s: louver.linear(s, s), r"x: expected an array .* got SparseTensor: .* \.dense\(\) makes one"),
        (lambda s: louver.matmul(s.T, X), r"s must be \[..., M, K\], sparse along K, its last axis, got shape \[32, 16\], axis 0: a weight .* louver.matmul\(x, s\)"),
        (lambda s: louver.linear(X, s.T), r"got shape \[32, 16\], axis 0: a weight \[K, N\] that is sparse along K multiplies from the right"),
        (lambda s: louver.matmul(X, s), r"s must be \[..., K, N\], .* on the right of x, got shape \[16, 32\], axis 1: .* louver.linear\(x, s\)"),
        (lambda s: X @ s, r"multiply by a weight \[out, K\] with louver.linear\(x, s\), and compress one \[K, N\] with axis=-2"),
        (lambda s: louver.matmul(X, louver.gated(s, s)), r"got shape \[32, 32\], axis 1: .* louver.linear\(x, s\)"),
        (lambda s: louver.matmul(s, s.T), r"x: expected an array .* got SparseTensor: .* \.dense\(\) makes one"),
        (lambda s: louver.matmul(X, X), "s must be a louver.SparseTensor, got ndarray: use louver.compress"),
        (lambda s: louver.matmul(X.T, s.T), r"x must be \[..., K\] with K = 32, got shape \[32, 5\]"),
        (lambda s: louver.plan("linear", s.T, N), r"sparse along K, its last axis, got shape \[32, 16\], axis 0"),
        (lambda s: louver.prepare(s.T, kind="linear"), r"sparse along K, its last axis, got shape \[32, 16\], axis 0"),
        (lambda s: louver.gated(s, s) @ X.T, "a gated pair is two matrices, without a transpose or an operator @"),
        (lambda s: louver.gated(s, s).T, "a gated pair is two matrices"),
    ],
)  # fmt: skip
def test_messages(s: SparseTensor, call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call(s)


def test_types_that_are_listed_are_taken(s: SparseTensor) -> None:
    """An error that says what is taken is believed: each type in it is."""
    for w in (X, X.astype(np.int8)):
        weight = louver.compress(louver.prune(w, "2:4"), "2:4")
        with pytest.raises(ValueError) as caught:
            louver.linear(w.astype(np.float64), weight)
        listed = str(caught.value).partition("must be of ")[2].partition(", got")[0].split(" or ")
        assert listed == (["f16"] if w.dtype == np.float16 else ["s8", "u8"])
        for name in listed:
            louver.linear(w.astype(louver.formats.dtypes.element_type(name).numpy), weight)
    with pytest.raises(ValueError) as caught:
        louver.compress(np.ones((4, 8)), "2:4")
    listed = str(caught.value).partition("is one of ")[2].partition(" (or")[0].split(", ")
    assert "s32" not in listed
    for name in listed:
        louver.compress(np.zeros((4, 8), louver.formats.dtypes.element_type(name).numpy), "2:4")
