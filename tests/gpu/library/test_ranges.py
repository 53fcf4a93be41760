"""Products whose K is cut into ranges: exact, the same bits each time, on any stream, captured and under load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import louver
from louver.choose import tuned
from louver.choose.demand import Demand
from louver.choose.ranges import Cutting
from louver.choose.tuned import Entry, Place, size_class
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.library.compiled import loaded
from louver.library.execute import schedule_for
from louver.library.forms import forms_of
from louver.library.launch import Launcher
from louver.library.state import TensorState
from louver.measure.launches import rows_of
from louver.measure.operands import NEVER
from louver.runtime.device import Device, require_device
from support.device_products import to_numpy, to_torch
from support.products import Operands, assert_close, assert_exact, operands
from support.threads import in_threads

SHAPES = {
    "few-tokens": (3000, 16, 4096),
    "few-tokens-in-ranges": (2048, 16, 4096),
    "one-token": (300, 1, 4100),
    "last-wave": (2200, 1024, 8200),
    "all-of-one-column": (1000, 200, 8200),
}
"""Some tiles of each are cut on a GPU of 100 to 160 SMs; M, N and K have tails in most."""


RANGED = Schedule.of(tile_n=16, stages=8, work="ranges", metadata="stage")


@pytest.fixture(autouse=True)
def in_ranges(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The model takes pairs for few tokens: one shape takes a kernel that cuts K by way of global memory."""
    sizes = tuple(map(size_class, SHAPES["few-tokens-in-ranges"]))

    def look(wanted: Place) -> Entry | None:
        return Entry(wanted, RANGED.flat()) if wanted.sizes == sizes else None

    monkeypatch.setitem(tuned._SOURCES, "tuned", look)
    schedule_for.cache_clear()
    yield
    schedule_for.cache_clear()


def drawn(rng: np.random.Generator, shape: str, dtype: str = "f16", data: Any = "integers") -> Operands:
    return operands(rng, *SHAPES[shape], dtype, data)


FEW_TOKENS = {"few-tokens": "pairs", "few-tokens-in-ranges": "ranges"}


def chosen(given: Operands) -> Schedule:
    place = require_device()
    assert isinstance(place, Device)
    m, n, k = given.sizes
    return schedule_for(Problem("linear"), m, n, k, place, aligned_output=True)


STRUCTURES = {
    "narrow": Schedule.of(tile_n=16, stages=8),
    "staged": Schedule.of(tile_m=64, consumers=1, tile_n=64, stages=8, metadata="stage", store="bulk"),
    "two-blocks": Schedule.of(tile_m=256, tile_n=64, stages=4, store="bulk"),
    "wide": Schedule.of(stages=4, store="bulk", staging=64),
    "two-ctas": Schedule.of(tile_n=32, stages=4, metadata="stage", resident=2),
}


