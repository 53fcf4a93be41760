"""Plans and warm calls on a device: every call's result, not only the first one's."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from support.device_products import (
    FORMS,
    Form,
    by_tokens,
    dense_operand,
    guarded,
    output_shape,
    result,
    to_numpy,
    to_torch,
)
from support.products import assert_close, assert_exact, operands
from support.threads import in_threads

SIZES = [(300, 16, 520), (136, 1, 72), (4096, 200, 256)]


def planned(form: Form, given: Any, n: int, dense: Any, bias: Any = None, **options: Any) -> Any:
    """A plan of the form for n tokens or columns."""
    kind, s = ("linear", given.s) if form == "linear" else ("matmul", given.s.T if by_tokens(form) else given.s)
    return louver.plan(kind, s, n, like=dense, bias=bias, **options)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_every_call_of_a_plan_is_exact(
    rng: np.random.Generator, torch: Any, form: Form, m: int, n: int, k: int, dtype: str
) -> None:
    given = operands(rng, m, n, k, dtype)
    others = [operands(rng, m, n, k, dtype) for _ in range(2)]
    first = dense_operand(form, given.b) if not form.endswith("n_major") else dense_operand(form, given.b, gap=-n % 8)
    p = planned(form, given, n, first, out_dtype="f32")
    outs = [guarded(output_shape(form, given), "f32") for _ in range(2)]
    for i in range(6):
        b = (given, *others)[i % 3].b
        gap = -n % 8 if form.endswith("n_major") else 0
        dense = first if i == 0 else dense_operand(form, b, gap=gap)
        out = outs[i % 2]
        assert p(dense, out=out.view) is out.view
        reference = given.a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_array_equal(result(form, out.view).astype(np.float64), reference)
        out.assert_untouched()


@pytest.mark.parametrize("offset", [0, 1, 4, 8])
def test_warm_linear_writes_outputs_of_any_alignment(rng: np.random.Generator, torch: Any, offset: int) -> None:
    given = operands(rng, 264, 40, 128)
    x, bias = to_torch(given.b.T), to_torch(given.bias)
    for _ in range(3):
        out = guarded((40, 264), "f16", offset=offset)
        louver.linear(x, given.s, bias, out=out.view)
        assert_exact(to_numpy(out.view).T, given, bias=True)
        out.assert_untouched()
        assert_exact(to_numpy(louver.linear(x, given.s, bias)).T, given, bias=True)


def test_a_plan_made_for_one_n_computes_any(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 300, 700, 520, data="normal")
    p = louver.plan("linear", given.s, n=8)
    x = to_torch(given.b.T)
    for n in (1, 7, 8, 9, 100, 700):
        for _ in range(2):
            assert_close(to_numpy(p(x[:n])).T, replace(given, b=given.b[:, :n]))


def test_leading_axes_stay(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 136, 24, 72)
    p = louver.plan("linear", given.s, n=24)
    x = to_torch(given.b.T).reshape(2, 3, 4, 72)
    for _ in range(3):
        y = p(x)
        assert tuple(y.shape) == (2, 3, 4, 136)
        assert_exact(to_numpy(y).reshape(24, 136).T, given)


@pytest.mark.parametrize("layout", [{}, {"offset": 1, "gap": 3}], ids=["in place", "copied"])
def test_prepared_calls_are_captured(rng: np.random.Generator, torch: Any, layout: dict[str, int]) -> None:
    given = operands(rng, 264, 16, 128)
    louver.prepare(given.s, n=16)
    x = dense_operand("linear", given.b, **layout)
    y = torch.zeros(16, 264, dtype=torch.float16, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        louver.linear(x, given.s, out=y)
    assert not y.any(), "a capture runs nothing"
    for scale in (1, -1):
        x.mul_(scale)
        graph.replay()
        torch.cuda.synchronize()
        assert_exact(to_numpy(y).T, replace(given, b=given.b * np.float16(scale)))


def test_a_weight_may_go_during_a_capture(rng: np.random.Generator, torch: Any) -> None:
    """Its memory is given back by a later call: waiting for its readers would end the capture."""
    given, dropped = operands(rng, 264, 16, 128), operands(rng, 264, 16, 128)
    x, y = dense_operand("linear", given.b), torch.zeros(16, 264, dtype=torch.float16, device="cuda")
    sparse = dropped.s
    louver.linear(x, sparse, out=y)
    louver.linear(x, given.s, out=y)
    del dropped
    gc.collect()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        louver.linear(x, given.s, out=y)
        del sparse
        gc.collect()
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert_exact(to_numpy(y).T, given)
    louver.linear(x, operands(rng, 264, 16, 128).s)


def test_a_first_call_under_capture_is_refused(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 264, 16, 128)
    x = to_torch(given.b.T)
    y = torch.zeros(16, 264, dtype=torch.float16, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(RuntimeError, match=r"call louver\.prepare"):
        louver.linear(x, given.s, out=y)
    assert_exact(to_numpy(louver.linear(x, given.s, out=y)).T, given)


def test_plans_follow_the_current_stream(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 300, 200, 520)
    ready = to_torch(given.b.T)
    x = torch.full_like(ready, float("nan"))
    y = torch.empty(200, 300, dtype=torch.float16, device="cuda")
    p = louver.plan("linear", given.s, n=200)
    p(ready, out=y)
    torch.cuda.synchronize()
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            x.copy_(ready)
            p(x, out=y)
            x.fill_(float("nan"))
            stream.synchronize()
            assert_exact(to_numpy(y).T, given)
            y.fill_(0)
            stream.synchronize()


def test_a_warm_call_allocates_nothing(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 300, 64, 520)
    x, y = to_torch(given.b.T), torch.empty(64, 300, dtype=torch.float16, device="cuda")
    p = louver.plan("linear", given.s, n=64)
    p(x, out=y)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(100):
        p(x, out=y)
    torch.cuda.synchronize()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


def test_a_tensor_may_go_while_its_product_is_computed(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 4096, 64, 512)
    x = to_torch(given.b.T)
    louver.prepare(given.s, n=64)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            s = louver.compress(given.a, "2:4")
            louver.prepare(s, n=64)
            torch.cuda._sleep(20_000_000)
            y = louver.linear(x, s)
            del s
            # Memory that was given back too early would be written here.
            louver.prepare(louver.compress(-given.a, "2:4"), n=64)
            assert_exact(to_numpy(y).T, given)


def test_threads_share_a_plan(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 300, 64, 520)
    p = louver.plan("linear", given.s, n=64)
    x = to_torch(given.b.T)

    def work(_: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for n in (64, 1, 33, 64, 7) * 5:
                part = x[:n].clone()
                got = to_numpy(p(part)).T
                assert_exact(got, replace(given, b=given.b[:, :n]))

    torch.cuda.synchronize()
    in_threads(work, range(4))
