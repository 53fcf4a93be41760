"""Products of warpgroups in register tiles: what they compute, in every layout, and that nothing in their order is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects import scf

from louver.compile.compiled import CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.emulator import Earliest, Latest, Seeded
from louver.emulator.order import Order
from louver.ir.context import parse_ir
from louver.ir.tile import AsyncCopyOp, LoadOp, LocalAllocOp, LocalStoreOp
from louver.ptx.assembler import assemble
from louver.ptx.module import Kernel, Module
from support.dot_loops import TYPES, DotLoop, LoopRun
from support.emulate_tiles import emulate_tiles
from support.removal import Outcome, survey, undetected

FORMS = {
    "f16": DotLoop("f16", (64, 64, 64)),
    "f16, sparse on the right": DotLoop("f16", (64, 128, 64), sparse="b"),
    "f16, few columns": DotLoop("f16", (64, 16, 64)),
    "f16, few tokens": DotLoop("f16", (16, 64, 128), sparse="b"),
    "f16, N-major": DotLoop("f16", (64, 64, 64), along_k=False),
    "f16, N-major, two boxes": DotLoop("f16", (64, 128, 64), along_k=False),
    "f16, two blocks of rows": DotLoop("f16", (128, 32, 64), warps=4),
    "f16, two warpgroups": DotLoop("f16", (128, 64, 64), warps=8),
    "f16, warpgroups along columns": DotLoop("f16", (64, 128, 64), warps=8),
    "f16, warpgroups along both": DotLoop("f16", (128, 64, 64), sparse="b", along_k=True, warps=16),
    "f16, dense": DotLoop("f16", (64, 64, 32), sparse="none"),
    "f16, dense, N-major": DotLoop("f16", (64, 64, 32), sparse="none", along_k=False),
    "f16, scaled on the way": DotLoop("f16", (64, 64, 64), scaled=True),
    "f16, half a word a step": DotLoop("f16", (64, 64, 32)),
    "f16, half a word, on the right": DotLoop("f16", (64, 128, 32), sparse="b"),
    "f16, two loops": DotLoop("f16", (64, 64, 64), twice=True),
    "bf16": DotLoop("bf16", (128, 64, 64)),
    "f16, scaled, N-major": DotLoop("f16", (64, 64, 64), scaled=True, along_k=False),
    "f16, of integers": DotLoop("f16", (64, 128, 64), stored="s8"),
    "f16, of integers, N-major": DotLoop("f16", (64, 64, 64), stored="s8", along_k=False),
    "f16 sums": DotLoop("f16", (64, 64, 64), sums="f16"),
    "f16 sums, sparse on the right": DotLoop("f16", (32, 128, 64), sums="f16", sparse="b", warps=8),
    "bf16, of integers": DotLoop("bf16", (64, 32, 64), stored="s8"),
    "e4m3": DotLoop("e4m3", (64, 64, 128)),
    "e4m3, few columns": DotLoop("e4m3", (64, 16, 128)),
    "e4m3, N-major": DotLoop("e4m3", (64, 64, 128), along_k=False),
    "e4m3, N-major, few columns": DotLoop("e4m3", (128, 16, 64), along_k=False, warps=8),
    "e4m3, dense, N-major": DotLoop("e4m3", (64, 128, 64), along_k=False, sparse="none"),
    "e4m3, promoted": DotLoop("e4m3", (64, 64, 128), promoted=64),
    "e4m3, promoted at each step": DotLoop("e4m3", (64, 256, 64), sparse="a", promoted=64, warps=4),
    "e4m3, block scales": DotLoop("e4m3", (64, 64, 128), blocks=True),
    "e4m3, block scales, sparse on the right": DotLoop("e4m3", (32, 128, 128), sparse="b", blocks=True),
    "e4m3, block scales, promoted": DotLoop("e4m3", (64, 32, 128), blocks=True, promoted=64),
    "e4m3, block scales, a block at a time": DotLoop("e4m3", (128, 256, 128), blocks=True),
    "e4m3, block scales, a block at a time, on the right": DotLoop("e4m3", (256, 128, 128), sparse="b", blocks=True),
    "f16, factors along K": DotLoop("f16", (64, 64, 64), factors=True),
    "f16, factors along K, on the right": DotLoop("f16", (64, 128, 32), factors=True, sparse="b"),
    "bf16, factors along K, two words": DotLoop("bf16", (128, 64, 128), factors=True, warps=8),
    "s8, factors along K": DotLoop("s8", (64, 64, 128), factors=True),
    "e5m2": DotLoop("e5m2", (64, 64, 128), sparse="b"),
    "f16, raised": DotLoop("f16", (64, 64, 64), raised=True, sparse="b"),
    "f16, raised, half a word": DotLoop("f16", (64, 128, 32), raised=True, sparse="b"),
    "bf16, raised, two words": DotLoop("bf16", (128, 64, 128), raised=True, sparse="b", warps=8),
    "s8, raised": DotLoop("s8", (64, 64, 64), raised=True, sparse="b"),
    "f16, dense, turned": DotLoop("f16", (128, 64, 64), sparse="none", along_k=False, scaled=True),
    "f16, raised on the left": DotLoop("f16", (64, 64, 64), raised=True),
    "bf16, raised on the left, half a word": DotLoop("bf16", (128, 64, 32), raised=True),
    "s8, raised on the left": DotLoop("s8", (64, 64, 64), raised=True),
    "tf32": DotLoop("f32", (64, 64, 32), precision="tf32"),
    "f32 in two parts": DotLoop("f32", (64, 64, 32), precision="tf32x3"),
    "f32 in parts": DotLoop("f32", (64, 32, 64), precision="ieee"),
    "f32 in parts, N-major": DotLoop("f32", (64, 64, 32), precision="ieee", along_k=False),
    "f32 in parts, sparse on the right": DotLoop("f32", (32, 128, 32), precision="tf32x3", sparse="b", warps=8),
    "f32 in parts, dense, N-major": DotLoop("f32", (64, 16, 16), precision="ieee", sparse="none", along_k=False),
    "f32 in parts, a block at a time": DotLoop("f32", (64, 256, 32), precision="ieee", warps=4),
    "f32 in parts, scaled on the way": DotLoop("f32", (64, 64, 32), precision="tf32x3", scaled=True),
    "f32 in parts, block scales": DotLoop("f32", (64, 128, 32), precision="tf32x3", blocks=True),
    "s8": DotLoop("s8", (64, 64, 128)),
    "s8, dense": DotLoop("s8", (64, 64, 64), sparse="none"),
    "s8, N-major": DotLoop("s8", (64, 32, 128), along_k=False),
}


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("name", FORMS)
def test_results(rng: np.random.Generator, name: str, steps: int) -> None:
    """Rows and columns beyond the tensors, a part of a step at the end, loops of one step and of more than there are slots."""
    loop = FORMS[name]
    m, n, k = loop.tile
    run = loop.drawn(rng, m + 16, n + 16, k * steps - (16 if steps > 1 else 0))
    # Rows of 8-bit values are then no whole chunks: a launch takes the kernel without boxes.
    made = loop.compiled(boxes=TYPES[loop.element][0].itemsize > 1 or loop.sparse == "none" or steps == 1)
    assert "wgmma" in made.ptx
    run.emulate(made, Seeded(steps))


@pytest.mark.parametrize("name", FORMS)
def test_the_assembler_has_nothing_to_say(name: str) -> None:
    assert assemble(FORMS[name].compiled().ptx, "sm_90a").faults == ()


@pytest.mark.parametrize(("tile", "warps"), [((64, 128, 128), 4), ((128, 64, 128), 4), ((128, 128, 128), 8)])
@pytest.mark.parametrize("element", ["f16", "e4m3"])
def test_a_thread_of_a_warpgroup_has_64_sums(element: str, tile: tuple[int, int, int], warps: int) -> None:
    assert DotLoop(element, tile).compiled().signature.threads == 32 * warps


def test_sums_that_fill_the_registers_are_multiplied_by_warps() -> None:
    """16 warps leave a thread 128 registers: the assembler refuses 128 sums of a warpgroup's product, and takes 64."""
    wide, narrow = (DotLoop("f16", (256, n, 64), warps=16).compiled().ptx for n in (256, 128))
    assert "wgmma" not in wide
    assert "wgmma" in narrow


