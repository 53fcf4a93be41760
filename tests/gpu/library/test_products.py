"""Every form, element type and size about the edges of tiles, into poisoned outputs with guards around them."""

from __future__ import annotations

import numpy as np
import pytest

from support.device_products import FORMS, Form, compute, dense_operand, guarded, output_shape, result
from support.products import EDGES, Operands, assert_close, assert_exact, operands

pytestmark = pytest.mark.sampled(3)

DEPTHS = (1, 2, 3, 4, 5, 31, 33, *EDGES[1:], 511, 512, 513, 767, 1000, 1535, 2049, 4100)

every_form = pytest.mark.parametrize("form", FORMS)
every_type = pytest.mark.parametrize("dtype", ["f16", "bf16"])


def check(form: Form, given: Operands, out: str, *, bias: bool = False) -> None:
    """Exact, and nothing written around it: rows of odd pitch, and rows that bulk copies can write."""
    dense = dense_operand(form, given.b)
    shape = output_shape(form, given)
    for offset, gap in ((1, 3), (0, 8 - shape[1] % 8)):
        target = guarded(shape, out, offset=offset, gap=gap)
        y = compute(form, given, dense, bias=bias, out=target.view)
        assert y is target.view
        assert_exact(result(form, y), given, bias=bias)
        target.assert_untouched()


@every_form
@pytest.mark.parametrize("m", EDGES)
def test_every_m(rng: np.random.Generator, form: Form, m: int) -> None:
    check(form, operands(rng, m, 70, 200), "f16")


@every_form
@pytest.mark.parametrize("n", (*EDGES, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 511, 513))
def test_every_n(rng: np.random.Generator, form: Form, n: int) -> None:
    check(form, operands(rng, 150, n, 136), "f16")


@every_form
@pytest.mark.parametrize("k", DEPTHS)
def test_every_k(rng: np.random.Generator, form: Form, k: int) -> None:
    check(form, operands(rng, 150, 70, k), "f16")


@every_form
@every_type
@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (333, 70, 257), (257, 300, 515)])
def test_every_type(rng: np.random.Generator, form: Form, dtype: str, out: str, m: int, n: int, k: int) -> None:
    check(form, operands(rng, m, n, k, dtype), out)
    given = operands(rng, m, n, k, dtype, "normal")
    assert_close(result(form, compute(form, given, dense_operand(form, given.b), out_dtype=out)), given)


@every_type
@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (65, 7, 130), (333, 70, 257), (257, 300, 515)])
def test_every_type_with_bias(rng: np.random.Generator, dtype: str, out: str, m: int, n: int, k: int) -> None:
    check("linear", operands(rng, m, n, k, dtype), out, bias=True)
    given = operands(rng, m, n, k, dtype, "normal")
    y = compute("linear", given, dense_operand("linear", given.b), bias=True, out_dtype=out)
    assert_close(result("linear", y), given, bias=True)


@every_form
@pytest.mark.parametrize("seed", range(8))
def test_odd_sizes(form: Form, seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(size) for size in rng.integers(1, 900, 3))
    check(form, operands(rng, m, n, k, "bf16"), "f32", bias=form == "linear")


@every_form
@every_type
def test_many_tiles_for_each_sm(rng: np.random.Generator, form: Form, dtype: str) -> None:
    check(form, operands(rng, 4100, 2500, 70, dtype), "f32")


@every_form
def test_random_data_of_a_large_product(rng: np.random.Generator, form: Form) -> None:
    given = operands(rng, 1000, 520, 8192, "f16", "normal")
    y = compute(form, given, dense_operand(form, given.b), out_dtype="f32")
    assert_close(result(form, y), given)
