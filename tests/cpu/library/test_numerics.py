from __future__ import annotations

import numpy as np
import pytest

from louver.formats.dtypes import element_type
from louver.frontend.epilogue import Epilogue
from louver.library.numerics import accumulation, bound, coefficients, compare
from louver.library.reference import exact_product, product
from support.products import overflowing


@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("k", [1, 64, 8192])
def test_a_rounded_product_agrees(rng: np.random.Generator, out: str, k: int) -> None:
    a, b = rng.standard_normal((9, k)).astype(np.float16), rng.standard_normal((k, 11)).astype(np.float16)
    y = product(a, b, None, element_type(out).numpy)
    agreement = compare(y, *exact_product(a, b), k, out)
    assert agreement.ok and agreement.violations == 0 and agreement.worst <= 1


def test_one_missing_term_of_8192_is_found(rng: np.random.Generator) -> None:
    k = 8192
    a, b = rng.standard_normal((64, k)).astype(np.float16), rng.standard_normal((k, 64)).astype(np.float16)
    a[5, 4000], b[4000, 7] = 1.0, 1.0
    reference, magnitude = exact_product(a, b)
    y = reference.astype(np.float32)
    y[5, 7] = np.float32(reference[5, 7] - 1.0)
    agreement = compare(y, reference, magnitude, k, "f32")
    assert not agreement.ok
    assert (agreement.at, agreement.violations) == ((5, 7), 1)
    assert agreement.worst > 1


@pytest.mark.parametrize(
    ("got", "expected", "ok"),
    [
        (np.nan, np.nan, True),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (np.inf, np.inf, True),
        (-np.inf, np.inf, False),
        (np.inf, 1.0, False),
        (1.0, np.inf, False),
        (np.nan, np.inf, False),
        (-0.0, 0.0, True),
        (0.0, 0.0, True),
    ],
)
def test_special_values(got: float, expected: float, ok: bool) -> None:
    y = np.array([[2.0, got]], np.float32)
    reference = np.array([[2.0, expected]])
    agreement = compare(y, reference, np.abs(np.nan_to_num(reference)), 4, "f32")
    assert agreement.ok == ok
    assert agreement.violations == (0 if ok else 1)
    if not ok:
        assert agreement.at == (0, 1) and agreement.worst > 1


def test_tiny_results_may_round_to_the_next_subnormal() -> None:
    reference = np.array([2.0**-25 * 0.9])
    assert compare(np.array([0.0], np.float16), reference, reference, 1, "f16").ok
    assert not compare(np.array([2.0**-23], np.float16), reference, reference, 1, "f16").ok


def test_the_bound_is_its_coefficients(rng: np.random.Generator) -> None:
    reference = rng.standard_normal((3, 4))
    magnitude = np.abs(reference) + 1
    relative, absolute, summed = coefficients(100, "bf16")
    np.testing.assert_array_equal(
        bound(reference, magnitude, 100, "bf16"), relative * np.abs(reference) + absolute + summed * magnitude
    )
    assert relative == 2.0**-8 and summed == 14 * 2.0**-23


def test_8_bit_floats_have_a_wider_bound_and_integers_none(rng: np.random.Generator) -> None:
    reference = np.array([10.0])
    assert coefficients(64, "f32", "fp8") == (2.0**-24, 2.0**-150 + 5 * 18 * 2.0**-149, 5 * 2.0**-12)
    assert coefficients(4096, "f16", "fp8")[2] == 12 * 2.0**-12
    assert coefficients(4096, "s32", "s32") == (0.0, 0.0, 0.0)
    near = np.array([10.02], np.float32)
    assert compare(near, reference, 2 * reference, 64, "f32", "fp8").ok
    assert not compare(near, reference, 2 * reference, 64, "f32").ok
    assert compare(np.array([10], np.int32), reference, reference, 64, "s32", "s32").ok
    assert not compare(np.array([11], np.int32), reference, reference, 64, "s32", "s32").ok