@pytest.mark.parametrize("name", ["f16, scaled on the way", "f16, of integers", "e4m3, N-major"])
def test_what_operands_are_computed_of_is_copied(name: str) -> None:
    made = FORMS[name].compiled(boxes=False)
    (loop,) = (op for op in made.encoded.walk() if isinstance(op, scf.ForOp))
    inside = list(loop.walk())
    assert not any(isinstance(op, LoadOp) for op in inside) and sum(isinstance(op, AsyncCopyOp) for op in inside) == 3


@pytest.mark.parametrize("name", ["f16", "f16, dense, N-major", "s8", "f32 in two parts", "f32 in parts, N-major"])
def test_other_targets_multiply_by_warps(rng: np.random.Generator, name: str) -> None:
    loop = FORMS[name]
    made = compile_tiles(parse_ir(loop.text()), "sm_80")
    assert "wgmma" not in made.ptx and "mma.s" in made.ptx
    assert assemble(made.ptx, "sm_80").faults == ()
    m, n, k = loop.tile
    loop.drawn(rng, m + 16, n, 3 * k - 16).emulate(made)


@pytest.mark.parametrize("order", [Earliest(), Latest(), Seeded(7)], ids=str)
@pytest.mark.parametrize(
    "name", ["f16", "f16, two loops", "f16, scaled on the way", "e4m3, N-major", "e4m3, block scales", "f16 sums"]
)
def test_every_order(rng: np.random.Generator, name: str, order: Order) -> None:
    loop = FORMS[name]
    run = loop.drawn(rng, 64, 128, 64 * 9)
    run.emulate(loop.compiled(), order)