@pytest.mark.parametrize("work", ["ranges", "pairs"])
@pytest.mark.parametrize("dtype", ["f16", "e4m3", "s8"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_every_structure_is_exact(rng: np.random.Generator, torch: Any, name: str, dtype: str, work: str) -> None:
    """By the launcher: one tile, one wave of pairs, whole tiles before pairs, and N and K with tails."""
    out = {"s8": "s32"}.get(dtype, "f32")
    schedule = STRUCTURES[name].changed(work=work, tile_k=64 if dtype == "f16" else 128)
    if dtype != "f16":
        schedule = schedule.changed(stages=max(2, schedule.ring.stages // 2))
    problem = Problem("linear", dtype, dtype, out)
    kernel, demand = loaded(problem, schedule, 0), Demand.of_problem(problem)
    for m, n, k in ((64, 1, 1040), (1000, 200, 4112), (8500, 40, 1072), (8500, 500, 1072)):
        given = operands(rng, m, n, k, dtype)
        operand = TensorState().operand(given.s, 0, forms_of(schedule, given.s))
        launcher = Launcher(kernel, operand, (m, k), Cutting.of(demand, schedule))
        x = to_torch(np.ascontiguousarray(given.b.T))
        pitch = -(-m // 4) * 4
        whole = torch.full((n, pitch), NEVER, dtype=torch.int32 if out == "s32" else torch.float32, device="cuda")
        y = whole[:, :m]
        launcher.bound(launcher.sized(n, rows_of(x), rows_of(y)), rows_of(x), rows_of(y))()
        assert_exact(to_numpy(y).T, given)
        assert bool((whole[:, m:] == NEVER).all())


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_exact(rng: np.random.Generator, shape: str, dtype: str) -> None:
    given = drawn(rng, shape, dtype)
    x = to_torch(np.ascontiguousarray(given.b.T))
    out = {"s8": "s32"}.get(dtype, "f32")
    for _ in range(3):
        assert_exact(to_numpy(louver.linear(x, given.s, out_dtype=out)).T, given)


@pytest.mark.parametrize("accumulate", ["f16", "promoted"])
def test_other_sums_keep_their_bound(rng: np.random.Generator, accumulate: Any) -> None:
    given = drawn(rng, "few-tokens", "f16" if accumulate == "f16" else "e4m3", "normal")
    x = to_torch(np.ascontiguousarray(given.b.T))
    y = louver.linear(x, given.s, accumulate=accumulate, out_dtype="f32")
    assert_close(to_numpy(y).T, given, accumulate=accumulate)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_bits_a_hundred_times_under_load(rng: np.random.Generator, torch: Any, shape: str) -> None:
    given = drawn(rng, shape, data="normal")
    x = to_torch(np.ascontiguousarray(given.b.T))
    first = louver.linear(x, given.s).clone()
    assert_close(to_numpy(first).T, given)
    load, other = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
    y = torch.empty_like(first)
    for _ in range(100):
        with torch.cuda.stream(load):
            other @ other
        y.fill_(float("nan"))
        louver.linear(x, given.s, out=y)
        assert torch.equal(y, first)


@pytest.mark.parametrize("shape", FEW_TOKENS)
def test_few_tokens_are_cut(rng: np.random.Generator, shape: str) -> None:
    """So that the tests here are of ranges, and of pairs."""
    assert chosen(drawn(rng, shape)).work.unit == FEW_TOKENS[shape]


@pytest.mark.parametrize("shape", FEW_TOKENS)
def test_a_graph_is_replayed_beside_its_stream_and_others(rng: np.random.Generator, torch: Any, shape: str) -> None:
    """Two graphs of one stream, on two other streams, while the first stream works on."""
    given = drawn(rng, shape)
    x = to_torch(np.ascontiguousarray(given.b.T))
    expected = louver.linear(x, given.s)
    made = torch.cuda.Stream()
    graphs, outputs = [], []
    for _ in range(2):
        y, graph = torch.empty_like(expected), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=made):
            for _ in range(4):
                louver.linear(x, given.s, out=y)
        graphs.append(graph)
        outputs.append(y)
    streams = [torch.cuda.Stream() for _ in graphs]
    eager = torch.empty_like(expected)
    torch.cuda.synchronize()
    for _ in range(50):
        for y in (*outputs, eager):
            y.fill_(float("nan"))
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(made):
            louver.linear(x, given.s, out=eager)
        torch.cuda.synchronize()
        for y in (*outputs, eager):
            assert torch.equal(y, expected)


@pytest.mark.parametrize("shape", FEW_TOKENS)
def test_threads_and_streams_share_a_weight_and_no_workspace(rng: np.random.Generator, torch: Any, shape: str) -> None:
    given = drawn(rng, shape)
    x = to_torch(np.ascontiguousarray(given.b.T))
    expected = louver.linear(x, given.s)
    torch.cuda.synchronize()

    def work(_: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(200):
                y = louver.linear(x, given.s)
            torch.cuda.current_stream().synchronize()
            assert torch.equal(y, expected)

    in_threads(work, range(4))


@pytest.mark.parametrize("dtype", ["f16", "e4m3"])
def test_batch_invariant_rows_do_not_depend_on_the_number_of_tokens(
    rng: np.random.Generator, torch: Any, dtype: str
) -> None:
    given = operands(rng, 512, 1500, 4096, dtype, "normal")
    x = to_torch(np.ascontiguousarray(given.b.T))
    whole = louver.linear(x, given.s, batch_invariant=True)
    plan = louver.plan("linear", given.s, n=16, like=x[:16], batch_invariant=True)
    for n in (1, 3, 16, 65, 300, 1500):
        assert torch.equal(louver.linear(x[:n], given.s, batch_invariant=True), whole[:n])
        assert torch.equal(plan(x[:n]), whole[:n])
