from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.frontend.problem import BIAS, accumulator_of
from louver.library.reference import exact_product
from support.products import OF_NUMBERS, assert_close, assert_exact, operands
from support.refusals import REFUSALS, K, M, N, Refusal, sparse

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

SIZES = [(1, 1, 1), (5, 3, 7), (64, 1, 130), (1, 33, 64), (130, 65, 257)]


class Host:
    """NumPy as the refusals see it."""

    def full(self, shape: tuple[int, ...], dtype: str, value: float = 1.0) -> Any:
        return np.full(shape, value, element_type(dtype).numpy)

    def repeated(self, x: Any, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(x, shape)

    def strided(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        return np.lib.stride_tricks.as_strided(x, shape, tuple(x.itemsize * stride for stride in strides))

    def bytes(self, x: Any) -> bytes:
        return x.tobytes()


@pytest.mark.parametrize("out", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_products_of_integers_are_exact(rng: np.random.Generator, m: int, n: int, k: int, dtype: str, out: str) -> None:
    given = operands(rng, m, n, k, dtype)
    y = louver.matmul(given.s, given.b, out_dtype=out)
    assert y.shape == (m, n) and y.dtype == element_type(out).numpy
    assert_exact(y, given)
    z = louver.linear(given.b.T, given.s, given.bias, out_dtype=out)
    assert z.shape == (n, m) and z.dtype == element_type(out).numpy
    assert_exact(z.T, given, bias=True)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_random_products_keep_the_bound(rng: np.random.Generator, dtype: str) -> None:
    given = operands(rng, 40, 50, 600, dtype, "normal")
    assert_close(louver.matmul(given.s, given.b), given)
    assert_close(louver.linear(given.b.T, given.s, given.bias, out_dtype="f32").T, given, bias=True)


@pytest.mark.parametrize(("a", "columns"), [("f16", 32), ("e5m2", 64)])
def test_sums_in_f16_are_rounded_instruction_by_instruction(rng: np.random.Generator, a: str, columns: int) -> None:
    given = operands(rng, 20, 9, 3 * columns + 8, a, "normal")
    y = louver.matmul(given.s, given.b, out_dtype="f32", accumulate="f16")
    total = np.zeros(y.shape)
    for k in range(0, 3 * columns + 8, columns):
        part = slice(k, k + columns)
        total = (total + given.a[:, part].astype(np.float64) @ given.b[part].astype(np.float64)).astype(np.float16)
    np.testing.assert_array_equal(y, total.astype(np.float32))
    assert_close(y, given, accumulate="f16")
    assert np.abs(y - louver.matmul(given.s, given.b, out_dtype="f32")).max() > 0


@pytest.mark.parametrize("mode", ["fast", "promoted", "f32"])
def test_other_ways_of_8_bit_floats_are_those_of_f32_here(rng: np.random.Generator, mode: Any) -> None:
    given = operands(rng, 20, 9, 600, "e4m3", "normal")
    y = louver.linear(given.b.T, given.s, out_dtype="f32", accumulate=mode)
    np.testing.assert_array_equal(y, louver.linear(given.b.T, given.s, out_dtype="f32"))


EIGHT_BITS = [(a, b, out) for (a, b), outputs in OF_NUMBERS.items() for out in outputs if element_type(a).bits == 8]


@pytest.mark.parametrize(("a", "b", "out"), EIGHT_BITS)
def test_products_of_8_bit_types(rng: np.random.Generator, a: str, b: str, out: str) -> None:
    given = operands(rng, 20, 9, 36, a, dense=b, bias=BIAS[accumulator_of(a)][-1])
    y = louver.matmul(given.s, given.b, out_dtype=out)
    assert y.dtype == element_type(out).numpy
    z = louver.linear(given.b.T, given.s, given.bias, out_dtype=out)
    exact, _ = exact_product(given.a, given.b)
    biased, _ = exact_product(given.a, given.b, given.bias)
    # No sum is greater than e4m3 holds; its values between 16 and 448 have steps that integers fall between.
    if out == "s8":
        exact, biased = (np.clip(sums, -128, 127) for sums in (exact, biased))
    np.testing.assert_array_equal(y.astype(np.float64), exact.astype(y.dtype).astype(np.float64))
    np.testing.assert_array_equal(z.T.astype(np.float64), biased.astype(y.dtype).astype(np.float64))


@pytest.mark.parametrize(("a", "b", "out"), [("e4m3", "e5m2", "bf16"), ("s8", "u8", "s32"), ("bf16", "bf16", "bf16")])
def test_the_output_type_by_default(rng: np.random.Generator, a: str, b: str, out: str) -> None:
    given = operands(rng, 20, 9, 36, a, dense=b)
    assert element_type(louver.matmul(given.s, given.b).dtype).name == out


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        ("e4m3", "s8", {}, "one element type, got s8 and e4m3: convert one"),
        (
            "s8",
            "s8",
            {"out_dtype": "u8"},
            "out_dtype must be s32, f16, bf16, f32, e4m3, e5m2, s8 for operands of s8 and s8, got u8",
        ),
        ("s8", "s8", {"accumulate": "f32"}, 'must be "auto" or "s32" for s8, got \'f32\''),
        (
            "e4m3",
            "e4m3",
            {"accumulate": "s32"},
            'must be "auto" or "f32" or "f16" or "fast" or "promoted" for e4m3, got \'s32\'',
        ),
        ("bf16", "bf16", {"accumulate": "f16"}, 'must be "auto" or "f32" for bf16, got \'f16\''),
        ("e4m3", "e4m3", {"out_dtype": "s32"}, "out_dtype must be bf16, f16, f32, e4m3, e5m2, s8 for operands"),
    ],
)
def test_what_8_bit_products_do_not_do_is_refused(
    rng: np.random.Generator, a: str, b: str, options: dict[str, str], message: str
) -> None:
    given = operands(rng, 20, 9, 36, a, dense=b)
    with pytest.raises(ValueError) as caught:
        louver.matmul(given.s, given.b, **options)
    assert message in str(caught.value)


def test_a_bias_of_another_kind_of_number_is_refused(rng: np.random.Generator) -> None:
    given = operands(rng, 20, 9, 36, "s8", bias="f32")
    with pytest.raises(ValueError, match="bias must be of s32 for operands of s8, got f32"):
        louver.linear(given.b.T, given.s, given.bias)


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (2, 1, 3)])
def test_linear_keeps_leading_axes(rng: np.random.Generator, leading: tuple[int, ...]) -> None:
    given = operands(rng, 20, int(np.prod(leading, dtype=int)), 36)
    y = louver.linear(given.b.T.reshape(*leading, 36), given.s, given.bias)
    assert y.shape == (*leading, 20)
    assert_exact(y.reshape(-1, 20).T, given, bias=True)


