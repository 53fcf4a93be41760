"""Calls that follow others: what an earlier call left behind must never show."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import louver
from louver.runtime.known_calls import KnownCalls
from support.device_products import (
    FORMS,
    Form,
    by_tokens,
    compute,
    dense_operand,
    filled,
    guarded,
    output_shape,
    result,
    to_numpy,
    to_torch,
)
from support.products import assert_exact, operands

PLACES = ({}, {"offset": 1}, {"offset": 8}, {"gap": 8}, {"gap": 3}, {"step": 2}, {"offset": 8, "gap": 24}, {})


@pytest.mark.parametrize("form", FORMS)
def test_operands_and_outputs_that_move(rng: np.random.Generator, form: Form) -> None:
    given = operands(rng, 200, 136, 264)
    for place in (*PLACES, *PLACES):
        dense = dense_operand(form, given.b, **place)
        for offset, gap in ((0, 0), (1, 0), (0, 8), (8, 0), (0, 3)):
            target = guarded(output_shape(form, given), "f16", offset=offset, gap=gap)
            compute(form, given, dense, out=target.view)
            assert_exact(result(form, target.view), given)
            target.assert_untouched()


@pytest.mark.parametrize("form", FORMS)
def test_new_data_in_the_same_memory(rng: np.random.Generator, form: Form) -> None:
    first = operands(rng, 130, 70, 200)
    for place in ({}, {"offset": 1}):
        dense = dense_operand(form, first.b, **place)
        for _ in range(4):
            b = rng.integers(-4, 5, first.b.shape).astype(np.float16)
            dense.copy_(dense_operand(form, b))
            y = result(form, compute(form, first, dense, out_dtype="f32"))
            np.testing.assert_array_equal(y, first.a.astype(np.float32) @ b.astype(np.float32))


def test_bias_and_output_type_come_and_go(rng: np.random.Generator) -> None:
    given = operands(rng, 130, 70, 200)
    x, bias = to_torch(given.b.T), to_torch(given.bias)
    other = given.bias * np.float16(-3)
    for _ in range(3):
        for out in ("f16", "f32", "bf16", None):
            assert_exact(to_numpy(louver.linear(x, given.s, bias, out_dtype=out)).T, given, bias=True)
            assert_exact(to_numpy(louver.linear(x, given.s, out_dtype=out)).T, given)
        y = to_numpy(louver.linear(x, given.s, to_torch(other), out_dtype="f32")).T
        expected = given.a.astype(np.float32) @ given.b.astype(np.float32) + other.astype(np.float32)[:, None]
        np.testing.assert_array_equal(y, expected)


def test_a_bias_at_any_element(rng: np.random.Generator) -> None:
    given = operands(rng, 130, 70, 200)
    x = to_torch(given.b.T)
    for offset in (0, 1, 2, 3, 8, 1, 0):
        y = louver.linear(x, given.s, filled(given.bias, offset=offset))
        assert_exact(to_numpy(y).T, given, bias=True)


def test_sizes_that_change(rng: np.random.Generator) -> None:
    given = operands(rng, 130, 300, 200)
    for n in (1, 300, 7, 64, 65, 300, 128, 1, 256, 7):
        part = operands(rng, 1, n, 200)
        np.testing.assert_array_equal(
            to_numpy(louver.matmul(given.s, to_torch(part.b), out_dtype="f32")),
            given.a.astype(np.float32) @ part.b.astype(np.float32),
        )
        np.testing.assert_array_equal(
            to_numpy(louver.linear(to_torch(part.b.T), given.s, out_dtype="f32")).T,
            given.a.astype(np.float32) @ part.b.astype(np.float32),
        )


def test_square_operands_keep_their_layouts(rng: np.random.Generator) -> None:
    # Of one shape, address and type; only the strides differ.
    given = operands(rng, 64, 64, 64)
    stored = to_torch(given.b)
    other = operands(rng, 64, 64, 64)
    for _ in range(3):
        np.testing.assert_array_equal(
            to_numpy(louver.matmul(given.s, stored, out_dtype="f32")), given.a.astype(np.float32) @ given.b
        )
        np.testing.assert_array_equal(
            to_numpy(louver.matmul(given.s, stored.T, out_dtype="f32")), given.a.astype(np.float32) @ given.b.T
        )
        np.testing.assert_array_equal(
            to_numpy(louver.linear(stored, given.s, out_dtype="f32")), given.b.astype(np.float32) @ given.a.T
        )
        np.testing.assert_array_equal(
            to_numpy(louver.matmul(other.s, stored, out_dtype="f32")), other.a.astype(np.float32) @ given.b
        )


def test_weights_that_come_and_go(rng: np.random.Generator) -> None:
    # A new tensor may stand where a dropped one stood, in host memory and on the device.
    for _ in range(30):
        given = operands(rng, 70, 24, 40)
        assert_exact(to_numpy(louver.matmul(given.s, to_torch(given.b))), given)
        del given
        gc.collect()


@pytest.mark.parametrize("form", FORMS)
def test_overlap_is_refused_after_calls_that_were_fine(rng: np.random.Generator, torch: Any, form: Form) -> None:
    given = operands(rng, 64, 64, 64)
    whole = torch.zeros(256, 64, dtype=torch.float16, device="cuda")
    whole[:64] = to_torch(given.b.T if by_tokens(form) else given.b)
    dense = whole[:64]
    for _ in range(3):
        compute(form, given, dense, out=whole[128:192])
    before = whole.clone()
    with pytest.raises(ValueError, match="overlap"):
        compute(form, given, dense, out=whole[63:127])
    assert torch.equal(whole, before)
    compute(form, given, dense, out=whole[64:128])
    assert torch.equal(whole[64:128], whole[128:192])


def test_wrong_calls_are_refused_after_right_ones(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 64, 24, 40)
    x, out = to_torch(given.b.T), torch.zeros(24, 64, dtype=torch.float16, device="cuda")
    for _ in range(3):
        louver.linear(x, given.s, out=out)
    for wrong, match in (
        (lambda: louver.linear(x[:, :39], given.s, out=out), "K = 40"),
        (lambda: louver.linear(x.bfloat16(), given.s, out=out), "one element type"),
        (lambda: louver.linear(x, given.s, out=out.cpu()), "inputs' device"),
        (lambda: louver.linear(x, given.s, out=out.float(), out_dtype="f16"), "element type f16"),
        (lambda: louver.linear(x, given.s, out=out[:1].expand(24, 64)), "writable"),
        (lambda: louver.linear(x, given.s, out=out, accumulate="promoted"), "accumulate"),
        (lambda: louver.linear(x[:12], given.s, out=out), r"shape \[12, 64\]"),
    ):
        with pytest.raises(ValueError, match=match):
            wrong()
    assert_exact(to_numpy(out).T, given)


def test_guards_of_pytorch_know_each_fact(torch: Any) -> None:
    calls = KnownCalls[None]()
    assert calls.know_torch() and calls.guard is not None
    x = torch.empty(16, 16, dtype=torch.float16, device="cuda")
    same = calls.guard([x])
    assert same(x) and same(torch.empty_like(x)) and not same(None)
    others = [x.bfloat16(), x[:8], x.t()[:, :], x[:, ::2], x.view(16, 1, 16), x.cpu(), torch.nn.Parameter(x)]
    others += [
        torch._neg_view(x),
        x.to_sparse(),
        torch.empty_strided((16, 16), (1, 16), dtype=x.dtype, device=x.device),
    ]
    assert not any(same(each) for each in others)
    x.data = x.data[:8]
    assert not same(x)


def test_streams_in_turn(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 200, 136, 264)
    dense = to_torch(given.b)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    for _ in range(4):
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(1_000_000)
                moved = dense.clone()
                y = louver.matmul(given.s, moved)
                del moved
                assert_exact(to_numpy(y), given)


@pytest.mark.parametrize("k", [261, 264], ids=["odd rows", "rows inside lines"])
def test_copied_operands_on_streams_in_turn_and_in_a_graph(rng: np.random.Generator, torch: Any, k: int) -> None:
    """The memory of a copy is used again by the next call, by other streams and beside a graph that has its own."""
    given = operands(rng, 2056, 200, k)
    dense = to_torch(given.b)
    y = torch.zeros(2056, 200, dtype=torch.float16, device="cuda")
    louver.prepare(given.s, n=200, kind="matmul", layout="n_major")
    torch.cuda.synchronize()
    graph, streams = torch.cuda.CUDAGraph(), [torch.cuda.Stream() for _ in range(3)]
    with torch.cuda.graph(graph):
        louver.matmul(given.s, dense[:, :200], out=y)
    results = []
    for turn in range(6):
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(300_000)
                # Doubled, so that a stale copy of another turn is seen.
                moved = dense * 2.0 ** (turn % 3 - 1)
                results.append((turn, louver.matmul(given.s, moved)))
                del moved
        graph.replay()
    torch.cuda.synchronize()
    for turn, result_ in results:
        assert_exact(to_numpy(result_ * 2.0 ** -(turn % 3 - 1)), given)
    assert_exact(to_numpy(y), given)


def test_copies_do_not_change_batch_invariant_results(rng: np.random.Generator, torch: Any) -> None:
    a = rng.standard_normal((6400, 1024)).astype(np.float16)
    s = louver.compress(louver.prune(a, "2:4"), "2:4")
    b = to_torch(rng.standard_normal((1024, 1024)).astype(np.float16))
    whole = louver.matmul(s, b, batch_invariant=True)
    for n in (8, 33, 64, 72, 200, 264, 1000):
        part = louver.matmul(s, b[:, :n].contiguous(), batch_invariant=True)
        assert torch.equal(part, whole[:, :n]), n
