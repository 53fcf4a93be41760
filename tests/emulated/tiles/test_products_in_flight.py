"""Products that run on into the next step of a loop: where they may, what they compute, and that nothing in their order is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from louver.compile.compiled import CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.compile.plan.feeds.ring_copies import LEAST_IN_FLIGHT
from louver.emulator import Earliest, Latest, Seeded
from louver.emulator.order import Order
from louver.ir.context import parse_ir
from louver.ir.tile import DotOp, LocalAllocOp
from louver.ptx.assembler import assemble
from louver.ptx.module import Kernel, Module
from support.emulate_tiles import emulate_tiles
from support.removal import survey, undetected

TWO = """tt.func public @k(%out: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %a: !tt.ptr<f16> {tt.divisibility = 16 : i32},
    %b: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %times: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
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
  %half = arith.constant dense<0.5> : tensor<64x64xf32>
  %left, %right = scf.for %i = %zero to %times step %one iter_args(%c = %zeros, %e = %zeros) -> (tensor<64x64xf32>, tensor<64x64xf32>) : i32 {
    %by = arith.muli %i, %size : i32
    %pa = tt.addptr %a, %by : !tt.ptr<f16>, i32
    %a0 = tt.splat %pa : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
    %a1 = tt.addptr %a0, %place : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %x = tt.load %a1 : tensor<64x64x!tt.ptr<f16>>
    %pb = tt.addptr %b, %by : !tt.ptr<f16>, i32
    %b0 = tt.splat %pb : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
    %b1 = tt.addptr %b0, %place : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %y = tt.load %b1 : tensor<64x64x!tt.ptr<f16>>
    %d = tt.dot %x, %y, %c : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
    %f = tt.dot %y, %x, %e : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
    scf.yield %d, %f : tensor<64x64xf32>, tensor<64x64xf32>
  }
  %sum = arith.subf %left, %right : tensor<64x64xf32>
  %o0 = tt.splat %out : !tt.ptr<f32> -> tensor<64x64x!tt.ptr<f32>>
  %o1 = tt.addptr %o0, %place : tensor<64x64x!tt.ptr<f32>>, tensor<64x64xi32>
  tt.store %o1, %sum : tensor<64x64x!tt.ptr<f32>>
  tt.return
}"""
"""The sum of x y in one tile and that of y x in another; the result is the first one minus the second one."""

HALVED = """%less = arith.mulf %e, %half : tensor<64x64xf32>
    %f = tt.dot %y, %x, %less"""
NARROWED = """%p = arith.truncf %d : tensor<64x64xf32> to tensor<64x64xf16>
    %f = tt.dot %p, %x, %e"""
MADE = """%z = arith.addf %y, %y : tensor<64x64xf16>
    %f = tt.dot %z, %x, %e"""

Step = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _narrowed(x: np.ndarray, y: np.ndarray, c: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = c + x @ y
    return d, e + d.astype(np.float16).astype(np.float64) @ x


WAITING: dict[str, tuple[str, str, Step]] = {
    "sums change places": ("scf.yield %d, %f", "scf.yield %f, %d", lambda x, y, c, e: (e + y @ x, c + x @ y)),
    "sums are halved": ("%f = tt.dot %y, %x, %e", HALVED, lambda x, y, c, e: (c + x @ y, e / 2 + y @ x)),
    "sums begin again": ("%f = tt.dot %y, %x, %e", "%f = tt.dot %y, %x, %zeros", lambda x, y, c, e: (c + x @ y, y @ x)),
    "sums are multiplied": ("%f = tt.dot %y, %x, %e", NARROWED, _narrowed),
    "an operand is computed": ("%f = tt.dot %y, %x, %e", MADE, lambda x, y, c, e: (c + x @ y, e + 2 * y @ x)),
}
"""Loops whose products end with their step: what replaces what in the text, and a step in float64."""


def compiled(text: str, *, boxes: bool = True) -> CompiledTiles:
    # With more CTAs on an SM, a ring has fewer slots.
    return compile_tiles(parse_ir(text), boxes=boxes, ctas=2)


def in_flight(made: CompiledTiles) -> list[bool]:
    return [op.in_flight is not None for op in made.encoded.walk() if isinstance(op, DotOp)]


def checked(made: CompiledTiles, step: Step, times: int, kernel: Kernel, order: Order) -> None:
    rng = np.random.default_rng(times)
    a, b = (rng.integers(-1, 2, (max(times, 1), 64, 64)).astype(np.float16) for _ in range(2))
    c, e = np.zeros((64, 64)), np.zeros((64, 64))
    for x, y in zip(a[:times].astype(np.float64), b[:times].astype(np.float64), strict=True):
        c, e = step(x, y, c, e)
    out = np.full((64, 64), np.nan, np.float32)
    arguments = {"out": out, "a": a, "b": b, "times": times}
    changed = replace(made, module=Module(made.module.target, [kernel]))
    emulate_tiles(changed, (1,), arguments, order=order, uninitialised=["out"])
    np.testing.assert_array_equal(out, c - e)


def both(x: np.ndarray, y: np.ndarray, c: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return c + x @ y, e + y @ x


@pytest.mark.parametrize("boxes", [True, False], ids=["boxes", "gathers"])
def test_all_products_of_a_step_run_on_together(boxes: bool) -> None:
    made = compiled(TWO, boxes=boxes)
    assert in_flight(made) == [True, True] and "wgmma.wait_group.sync.aligned 2" in made.ptx
    assert assemble(made.ptx, "sm_90a").faults == ()
    for times, order in ((1, Earliest()), (2, Latest()), (9, Earliest()), (9, Latest()), (12, Seeded(2))):
        checked(made, both, times, made.kernel, order)


@pytest.mark.parametrize("boxes", [True, False], ids=["boxes", "gathers"])
def test_every_wait_and_barrier_is_needed_and_its_absence_noticed(boxes: bool) -> None:
    made = compiled(TWO, boxes=boxes)
    outcomes = survey(made.kernel, lambda kernel, order: checked(made, both, 11, kernel, order))
    assert len(outcomes) >= 12
    # The assembler needs a fence behind the branch that begins copies. The last barrier guards nothing here.
    unnoticed = [outcome.what.split()[0].split(".")[0] for outcome in undetected(outcomes)]
    assert unnoticed == ["wgmma", "barrier"]


@pytest.mark.parametrize("name", WAITING)
def test_products_whose_sums_or_operands_the_loop_needs_end_with_their_step(name: str) -> None:
    old, new, step = WAITING[name]
    made = compiled(TWO.replace(old, new))
    assert in_flight(made) == [False, False] and "wgmma.wait_group.sync.aligned 0" in made.ptx
    for times, order in ((1, Latest()), (5, Earliest()), (5, Seeded(3))):
        checked(made, step, times, made.kernel, order)


@pytest.mark.parametrize(("ctas", "slots"), [(4, 3), (3, 4)])
def test_a_ring_of_few_slots_has_none_to_keep(ctas: int, slots: int) -> None:
    made = compile_tiles(parse_ir(TWO), ctas=ctas)
    assert {op.slots.value.data for op in made.encoded.walk() if isinstance(op, LocalAllocOp)} == {slots}
    assert in_flight(made) == [slots >= LEAST_IN_FLIGHT] * 2
    checked(made, both, 5, made.kernel, Latest())
