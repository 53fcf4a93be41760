"""Results staged in shared memory and sent by bulk copies: every width, orientation and schedule, tails, and the banks used."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from louver.choose.configure import deepest
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, OutOfBoundsError, Seeded
from louver.formats.dtypes import element_type, raw_bits
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.isa.matrix import StoreMatrix
from louver.isa.memory import Store
from louver.isa.targets import SM_90A
from louver.library import reference
from louver.library.emulate import emulate
from louver.library.numerics import compare
from support.compiled import compiled_product
from support.products import Operands, operands

OUTPUTS = {
    "f32": ("f16", "f16", "f32"),
    "s32": ("s8", "u8", "s32"),
    "bf16": ("bf16", "bf16", "bf16"),
    "f16 of integers": ("u8", "s8", "f16"),
    "e4m3": ("e5m2", "e4m3", "e4m3"),
    "s8": ("s8", "s8", "s8"),
}

SCHEDULES = {
    "wide": Schedule.of(tile_n=256, stages=2),
    "narrow": Schedule.of(tile_n=64, stages=3),
    "one warpgroup": Schedule.of(tile_m=64, tile_n=32, consumers=1, stages=3),
    "two blocks": Schedule.of(tile_m=256, tile_n=128, stages=2),
    "tall": Schedule.of(tile_m=256, tile_n=192, stages=2, staging=96),
    "three consumers": Schedule.of(tile_m=192, tile_n=192, stages=2, consumers=3),
    "cluster": Schedule.of(tile_n=64, stages=2, cluster=2),
    "values kept in L2": Schedule.of(tile_n=64, stages=2, l2="values"),
    "a few columns at a time": Schedule.of(tile_n=128, stages=2, staging=32),
    "chunks of two blocks": Schedule.of(tile_m=256, tile_n=96, stages=2, staging=32),
    "an odd number of chunks": Schedule.of(tile_n=96, stages=2, staging=32),
    "a last chunk of fewer columns": Schedule.of(tile_n=160, stages=2, staging=96),
    "the same in two blocks": Schedule.of(tile_m=256, tile_n=96, stages=2, staging=64),
}

every_output = pytest.mark.parametrize("name", OUTPUTS)
every_kind = pytest.mark.parametrize("kind", ["linear", "matmul"])


def problem_of(kind: str, name: str) -> Problem:
    a, b, out = OUTPUTS[name]
    return Problem(kind, a, b, out, bias="row")


def bulk(problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule with bulk stores, its K tile as the operands' type wants it, and fewer stages where they do not fit."""
    fields = schedule.flat()
    fields |= {"tile_k": 1024 // element_type(problem.b).bits, "store": "bulk"}
    stages = min(schedule.ring.stages, deepest(problem, Schedule.of(**fields), SM_90A).ring.stages)
    return Schedule.of(**{**fields, "stages": stages})


def given_of(rng: np.random.Generator, problem: Problem, m: int, n: int, k: int) -> Operands:
    return operands(rng, m, n, k, problem.a, "normal", dense=problem.b, bias=problem.bias_element)


def run(problem: Problem, schedule: Schedule, given: Operands, order: Order, sm_count: int = 2) -> np.ndarray:
    """The emulated result, [M, N]."""
    compiled = compiled_product(problem, schedule)
    assert compiled.signature.shared_bytes <= SM_90A.max_shared_bytes
    y, report = emulate(compiled, given.s, given.b.T, given.bias, sm_count=sm_count, order=order)
    assert report.bulk_stores > 0
    return y.T if problem.kind == "linear" else y


def check(problem: Problem, schedule: Schedule, given: Operands, order: Order, sm_count: int = 2) -> None:
    y = run(problem, schedule, given, order, sm_count)
    if problem.accumulate == "s32":
        expected = reference.product(given.a, given.b, given.bias, y.dtype)
        np.testing.assert_array_equal(y.astype(np.float64), expected.astype(np.float64))
        return
    exact, magnitude = reference.exact_product(given.a, given.b, given.bias)
    agreement = compare(y, exact, magnitude, given.sizes[2], problem.out)
    assert agreement.ok, agreement


@every_kind
@every_output
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_width_and_schedule(rng: np.random.Generator, schedule: str, name: str, kind: str) -> None:
    # Rows of whole 16-byte chunks; neither size a multiple of a tile's; several tiles a CTA, so that buffers are used again.
    problem = problem_of(kind, name)
    chosen = bulk(problem, SCHEDULES[schedule])
    given = given_of(rng, problem, chosen.tile.m * chosen.order.cluster + 48, chosen.tile.n + 16, 70)
    check(problem, chosen, given, Seeded(int(rng.integers(99))), chosen.order.cluster)


@every_kind
@pytest.mark.parametrize(("name", "staging"), [("f32", 48), ("s32", 48), ("bf16", 96), ("f16 of integers", 96)])
def test_the_tile_that_its_chunks_do_not_divide(rng: np.random.Generator, name: str, staging: int, kind: str) -> None:
    """The library's 256×176: two chunks of 96 and 80 columns, or four of 48, the last one of 32."""
    problem = problem_of(kind, name)
    chosen = bulk(problem, Schedule.of(tile_m=256, tile_n=176, stages=2, staging=staging))
    check(problem, chosen, given_of(rng, problem, 304, 192, 70), Seeded(3), 2)


@every_kind
@every_output
@pytest.mark.parametrize("order", [Earliest(), Latest(), Seeded(4)], ids=["earliest", "latest", "seeded"])
def test_chunks_in_every_order_of_events(rng: np.random.Generator, order: Order, name: str, kind: str) -> None:
    problem = problem_of(kind, name)
    schedule = bulk(problem, Schedule.of(tile_n=128, stages=2, staging=32))
    check(problem, schedule, given_of(rng, problem, 272, 144, 40), order, 1)


@every_output
@every_kind
def test_tails(rng: np.random.Generator, kind: str, name: str) -> None:
    """Whole chunks along the output's rows, any size across them."""
    problem = problem_of(kind, name)
    whole = 16 // element_type(problem.out).bytes
    schedule = bulk(problem, Schedule.of(tile_n=64, stages=2, staging=32))
    for along, across in ((whole, 1), (3 * whole, 63), (64 - whole, 65), (64 + whole, 127), (128 + whole, 129)):
        m, n = (along, across) if kind == "linear" else (across, along)
        check(problem, schedule, given_of(rng, problem, m, n, 33), Latest())


@pytest.mark.parametrize(
    ("name", "widths"), [("s32", (8, 16, 24, 48, 112, 208)), ("bf16", (16, 48, 80)), ("e4m3", (32, 96))]
)
@every_kind
def test_every_width_that_32_bytes_of_columns_make(
    rng: np.random.Generator, kind: str, name: str, widths: tuple[int, ...]
) -> None:
    problem = problem_of(kind, name)
    for tile_n in widths:
        schedule = bulk(problem, Schedule.of(tile_n=tile_n, stages=2))
        check(problem, schedule, given_of(rng, problem, 80, tile_n + 16, 34), Latest())


@pytest.mark.parametrize("out", ["f32", "f16", "e5m2", "s8"])
@every_kind
def test_an_epilogue_gives_what_direct_stores_give(rng: np.random.Generator, kind: str, out: str) -> None:
    """Two blocks and many chunks, each element with a scalar, vectors along both axes and an array."""
    problem = Problem(kind, out=out, bias="row", epilogue=Epilogue(alpha=True, dense_bias="f32", c="bf16"))
    schedule = Schedule.of(tile_m=256, tile_n=64, stages=2, staging=32)
    m, n = 272, 80
    given = given_of(rng, problem, m, n, 70)
    c = rng.standard_normal((n, m) if kind == "linear" else (m, n), np.float32).astype(element_type("bf16").numpy)
    reads = {"alpha": 0.75, "dense_bias": rng.standard_normal(n, np.float32), "c": c, "beta": -1.5}
    found = [
        emulate(compiled_product(problem, each), given.s, given.b.T, given.bias, reads, sm_count=2)[0]
        for each in (schedule.changed(staging=None), schedule.changed(store="bulk"))
    ]
    assert np.unique(found[0].astype(np.float64)).size > 8
    np.testing.assert_array_equal(raw_bits(found[0]), raw_bits(found[1]))


@every_output
@every_kind
def test_rows_that_are_not_whole_chunks_are_not_written_past(rng: np.random.Generator, kind: str, name: str) -> None:
    problem = problem_of(kind, name)
    size = element_type(problem.out).bytes
    along = 16 // size + 1
    m, n = (along, 16) if kind == "linear" else (16, along)
    schedule = bulk(problem, Schedule.of(tile_n=32, stages=2))
    with pytest.raises(OutOfBoundsError, match=f"innermost dimension of {along} elements of {size} bytes"):
        run(problem, schedule, given_of(rng, problem, m, n, 33), Latest())


def conflicts(addresses: np.ndarray, nbytes: int) -> int:
    """Words beyond the first that a bank is asked for, at most, in the parts of an access: 128 bytes each."""
    worst = 0
    for part in addresses.reshape(-1, 128 // nbytes):
        words = {(int(start) + byte) // 4 for start in part for byte in range(0, nbytes, 4)}
        worst = max(worst, max(Counter(word % 32 for word in words).values()) - 1)
    return worst


def banks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that fills with the conflicts of every access to shared memory by stores."""
    seen: list[int] = []

    def recording(instruction: Any, nbytes: Any) -> None:
        plain = instruction.execute

        def execute(self: Any, warp: Any, *inputs: Any) -> Any:
            if getattr(self, "space", "shared") == "shared":
                seen.append(conflicts(inputs[0], nbytes(self)))
            return plain(self, warp, *inputs)

        monkeypatch.setattr(instruction, "execute", execute)

    recording(Store, lambda store: 4 * store.count)
    recording(StoreMatrix, lambda _: 16)
    return seen


@pytest.mark.parametrize(("kind", "out"), [("linear", "f16"), ("linear", "f32"), ("matmul", "bf16"), ("matmul", "f32")])
@pytest.mark.parametrize("tile_n", [32, 64, 128])
def test_nor_do_those_of_gated_products(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, kind: str, out: str, tile_n: int
) -> None:
    seen = banks(monkeypatch)
    problem = Problem(kind, out=out, epilogue=Epilogue(activation="silu", gated=True))
    given = operands(rng, 128, tile_n, 32, "f16", "normal")
    schedule = Schedule.of(tile_n=tile_n, stages=2, store="bulk")
    emulate(compiled_product(problem, schedule), given.s, given.b.T, sm_count=1)
    assert len(seen) >= 8
    assert set(seen) == {0}


@every_output
@every_kind
@pytest.mark.parametrize("tile_n", [32, 64, 128])
def test_no_two_lanes_of_an_access_share_a_bank(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, tile_n: int
) -> None:
    seen = banks(monkeypatch)
    problem = problem_of(kind, name)
    run(problem, bulk(problem, Schedule.of(tile_n=tile_n, stages=2)), given_of(rng, problem, 64, tile_n, 32), Latest())
    assert len(seen) >= 8
    assert set(seen) == {0}
