"""Calls with no tokens, no columns or no entries, before, between and after others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from support.device_products import to_numpy, to_torch
from support.products import assert_exact, operands


@pytest.mark.parametrize("leading", [(0,), (3, 0), (0, 5)])
def test_linear(rng: np.random.Generator, torch: Any, leading: tuple[int, ...]) -> None:
    given = operands(rng, 264, 16, 128)
    empty = torch.empty(*leading, 128, dtype=torch.float16, device="cuda")
    out = torch.empty(*leading, 264, dtype=torch.bfloat16, device="cuda")
    x = to_torch(given.b.T)
    for _ in range(2):
        y = louver.linear(empty, given.s, to_torch(given.bias), activation="gelu")
        assert tuple(y.shape) == (*leading, 264) and y.dtype == torch.float16 and y.is_cuda
        assert louver.linear(empty, given.s, out=out, c=out) is out
        assert tuple((empty @ given.s.T).shape) == (*leading, 264)
        assert_exact(to_numpy(louver.linear(x, given.s)).T, given)


@pytest.mark.parametrize("shape", [(128, 0), (0, 128, 5), (3, 128, 0)])
def test_matmul(rng: np.random.Generator, torch: Any, shape: tuple[int, ...]) -> None:
    given = operands(rng, 264, 16, 128)
    y = louver.matmul(given.s, torch.empty(shape, dtype=torch.float16, device="cuda"))
    assert tuple(y.shape) == (*shape[:-2], 264, shape[-1])


def test_plans(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 264, 16, 128)
    x = to_torch(given.b.T)
    for p in (louver.plan("linear", given.s, 0), louver.plan("linear", given.s, 0, like=x[:0])):
        for _ in range(2):
            assert tuple(p(x[:0]).shape) == (0, 264)
            assert_exact(to_numpy(p(x)).T, given)


def test_arrays_of_other_kinds(rng: np.random.Generator) -> None:
    given = operands(rng, 264, 16, 128)
    y = louver.linear(np.empty((0, 128), np.float16), given.s)
    assert isinstance(y, np.ndarray) and y.shape == (0, 264)


def test_a_gated_pair(rng: np.random.Generator, torch: Any) -> None:
    pair = louver.gated(operands(rng, 264, 16, 128).s, operands(rng, 264, 16, 128).s)
    x = torch.empty(0, 128, dtype=torch.float16, device="cuda")
    assert tuple(louver.linear(x, pair, activation="silu").shape) == (0, 264)
