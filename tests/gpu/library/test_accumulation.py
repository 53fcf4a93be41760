"""Ways to accumulate on a device: exact integers, random data by the bound, and how much exacter promoted sums are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.frontend.problem import BIAS
from louver.library import reference
from support.device_products import FORMS, Form, by_tokens, compute, dense_operand, result, to_torch
from support.products import EDGES, Operands, assert_close, assert_exact, operands

pytestmark = pytest.mark.sampled(4)

MODES = {
    "f16": ("f16", "f16", "f16"),
    "f16 of 8 bits": ("e4m3", "e5m2", "f16"),
    "promoted": ("e5m2", "e4m3", "promoted"),
    "fast": ("e4m3", "e4m3", "fast"),
}
"""By name: sparse and dense operand, and the way to accumulate."""

every_mode = pytest.mark.parametrize("mode", MODES)
every_form = pytest.mark.parametrize("form", FORMS)


def draw(rng: np.random.Generator, mode: str, m: int, n: int, k: int, data: Any) -> Operands:
    a, b, _ = MODES[mode]
    return operands(rng, m, n, k, a, data, dense=b, bias=BIAS["f32"][-1])


def product(form: Form, given: Operands, mode: str, out: str = "f32", **options: Any) -> Any:
    linear = form == "linear"
    if form.endswith("n_major") and MODES[mode][1] != "f16":
        dense = to_torch(given.b)  # turned round on the way
        dense = dense.T if by_tokens(form) else dense
    else:
        dense = dense_operand(form, given.b)
    y = compute(form, given, dense, bias=linear, out_dtype=out, accumulate=MODES[mode][2], **options)
    return result(form, y)


def check(rng: np.random.Generator, form: Form, mode: str, m: int, n: int, k: int, out: str = "f32") -> None:
    bias = form == "linear"
    # Sums of a thousand such products stay exact in f16.
    given = draw(rng, mode, m, n, min(k, 1100), "integers")
    assert_exact(product(form, given, mode, out), given, bias=bias)
    given = draw(rng, mode, m, n, k, "normal")
    assert_close(product(form, given, mode, out), given, bias=bias, accumulate=MODES[mode][2])


@every_form
@every_mode
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (65, 7, 130), (333, 70, 257), (257, 300, 515), (130, 256, 4096)])
@pytest.mark.parametrize("out", ["f32", "f16", "bf16"])
def test_every_form_and_output(
    rng: np.random.Generator, form: Form, mode: str, out: str, m: int, n: int, k: int
) -> None:
    check(rng, form, mode, m, n, k, out)


@every_mode
@pytest.mark.parametrize("k", (*EDGES, 33, 383, 384, 385, 511, 512, 513, 767, 1023, 1025, 4100))
def test_every_k(rng: np.random.Generator, mode: str, k: int) -> None:
    check(rng, "linear", mode, 150, 70, k)


@every_form
@every_mode
@pytest.mark.parametrize(("m", "n"), [(3072, 3072), (3001, 3100), (4096, 3080)])
def test_many_tiles(rng: np.random.Generator, form: Form, mode: str, m: int, n: int) -> None:
    """Enough for tiles of 256×256 with sums in f16, whole and not, stored in bulk and directly."""
    given = draw(rng, mode, m, n, 272, "integers")
    assert_exact(product(form, given, mode, "f16"), given, bias=form == "linear")


@every_mode
def test_results_repeat_from_run_to_run(rng: np.random.Generator, mode: str) -> None:
    given = draw(rng, mode, 512, 512, 4096, "normal")
    first = product("linear", given, mode)
    for _ in range(3):
        np.testing.assert_array_equal(first, product("linear", given, mode))


def test_promoted_sums_do_not_drift(rng: np.random.Generator) -> None:
    """Terms of one sign: what the hardware cuts off adds up over K, unless sums are promoted."""
    given = draw(rng, "promoted", 128, 64, 16384, "normal")
    a, b = np.abs(given.a), np.abs(given.b)
    given = Operands(a, louver.compress(a, "2:4"), b, given.bias)
    exact, _ = reference.exact_product(a, b)
    x = to_torch(b.T)
    errors = {
        mode: np.abs(result("linear", louver.linear(x, given.s, out_dtype="f32", accumulate=mode)) / exact - 1).max()
        for mode in ("fast", "promoted")
    }
    assert errors["promoted"] < 2.0**-9, errors
    assert errors["promoted"] < errors["fast"] / 4, errors


def test_sums_in_f16_overflow_on_the_way(rng: np.random.Generator) -> None:
    a = np.zeros((64, 64), np.float16)
    a[:, ::2] = 256.0
    b = np.full((64, 16), 256.0, np.float16)
    x, s = to_torch(b.T), louver.compress(a, "2:4")
    assert np.isinf(result("linear", louver.linear(x, s, out_dtype="f32", accumulate="f16"))).all()
    assert np.isfinite(result("linear", louver.linear(x, s, out_dtype="f32"))).all()


@every_mode
def test_plans_and_gated_pairs(rng: np.random.Generator, mode: str) -> None:
    given = draw(rng, mode, 256, 96, 608, "normal")
    x, accumulate = to_torch(given.b.T), MODES[mode][2]
    plan = louver.plan("linear", given.s, 96, like=x, out_dtype="f32", accumulate=accumulate)
    same = louver.linear(x, given.s, out_dtype="f32", accumulate=accumulate)
    for _ in range(2):
        np.testing.assert_array_equal(result("linear", plan(x)), result("linear", same))
    gate, up = np.split(given.a, 2)
    pair = louver.gated(louver.compress(gate, "2:4"), louver.compress(up, "2:4"))
    y = result("linear", louver.linear(x, pair, activation="relu", out_dtype="f32", accumulate=accumulate))
    whole = result("linear", same)
    np.testing.assert_allclose(y, np.maximum(whole[:128], 0) * whole[128:], rtol=2.0**-20)