@pytest.mark.parametrize(
    ("operand", "name"),
    [("f16", "f32"), ("bf16", "f32"), ("e4m3", "fp8"), ("e5m2", "fp8"), ("s8", "s32"), ("u8", "s32")],
)
def test_how_products_of_each_type_round(operand: str, name: str) -> None:
    assert accumulation(operand) == name


def test_ways_to_accumulate_that_are_asked_for() -> None:
    assert [accumulation("e4m3", mode) for mode in ("auto", "f32", "promoted", "f16")] == [
        "fp8",
        "fp8",
        "promoted",
        "fp8 in f16",
    ]
    assert [accumulation("f16", mode) for mode in ("auto", "f16")] == ["f32", "f16"]


def test_promoted_sums_are_as_exact_for_any_k() -> None:
    short, long, fast = (
        coefficients(k, "f32", how)[2] for k, how in ((256, "promoted"), (1 << 16, "promoted"), (1 << 16, "fp8"))
    )
    assert short == pytest.approx(coefficients(256, "f32", "fp8")[2], rel=1e-2)
    assert long < 1.01 * short < fast / 5


def test_sums_in_f16_may_be_subnormal() -> None:
    reference = np.array([1e-7])
    assert compare(np.array([0.0], np.float32), reference, reference, 1, "f32", "f16").ok
    assert not compare(np.array([0.0], np.float32), reference, reference, 1, "f32").ok
    assert coefficients(320, "f32", "f16")[2] < coefficients(3200, "f32", "f16")[2] < 2.0**-6


def test_a_reference_is_clipped_where_the_output_saturates() -> None:
    e4m3 = element_type("e4m3").numpy
    reference = np.array([1e4, -np.inf, np.nan, 3.0])
    y = np.array([448, -448, np.nan, 3.0], np.float32).astype(e4m3)
    assert compare(y, reference, np.ones(4), 1, "e4m3").ok
    assert compare(np.array([416.0]).astype(e4m3), reference[:1], np.ones(1), 1, "e4m3").violations == 1


OVERFLOWS = {"f16": (65504.0, 65520.0), "bf16": (2.0**128 - 2.0**120, 2.0**128 - 2.0**119)}
"""By output: its greatest number, and the least that rounds to infinity."""


