"""The library's products on the emulator: exact on every tile width and about the edges of tiles and of K steps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from louver.choose.configure import choose, deepest
from louver.choose.tile_shapes import TILE_N, TILES
from louver.compile.lower.products.lower_product import _RULES
from louver.compile.lower.products.state import Lowering
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, OutOfBoundsError, Seeded, UninitialisedError
from louver.frontend.problem import Problem
from louver.ir.sched.staged import RowsLeftOp
from louver.isa.targets import SM_90A
from louver.library.emulate import emulate
from support.compiled import compiled_product
from support.products import Operands, assert_exact, operands


def run(
    problem: Problem,
    given: Operands,
    order: Order,
    *,
    schedule: Schedule | None = None,
    sm_count: int = 132,
    aligned: bool = False,
) -> None:
    """Compile, run, compare every element."""
    m, n, _ = given.sizes
    chosen = schedule or choose(problem, m, n, SM_90A, 132, aligned_output=aligned)
    stored = given.b.T if problem.b_layout == "k_major" else given.b
    bias = given.bias if problem.bias else None
    y, report = emulate(compiled_product(problem, chosen), given.s, stored, bias, sm_count=sm_count, order=order)
    assert report.products > 0
    assert_exact(y.T if problem.kind == "linear" else y, given, bias=problem.bias is not None)


@pytest.mark.parametrize("tile_n", TILE_N)
def test_every_tile_width(rng: np.random.Generator, tile_n: int) -> None:
    problem = Problem("linear", out="f32", bias="row")
    schedule = deepest(problem, Schedule.of(tile_n=tile_n), SM_90A)
    run(problem, operands(rng, 66, tile_n - 1, 70), Earliest(), schedule=schedule)


SIZES = sorted({(shape.m, shape.n, shape.consumers) for shape in TILES if shape.unit != "fma" and shape.sums != "f16"})


@pytest.mark.parametrize(("m", "n", "consumers"), SIZES)
def test_every_tile_of_the_library(rng: np.random.Generator, m: int, n: int, consumers: int) -> None:
    """Two tiles along M and N, the last ones with few rows and columns."""
    problem = Problem("linear", out="f16", bias="row")
    tile = Schedule.of(tile_m=m, tile_n=n, consumers=consumers, store="bulk" if n > 8 else "direct")
    given = operands(rng, m + 8, n + 3, 70)
    run(problem, given, Earliest(), schedule=deepest(problem, tile, SM_90A), sm_count=2)


@pytest.mark.parametrize("k", [1, 4, 63, 64, 65, 255, 256, 257, 511, 513, 600])
def test_every_tail_of_k(rng: np.random.Generator, k: int) -> None:
    run(Problem("matmul", out="f32"), operands(rng, 65, 8, k), Latest())
    run(Problem("matmul", out="f32", b_layout="n_major"), operands(rng, 3, 9, k), Earliest())


@pytest.mark.parametrize("m", [1, 63, 64, 65, 127, 129])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_every_tail_of_m(rng: np.random.Generator, kind: str, m: int) -> None:
    run(Problem(kind, a="bf16", b="bf16", out="bf16"), operands(rng, m, 9, 66, "bf16"), Seeded(m))


@pytest.mark.parametrize("order", [Earliest(), Latest()], ids=["earliest", "latest"])
@pytest.mark.parametrize(("kind", "layout"), [*itertools.product(("linear", "matmul"), ("k_major", "n_major"))])
def test_results_sent_by_bulk_copies(rng: np.random.Generator, kind: str, layout: str, order: Order) -> None:
    # A row pitch of 16-byte multiples, sizes that are no multiples of the tile's.
    problem = Problem(kind, out="f16", b_layout=layout, bias="row" if kind == "linear" else None)
    schedule = deepest(problem, Schedule.of(tile_n=64, store="bulk"), SM_90A)
    run(problem, operands(rng, 200, 72, 100), order, schedule=schedule, sm_count=2)


@pytest.mark.parametrize("order", [Earliest(), Latest()], ids=["earliest", "latest"])
@pytest.mark.parametrize(("m", "out"), [(201, "f16"), (68, "bf16"), (7, "f16")])
def test_rows_that_are_not_whole_chunks_are_stored_directly(
    rng: np.random.Generator, m: int, out: str, order: Order
) -> None:
    # "linear" stores rows of M elements; the row pitch is a multiple of 16 bytes, so that a tensor map can be made.
    problem = Problem("linear", a=out, b=out, out=out)
    given = operands(rng, m, 35, 100, out)
    schedule = deepest(problem, Schedule.of(tile_n=64, store="bulk"), SM_90A)
    with pytest.raises(OutOfBoundsError, match=f"innermost dimension of {m} elements of 2 bytes") as caught:
        run(problem, given, order, schedule=schedule)
    assert caught.value.place is not None
    assert caught.value.place.instruction.startswith("cp.async.bulk.tensor.2d.global.shared")
    assert choose(problem, m, 35, SM_90A, 132, aligned_output=True).store.way == "bulk"
    run(problem, given, order, aligned=False)


@pytest.mark.parametrize("layout", ["k_major", "n_major"])
def test_few_sms_and_a_short_ring(rng: np.random.Generator, layout: str) -> None:
    problem = Problem("matmul", out="f32", b_layout=layout)
    run(problem, operands(rng, 300, 130, 330), Seeded(3), schedule=Schedule.of(tile_n=64, stages=2), sm_count=1)


@pytest.mark.parametrize(("element", "out"), [("f16", "f16"), ("s8", "s32"), ("f16", "s8")])
def test_a_column_that_no_copy_brings_is_found(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, element: str, out: str
) -> None:
    """Barriers and copies agree, one row short."""

    def rows_left(low: Lowering, op: RowsLeftOp) -> None:
        left = low.k.sub(low.number(op.size), low.number(op.first))
        low.values[op.rows] = low.k.min(left, op.most.value.data - 1)

    monkeypatch.setitem(_RULES, RowsLeftOp, rows_left)
    monkeypatch.setattr("louver.library.rows.copied_box", lambda box, _: (box.box[0], 31) if box.along else box.box)
    problem = Problem("linear", element, element, out)
    compiled = compile_product(problem, Schedule.of(tile_n=32, stages=2))
    given = operands(rng, 128, 32, 128, element, dense=element)
    with pytest.raises(UninitialisedError, match="of d .* depends on columns of B"):
        emulate(compiled, given.s, given.b.T, sm_count=2)
