"""Two dots of a loop that overlap: where they may, what they compute, and that nothing in their order is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from louver.choose.occupancy import with_room
from louver.compile.compiled import CompiledKernel, CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.compile.plan.feeds import overlap_dots
from louver.compile.plan.feeds.overlap_dots import LEAST_SLOTS
from louver.emulator import Latest, Seeded
from louver.emulator.order import Order
from louver.ir.context import parse_ir
from louver.ir.tile import DotWaitOp, LocalAllocOp
from louver.ptx.assembler import Assembling, Assembly, assemble
from louver.ptx.module import Kernel, Module
from support.emulate_tiles import emulate_tiles
from support.removal import survey, undetected

ATTEND = """tt.func public @k(%out: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %q: !tt.ptr<f16> {tt.divisibility = 16 : i32},
    %a: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %b: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %first: i32, %times: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %odd = arith.cmpi slt, %first, %one : i32
  %size = arith.constant 4096 : i32
  %r = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32>
  %down = tt.expand_dims %r {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
  %along = tt.expand_dims %r {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
  %rows = tt.broadcast %down : tensor<64x1xi32> -> tensor<64x64xi32>
  %columns = tt.broadcast %along : tensor<1x64xi32> -> tensor<64x64xi32>
  %pitch = arith.constant dense<64> : tensor<64x64xi32>
  %flat = arith.muli %rows, %pitch : tensor<64x64xi32>
  %place = arith.addi %flat, %columns : tensor<64x64xi32>
  %zeros = arith.constant dense<0.0> : tensor<64x64xf32>
  %lowest = arith.constant dense<-100.0> : tensor<64xf32>
  %whole = arith.constant dense<1.0> : tensor<64xf32>
  %half = arith.constant dense<0.5> : tensor<64xf32>
  %q0 = tt.splat %q : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
  %q1 = tt.addptr %q0, %place : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
  %w = tt.load %q1 : tensor<64x64x!tt.ptr<f16>>
  %most, %total = scf.for %i = %first to %times step %one iter_args(%m = %lowest, %c = %zeros) -> (tensor<64xf32>, tensor<64x64xf32>) : i32 {
    %by = arith.muli %i, %size : i32
    %pa = tt.addptr %a, %by : !tt.ptr<f16>, i32
    %a0 = tt.splat %pa : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
    %a1 = tt.addptr %a0, %place : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %x = tt.load %a1 : tensor<64x64x!tt.ptr<f16>>
    %s = tt.dot %w, %x, %zeros : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
    %high = "tt.reduce"(%s) <{axis = 1 : i32}> ({
    ^bb0(%u: f32, %v: f32):
      %max = arith.maxnumf %u, %v : f32
      tt.reduce.return %max : f32
    }) : (tensor<64x64xf32>) -> tensor<64xf32>
    %now = arith.maxnumf %m, %high : tensor<64xf32>
    %n0 = tt.expand_dims %now {axis = 1 : i32} : tensor<64xf32> -> tensor<64x1xf32>
    %n1 = tt.broadcast %n0 : tensor<64x1xf32> -> tensor<64x64xf32>
    %less = arith.subf %s, %n1 : tensor<64x64xf32>
    %p = arith.truncf %less : tensor<64x64xf32> to tensor<64x64xf16>
    %more = arith.cmpf ogt, %now, %m : tensor<64xf32>
    %by0 = arith.select %more, %half, %whole : tensor<64xi1>, tensor<64xf32>
    %by1 = tt.expand_dims %by0 {axis = 1 : i32} : tensor<64xf32> -> tensor<64x1xf32>
    %by2 = tt.broadcast %by1 : tensor<64x1xf32> -> tensor<64x64xf32>
    %old = arith.mulf %c, %by2 : tensor<64x64xf32>
    %pb = tt.addptr %b, %by : !tt.ptr<f16>, i32
    %b0 = tt.splat %pb : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
    %b1 = tt.addptr %b0, %place : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %y = tt.load %b1 : tensor<64x64x!tt.ptr<f16>>
    %d = tt.dot %p, %y, %old : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
    scf.yield %now, %d : tensor<64xf32>, tensor<64x64xf32>
  }
  %t0 = tt.expand_dims %most {axis = 1 : i32} : tensor<64xf32> -> tensor<64x1xf32>
  %t1 = tt.broadcast %t0 : tensor<64x1xf32> -> tensor<64x64xf32>
  %sum = arith.addf %total, %t1 : tensor<64x64xf32>
  %o0 = tt.splat %out : !tt.ptr<f32> -> tensor<64x64x!tt.ptr<f32>>
  %o1 = tt.addptr %o0, %place : tensor<64x64x!tt.ptr<f32>>, tensor<64x64xi32>
  tt.store %o1, %sum : tensor<64x64x!tt.ptr<f32>>
  tt.return
}"""
"""Attention whose weights are scores less their maximum, and whose old sums are halved where it grows.

The result is the sums plus the maximum. With small integers it is exact.
"""

Step = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

APART = """%f = tt.dot %p, %y, %zeros : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
    %d = arith.addf %f, %old : tensor<64x64xf32>"""
LAST = """%f = tt.dot %p, %y, %old : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
    %j0 = tt.expand_dims %m {axis = 1 : i32} : tensor<64xf32> -> tensor<64x1xf32>
    %j1 = tt.broadcast %j0 : tensor<64x1xf32> -> tensor<64x64xf32>
    %d = arith.addf %f, %j1 : tensor<64x64xf32>"""
BRANCH = """%f = scf.if %odd -> (tensor<64x64xf32>) {
      scf.yield %old : tensor<64x64xf32>
    } else {
      scf.yield %zeros : tensor<64x64xf32>
    }
    """
STORE = """%o3 = tt.splat %out : !tt.ptr<f32> -> tensor<64x64x!tt.ptr<f32>>
    %o4 = tt.addptr %o3, %place : tensor<64x64x!tt.ptr<f32>>, tensor<64x64xi32>
    tt.store %o4, %old : tensor<64x64x!tt.ptr<f32>>
    """
DOT = "%d = tt.dot %p, %y, %old : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>"


def attend(w: np.ndarray, x: np.ndarray, y: np.ndarray, m: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = w @ x
    now = np.maximum(m, s.max(1))
    return now, c * np.where(now > m, 0.5, 1.0)[:, None] + (s - now[:, None]) @ y


def attend_and_add_the_old_maximum(
    w: np.ndarray, x: np.ndarray, y: np.ndarray, m: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    now, d = attend(w, x, y, m, c)
    return now, d + m[:, None]


OVERLAPPING: dict[str, tuple[str, Step]] = {
    "sums are rescaled": (DOT, attend),
    "products are added to sums": (APART, attend),
    "values of the step before": (LAST, attend_and_add_the_old_maximum),
}
"""What replaces the second dot, and a step in float64."""

WAITING: dict[str, tuple[str, str]] = {
    "weights in shared memory": (DOT, DOT.replace("%p, %y", "%y, %p")),
    "scores add to sums": ("%s = tt.dot %w, %x, %zeros", "%s = tt.dot %w, %x, %c"),
    "a third dot": (DOT, DOT.replace("%d", "%f") + "\n    " + DOT.replace("%old", "%f")),
    "a branch": (DOT, BRANCH + DOT.replace("%old", "%f")),
    "a store": (DOT, STORE + DOT),
}
"""Loops whose dots stay in order: what replaces what in the text."""

TWICE = (
    ATTEND.replace("%most, %total = scf.for", "scf.for %j = %zero to %two step %one : i32 {\n  %most, %total = scf.for")
    .replace(
        "%o0 = tt.splat %out",
        "%oj = arith.muli %j, %size : i32\n  %op = tt.addptr %out, %oj : !tt.ptr<f32>, i32\n  %o0 = tt.splat %op",
    )
    .replace("  tt.return", "  }\n  tt.return")
)
"""The same for two tiles."""


def compiled(text: str, **options: Any) -> CompiledTiles:
    # With more CTAs on an SM, a ring has fewer slots.
    given: dict[str, Any] = {"ctas": 2, **options}
    return compile_tiles(parse_ir(text), **given)


def overlap(made: CompiledTiles) -> bool:
    return any(isinstance(op, DotWaitOp) for op in made.encoded.walk())


def checked(
    made: CompiledTiles, step: Step, steps: tuple[int, int], kernel: Kernel, order: Order, tiles: int = 1
) -> None:
    first, times = steps
    rng = np.random.default_rng(times)
    a, b = (rng.integers(-1, 2, (max(times, 1), 64, 64)).astype(np.float16) for _ in range(2))
    q = rng.integers(-1, 2, (64, 64)).astype(np.float16)
    c, m = np.zeros((64, 64)), np.full(64, -100.0)
    for x, y in zip(a[first:times].astype(np.float64), b[first:times].astype(np.float64), strict=True):
        m, c = step(q.astype(np.float64), x, y, m, c)
    out = np.full((tiles, 64, 64), np.nan, np.float32)
    arguments = {"out": out, "q": q, "a": a, "b": b, "first": first, "times": times}
    changed = replace(made, module=Module(made.module.target, [kernel]))
    emulate_tiles(changed, (1,), arguments, order=order, uninitialised=["out"])
    for each in out:
        np.testing.assert_array_equal(each, c + m[:, None])


STEPS = ((0, 0), (3, 1), (0, 1), (0, 2), (2, 5), (0, 12))
"""First step and end: none, none, one, two, three and more than a ring has slots."""


@pytest.mark.parametrize(("name", "warps"), [*((name, 4) for name in OVERLAPPING), ("sums are rescaled", 8)])
def test_the_second_product_runs_while_the_sums_of_the_first_are_used(name: str, warps: int) -> None:
    second, step = OVERLAPPING[name]
    made = compiled(ATTEND.replace(DOT, second), warps=warps)
    assert overlap(made) and "wgmma.wait_group.sync.aligned 1" in made.ptx
    assert assemble(made.ptx, "sm_90a").faults == ()
    for steps in STEPS:
        for order in (Latest(), Seeded(steps[1])):
            checked(made, step, steps, made.kernel, order)


def test_a_loop_that_runs_again_begins_and_ends_again() -> None:
    made = compiled(TWICE)
    assert overlap(made)
    for steps in STEPS:
        for order in (Latest(), Seeded(1)):
            checked(made, attend, steps, made.kernel, order, tiles=2)


def test_every_wait_and_barrier_is_needed_and_its_absence_noticed() -> None:
    made = compiled(ATTEND, warps=4)
    outcomes = survey(made.kernel, lambda kernel, order: checked(made, attend, (0, 7), kernel, order))
    assert len(outcomes) >= 30
    # A proxy fence follows that of the barriers. Before the loop and behind it, no copy follows the reads that barriers guard.
    unnoticed = [each.what.split()[0].split(".")[0] for each in undetected(outcomes)]
    assert unnoticed == ["fence", *["barrier"] * 3]


@pytest.mark.parametrize("name", WAITING)
def test_dots_that_cannot_overlap_stay_in_order(name: str) -> None:
    old, new = WAITING[name]
    assert old in ATTEND
    assert not overlap(compiled(ATTEND.replace(old, new)))


@pytest.mark.parametrize("options", [{"boxes": False}, {"ahead": False}, {"ctas": 4}], ids=str)
def test_kernels_that_cannot_overlap_dots_compute_the_same(options: dict[str, Any]) -> None:
    """Threads copy, the option is off, or the ring has too few slots."""
    made = compiled(ATTEND, **options)
    assert not overlap(made)
    if "ctas" in options:
        slots = {op.slots.value.data for op in made.encoded.walk() if isinstance(op, LocalAllocOp)}
        assert max(slots) < LEAST_SLOTS
    for steps in STEPS:
        checked(made, attend, steps, made.kernel, Latest())


def test_too_many_registers_for_both_stages_keep_dots_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap_dots, "MOST_HELD", 63)
    assert not overlap(compiled(ATTEND, warps=4))


def test_dots_stay_in_order_where_overlapping_dots_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = CompiledKernel(compiled(ATTEND), None)
    assert isinstance((alone := with_room(kernel, 4)).kernel.made, CompiledTiles) and overlap(alone.kernel.made)
    own = Assembling.assembly

    def spilling(assembling: Assembling) -> Assembly:
        """The first assembly, as if a thread spilled."""
        monkeypatch.undo()
        found = own(assembling)
        return replace(found, kernels=(replace(found.kernels[0], spill_store_bytes=8, stack_bytes=8),))

    monkeypatch.setattr(Assembling, "assembly", spilling)
    found = with_room(kernel, 4)
    made = found.kernel.made
    assert isinstance(made, CompiledTiles) and not overlap(made) and not made.options.ahead
    assert found.assembly.clean
    checked(made, attend, (0, 5), made.kernel, Latest())
