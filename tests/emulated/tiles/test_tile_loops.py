"""Programs that walk over several tiles: their rings outlive a tile, and a tile's first copies begin before the one before it is stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from louver.compile.compiled import CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.emulator import Seeded
from louver.emulator.order import Latest, Order
from louver.ir.context import parse_ir
from louver.ir.tile import BoxCopiesOp, DotOp, EvenBarriersOp, FuncOp, InitBarriersOp
from louver.ptx.assembler import assemble
from louver.ptx.module import Kernel, Module
from support.compiled import compiled_tiles
from support.dot_loops import DotLoop
from support.emulate_tiles import emulate_tiles
from support.removal import survey, undetected

LOOP = DotLoop("f16", (64, 16, 64))

WALK = """  %first = tt.get_program_id x : i32
  %programs = tt.get_num_programs x : i32
  %bm_less = arith.subi %bm, %one : i32
  %bn_less = arith.subi %bn, %one : i32
  %down_above = arith.addi %M, %bm_less : i32
  %across_above = arith.addi %N, %bn_less : i32
  %down = arith.divsi %down_above, %bm : i32
  %across = arith.divsi %across_above, %bn : i32
  %count = arith.muli %down, %across : i32
"""
"""How many tiles there are, and which one a program takes first."""

TILE = """  scf.for %tile = %first to %count step %programs : i32 {
  %row = arith.divsi %tile, %across : i32
  %column = arith.remsi %tile, %across : i32
"""

STEPS = """  %step_less = arith.subi %step, %one : i32
  %k_above = arith.addi %K, %step_less : i32
  %k_steps = arith.divsi %k_above, %step : i32
  %last = arith.subi %k_steps, %one : i32
  %left = arith.subi %count, %first : i32
  %programs_less = arith.subi %programs, %one : i32
  %left_above = arith.addi %left, %programs_less : i32
  %mine = arith.divsi %left_above, %programs : i32
  %steps = arith.muli %mine, %k_steps : i32
  %before = arith.subi %first, %programs : i32
  NONE
  %end:5 = scf.for %s = %zero to %steps step %one
      iter_args(%c = %none, %ki = %last, %t = %before, %r = %zero, %q = %zero) -> (SUM, i32, i32, i32, i32) : i32 {
    %ends = arith.cmpi eq, %ki, %last : i32
    %more = arith.addi %ki, %one : i32
    %now = arith.select %ends, %zero, %more : i32
    %begins = arith.cmpi eq, %now, %zero : i32
    %tile, %row, %column = scf.if %begins -> (i32, i32, i32) {
      %t1 = arith.addi %t, %programs : i32
      %r1 = arith.divsi %t1, %across : i32
      %q1 = arith.remsi %t1, %across : i32
      scf.yield %t1, %r1, %q1 : i32, i32, i32
    } else {
      scf.yield %t, %r, %q : i32, i32, i32
    }
    %i = arith.muli %now, %step : i32
    %m0 = arith.muli %row, %bm : i32
    %n0 = arith.muli %column, %bn : i32
BODY
    %stored = arith.cmpi eq, %now, %last : i32
    %next = arith.select %stored, %none, %p : SUM
    scf.if %stored {
STORE
    }
    scf.yield %next, %now, %tile, %row, %column : SUM, i32, i32, i32, i32
  }
"""
"""One loop over the steps of all tiles of a program."""

SUM = "tensor<64x16xf32>"


def text(form: str, *, apart: bool = True, dots: DotLoop = LOOP) -> str:
    """A loop by programs that take tiles in turn: by a loop around it, or, of LOOP, by one loop over all steps."""
    found = dots.text()
    if apart:
        found = found.replace("tt.divisibility = 16 : i32", "tt.divisibility = 16 : i32, louver.apart", 3)
    at = found.index("  %row = tt.get_program_id")
    head, rest = found[:at], found[at:].partition("tt.get_program_id y : i32\n")[2]
    rest = rest.replace("  tt.return\n}", "")
    if form == "nested":
        return f"{head}{WALK}{TILE}{rest}  }}\n  tt.return\n}}"
    (none,) = (
        line
        for line in rest.splitlines()
        if "%none =" in line and "dense" in line and "%x" not in line and "%y" not in line
    )
    loop, _, store = rest.partition("    scf.yield %p")
    body = loop.partition(": i32 {\n")[2]
    store = store.partition("  }\n")[2].replace("%once", "%p")
    made = STEPS.replace("NONE", none.strip()).replace("BODY", body).replace("STORE", store).replace("SUM", SUM)
    return f"{head}{WALK}{made}  tt.return\n}}"


def compiled(form: str, *, apart: bool = True) -> CompiledTiles:
    return compiled_tiles(text(form, apart=apart), ctas=1)


def moved(made: CompiledTiles) -> list[str]:
    """The operation around each copy of boxes: the function, a loop over tiles, or one over steps."""
    parents = [op.parent_op() for op in made.encoded.walk() if isinstance(op, BoxCopiesOp)]
    return ["function" if isinstance(each, FuncOp) else "loop" for each in parents]


@pytest.mark.parametrize("form", ["nested", "flattened"])
def test_barriers_are_made_once(form: str) -> None:
    made = compiled(form)
    (init,) = [op for op in made.encoded.walk() if isinstance(op, InitBarriersOp)]
    assert isinstance(init.parent_op(), FuncOp)
    slots = init.count.value.data
    # Products that run on into the next step keep a slot more.
    flying = any(isinstance(op, DotOp) and op.in_flight is not None for op in made.encoded.walk())
    first = slots - (2 if flying else 1)
    # A loop over all steps begins once; around a loop over a tile's steps the next tile's begin too.
    assert moved(made) == ["function"] * first + ["loop"] * (first + 1 if form == "nested" else 1)
    evens = [op for op in made.encoded.walk() if isinstance(op, EvenBarriersOp)]
    assert len(evens) == (1 if form == "nested" else 0)
    assert assemble(made.ptx, "sm_90a").faults == ()


def test_a_tile_that_may_be_stored_where_the_next_is_read_is_stored_first(rng: np.random.Generator) -> None:
    made = compiled("nested", apart=False)
    assert set(moved(made)) == {"loop"}
    check(made, rng, 5 * 64 - 16, programs=2)


@pytest.mark.parametrize("ctas", [1, 2, None])
def test_slots_go_by_the_ctas_that_share_an_sm(ctas: int | None) -> None:
    made = compiled_tiles(text("nested", dots=DotLoop("f16", (64, 64, 64))), ctas=ctas)
    (init,) = [op for op in made.encoded.walk() if isinstance(op, InitBarriersOp)]
    assert init.count.value.data == {1: 8, 2: 8, None: 4}[ctas]


def check(
    made: CompiledTiles,
    rng: np.random.Generator,
    k: int,
    *,
    programs: int,
    order: Order = Latest(),  # noqa: B008
    kernel: Kernel | None = None,
    size: tuple[int, int] = (150, 40),
) -> None:
    run = LOOP.drawn(rng, *size, k)
    changed = made if kernel is None else replace(made, module=Module(made.module.target, [kernel]))
    d = run.arguments["d"]
    d[...] = np.nan
    emulate_tiles(changed, (programs,), run.arguments, order=order, uninitialised=["d"])
    assert (np.abs(d.astype(np.float64) - run.expected) <= run.magnitude * 2.0**-18).all()


@pytest.mark.parametrize(("k", "programs"), [(64, 1), (144, 2), (11 * 64 - 16, 2), (144, 12)])
@pytest.mark.parametrize("form", ["nested", "flattened"])
def test_results(rng: np.random.Generator, form: str, k: int, programs: int) -> None:
    """One step, fewer than slots, and more; a tail; all tiles, several, and none; one tile with few rows."""
    made = compiled(form)
    for order in (Latest(), Seeded(k + programs)):
        check(made, rng, k, programs=programs, order=order)
        check(made, rng, k, programs=programs, order=order, size=(40, 8))


def test_tiles_may_differ_in_steps(rng: np.random.Generator) -> None:
    """Every second tile has none, and is zeros."""
    mine = """  %two = arith.constant 2 : i32
  %odd = arith.remsi %tile, %two : i32
  %none_here = arith.cmpi eq, %odd, %one : i32
  %end = arith.select %none_here, %zero, %K : i32
  %once = scf.for %i = %zero to %end """
    made = compile_tiles(parse_ir(text("nested").replace("  %once = scf.for %i = %zero to %K ", mine)), ctas=1)
    assert "function" in moved(made)
    run = LOOP.drawn(rng, 150, 40, 144)
    expected = run.expected.copy()
    for tile in range(1, 9, 2):
        row, column = tile // 3 * 64, tile % 3 * 16
        expected[row : row + 64, column : column + 16] = 0
    d = run.arguments["d"]
    for programs in (1, 2, 4):
        d[...] = np.nan
        emulate_tiles(made, (programs,), run.arguments, order=Seeded(programs), uninitialised=["d"])
        assert (np.abs(d.astype(np.float64) - expected) <= run.magnitude * 2.0**-18).all()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["nested", "flattened"])
def test_every_wait_and_barrier_is_needed_and_its_absence_noticed(rng: np.random.Generator, form: str) -> None:
    made = compiled_tiles(text(form), ctas=None)

    def attempt(kernel: Kernel, order: Order) -> None:
        # After four steps all barriers are in phase 1; after nine all four slots have been filled twice.
        for steps in (4, 9):
            check(made, rng, steps * 64, programs=2, order=order, kernel=kernel)
        # Copies bring fewer rows than a slot has.
        check(made, rng, 144, programs=1, order=order, kernel=kernel, size=(40, 8))

    outcomes = survey(made.kernel, attempt)
    # The assembler needs the fence behind a branch, and the wait on a way that is not taken. The last barrier lets no
    # thread store what another one may still read; here nothing is read that is stored.
    flying = ["wgmma.fence", "wgmma.wait_group", "one group"] if form == "nested" else []
    unnoticed = undetected(outcomes)
    assert [each.what.partition(".sync")[0].partition(" of")[0] for each in unnoticed] == [*flying, "barrier"]
    barriers = [outcome.removal for outcome in outcomes if outcome.removal.what.startswith("barrier")]
    assert unnoticed[-1] == barriers[-1]
