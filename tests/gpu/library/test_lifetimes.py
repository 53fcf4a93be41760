"""Lifetimes: operands are kept while kernels read them, callers' arrays no longer than callers keep them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import louver
from support.device_products import FORMS, Form, compute, dense_operand, to_numpy, to_torch
from support.products import assert_exact, operands
from support.threads import in_threads


def test_weights_dropped_while_a_kernel_waits_for_its_turn(rng: np.random.Generator, torch: Any) -> None:
    kept = operands(rng, 640, 264, 520)
    dense = to_torch(kept.b)
    stream = torch.cuda.Stream()
    for _ in range(4):
        sparse = louver.compress(kept.a, "2:4")
        louver.matmul(sparse, dense)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(400_000_000)
            y = louver.matmul(sparse, dense)
        assert not stream.query()
        del sparse
        gc.collect()
        # Another operand of the same size, uploaded on another stream, must not take the memory yet.
        other = louver.compress(kept.a * np.float16(-1), "2:4")
        louver.matmul(other, dense)
        stream.synchronize()
        assert_exact(to_numpy(y), kept)


@pytest.mark.parametrize("layout", [{}, {"offset": 1}], ids=["in place", "copied"])
@pytest.mark.parametrize("form", FORMS)
def test_callers_arrays_are_not_kept(rng: np.random.Generator, torch: Any, form: Form, layout: dict[str, int]) -> None:
    given = operands(rng, 640, 512, 520)
    compute(form, given, dense_operand(form, given.b, **layout), bias=True)
    gc.collect()
    torch.cuda.synchronize()
    fresh = operands(rng, 640, 512, 520)
    before = torch.cuda.memory_allocated()
    dense = dense_operand(form, fresh.b, **layout)
    for _ in range(3):
        y = compute(form, fresh, dense, bias=True)
    del dense, y
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_threads_share_a_tensor(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 300, 1, 520)
    parts = [operands(rng, 1, 40 + 8 * index, 520).b for index in range(8)]

    def work(b: np.ndarray) -> None:
        expected = given.a.astype(np.float32) @ b.astype(np.float32)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(10):
                y = louver.matmul(given.s, to_torch(b), out_dtype="f32")
                np.testing.assert_array_equal(to_numpy(y), expected)

    in_threads(work, parts)