@pytest.mark.parametrize("name", ["f16, scaled on the way", "f16, of integers, N-major", "s8, raised"])
def test_operands_are_computed_in_their_own_step(rng: np.random.Generator, name: str) -> None:
    """Without a second slot for them, as two CTAs may need it."""
    loop = FORMS[name]
    tile = parse_ir(loop.text())
    ahead, made = (compile_tiles(tile, warps=loop.warps, registers=64, ahead=each) for each in (True, False))
    stores = [sum(isinstance(op, LocalStoreOp) for op in each.encoded.walk()) for each in (ahead, made)]
    assert stores[0] > stores[1] == 0
    assert assemble(made.ptx, "sm_90a").faults == ()
    m, n, k = loop.tile
    run = loop.drawn(rng, m, n, k * 6 - 32)
    for order in (Earliest(), Latest(), Seeded(5)):
        run.emulate(made, order)


@pytest.mark.parametrize(
    ("columns", "registers", "at_once", "ctas", "slots"),
    [(128, 128, None, 2, 4), (128, 128, 3, 4, 2), (128, 255, None, 2, 4), (64, 128, None, 3, 4), (64, 128, 3, 3, 4)],
)
def test_rings_leave_room_for_the_ctas_that_registers_let_fit(
    columns: int, registers: int, at_once: int | None, ctas: int, slots: int
) -> None:
    """Two CTAs or more have rings of four slots, unless all CTAs of the launch run at once."""
    tile = parse_ir(DotLoop("f16", (128, columns, 64), warps=4).text())
    made = compile_tiles(tile, warps=4, registers=registers, ctas=at_once)
    found = {op.slots.value.data for op in made.encoded.walk() if isinstance(op, LocalAllocOp)}
    assert (made.ctas_by_shared, found) == (ctas, {slots})


NEEDLESS = {
    "f16": 1,
    "f16, scaled on the way": 1,
    "f16, raised": 1,
    "f16, dense, turned": 1,
    "s8, raised": 3,
    "f16, factors along K": 1,
    "e4m3, block scales": 1,
    "f32 in parts": 2,
    "f32 in parts, N-major": 2,
}
"""Barriers whose removal nothing notices. The last one lets no thread store what another one may still read, and nothing is read here.

Where parts of the first operand are taken from shared memory, a barrier before the loop parts these loads from the operand's store, which
goes elsewhere. So does one in the loop, between loads of metadata and stores of parts, and one between an exchange and zeros in slots.
"""