def test_the_result_is_written_to_out_and_nowhere_else(rng: np.random.Generator) -> None:
    given = operands(rng, 20, 9, 36)
    whole = np.full((24, 16), np.nan, np.float32)
    out = whole[2:22, 3:12]
    assert louver.matmul(given.s, given.b, out=out) is out
    assert_exact(out, given)
    out[...] = np.nan
    assert np.isnan(whole).all()
    whole = np.full((12, 30), np.nan, ml_dtypes.bfloat16)
    out = whole[2:11, 3:23]
    assert louver.linear(given.b.T, given.s, out=out) is out
    assert_exact(out.T, given)
    out[...] = np.nan
    assert np.isnan(whole).all()


def test_too_large_results_become_infinite() -> None:
    w = np.full((1, 4), 200, np.float16) * np.array([1, 1, 0, 0], np.float16)
    y = louver.matmul(louver.compress(w, "2:4"), np.full((4, 1), 200, np.float16))
    assert y.dtype == np.float16 and np.isposinf(y).all()


def test_the_notice_is_given_once_and_names_the_reason() -> None:
    s, b = sparse(), np.ones((K, N), np.float16)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        louver.matmul(s, b)
        louver.matmul(s, b)
        louver.linear(b.T, s)
    (notice,) = seen
    assert "reference path on the CPU: no GPU: none for this test" in str(notice.message)


@pytest.mark.parametrize("refusal", [r for r in REFUSALS if not r.device_only], ids=lambda r: r.name)
def test_refused_before_anything_is_written(refusal: Refusal) -> None:
    host = Host()
    out = host.full((M, N) if refusal.kind == "matmul" else (N, M), "f16", np.nan)
    before = host.bytes(out)
    with pytest.raises(refusal.error, match=refusal.match):
        refusal.call(host, out)
    assert host.bytes(out) == before


def test_a_read_only_out_is_refused() -> None:
    out = np.zeros((M, N), np.float16)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        louver.matmul(sparse(), np.ones((K, N), np.float16), out=out)
    assert not out.any()


@pytest.mark.parametrize("own", [False, True], ids=["one weight", "a batch of weights"])
@pytest.mark.parametrize("leading", [(3,), (2, 2), (1,)])
def test_batches_agree_with_float64(rng: np.random.Generator, leading: tuple[int, ...], own: bool) -> None:
    def draw(*shape: int) -> Any:
        return rng.integers(-4, 5, shape).astype(np.float16)

    m, n, k = 20, 9, 36
    w = louver.prune(draw(*(leading if own else ()), m, k), "2:4")
    s, bias, column = louver.compress(w, "2:4"), draw(m), draw(n)
    for b in (
        (draw(*leading, k, n), draw(k, n)) if own else (draw(*leading, k, n), draw(*leading, n, k).swapaxes(-1, -2))
    ):
        c = draw(*leading, m, n)
        y = louver.matmul(s, b, bias=bias, dense_bias=column, c=c, beta=2.0, out_dtype="f32")
        expected = w.astype(np.float64) @ b + bias[:, None].astype(np.float64) + column + 2 * c.astype(np.float64)
        np.testing.assert_array_equal(y, expected)
    for x in (draw(*leading, n, k), *([draw(n, k)] if own else [])):
        c = draw(*leading, n, m)
        tokens = draw(n) if own else draw(*leading, n)
        y = louver.linear(x, s, bias, c=c, dense_bias=tokens, out_dtype="f32")
        expected = x.astype(np.float64) @ np.swapaxes(w, -1, -2) + bias.astype(np.float64)
        np.testing.assert_array_equal(y, expected + tokens[..., None].astype(np.float64) + c)
