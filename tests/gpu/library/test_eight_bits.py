"""Products of 8-bit floats and integers on a device: every mix, output and form, at the edges of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.frontend.problem import BIAS, accumulator_of
from louver.library import reference
from support.device_products import FORMS, Form, by_tokens, compute, result, to_torch, torch_dtype
from support.products import EDGES, OF_NUMBERS, Operands, assert_close, operands

pytestmark = pytest.mark.sampled(5)

PAIRS = [pair for pair in OF_NUMBERS if element_type(pair[0]).bits == 8]

CASES = [(a, b, out) for a, b in PAIRS for out in OF_NUMBERS[a, b]]

every_form = pytest.mark.parametrize("form", FORMS)
one_of_each = pytest.mark.parametrize(("a", "b"), [("e4m3", "e5m2"), ("s8", "u8")])


def dense_operand(form: Form, b: Any) -> Any:
    """`b` [K, N] as the form takes it; an N-major one is turned round on the way."""
    made = to_torch(b) if form.endswith("n_major") else to_torch(b.T).T
    return made.T if by_tokens(form) else made


def draw(rng: np.random.Generator, a: str, b: str, m: int, n: int, k: int, data: Any = "integers") -> Operands:
    return operands(rng, m, n, k, a, data, dense=b, bias=BIAS[accumulator_of(a)][-1])


def check_equal(form: Form, given: Operands, out: str, *, bias: bool = False) -> None:
    """Bit for bit what the reference path computes."""
    y = result(form, compute(form, given, dense_operand(form, given.b), bias=bias, out_dtype=out))
    expected = reference.product(given.a, given.b, given.bias if bias else None, y.dtype)
    np.testing.assert_array_equal(y.astype(np.float64), expected.astype(np.float64))


@every_form
@pytest.mark.parametrize(("a", "b", "out"), CASES)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (65, 7, 130), (333, 70, 257), (257, 300, 515), (130, 256, 1024)])
def test_every_mix_and_output(
    rng: np.random.Generator, form: Form, a: str, b: str, out: str, m: int, n: int, k: int
) -> None:
    check_equal(form, draw(rng, a, b, m, n, k), out, bias=form == "linear")
    given = draw(rng, a, b, m, n, k, "normal")
    if accumulator_of(a) == "s32":
        check_equal(form, given, out, bias=form == "linear")
    else:
        y = compute(form, given, dense_operand(form, given.b), bias=form == "linear", out_dtype=out)
        assert_close(result(form, y), given, bias=form == "linear")


@every_form
@one_of_each
@pytest.mark.parametrize("k", (*EDGES, 2, 3, 4, 5, 31, 33, 511, 513, 767, 1000, 2049, 4100))
def test_every_k(rng: np.random.Generator, form: Form, a: str, b: str, k: int) -> None:
    check_equal(form, draw(rng, a, b, 150, 70, k), "f32")


@every_form
@one_of_each
@pytest.mark.parametrize("m", EDGES)
def test_every_m(rng: np.random.Generator, form: Form, a: str, b: str, m: int) -> None:
    check_equal(form, draw(rng, a, b, m, 70, 200), "bf16")


@every_form
@one_of_each
@pytest.mark.parametrize("n", (*EDGES, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 511, 513))
def test_every_n(rng: np.random.Generator, form: Form, a: str, b: str, n: int) -> None:
    check_equal(form, draw(rng, a, b, 150, n, 136), "f16")


@every_form
@pytest.mark.parametrize(("a", "b", "out"), [("e4m3", "e4m3", "f32"), ("e5m2", "e4m3", "f32"), ("s8", "s8", "s32")])
def test_large_products_of_random_data(rng: np.random.Generator, form: Form, a: str, b: str, out: str) -> None:
    given = draw(rng, a, b, 1000, 520, 8192, "normal")
    if accumulator_of(a) == "s32":
        check_equal(form, given, out)
    else:
        assert_close(result(form, compute(form, given, dense_operand(form, given.b), out_dtype=out)), given)


@every_form
@pytest.mark.parametrize(("a", "b", "out"), [("e4m3", "e4m3", "e4m3"), ("s8", "s8", "s32"), ("e4m3", "e4m3", "bf16")])
def test_many_tiles_for_each_sm(rng: np.random.Generator, form: Form, a: str, b: str, out: str) -> None:
    check_equal(form, draw(rng, a, b, 4100, 2500, 70), out)


@one_of_each
def test_defaults_and_outputs_of_the_caller(rng: np.random.Generator, torch: Any, a: str, b: str) -> None:
    given = draw(rng, a, b, 130, 72, 200)
    default = OF_NUMBERS[a, b][0]
    x = dense_operand("linear", given.b)
    assert louver.linear(x, given.s).dtype == torch_dtype(default)
    whole = torch.full((72, 137), 99, dtype=torch_dtype(default), device="cuda")
    y = louver.linear(x, given.s, out=whole[:, 3:133])
    assert y.data_ptr() == whole[:, 3:133].data_ptr()
    expected = reference.product(given.a, given.b, None, element_type(default).numpy)
    np.testing.assert_array_equal(result("linear", y).astype(np.float64), expected.astype(np.float64))
    assert (whole[:, :3] == 99).all() and (whole[:, 133:] == 99).all()


@one_of_each
def test_plans(rng: np.random.Generator, torch: Any, a: str, b: str) -> None:
    given = draw(rng, a, b, 300, 16, 528)
    x = dense_operand("linear", given.b)
    bias = to_torch(given.bias)
    p = louver.plan("linear", given.s, 16, like=x, bias=bias, out_dtype="f32")
    expected = reference.product(given.a, given.b, given.bias, np.dtype(np.float32))
    for _ in range(3):
        np.testing.assert_array_equal(result("linear", p(x)), expected)
    other = x.view(torch.uint8 if b != "u8" else torch.int8)
    with pytest.raises(ValueError, match=r"plan is for dense operands|one element type"):
        p(other)


def test_integer_sums_wrap(rng: np.random.Generator, torch: Any) -> None:
    given = draw(rng, "s8", "s8", 64, 8, 64, "normal")
    given.bias[:] = np.iinfo(np.int32).max - 1000
    check_equal("linear", given, "s32", bias=True)
