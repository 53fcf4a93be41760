"""Batches and views on the device: each entry exact, in one launch where it can be, nothing written beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from support.device_products import guarded, to_numpy, to_torch

pytestmark = pytest.mark.sampled(3)

SIZES = [(3, 130, 72, 200), (5, 65, 33, 131), (2, 1, 9, 70), (7, 256, 128, 512), (40, 24, 1, 66)]
"""Of the batch, M, N, K."""


def draw(rng: np.random.Generator, element: str, *shape: int) -> Any:
    return rng.integers(0 if element == "u8" else -3, 4, shape).astype(element_type(element).numpy)


def weights(rng: np.random.Generator, element: str, *shape: int) -> tuple[Any, Any]:
    w = louver.prune(draw(rng, element, *shape), "2:4")
    return w.astype(np.float64), louver.compress(w, "2:4")


def assert_equal(y: Any, expected: Any) -> None:
    got = to_numpy(y.contiguous())
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(got.dtype).astype(np.float64))


@pytest.mark.parametrize("shared", ["weight", "operand", "nothing"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_entry_is_its_own_product(
    rng: np.random.Generator, sizes: tuple[int, int, int, int], dtype: str, shared: str
) -> None:
    batch, m, n, k = sizes
    w, s = weights(rng, dtype, *([] if shared == "weight" else [batch]), m, k)
    b = draw(rng, dtype, *([] if shared == "operand" else [batch]), k, n)
    expected = w @ b.astype(np.float64)
    for _ in range(2):
        assert_equal(louver.matmul(s, to_torch(b), out_dtype="f32"), expected)
        turned = to_torch(np.ascontiguousarray(b.swapaxes(-1, -2))).transpose(-1, -2)
        assert_equal(louver.matmul(s, turned, out_dtype="f16"), expected)
        x = to_torch(np.ascontiguousarray(b.swapaxes(-1, -2)))
        assert_equal(louver.linear(x, s, out_dtype="f32"), expected.swapaxes(-1, -2))
        columns = to_torch(b).transpose(-1, -2)
        assert_equal(louver.linear(columns, s, out_dtype="f32"), expected.swapaxes(-1, -2))
        assert_equal(louver.matmul(x, s.mT, out_dtype="f32"), expected.swapaxes(-1, -2))


@pytest.mark.parametrize("gaps", [(0, 0, 0), (0, 0, 8), (0, 3, 8), (2, 3, 24), (1, 2, 5)], ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 0, 1)], ids=str)
@pytest.mark.parametrize("out", ["f16", "f32"])
def test_views_as_operands_and_outputs(
    rng: np.random.Generator, torch: Any, gaps: tuple[int, int, int], order: tuple[int, int, int], out: str
) -> None:
    batch, m, n, k = 3, 136, 40, 200
    w, s = weights(rng, "f16", m, k)
    b = draw(rng, "f16", batch, k, n)

    def view(array: Any, order: tuple[int, ...]) -> Any:
        """The array as a part of a larger one, whose axes lie in memory in this order."""
        sizes = [array.shape[axis] + gap for axis, gap in zip(order, gaps, strict=True)]
        whole = torch.full(tuple(sizes), float("nan"), dtype=torch.float16, device="cuda")
        part = whole.permute(*np.argsort(order).tolist())[tuple(slice(size) for size in array.shape)]
        part.copy_(to_torch(array))
        return part

    expected = w @ b.astype(np.float64)
    target = guarded((batch, m, n), out, gap=gaps[2], order=(0, 1, 2) if order[2] != 2 else order)
    louver.matmul(s, view(b, order), out=target.view)
    assert_equal(target.view, expected)
    target.assert_untouched()
    x = np.ascontiguousarray(b.swapaxes(1, 2))
    target = guarded((batch, n, m), out, gap=gaps[2], order=(0, 1, 2) if order[2] != 2 else order)
    louver.linear(view(x, order), s, out=target.view)
    assert_equal(target.view, expected.swapaxes(1, 2))
    target.assert_untouched()
    assert_equal(louver.linear(view(x, order), s, out_dtype="f32"), expected.swapaxes(1, 2))


def test_heads_of_tokens_in_place(rng: np.random.Generator, torch: Any) -> None:
    # Entries closer to each other than rows: [tokens, heads, K] seen as [heads, tokens, K].
    w, s = weights(rng, "f16", 192, 128)
    x = draw(rng, "f16", 300, 5, 128)
    out = torch.full((300, 5, 192), float("nan"), dtype=torch.float16, device="cuda").transpose(0, 1)
    louver.linear(to_torch(x).transpose(0, 1), s, out=out)
    assert_equal(out, x.transpose(1, 0, 2).astype(np.float64) @ w.T)


@pytest.mark.parametrize("leading", [(2, 3), (2, 1, 3), (4, 5, 2)])
def test_leading_axes_of_any_number(rng: np.random.Generator, leading: tuple[int, ...]) -> None:
    w, s = weights(rng, "bf16", 72, 136)
    b = draw(rng, "bf16", *leading, 136, 24)
    assert_equal(louver.matmul(s, to_torch(b), out_dtype="f32"), w @ b.astype(np.float64))
    apart = to_torch(np.concatenate([b, b], axis=1))[:, : leading[1]]
    assert_equal(louver.matmul(s, apart, out_dtype="f32"), w @ b.astype(np.float64))
    several, t = weights(rng, "bf16", *leading, 72, 136)
    assert_equal(louver.matmul(t, to_torch(b), out_dtype="f32"), several @ b.astype(np.float64))


def test_repeated_operands(rng: np.random.Generator) -> None:
    w, s = weights(rng, "f16", 72, 136)
    several, t = weights(rng, "f16", 3, 72, 136)
    b = draw(rng, "f16", 136, 24)
    repeated = to_torch(b).expand(3, 136, 24)
    assert_equal(louver.matmul(s, repeated), np.stack([w @ b.astype(np.float64)] * 3))
    assert_equal(louver.matmul(t, repeated), several @ b.astype(np.float64))


@pytest.mark.parametrize("kind", ["linear", "matmul"])
@pytest.mark.parametrize("own", [False, True], ids=["one weight", "a batch of weights"])
def test_epilogues_of_batches(rng: np.random.Generator, kind: str, own: bool) -> None:
    batch, m, n, k = 3, 136, 48, 72
    w, s = weights(rng, "f16", *([batch] if own else []), m, k)
    x = draw(rng, "f16", batch, n, k)
    bias, c = draw(rng, "f16", m), draw(rng, "f16", batch, n, m)
    expected = x.astype(np.float64) @ np.swapaxes(w, -1, -2) + bias + 2 * c.astype(np.float64)
    # Views of tokens by turns, so that a linear product is a batch too.
    interleaved = np.ascontiguousarray(c.swapaxes(0, 1))
    for _ in range(2):
        if kind == "linear":
            tokens = to_torch(np.ascontiguousarray(x.swapaxes(0, 1))).transpose(0, 1)
            result = to_torch(interleaved).transpose(0, 1)
            louver.linear(tokens, s, to_torch(bias), c=result, beta=2.0, out=result)
            assert_equal(result, expected)
        else:
            columns = to_torch(np.ascontiguousarray(c.swapaxes(1, 2)))
            b = to_torch(x).transpose(1, 2)
            y = louver.matmul(s, b, bias=to_torch(bias), c=columns, beta=2.0, out_dtype="f32")
            assert_equal(y, expected.swapaxes(1, 2))


def test_a_transposing_copy_of_every_entry(rng: np.random.Generator) -> None:
    w, s = weights(rng, "e4m3", 136, 264)
    b = draw(rng, "e4m3", 6, 264, 70)
    assert_equal(louver.matmul(s, to_torch(b), out_dtype="f32"), w @ b.astype(np.float64))
    parts = to_torch(b)[::2, :, 3:60]
    assert_equal(louver.matmul(s, parts, out_dtype="f32"), w @ b[::2, :, 3:60].astype(np.float64))


def test_calls_of_other_batches_do_not_mix(rng: np.random.Generator) -> None:
    w, s = weights(rng, "f16", 72, 136)
    for batch in (3, 1, 5, 3, 2, 1):
        for n in (24, 70):
            b = draw(rng, "f16", batch, 136, n)
            assert_equal(louver.matmul(s, to_torch(b), out_dtype="f32"), w @ b.astype(np.float64))
            assert_equal(louver.matmul(s, to_torch(b[0]), out_dtype="f32"), w @ b[0].astype(np.float64))


def test_a_plan_of_a_batch_is_captured(rng: np.random.Generator, torch: Any) -> None:
    w, s = weights(rng, "f16", 4, 136, 72)
    b = draw(rng, "f16", 4, 72, 64)
    x, y = to_torch(b), torch.full((4, 136, 64), float("nan"), dtype=torch.float16, device="cuda")
    p = louver.plan("matmul", s, n=64, like=x)
    p(x, out=y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        p(x, out=y)
    other = draw(rng, "f16", 4, 72, 64)
    x.copy_(to_torch(other))
    graph.replay()
    assert_equal(y, w @ other.astype(np.float64))


def test_host_batches_go_through_the_device(rng: np.random.Generator) -> None:
    w, s = weights(rng, "f16", 2, 72, 40)
    b = draw(rng, "f16", 2, 40, 9)
    c = draw(rng, "f16", 2, 72, 9)
    y = louver.matmul(s, b, c=c, out_dtype="f32")
    np.testing.assert_array_equal(y, w @ b.astype(np.float64) + c)
    negative = b[:, ::-1, ::-1]
    np.testing.assert_array_equal(louver.matmul(s, negative, out_dtype="f32"), w @ negative.astype(np.float64))
