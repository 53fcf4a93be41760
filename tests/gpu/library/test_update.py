"""Values changed in place: the next call, a plan made before, and a graph captured before compute with the new ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from support.device_products import to_numpy, to_torch
from support.products import Operands, assert_exact, operands


def changed(rng: np.random.Generator, given: Operands) -> Operands:
    """The operands after `update_` with other small integers."""
    given.s.update_(rng.integers(-4, 5, given.s.values.shape).astype(given.s.values.dtype))
    return replace(given, a=given.s.dense())


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("m", "n", "k"), [(300, 16, 520), (136, 1, 72), (1024, 200, 256)])
def test_calls_and_plans_follow(rng: np.random.Generator, torch: Any, m: int, n: int, k: int, dtype: str) -> None:
    given = operands(rng, m, n, k, dtype)
    x = to_torch(given.b.T)
    p = louver.plan("linear", given.s, n, like=x)
    for _ in range(3):
        for _ in range(2):
            assert_exact(to_numpy(p(x)).T, given)
            assert_exact(to_numpy(louver.linear(x, given.s)).T, given)
            assert_exact(to_numpy(x @ given.s.T).T, given)
        given = changed(rng, given)


def test_a_captured_graph_follows(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 264, 16, 128)
    x, y = to_torch(given.b.T), torch.zeros(16, 264, dtype=torch.float16, device="cuda")
    louver.prepare(given.s, n=16)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        louver.linear(x, given.s, out=y)
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert_exact(to_numpy(y).T, given)
        given = changed(rng, given)


def test_products_under_way_read_the_values_they_were_called_with(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 264, 16, 128)
    x = to_torch(given.b.T)
    louver.prepare(given.s, n=16)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)
        y = louver.linear(x, given.s)
    before = replace(given)
    changed(rng, given)
    assert_exact(to_numpy(y).T, before)


def test_values_may_be_on_the_device(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 264, 16, 128, "bf16")
    x = to_torch(given.b.T)
    louver.linear(x, given.s)
    new = torch.randint(-4, 5, given.s.values.shape, device="cuda").to(torch.bfloat16)
    given.s.update_(new)
    new.zero_()
    assert_exact(to_numpy(louver.linear(x, given.s)).T, replace(given, a=given.s.dense()))
    assert np.asarray(given.s.values, np.float32).any()
