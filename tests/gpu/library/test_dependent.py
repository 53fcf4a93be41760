"""Plans whose launches begin while others end: the same bits as plain ones, whatever comes before them, captured too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor
from louver.library.plan import Plan
from support.device_products import to_numpy, to_torch
from support.products import assert_exact, operands

WIDTH = 1024
CHAIN = 12
"""Products, each of which reads what the one before it wrote."""


def square(rng: np.random.Generator, width: int = WIDTH) -> SparseTensor:
    """A weight with two of 1 or -1 in each row, so that the numbers of a chain stay apart and finite."""
    a = np.zeros((width, width), np.float16)
    for _ in range(2):
        a[np.arange(width), rng.permutation(width)] = rng.choice([-1, 1], width)
    return louver.compress(a, "2:4")


def plans(weights: list[SparseTensor], n: int, **options: Any) -> list[Plan]:
    return [louver.plan("linear", each, n=n, dependent=True, **options) for each in weights]


def expected(weights: list[SparseTensor], x: Any) -> list[Any]:
    """By plain launches, one after the other."""
    found = [x]
    for each in weights:
        found.append(louver.linear(found[-1], each))
    return found[1:]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8"])
@pytest.mark.parametrize(
    "sizes", [(4096, 1, 4096), (300, 16, 4112), (1000, 64, 528), (4480, 200, 2064), (512, 1024, 1024)]
)
def test_products_are_exact(rng: np.random.Generator, dtype: str, sizes: tuple[int, int, int]) -> None:
    given = operands(rng, *sizes, dtype)
    x = to_torch(np.ascontiguousarray(given.b.T))
    out = {"s8": "s32"}.get(dtype, "f32")
    plan = louver.plan("linear", given.s, n=sizes[1], like=x, out_dtype=out, dependent=True)
    for _ in range(3):
        assert_exact(to_numpy(plan(x)).T, given)


@pytest.mark.parametrize("n", [1, 16, 64, 128, 512])
def test_each_product_reads_what_the_one_before_it_wrote(rng: np.random.Generator, torch: Any, n: int) -> None:
    weights = [square(rng) for _ in range(CHAIN)]
    x = torch.randint(-2, 3, (n, WIDTH), device="cuda").half()
    right, chain = expected(weights, x), plans(weights, n)
    outs = [torch.empty_like(each) for each in right]
    for _ in range(100):
        for each in outs:
            each.fill_(torch.nan)
        held = x
        for plan, out in zip(chain, outs, strict=True):
            held = plan(held, out=out)
        for out, each in zip(outs, right, strict=True):
            assert torch.equal(out, each)


@pytest.mark.parametrize("rows", [64, 128, 4096])
def test_an_output_is_not_overwritten_while_it_is_read(rng: np.random.Generator, torch: Any, rows: int) -> None:
    """Two arrays by turns: each product writes what the one before it reads. Of few tiles several kernels run at once."""
    a = np.zeros((rows, rows), np.float16)
    a[np.arange(rows), rng.permutation(rows)] = 1
    s = louver.compress(a, "2:4")
    plan = louver.plan("linear", s, n=8, dependent=True)
    x = torch.randint(-100, 101, (8, rows), device="cuda").half()
    arrays = [x.clone(), torch.empty_like(x)]
    order = torch.arange(rows, device="cuda")
    into = torch.as_tensor(a.argmax(1), device="cuda")
    for step in range(300):
        plan(arrays[step % 2], out=arrays[1 - step % 2])
        order = order[into]
    assert torch.equal(arrays[0], x[:, order])


def test_what_an_epilogue_reads_may_be_the_last_kernel_s(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, WIDTH, 16, WIDTH)
    x = to_torch(np.ascontiguousarray(given.b.T))
    first, second = square(rng), given.s
    writes = louver.plan("linear", first, n=16, dependent=True)
    bias = torch.empty(WIDTH, device="cuda", dtype=torch.float16)
    c = torch.empty(16, WIDTH, device="cuda", dtype=torch.float16)
    adds = louver.plan("linear", second, n=16, dependent=True, bias=bias, c=c, alpha=1.0, beta=1.0)
    tokens = torch.randint(-2, 3, (16, WIDTH), device="cuda").half()
    right = louver.linear(
        x, second, bias=louver.linear(tokens[:1], first)[0], c=louver.linear(tokens, first), alpha=1.0, beta=1.0
    )
    for _ in range(100):
        bias.fill_(torch.nan)
        c.fill_(torch.nan)
        writes(tokens[:1], out=bias[None])
        writes(tokens, out=c)
        assert torch.equal(adds(x), right)


def test_sums_of_ranges_share_a_workspace(rng: np.random.Generator, torch: Any) -> None:
    """Few rows and a long K, which are cut: launches follow each other in one workspace."""
    given = [operands(rng, 512, 16, 4096) for _ in range(4)]
    x = to_torch(np.ascontiguousarray(given[0].b.T))
    weights = [each.s for each in given]
    right, chain = [louver.linear(x, each) for each in weights], plans(weights, 16)
    outs = [torch.empty_like(each) for each in right]
    for _ in range(100):
        for plan, out in zip(chain, outs, strict=True):
            out.fill_(torch.nan)
            plan(x, out=out)
        assert all(map(torch.equal, outs, right))


def test_a_graph_keeps_the_order(rng: np.random.Generator, torch: Any) -> None:
    weights = [square(rng) for _ in range(CHAIN)]
    x = torch.randint(-2, 3, (16, WIDTH), device="cuda").half()
    right, chain = expected(weights, x)[-1], plans(weights, 16)
    outs = [torch.empty_like(right) for _ in weights]

    def run() -> Any:
        held = x
        for plan, out in zip(chain, outs, strict=True):
            held = plan(held, out=out)
        return held

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        last = run()
    for _ in range(100):
        for out in outs:
            out.fill_(torch.nan)
        graph.replay()
        graph.replay()
        assert torch.equal(last, right)


def test_other_kernels_copies_and_streams_between(rng: np.random.Generator, torch: Any) -> None:
    s = square(rng)
    plan = louver.plan("linear", s, n=16, dependent=True)
    y, x = (
        torch.empty(16, WIDTH, device="cuda", dtype=torch.float16),
        torch.empty(16, WIDTH, device="cuda", dtype=torch.float16),
    )
    other, host = torch.cuda.Stream(), torch.empty(16, WIDTH, dtype=torch.float16).pin_memory()
    for step in range(50):
        host.fill_(step % 5)
        x.copy_(host, non_blocking=True)
        plan(x, out=y)
        x.add_(1)
        z = plan(x)
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            w = plan(z)
        torch.cuda.current_stream().wait_stream(other)
        torch.cuda.synchronize()
        right = louver.linear(torch.full_like(x, step % 5), s)
        assert torch.equal(y, right)
        again = louver.linear(torch.full_like(x, step % 5 + 1), s)
        assert torch.equal(z, again) and torch.equal(w, louver.linear(again, s))


def test_new_values_are_read_from_the_next_call_on(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 512, 16, 1024)
    x = to_torch(np.ascontiguousarray(given.b.T))
    s = louver.compress(given.a, "2:4")
    first = s.values.copy()
    plan = louver.plan("linear", s, n=16, like=x, out_dtype="f32", dependent=True)
    for step in range(20):
        for _ in range(5):
            plan(x)
        s.update_(np.roll(first, step, axis=0) + np.float16(step % 3))
        right = s.dense().astype(np.float64) @ given.b.astype(np.float64)
        np.testing.assert_array_equal(to_numpy(plan(x)).T.astype(np.float64), right)