NEEDLESS_FENCES = {
    "f16": {"wgmma": 2, "one": 1},
    "f16, scaled on the way": {"fence": 2},
    "f16, dense, turned": {"fence": 2},
    "s8, raised": {"fence": 1},
    "f32 in parts": {"wgmma": 1},
    "f32 in parts, N-major": {"wgmma": 1},
}
"""Fences and waits whose removal nothing notices.

Threads fence what they stored before the ring's barriers are made, so that no step has to; here each step has a fence. So they do behind the
zeros of slots, and the fence before the ring's barriers does it again. Products of another
part add to sums that nothing has touched since the products before.

The assembler needs two that the emulator does not: the fence of a second step, whose copies begin in a branch, and the wait where no second
step follows.
"""


@pytest.mark.parametrize("name", NEEDLESS)
def test_every_wait_fence_and_barrier_is_needed_and_its_absence_noticed(rng: np.random.Generator, name: str) -> None:
    loop = FORMS[name]
    made = loop.compiled()
    # More steps than slots, the last of them a part that every product takes.
    # Of the second call copies bring fewer rows than a slot has.
    (m, n, k), part = loop.tile, 32 // TYPES[loop.element][0].itemsize
    runs = [loop.drawn(rng, m, n, k * 6 - part), loop.drawn(rng, m - 16, n - 8 if n == 16 else n - 16, k - part)]

    outcomes = _survey(runs, made)
    kinds = {outcome.removal.what.split()[0] for outcome in outcomes}
    assert len(outcomes) >= 7, kinds
    unnoticed = unneeded(outcomes)
    wanted = {"barrier": NEEDLESS[name], **NEEDLESS_FENCES.get(name, {})}
    assert {each: unnoticed.count(each) for each in unnoticed} == wanted


def test_an_operand_computed_in_its_own_step_is_fenced_once(rng: np.random.Generator) -> None:
    loop = FORMS["f16, dense, turned"]
    made = compile_tiles(parse_ir(loop.text()), ahead=False)
    run = loop.drawn(rng, 128, 64, 64 * 6 - 16)
    run.emulate(made)
    # The other one is for the zeros in slots.
    assert made.ptx.count("fence.proxy.async") == 2
    assert unneeded(_survey([run, loop.drawn(rng, 112, 48, 64 - 16)], made)).count("fence") == 0


def _survey(runs: Sequence[LoopRun], made: CompiledTiles) -> Sequence[Outcome]:
    def attempt(kernel: Kernel, order: Order) -> None:
        for run in runs:
            run.emulate(made, order, kernel)

    return survey(made.kernel, attempt)


def unneeded(outcomes: Sequence[Outcome]) -> list[str]:
    """Kinds of instructions whose removal nothing notices.

    Barriers are visible to copies by `fence.mbarrier_init`; a proxy fence that follows for an operand does the same.
    """
    found = [outcome.what for outcome in undetected(outcomes)]
    return [what.split()[0].split(".")[0] for what in found if not what.startswith("fence.mbarrier_init")]


CHAIN = """tt.func public @k(%out: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %q: !tt.ptr<f16> {tt.divisibility = 16 : i32},
    %a: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %b: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %times: i32) {
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
  %q0 = tt.splat %q : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
  %q1 = tt.addptr %q0, %place : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
  %query = tt.load %q1 : tensor<64x64x!tt.ptr<f16>>
  %sum = scf.for %i = %zero to %times step %one iter_args(%c = %zeros) -> (tensor<64x64xf32>) : i32 {
    %by = arith.muli %i, %size : i32
    %pa = tt.addptr %a, %by : !tt.ptr<f16>, i32
    %a0 = tt.splat %pa : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
    %a1 = tt.addptr %a0, %place : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %x = tt.load %a1 : tensor<64x64x!tt.ptr<f16>>
    %s = tt.dot %query, %x, %zeros : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
    %p = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xf16>
    %pb = tt.addptr %b, %by : !tt.ptr<f16>, i32
    %b0 = tt.splat %pb : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
    %b1 = tt.addptr %b0, %place : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %y = tt.load %b1 : tensor<64x64x!tt.ptr<f16>>
    %less = arith.mulf %c, %half : tensor<64x64xf32>
    %d = tt.dot OPERANDS, %less : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
    scf.yield %d : tensor<64x64xf32>
  }
  %o0 = tt.splat %out : !tt.ptr<f32> -> tensor<64x64x!tt.ptr<f32>>
  %o1 = tt.addptr %o0, %place : tensor<64x64x!tt.ptr<f32>>, tensor<64x64xi32>
  tt.store %o1, %sum : tensor<64x64x!tt.ptr<f32>>
  tt.return
}"""
"""Two dots a step, the second of what the first one gives: as its A, in registers, or as its B, by way of shared memory."""


