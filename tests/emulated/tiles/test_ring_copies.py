"""Tiles that are copied to shared memory some steps ahead: which ones, what they compute, and that nothing in their order is missing."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile import pipeline
from louver.compile.compiled import CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.compile.plan.register_tiles import MOST_SLOTS
from louver.emulator import Seeded
from louver.emulator.order import Order
from louver.ir.context import parse_ir
from louver.ir.tile import AsyncCopyOp, AsyncWaitOp, BoxCopiesOp, ConvertLayoutOp, DotOp, LocalAllocOp, WaitBarrierOp
from louver.ir.tile.staging import in_shared
from louver.isa.targets import target
from louver.ptx.module import Kernel, Module
from support.compiled import read_copy
from support.emulate_tiles import emulate_tiles
from support.multiples import mark_arguments, marked
from support.removal import survey, undetected
from support.triton.tile_cases import TILE_CASES, kept_tiles
from support.triton.tile_runs import ELEMENTS, RUNS, draw, product, tiles

COPIED = {
    "dot_f16": 2,
    "dot_bf16": 2,
    "dense_bf16": 2,
    "right_sparse": 2,
    "split_sums": 2,
    "scaled_operand": 3,
    "persistent": 2,
}
"""Tiles that are copied to shared memory, by kernel: operands, or what an operand is computed from."""


def compiled(name: str, arguments: dict[str, object]) -> CompiledTiles:
    return compile_tiles(mark_arguments(read_copy(kept_tiles(name)), arguments))


@pytest.mark.parametrize("name", COPIED)
def test_operands_are_copied(rng: np.random.Generator, name: str) -> None:
    run = RUNS[name](rng, name)
    # Sizes that are no multiples leave chunks across an edge.
    whole = {each: value for each, value in run.arguments.items() if not isinstance(value, int)}
    names = [*whole, *(each for each in run.arguments if each not in whole)]
    made = compile_tiles(marked(read_copy(kept_tiles(name)), names))
    memory, boxes, gathers, waits, barriers = (
        [op for op in made.encoded.walk() if isinstance(op, kind)]
        for kind in (LocalAllocOp, BoxCopiesOp, AsyncCopyOp, AsyncWaitOp, WaitBarrierOp)
    )
    # Each operand has as many slots as the others. Those that products do not read have a copy before the loop, and one is the
    # loop's own.
    in_flight = any(op.in_flight for op in made.encoded.walk() if isinstance(op, DotOp))
    (slots,) = {op.slots.value.data for op in memory}
    assert len(memory) == COPIED[name] and 2 <= slots <= MOST_SLOTS
    assert sum(len(op.boxes) for op in boxes) + len(gathers) == (slots - in_flight) * COPIED[name]
    # Of each step its boxes are waited for together, and other tiles too, which are also waited for behind the loop.
    assert len(barriers) == (1 if boxes else 0) and len(waits) == (2 if gathers else 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["dot_f16", "right_sparse", "scaled_operand", "persistent", "split_sums", "attention"])
def test_results(rng: np.random.Generator, name: str, seed: int) -> None:
    run = RUNS[name](rng, name)
    outputs = [each for each in run.expected if each not in run.read_first]
    emulate_tiles(compiled(name, run.arguments), run.grid, run.arguments, order=Seeded(seed), uninitialised=outputs)
    run.check()


@pytest.mark.parametrize("k", [152, 148, 36])
def test_rows_that_may_be_no_whole_chunks_are_tested(rng: np.random.Generator, k: int) -> None:
    """Sizes that are multiples of nothing known leave the dense operand without chunks, and copies of values test their addresses."""
    m, n = 48, 24
    a, b = (
        louver.prune(rng.standard_normal((m, k)).astype(np.float16), "2:4"),
        rng.standard_normal((k, n)).astype(np.float16),
    )
    d = np.full((m, n), np.nan, np.float32)
    arguments = {"d": d, "a": louver.compress(a, "2:4"), "b": b, "M": m, "N": n, "K": k}
    made = compile_tiles(marked(read_copy(kept_tiles("dot_f16")), ["d", "a", "b"]))
    copies = [op for op in made.encoded.walk() if isinstance(op, AsyncCopyOp)]
    assert copies and all(op.sure.value.data < op.chunk.value.data for op in copies)
    sizes = TILE_CASES["dot_f16"].constexprs
    emulate_tiles(made, (tiles(m, sizes["BM"]), tiles(n, sizes["BN"])), arguments, uninitialised=["d"])
    np.testing.assert_allclose(d, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "kilobytes", "way"),
    [
        ("dense_bf16", 17, "copied"),
        ("dense_bf16", 16, "staged"),
        ("dense_bf16", 12, "staged"),
        ("dense_bf16", 4, "neither"),
        ("attention", 64, "copied"),
        ("attention", 8, "staged"),
        ("attention", 4, "neither"),
    ],
)
def test_shared_memory_that_is_too_small(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str, kilobytes: int, way: str
) -> None:
    """Slots of copies go first, then staged operands; exchanges stay."""
    small = replace(target("sm_90a"), max_shared_bytes=kilobytes * 1024)
    monkeypatch.setattr(pipeline, "target", lambda name: small)
    run = RUNS[name](rng, name)
    # Whole chunks, which the run's sizes have not: it is not run then.
    whole = (name, way) == ("dense_bf16", "copied")
    text = read_copy(kept_tiles(name))
    made = compile_tiles(marked(text, list(run.arguments)) if whole else mark_arguments(text, run.arguments), warps=4)
    staged = [
        op for op in made.encoded.walk() if isinstance(op, ConvertLayoutOp | LocalAllocOp) and in_shared(op.results[0])
    ]
    assert bool(staged) == (way != "neither") and ("cp.async" in made.ptx) == (way == "copied")
    assert made.signature.shared_bytes <= kilobytes * 1024
    if not whole:
        outputs = [each for each in run.expected if each not in run.read_first]
        emulate_tiles(made, run.grid, run.arguments, order=Seeded(1), uninitialised=outputs)
        run.check()


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_every_wait_and_barrier_is_needed_and_its_absence_noticed(rng: np.random.Generator, dense: bool) -> None:
    name = "dense_bf16" if dense else "dot_f16"
    case = TILE_CASES[name]
    element = ELEMENTS[case.signature["a"].removeprefix("*")]
    calls: list[tuple[dict[str, Any], Any]] = []
    # More steps than slots, so that each slot is filled again. Of the other calls copies bring fewer rows than a slot has.
    bm, bk = case.constexprs["BM"], case.constexprs["BK"]
    for m, n, k in ((64, 64, 528), (bm - 3, 64, 528), (bm, 64, bk - 16)):
        a, b, d = draw(rng, element, m, k), draw(rng, element, k, n), np.full((m, n), np.nan, np.float32)
        a = a if dense else louver.prune(a, "2:4")
        given = {"d": d, "a": a if dense else louver.compress(a, "2:4"), "b": b, "M": m, "N": n, "K": k}
        calls.append((given, product(a, b, ELEMENTS["fp32"])))
    # The marks hold for all calls: M is no multiple of 16 in the second one.
    made = compile_tiles(mark_arguments(read_copy(kept_tiles(name)), calls[1][0]), warps=2)
    assert "cp.async" in made.ptx

    def attempt(kernel: Kernel, order: Order) -> None:
        changed = replace(made, module=Module(made.module.target, [kernel]))
        for given, expected in calls:
            given["d"][...] = np.nan
            grid = tiles(given["M"], case.constexprs["BM"]), tiles(given["N"], case.constexprs["BN"])
            emulate_tiles(changed, grid, given, order=order, uninitialised=["d"])
            expected.check(given["d"])

    outcomes = survey(made.kernel, attempt)
    assert len(outcomes) >= 6
    # The last one lets no thread store what another one may still read; here nothing is read that is stored.
    barriers = [outcome.removal for outcome in outcomes if outcome.removal.what.startswith("barrier")]
    assert undetected(outcomes) == barriers[-1:]


BY_HAND = """tt.func public @k(%out: !tt.ptr<f32>, %a: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %times: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %r = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32>
  %down = tt.expand_dims %r {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
  %along = tt.expand_dims %r {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
  %rows = tt.broadcast %down : tensor<32x1xi32> -> tensor<32x32xi32>
  %columns = tt.broadcast %along : tensor<1x32xi32> -> tensor<32x32xi32>
  %pitch = arith.constant dense<32> : tensor<32x32xi32>
  %flat = arith.muli %rows, %pitch : tensor<32x32xi32>
  %place = arith.addi %flat, %columns : tensor<32x32xi32>
  %zeros = arith.constant dense<0.0> : tensor<32x32xf32>
  %a0 = tt.splat %a : !tt.ptr<f16> -> tensor<32x32x!tt.ptr<f16>>
  %a1 = tt.addptr %a0, %place : tensor<32x32x!tt.ptr<f16>>, tensor<32x32xi32>
  %first = tt.load %a1 : tensor<32x32x!tt.ptr<f16>>
  %sum = scf.for %j = %zero to %times step %one iter_args(%begin = %zeros) -> (tensor<32x32xf32>) : i32 {
    FIRST
    %inner, %last = scf.for %i = %zero to %two step %one iter_args(%s = %begin, %t = %start) -> (tensor<32x32xf32>, tensor<32x32xf16>) : i32 {
      %n = arith.addi %i, %one : i32
      %size = arith.constant 1024 : i32
      %by = arith.muli %n, %size : i32
      %p = tt.addptr %a, %by : !tt.ptr<f16>, i32
      %p0 = tt.splat %p : !tt.ptr<f16> -> tensor<32x32x!tt.ptr<f16>>
      %p1 = tt.addptr %p0, %place : tensor<32x32x!tt.ptr<f16>>, tensor<32x32xi32>
      %next = tt.load %p1 : tensor<32x32x!tt.ptr<f16>>
      %d = tt.dot %t, %t, %s : tensor<32x32xf16> * tensor<32x32xf16> -> tensor<32x32xf32>
      scf.yield %d, %next : tensor<32x32xf32>, tensor<32x32xf16>
    }
    scf.yield %inner : tensor<32x32xf32>
  }
  %o0 = tt.splat %out : !tt.ptr<f32> -> tensor<32x32x!tt.ptr<f32>>
  %o1 = tt.addptr %o0, %place : tensor<32x32x!tt.ptr<f32>>, tensor<32x32xi32>
  tt.store %o1, %sum : tensor<32x32x!tt.ptr<f32>>
  tt.return
}"""
"""A step ahead by hand, in a loop around it. FIRST: what the inner loop begins with, named %start."""


@pytest.mark.parametrize("again", [False, True])
def test_what_users_carry_themselves(rng: np.random.Generator, again: bool) -> None:
    """Rings take a tile that is loaded a step ahead, unless its first one is loaded once for all runs of the inner loop."""
    load = "%start = tt.load %a1 : tensor<32x32x!tt.ptr<f16>>"
    text = BY_HAND.replace("FIRST", load) if again else BY_HAND.replace("FIRST", "").replace("%start)", "%first)")
    made = compile_tiles(parse_ir(text), warps=2)
    assert ("cp.async" in made.ptx) == again
    a, out = rng.standard_normal((3, 32, 32)).astype(np.float16), np.full((32, 32), np.nan, np.float32)
    for seed in range(3):
        emulate_tiles(made, (1,), {"out": out, "a": a, "times": 3}, order=Seeded(seed), uninitialised=["out"])
        wide = a.astype(np.float64)
        np.testing.assert_allclose(out, 3 * (wide[0] @ wide[0] + wide[1] @ wide[1]), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("hint", "copied"),
    [
        ("evictionPolicy = evict_first", True),
        ("cacheModifier = cg", True),
        ("cacheModifier = ca evictionPolicy = evict_last", True),
        ("cacheModifier = cv", False),
        ("{isVolatile = true}", False),
    ],
)
def test_hints_to_caches_keep_no_tile_from_a_ring(rng: np.random.Generator, hint: str, copied: bool) -> None:
    text = BY_HAND.replace("FIRST", "%start = tt.load %a1 : tensor<32x32x!tt.ptr<f16>>")
    text = re.sub(r"(= tt\.load %\w+) :", rf"\1 {hint} :", text)
    made = compile_tiles(parse_ir(text), warps=2)
    assert ("cp.async" in made.ptx) == copied
    a, out = rng.standard_normal((3, 32, 32)).astype(np.float16), np.full((32, 32), np.nan, np.float32)
    emulate_tiles(made, (1,), {"out": out, "a": a, "times": 2}, uninitialised=["out"])
    wide = a.astype(np.float64)
    np.testing.assert_allclose(out, 2 * (wide[0] @ wide[0] + wide[1] @ wide[1]), rtol=1e-4, atol=1e-3)