@pytest.mark.parametrize("out", OVERFLOWS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_overflow_of_the_output_is_right_where_a_number_within_the_bound_overflows(out: str, sign: float) -> None:
    most, infinite = OVERFLOWS[out]
    error = coefficients(64, out)[2] * infinite

    def right(got: float, reference: float) -> bool:
        y = np.array([sign * got]).astype(element_type(out).numpy)
        return compare(y, np.array([sign * reference]), np.array([infinite]), 64, out).ok

    assert right(np.inf, 1.1 * infinite) and right(np.inf, infinite) and right(np.inf, infinite - error / 2)
    assert right(most, infinite + error / 2) and right(most, most)
    assert not right(np.inf, 0.99 * infinite) and not right(-np.inf, 1.1 * infinite)
    assert not right(most, 1.1 * infinite) and not right(np.nan, 1.1 * infinite)


@pytest.mark.parametrize(
    ("out", "accumulate", "magnitude", "right"),
    [
        ("f32", "f32", 2.0**128, [np.inf, -np.inf, np.nan, 3.0]),
        ("bf16", "f32", 2.0**128, [np.inf, -np.inf, np.nan, 3.0]),
        ("f16", "f16", 70000.0, [np.inf, -np.inf, np.nan, 3.0]),
        ("e4m3", "f16", 70000.0, [448.0, -448.0, np.nan, 3.0]),
        ("s8", "f16", 70000.0, [127.0, -128.0, 0.0, 3.0]),
    ],
)
def test_sums_that_may_overflow_on_the_way(out: str, accumulate: str, magnitude: float, right: list[float]) -> None:
    """Σ|a||b| beyond the accumulator's maximum: some order of the sum passes it."""

    def agrees(got: float, of: float) -> bool:
        y = np.array([got]).astype(element_type(out).numpy)
        return compare(y, np.array([3.0]), np.array([of]), 1, out, accumulate).ok

    assert all(agrees(got, magnitude) for got in right)
    assert not any(agrees(got, 1000.0) for got in right if got != 3.0)


def test_finite_results_keep_the_bound_where_sums_may_overflow() -> None:
    y, reference, magnitude = np.array([1000.0], np.float16), np.array([3.0]), np.array([70000.0])
    assert compare(y, reference, magnitude, 1, "f16", "f16").violations == 1


def test_epilogues_of_sums_that_may_overflow(rng: np.random.Generator) -> None:
    """Nothing can be said of what an epilogue makes of infinity."""
    weight, tokens = overflowing(rng, 8, 4, 64)
    epilogue, reads = Epilogue(alpha=True, activation="relu"), {"alpha": 2.0**-100}
    exact, magnitude = exact_product(weight, tokens.T, None, epilogue, reads)
    # One term after the other: a matrix product of NumPy adds in an order of its own.
    terms = weight.astype(np.float32)[:, None] * tokens.astype(np.float32)[None]
    with np.errstate(over="ignore"):
        y = np.maximum(np.add.accumulate(terms, axis=-1)[..., -1] * np.float32(reads["alpha"]), 0)
    assert not np.isfinite(y[::2]).any() and np.isfinite(magnitude[1::2]).all()
    assert compare(y, exact, magnitude, 64, "f32").ok


def test_the_bound_for_any_data_counts_instructions() -> None:
    for k, how, steps, step in (
        (4096, "f32", 128, 18 * 2.0**-23),
        (4097, "f32", 129, 18 * 2.0**-23),
        (64, "fp8", 1, 34 * 2.0**-13),
        # And a rounding for each range of 256 columns.
        (1024, "f16", 32 + 4, 2.0**-11 + 18 * 2.0**-23),
        (1 << 16, "f16", 2048 + 32, 2.0**-11 + 18 * 2.0**-23),
    ):
        assert coefficients(k, "f32", how, "any")[2] == pytest.approx(np.expm1(steps * step))
        assert coefficients(k, "f32", how)[2] < coefficients(k, "f32", how, "any")[2] or k == 64
    promoted = [coefficients(k, "f32", "promoted", "any")[2] for k in (256, 1 << 16)]
    assert promoted[1] < 1.01 * promoted[0]
    assert coefficients(4096, "s32", "s32", "any") == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("out", ["s32", "f32", "f16", "bf16"])
def test_integers_are_summed_exactly_and_rounded_once(out: str) -> None:
    a = np.array([[127, 1], [-128, 1]], np.int8)
    b = np.array([[200], [1]], np.uint8)
    bias = np.array([(1 << 24) + (1 << 16) + 1 - 25401, np.iinfo(np.int32).min], np.int32)
    y = product(a, b, bias, element_type(out).numpy)
    # The second sum wraps around.
    exact = [(1 << 24) + (1 << 16) + 1, (1 << 31) - 25599]
    expected = {"s32": exact, "f32": np.float32(exact), "f16": [np.inf] * 2, "bf16": [(1 << 24) + (1 << 17), 1 << 31]}
    np.testing.assert_array_equal(y[:, 0].astype(np.float64), np.array(expected[out], np.float64))


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"one shape, got \(2, 3\) and \(3, 2\)"):
        compare(np.zeros((2, 3)), np.zeros((3, 2)), np.zeros((3, 2)), 1, "f32")


def test_nothing_agrees_with_nothing() -> None:
    empty = np.zeros((0, 3))
    assert compare(empty, empty, empty, 1, "f32").ok
