"""Streams, graphs, threads and repetition: when the work happens, and that it always gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from support.device_products import (
    FORMS,
    Form,
    compute,
    dense_operand,
    guarded,
    output_shape,
    result,
    to_numpy,
    to_torch,
)
from support.products import Operands, assert_exact, operands
from support.threads import in_threads

# Layouts that are read in place and ones that are copied first.
LAYOUTS = ({}, {"offset": 1, "gap": 3})


@pytest.mark.parametrize("layout", LAYOUTS, ids=["in place", "copied"])
@pytest.mark.parametrize("form", FORMS)
def test_the_caller_s_stream_is_followed(
    rng: np.random.Generator, torch: Any, form: Form, layout: dict[str, int]
) -> None:
    given = operands(rng, 300, 200, 520)
    ready = dense_operand(form, given.b, **layout)
    compute(form, given, ready)
    dense = dense_operand(form, np.full_like(given.b, np.nan), **layout)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # The operand is written after a long wait, on this stream only.
        torch.cuda._sleep(50_000_000)
        dense.copy_(ready)
        y = compute(form, given, dense)
        dense.fill_(float("nan"))
        stream.synchronize()
        assert_exact(result(form, y), given)


def test_calls_do_not_wait(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 300, 200, 520)
    dense = to_torch(given.b)
    y = louver.matmul(given.s, dense)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)
        louver.matmul(given.s, dense, out=y)
        assert not stream.query()
        stream.synchronize()


@pytest.mark.parametrize("layout", LAYOUTS, ids=["in place", "copied"])
@pytest.mark.parametrize("form", FORMS)
def test_a_graph_replays_on_new_data(rng: np.random.Generator, torch: Any, form: Form, layout: dict[str, int]) -> None:
    first, second = operands(rng, 300, 200, 520), operands(rng, 300, 200, 520)
    dense = dense_operand(form, first.b, **layout)
    target = guarded(output_shape(form, first), "f32", gap=4)
    compute(form, first, dense, out=target.view)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compute(form, first, dense, out=target.view)
    dense.copy_(dense_operand(form, second.b))
    for _ in range(3):
        target.view.fill_(float("nan"))
        graph.replay()
    y = result(form, target.view)
    reference = first.a.astype(np.float64) @ second.b.astype(np.float64)
    np.testing.assert_array_equal(y.astype(np.float64), reference)
    target.assert_untouched()


@pytest.mark.parametrize("form", FORMS)
def test_repeated_runs_give_the_same_bits(rng: np.random.Generator, form: Form) -> None:
    given = operands(rng, 1000, 700, 3000, "bf16", "normal")
    dense = dense_operand(form, given.b)
    first = result(form, compute(form, given, dense, out_dtype="f32")).tobytes()
    for _ in range(20):
        assert result(form, compute(form, given, dense, out_dtype="f32")).tobytes() == first


def test_layouts_give_the_same_bits(rng: np.random.Generator) -> None:
    given = operands(rng, 200, 300, 1000, "f16", "normal")
    reference = to_numpy(louver.linear(to_torch(given.b.T), given.s, out_dtype="f32")).T
    for form in FORMS[1:]:
        y = result(form, compute(form, given, dense_operand(form, given.b), out_dtype="f32"))
        np.testing.assert_array_equal(y, reference)


def test_threads_on_their_own_streams(rng: np.random.Generator, torch: Any) -> None:
    cases = [operands(rng, 100 + 7 * i, 50 + 5 * i, 300 + i) for i in range(6)]

    def work(case: Operands) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(5):
                assert_exact(to_numpy(louver.matmul(case.s, to_torch(case.b))), case)

    in_threads(work, cases)