@pytest.mark.parametrize("boxes", [True, False], ids=["boxes", "gathers"])
@pytest.mark.parametrize("left", [True, False], ids=["A", "B"])
def test_products_of_products(rng: np.random.Generator, left: bool, boxes: bool) -> None:
    # Four CTAs on an SM leave rings too few slots for dots that overlap.
    made = compile_tiles(parse_ir(CHAIN.replace("OPERANDS", "%p, %y" if left else "%y, %p")), boxes=boxes, ctas=4)
    assert ("cp.async.bulk" in made.ptx) == boxes
    assert "mma.sync.aligned.m16" not in made.ptx and made.ptx.count("wgmma.mma_async") == 8
    assert assemble(made.ptx, "sm_90a").faults == ()
    times = 5
    q, a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 64), (times, 64, 64), (times, 64, 64)))
    expected = np.zeros((64, 64))
    for x, y in zip(a.astype(np.float64), b.astype(np.float64), strict=True):
        p = (q.astype(np.float64) @ x).astype(np.float16).astype(np.float64)
        expected = expected / 2 + (p @ y if left else y @ p)
    out = np.full((64, 64), np.nan, np.float32)

    def attempt(kernel: Kernel, order: Order) -> None:
        out[...] = np.nan
        changed = replace(made, module=Module(made.module.target, [kernel]))
        arguments = {"out": out, "q": q, "a": a, "b": b, "times": times}
        emulate_tiles(changed, (1,), arguments, order=order, uninitialised=["out"])
        np.testing.assert_allclose(out, expected, rtol=1e-2, atol=1e-2 * np.abs(expected).max())

    for order in (Earliest(), Latest(), Seeded(3)):
        attempt(made.kernel, order)
    outcomes = survey(made.kernel, attempt)
    assert len(outcomes) >= 8
    unnoticed = unneeded(outcomes)
    # The last barrier guards nothing here.
    # Before the second dot's B is stored threads meet, although they have met since products read it: these read other tiles.
    needless = {"barrier": 1 if left else 2}
    if not boxes:
        # The fence and the barrier before the loop are made again in it, before the first products.
        needless = {"fence": 1, "barrier": needless["barrier"] + 1}
    assert {each: unnoticed.count(each) for each in unnoticed} == needless


SCATTERED = """%two = arith.constant dense<2> : tensor<64x64xi32>
  %further = arith.muli %columns, %two : tensor<64x64xi32>
  %far = arith.addi %rows, %further : tensor<64x64xi32>
  %zeros ="""


@pytest.mark.parametrize("tile", ["%p", "%x"], ids=["computed", "loaded element by element"])
def test_a_tile_times_itself(rng: np.random.Generator, tile: str) -> None:
    """B is in shared memory, also where A, the same tile, could stay in registers."""
    text = CHAIN.replace("OPERANDS", f"{tile}, {tile}")
    text = text.replace("%a0, %place", "%a0, %far").replace("%zeros =", SCATTERED, 1)
    made, times = compile_tiles(parse_ir(text)), 2
    q, a = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((64, 64), (times, 64, 64)))
    expected = np.zeros((64, 64))
    for each in a.reshape(times, -1).astype(np.float64):
        x = each[np.arange(64)[:, None] + 2 * np.arange(64)]
        factor = (q.astype(np.float64) @ x if tile == "%p" else x).astype(np.float16).astype(np.float64)
        expected = expected / 2 + factor @ factor
    out = np.full((64, 64), np.nan, np.float32)
    emulate_tiles(
        made, (1,), {"out": out, "q": q, "a": a, "b": a, "times": times}, order=Seeded(1), uninitialised=["out"]
    )
    np.testing.assert_array_equal(out, expected)
