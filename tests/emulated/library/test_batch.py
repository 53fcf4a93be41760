"""Batches on the emulator: every entry exact, whatever follows it in memory, with few SMs so that CTAs walk from entry to entry."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import deepest
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.formats.dtypes import element_type
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Batch, Problem
from louver.isa.targets import SM_90A
from louver.library.emulate import emulate
from support.compiled import compiled_product

ORDERS: dict[str, Order] = {"earliest": Earliest(), "latest": Latest(), "seeded": Seeded(5)}
BATCHES: tuple[Batch, ...] = ("dense", "sparse", "both")


def draw(rng: np.random.Generator, element: str, *shape: int) -> Any:
    return rng.integers(0 if element == "u8" else -3, 4, shape).astype(element_type(element).numpy)


def check(
    rng: np.random.Generator, problem: Problem, schedule: Schedule, sizes: tuple[int, int, int, int], **how: Any
) -> None:
    """Compile, run, compare every element of every entry. sizes: of the batch, M, N, K."""
    entries, m, n, k = sizes
    w = louver.prune(draw(rng, problem.a, *([entries] if problem.batched_a else []), m, k), "2:4")
    b = draw(rng, problem.b, *([entries] if problem.batched_b else []), k, n)
    dense = np.swapaxes(b, -1, -2) if problem.b_layout == "k_major" else b
    expected = w.astype(np.float64) @ b.astype(np.float64)
    bias = None
    if problem.bias:
        bias = draw(rng, problem.bias_element, m)
        expected = expected + bias.astype(np.float64)[:, None]
    reads: dict[str, Any] = {}
    if problem.epilogue.c:
        reads = {"c": draw(rng, problem.epilogue.c, entries, m, n), "beta": 2.0}
        expected = expected + 2 * reads["c"].astype(np.float64)
    if problem.kind == "linear":
        expected = np.swapaxes(expected, -1, -2)
        reads |= {"c": np.swapaxes(reads["c"], -1, -2)} if reads else {}
    compiled = compiled_product(problem, deepest(problem, schedule, SM_90A) if schedule.roles.specialized else schedule)
    y, report = emulate(compiled, louver.compress(w, "2:4"), dense, bias, reads, **how)
    assert y.shape == expected.shape and report.products > 0
    np.testing.assert_array_equal(y.astype(np.float64), expected.astype(y.dtype).astype(np.float64))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("kind", "layout"), [*itertools.product(("linear", "matmul"), ("k_major", "n_major"))])
def test_every_entry_is_its_own_product(
    rng: np.random.Generator, kind: Any, layout: Any, batch: Batch, order: str
) -> None:
    problem = Problem(kind, out="f32", b_layout=layout, batch=batch, bias="row")
    check(rng, problem, Schedule.of(tile_n=64, stages=3), (3, 70, 67, 130), sm_count=2, order=ORDERS[order])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("m", [1, 63, 64, 65, 129])
def test_rows_that_fill_no_block(rng: np.random.Generator, batch: Batch, m: int) -> None:
    # The next entry's values, metadata and results begin where the last block of this one ends.
    check(rng, Problem("matmul", out="f32", batch=batch), Schedule.of(tile_n=8), (4, m, 9, 66), sm_count=1)


@pytest.mark.parametrize("k", [1, 4, 63, 65, 257])
def test_every_tail_of_k(rng: np.random.Generator, k: int) -> None:
    check(rng, Problem("linear", out="f32", batch="both"), Schedule.of(tile_n=8), (3, 66, 7, k), sm_count=1)
    check(rng, Problem(out="f32", b_layout="n_major", batch="dense"), Schedule.of(tile_n=64), (3, 5, 9, k), sm_count=1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
@pytest.mark.parametrize("out", ["f16", "f32"])
@pytest.mark.parametrize("cluster", [1, 2])
def test_bulk_stores_of_entries(rng: np.random.Generator, kind: Any, out: str, cluster: Any, order: str) -> None:
    # Rows and columns beyond an entry's are dropped, not written to the next one.
    problem = Problem(kind, out=out, batch="both", epilogue=Epilogue(c="f16"))
    schedule = Schedule.of(tile_n=32, store="bulk", cluster=cluster)
    check(rng, problem, schedule, (3, 136, 40, 70), sm_count=2, order=ORDERS[order])


@pytest.mark.parametrize(("a", "b", "out"), [("e4m3", "e5m2", "bf16"), ("s8", "u8", "s32")])
def test_8_bit_operands(rng: np.random.Generator, a: str, b: str, out: str) -> None:
    problem = Problem("linear", a, b, out, batch="both")
    check(rng, problem, Schedule.of(tile_n=16, tile_k=128), (2, 70, 11, 140), sm_count=1)


@pytest.mark.parametrize("metadata", ["stage", "barrier"])
@pytest.mark.parametrize("specialized", [True, False], ids=["specialized", "one warpgroup"])
def test_metadata_through_the_ring(rng: np.random.Generator, metadata: Any, specialized: bool) -> None:
    if specialized:
        schedule = Schedule.of(tile_n=16, stages=3, metadata=metadata)
    else:
        schedule = Schedule.of(
            tile_m=64, tile_n=16, consumers=1, stages=1, metadata=metadata, specialized=False, in_flight=0
        )
    for batch in BATCHES:
        check(rng, Problem("linear", out="f32", batch=batch), schedule, (3, 130, 17, 200), sm_count=1)


@pytest.mark.parametrize(("a", "accumulate"), [("e4m3", "promoted"), ("f16", "f16")])
def test_ways_to_accumulate(rng: np.random.Generator, a: str, accumulate: str) -> None:
    problem = Problem("linear", a, a, "f32", batch="both", accumulate=accumulate)
    tile_k = 128 if a == "e4m3" else 64
    check(rng, problem, Schedule.of(tile_n=16, tile_k=tile_k), (2, 70, 11, 300), sm_count=1)


def test_arrays_of_the_epilogue_have_entries(rng: np.random.Generator) -> None:
    for kind, batch in (("linear", "dense"), ("matmul", "sparse")):
        problem = Problem(kind, batch=batch, bias="row", epilogue=Epilogue(c="bf16"))  # type: ignore[arg-type]
        check(rng, problem, Schedule.of(tile_n=16), (3, 67, 19, 40), sm_count=1)


def test_a_batch_of_one_size_is_asked_for(rng: np.random.Generator) -> None:
    compiled = compiled_product(Problem(batch="both"), deepest(Problem(), Schedule.of(tile_n=8), SM_90A))
    w = louver.compress(louver.prune(draw(rng, "f16", 2, 64, 32), "2:4"), "2:4")
    with pytest.raises(ValueError, match=r"a batch has one size, got \[2, 3\]"):
        emulate(compiled, w, draw(rng, "f16", 3, 8, 32))
    with pytest.raises(ValueError, match=r"dense must have three axes.*got shape \[8, 32\]"):
        emulate(compiled, w, draw(rng, "f16", 8, 32))


@pytest.mark.parametrize(
    ("store", "gap", "n"), [("direct", 0, 40), ("direct", 1, 39), ("direct", 1, 40), ("bulk", 1, 40), ("bulk", 2, 40)]
)
def test_c_of_each_entry(rng: np.random.Generator, store: str, gap: int, n: int) -> None:
    """Rows of even and of odd pitches, so that pairs of an entry are aligned or not."""
    problem = Problem("matmul", out="f32", batch="both", epilogue=Epilogue(c="f16"))
    check(rng, problem, Schedule.of(tile_n=64, stages=2, store=store), (3, 67, n, 64), gap=gap, sm_count=2)
