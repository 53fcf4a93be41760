"""Calls with scales of blocks: on the host, on a fake GPU of sm_120a whose kernels run on the emulator, and refused ones."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.library import request as requests
from louver.library.batch import placed
from louver.library.fused import Given
from support.block_scales import ScaledOperands, scaled_operands, scaled_pair
from support.fake_gpu import FakeGpu, FakeTorch
from support.tile_gpu import TileGpu

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

M, N, K = 24, 5, 140
TYPES = ("e2m1", "e4m3")


def options(given: ScaledOperands) -> dict[str, Any]:
    return {"scale": given.of_rows, "dense_scale": given.of_tokens}


def transposed(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.swapaxes(-1, -2))


@pytest.mark.parametrize("types", [("e4m3", "e4m3"), TYPES])
@pytest.mark.parametrize("batch_invariant", [False, True])
@pytest.mark.parametrize(
    ("rows", "tokens"),
    [((), ()), ((), (3,)), ((), (2, 3)), ((3,), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((1,), (1,)), ((2, 3), ())],
)
def test_products_on_the_host(
    rng: np.random.Generator,
    types: tuple[str, str],
    rows: tuple[int, ...],
    tokens: tuple[int, ...],
    batch_invariant: bool,
) -> None:
    given = scaled_operands(rng, types, (*rows, M), (*tokens, N), K)
    known: Any = {**options(given), "out_dtype": "f32", "batch_invariant": batch_invariant}
    np.testing.assert_array_equal(louver.linear(given.x, given.s, **known), given.exact)
    np.testing.assert_array_equal(louver.matmul(given.s, transposed(given.x), **known), transposed(given.exact))
    np.testing.assert_array_equal(louver.matmul(given.x, given.s.mT, **known), given.exact)


def test_vectors_and_flat_scales_on_the_host(rng: np.random.Generator) -> None:
    given = scaled_operands(rng, TYPES, (3, M), (3, N), K)
    flat = {name: value.reshape(-1, 3) for name, value in options(given).items()}
    np.testing.assert_array_equal(louver.linear(given.x, given.s, out_dtype="f32", **flat), given.exact)
    # A repeated operand still has scales of each entry.
    x, left = np.broadcast_to(given.x[0], given.x.shape), given.left
    factors = np.repeat(2.0 ** (given.of_tokens.astype(np.float64) - 127), 64, axis=-1)[..., :K]
    y = louver.linear(x, given.s, out_dtype="f32", **options(given))
    np.testing.assert_array_equal(y, (x.astype(np.float64) * factors) @ left.swapaxes(-1, -2))
    one = scaled_operands(rng, TYPES, (M,), (), K)
    np.testing.assert_array_equal(louver.linear(one.x, one.s, out_dtype="f32", **options(one)), one.left @ one.right)


CURVES: dict[Any, Any] = {
    None: lambda z: z,
    "relu": lambda z: max(z, 0),
    "gelu": lambda z: z / 2 * (1 + math.erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: z / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / 2 * (1 + math.tanh(z / 2)),
}


def gated(given: ScaledOperands, activation: Any, alpha: float = 1.0) -> np.ndarray:
    """activation(gate) · up of alpha times the sums [..., N, 2·M], whose rows alternate in blocks of 8."""
    sums = alpha * given.exact.reshape(*given.exact.shape[:-1], -1, 2, 8)
    gate, up = (sums[..., part, :].reshape(*given.exact.shape[:-1], -1) for part in (0, 1))
    return np.vectorize(CURVES[activation], otypes=[np.float64])(gate) * up


@pytest.mark.parametrize("activation", CURVES)
@pytest.mark.parametrize("tokens", [(), (3,)])
def test_gated_pairs_on_the_host(rng: np.random.Generator, activation: Any, tokens: tuple[int, ...]) -> None:
    given = scaled_pair(rng, TYPES, M, (*tokens, N), K)
    known: Any = {**options(given), "out_dtype": "f32", "activation": activation, "alpha": 1 / 64}
    exact = gated(given, activation, 1 / 64)
    np.testing.assert_allclose(louver.linear(given.x, given.s, **known), exact, rtol=1e-4, atol=1e-4)
    y = louver.matmul(given.s, transposed(given.x), **known)
    np.testing.assert_allclose(y, transposed(exact), rtol=1e-4, atol=1e-4)


@pytest.fixture
def card(gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> TileGpu:
    return TileGpu(gpu, monkeypatch, (12, 0))


def on_card(card: TileGpu, given: ScaledOperands) -> dict[str, Any]:
    return {name: card.on(value) for name, value in options(given).items()}


def test_products_on_consumer_blackwell(card: TileGpu, rng: np.random.Generator) -> None:
    given, bias = scaled_operands(rng, TYPES, (M,), (N,), 144), rng.integers(-9, 9, M).astype(np.float32)
    y, d = np.full((N, M), np.nan, np.float32), np.full((M, N), np.nan, np.float32)
    louver.linear(card.on(given.x), given.s, card.on(bias), card.on(y), **on_card(card, given))
    np.testing.assert_array_equal(y, given.exact + bias)
    b = card.on(np.asfortranarray(given.x.T))
    plan = louver.plan("matmul", given.s, N, like=b, out_dtype="f32", **on_card(card, given))
    plan(b, out=card.on(d))
    np.testing.assert_array_equal(d, given.exact.T)


@pytest.mark.parametrize(("rows", "tokens"), [((), (3,)), ((3,), ()), ((3,), (3,)), ((2, 2), (2, 2)), ((1,), (1,))])
def test_batches_on_consumer_blackwell(
    card: TileGpu, rng: np.random.Generator, rows: tuple[int, ...], tokens: tuple[int, ...]
) -> None:
    given = scaled_operands(rng, TYPES, (*rows, M), (*tokens, N), 144)
    exact = given.exact
    y, d = np.full(exact.shape, np.nan, np.float32), np.full(transposed(exact).shape, np.nan, np.float32)
    louver.linear(card.on(given.x), given.s, out=card.on(y), **on_card(card, given))
    np.testing.assert_array_equal(y, exact)
    louver.matmul(given.s, card.on(given.x.swapaxes(-1, -2)), card.on(d), **on_card(card, given))
    np.testing.assert_array_equal(d, transposed(exact))


def test_views_of_tokens_are_a_batch_with_its_scales(card: TileGpu, rng: np.random.Generator) -> None:
    given = scaled_operands(rng, TYPES, (M,), (2, 130), 144)
    x = np.ascontiguousarray(given.x.swapaxes(0, 1)).swapaxes(0, 1)
    y = np.full((2, 130, M), np.nan, np.float32)
    louver.linear(card.on(x), given.s, out=card.on(y), **on_card(card, given))
    (made,) = card.ran
    assert made.nest.b.batch is not None
    np.testing.assert_array_equal(y, given.exact)


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize(("rows", "tokens"), [((), (3,)), ((3,), (3,)), ((3,), ())])
def test_plans_of_batches(
    request: pytest.FixtureRequest,
    rng: np.random.Generator,
    rows: tuple[int, ...],
    tokens: tuple[int, ...],
    on_host: bool,
) -> None:
    card = None if on_host else request.getfixturevalue("card")
    given = scaled_operands(rng, TYPES, (*rows, M), (*tokens, N), 144)
    place = (lambda array: array) if card is None else card.on
    b, y = given.x.swapaxes(-1, -2), np.full((3, M, N), np.nan, np.float32)
    known: Any = {name: place(value) for name, value in options(given).items()}
    plan = louver.plan(
        "matmul", given.s, N, like=place(b), batch=None if tokens else 1, out_dtype="f32", activation="relu", **known
    )
    exact = np.maximum(transposed(given.exact), 0)
    plan(place(b), out=place(y))
    np.testing.assert_array_equal(y, exact)
    # Twice as great: the next power of two.
    plan(place(b), out=place(y), dense_scale=place(given.of_tokens + np.uint8(1)))
    np.testing.assert_array_equal(y, 2 * exact)
    with pytest.raises(ValueError, match=r"dense_scale of u8 .*got shape \[5, 2\]"):
        plan(place(b), out=place(y), dense_scale=place(given.of_tokens.reshape(-1, N, 3)[0, :, :2].copy()))


def test_gated_pairs_on_consumer_blackwell(card: TileGpu, rng: np.random.Generator) -> None:
    given = scaled_pair(rng, TYPES, M, (2, N), 144)
    y, d = np.full((2, N, M), np.nan, np.float32), np.full((2, M, N), np.nan, np.float32)
    louver.linear(card.on(given.x), given.s, out=card.on(y), activation="relu", **on_card(card, given))
    np.testing.assert_allclose(y, gated(given, "relu"), rtol=1e-6)
    b = card.on(given.x.swapaxes(-1, -2))
    louver.matmul(given.s, b, card.on(d), activation="relu", **on_card(card, given))
    np.testing.assert_array_equal(d, transposed(y))


def test_an_operand_that_is_repeated_has_scales_of_each_entry(rng: np.random.Generator) -> None:
    given = scaled_operands(rng, TYPES, (3, M), (3, N), 144)
    x, out = np.broadcast_to(given.x[0], given.x.shape), np.zeros((3, N, M), np.float32)
    asked = requests.request("linear", given.s, x, Given(**options(given)), None, out, None)
    plain = requests.request("linear", given.s, x, Given(), None, out, None)
    kinds = [placed(each, each.made(out) if each.out is None else each.out).kind for each in (asked, plain)]
    assert kinds == ["both", "sparse"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scale": (8, 2)}, "both operands have scales of blocks, or none"),
        ({"dense_scale": (3, 2)}, "both operands have scales of blocks, or none"),
        (
            {"scale": (8, 4), "dense_scale": (3, 2)},
            r"scale of u8 .* 64 columns of K, shape \[8, 2\], got shape \[8, 4\]",
        ),
        ({"scale": (8, 2), "dense_scale": (3, 1)}, r"dense_scale .* \[3, 2\], got shape \[3, 1\].* not of 32"),
        ({"scale": (8, 2), "dense_scale": (3, 2), "accumulate": "f16"}, 'are summed in f32, got accumulate="f16"'),
        ({"out_scale": (1,)}, "out_scale must be of f32, got u8"),
    ],
)
def test_scales_that_products_do_not_take(given: dict[str, Any], message: str) -> None:
    s = louver.compress(np.ones((8, 128), ml_dtypes.float6_e2m3fn), "2:4", method="magnitude")
    with pytest.raises(ValueError, match=message):
        louver.linear(np.ones((3, 128), ml_dtypes.float6_e2m3fn), s, **ones_of(given))


def ones_of(given: dict[str, Any]) -> dict[str, Any]:
    """Scales of 1 in place of shapes."""
    return {name: np.full(value, 127, np.uint8) if isinstance(value, tuple) else value for name, value in given.items()}


@pytest.mark.parametrize(
    ("rows", "tokens", "given", "message"),
    [
        ((2, 8), (2, 3), {"scale": (2, 8, 2)}, "both operands have scales of blocks, or none"),
        ((2, 8), (2, 3), {"scale": (8, 2), "dense_scale": (2, 3, 2)}, r"scale .*\[2, 8, 2\], got shape \[8, 2\]"),
        (
            (2, 8),
            (2, 3),
            {"scale": (2, 8, 2), "dense_scale": (3, 2)},
            r"dense_scale .*\[2, 3, 2\], got .*\[3, 2\].* a batch",
        ),
        ((2, 8), (3,), {"scale": (2, 8, 2), "dense_scale": (2, 3, 2)}, r"dense_scale .*\[3, 2\], got .*\[2, 3, 2\]"),
        ((8,), (2, 3), {"scale": (2, 8, 2), "dense_scale": (2, 3, 2)}, r"scale .*\[8, 2\], got .*\[2, 8, 2\]"),
        ((8,), (2, 3), {"scale": (8, 2), "dense_scale": (2, 2, 3)}, r"dense_scale .*\[2, 3, 2\], got .*\[2, 2, 3\]"),
    ],
)
def test_scales_that_batches_do_not_take(
    rows: tuple[int, ...], tokens: tuple[int, ...], given: dict[str, Any], message: str
) -> None:
    s = louver.compress(np.ones((*rows, 128), ml_dtypes.float4_e2m1fn), "2:4", method="magnitude")
    x = np.ones((*tokens, 128), ml_dtypes.float4_e2m1fn)
    for call in (
        lambda: louver.linear(x, s, **ones_of(given)),
        lambda: louver.matmul(s, x.swapaxes(-1, -2), **ones_of(given)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_scales_that_gated_pairs_do_not_take() -> None:
    half = louver.compress(np.ones((8, 128), ml_dtypes.float4_e2m1fn), "2:4", method="magnitude")
    pair, x = louver.gated(half, half), np.ones((3, 128), ml_dtypes.float4_e2m1fn)
    for given, message in (
        ({"scale": (8, 2), "dense_scale": (3, 2)}, r"scale .*shape \[16, 2\], got shape \[8, 2\]"),
        ({"scale": (2, 8, 2), "dense_scale": (3, 2)}, r"scale .*shape \[16, 2\], got shape \[2, 8, 2\]"),
        ({"scale": (16, 2)}, "both operands have scales of blocks, or none"),
    ):
        with pytest.raises(ValueError, match=message):
            louver.linear(x, pair, **ones_of(given))


def test_scales_on_a_card_are_contiguous(card: TileGpu, rng: np.random.Generator) -> None:
    given = scaled_operands(rng, TYPES, (3, M), (3, N), 144)
    turned = np.asfortranarray(given.of_rows)
    known = {"scale": card.on(turned), "dense_scale": card.on(given.of_tokens)}
    with pytest.raises(ValueError, match="scale must be contiguous, got shape"):
        louver.linear(card.on(given.x), given.s, **known)
    assert not card.ran


def test_weights_without_scales_of_blocks() -> None:
    given = ones_of({"scale": (8, 1), "dense_scale": (3, 1)})
    for shape in ((8, 64), (2, 8, 64)):
        s = louver.compress(np.ones(shape, np.float16), "2:4", method="magnitude")
        with pytest.raises(
            ValueError, match="for weights of e4m3, e5m2, e2m3, e3m2, e2m1, got a weight of f16: give scale as f32"
        ):
            louver.linear(np.ones((3, 64), np.float16), s, **given)
