"""Tiles that bulk copies bring: which loads are boxes, what they compute beside other tiles, and that nothing in their order is missing."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import louver
from louver.compile.compiled import CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.compile.plan.encode.live_sums import most_sums
from louver.emulator import Seeded
from louver.emulator.order import Order
from louver.ir.context import parse_ir
from louver.ir.tile import AsyncCopyOp, BoxCopiesOp, FuncOp, LocalAllocOp
from louver.isa.swizzle import BANK_LINE
from louver.ptx.assembler import assemble
from louver.ptx.module import Kernel
from louver.ptx.sass import disassemble, opcodes
from support.dot_loops import DotLoop
from support.emulate_tiles import emulate_tiles
from support.removal import survey, undetected
from support.signatures import boxes

LOOP = DotLoop("f16", (64, 16, 64))

CHANGES = {
    "as it is": ("", ""),
    "a mask that is no bound": (
        "%y_in = arith.andi %y_r_in, %y_c_in",
        "%y_or = arith.ori %y_r_in, %y_r_in : tensor<16x64xi1>\n  %y_in = arith.andi %y_or, %y_c_in",
    ),
    "an address that is no multiple": ("%b: !tt.ptr<f16> {tt.divisibility = 16 : i32}", "%b: !tt.ptr<f16>"),
    "a value of its own outside": ("%y_none = arith.constant dense<0.0>", "%y_none = arith.constant dense<1.0>"),
}
"""Changes of the loop's text, of the load of b."""

WAYS = {
    "as it is": (3, 0),
    "a mask that is no bound": (2, 1),
    "an address that is no multiple": (2, 0),
    "a value of its own outside": (2, 0),
}
"""Boxes of a step, and tiles that all threads copy."""


def changed(name: str, *, boxes: bool = True) -> CompiledTiles:
    before, after = CHANGES[name]
    text = LOOP.text()
    assert before in text
    return compile_tiles(parse_ir(text.replace(before, after)), boxes=boxes)


def feeds(made: CompiledTiles) -> tuple[int, int]:
    """Boxes and other tiles that a loop copies."""
    inside = [op for op in made.encoded.walk() if op.parent_op() is not None and op.parent_op().name == "scf.for"]  # type: ignore[union-attr]
    boxes = sum(len(op.boxes) for op in inside if isinstance(op, BoxCopiesOp))
    return boxes, sum(isinstance(op, AsyncCopyOp) for op in inside)


@pytest.mark.parametrize("name", WAYS)
def test_which_loads_are_boxes(rng: np.random.Generator, name: str) -> None:
    made = changed(name)
    assert feeds(made) == WAYS[name]
    assert len(boxes(made.signature)) == WAYS[name][0]
    assert assemble(made.ptx, "sm_90a").faults == ()
    if name == "a value of its own outside":
        # Not the product then: only what is read differs.
        return
    m, n, k = LOOP.tile
    LOOP.drawn(rng, m + 16, n + 16, 5 * k - 16).emulate(made, Seeded(1))


@pytest.mark.parametrize("target", ["sm_90a", "sm_120a", "sm_121f"])
def test_boxes_go_where_the_assembler_calls_no_function(rng: np.random.Generator, target: str) -> None:
    made = compile_tiles(parse_ir(LOOP.text()), target)
    spaces = set(re.findall(r"cp\.async\.bulk\.tensor\.\dd\.(\S+)\.global\.tile", made.ptx))
    assert spaces == {"shared::cluster" if target == "sm_90a" else "shared::cta"}
    assembly = assemble(made.ptx, target)
    assert assembly.clean and not any("CALL" in opcode for opcode in opcodes(disassemble(assembly.cubin)))
    m, n, k = LOOP.tile
    LOOP.drawn(rng, m + 16, n + 16, 5 * k - 16).emulate(made, Seeded(1))


@pytest.mark.parametrize(("rows", "shift"), [(48, -16), (41, -7), (48, 0), (48, 16), (100, -16)])
def test_boxes_may_begin_before_arrays_of_few_rows(rng: np.random.Generator, rows: int, shift: int) -> None:
    text = DotLoop("f16", (64, 64, 64), along_k=False).text()
    for before, after in {
        "%K: i32 {tt.divisibility = 16 : i32}": "%K: i32 {tt.divisibility = 16 : i32}, %R: i32, %shift: i32",
        "  %y_r0 = tt.splat %i :": "  %ys = arith.addi %i, %shift : i32\n  %y_r0 = tt.splat %ys :",
        "%y_rm = tt.splat %K": "%y_rm = tt.splat %R",
        "%y_in = arith.andi %y_r_in, %y_c_in": "%y_z = arith.constant dense<0> : tensor<64x64xi32>\n"
        "  %y_lo = arith.cmpi sge, %y_rows, %y_z : tensor<64x64xi32>\n"
        "  %y_i1 = arith.andi %y_r_in, %y_lo : tensor<64x64xi1>\n  %y_in = arith.andi %y_i1, %y_c_in",
    }.items():
        assert before in text
        text = text.replace(before, after)
    made = compile_tiles(parse_ir(text))
    assert {each.argument for each in boxes(made.signature)} == {"a", "b"}
    a, b = louver.prune(rng.standard_normal((64, 128)).astype(np.float16), "2:4"), rng.standard_normal((rows, 64))
    read, d = np.zeros((128, 64)), np.full((64, 64), np.nan, np.float32)
    inside = [row for row in range(128) if 0 <= row + shift < rows]
    read[inside] = b.astype(np.float16)[[row + shift for row in inside]]
    given = {"d": d, "a": louver.compress(a, "2:4"), "b": b.astype(np.float16), "M": 64, "N": 64, "K": 128}
    given |= {"R": rows, "shift": shift & 0xFFFFFFFF}
    emulate_tiles(made, (1, 1), given, order=Seeded(0), uninitialised=["d"])
    np.testing.assert_allclose(d, a.astype(np.float64) @ read, atol=1e-4)


def test_arguments_may_have_the_names_of_parts_of_boxes() -> None:
    text = LOOP.text().replace("%N", "%b_box_rows").replace("%M", "%b_box_tail")
    names = [each.name for each in compile_tiles(parse_ir(text)).signature.parameters]
    assert len(set(names)) == len(names) and "b_box_rows" in names


@pytest.mark.parametrize("ctas", [1, 4])
def test_loops_that_follow_each_other_share_their_room(rng: np.random.Generator, ctas: int) -> None:
    """Each of two loops has the slots of one alone, in the same place, and one tile of sums is held."""
    ring, rings = (compile_tiles(parse_ir(each.text()), ctas=ctas) for each in (LOOP, replace(LOOP, twice=True)))
    slots = [
        [op.slots.value.data for op in made.encoded.walk() if isinstance(op, LocalAllocOp)] for made in (ring, rings)
    ]
    assert slots[1] == 2 * slots[0]
    assert rings.kernel.dynamic_shared < ring.kernel.dynamic_shared + BANK_LINE * 2
    assert rings.ctas_by_shared == ring.ctas_by_shared >= ctas
    m, n, k = LOOP.tile
    # More steps than slots, and a first copy to what the other loop's last product may still read.
    run = replace(LOOP, twice=True).drawn(rng, m, n, 10 * k)
    for seed in range(3):
        run.emulate(rings, Seeded(seed))


@pytest.mark.parametrize(
    ("loop", "sums"),
    [
        (LOOP, 1),
        (replace(LOOP, twice=True), 1),
        (replace(LOOP, blocks=True), 1),
    ],
    ids=["one loop", "two loops", "scaled sums"],
)
def test_sums_that_are_held_at_once(loop: DotLoop, sums: int) -> None:
    (function,) = (op for op in loop.compiled().decomposed.walk() if isinstance(op, FuncOp))
    assert most_sums(function) == sums * loop.tile[0] * loop.tile[1]


def test_sums_of_a_loop_that_wait_for_another_are_held() -> None:
    """The second loop begins anew; both results are stored."""
    text = replace(LOOP, twice=True).text().replace("iter_args(%c = %once)", "iter_args(%c = %none)")
    shape = "tensor<64x16xf32>"
    text = text.replace("  tt.store", f"  %both = arith.addf %once, %total : {shape}\n  tt.store").replace(
        "%o_ptr, %total", "%o_ptr, %both"
    )
    (function,) = (op for op in parse_ir(text).walk() if isinstance(op, FuncOp))
    assert most_sums(function) == 2 * 64 * 16


BATCH = {
    "%y_r = ": """%z = tt.get_program_id z : i32
  %first = arith.constant FIRST : i32
  %entry = arith.addi %z, %first : i32
  %NK = arith.muli %N, %K : i32
  %before = arith.muli %entry, %NK : i32
  %b_z = tt.addptr %b, %before : !tt.ptr<f16>, i32
  %y_r = """,
    "%y_in = arith.andi %y_r_in, %y_c_in": """%z_in = arith.cmpi slt, %entry, %MATRICES : i32
  %z_all = tt.splat %z_in : i1 -> tensor<16x64xi1>
  %y_rc_in = arith.andi %y_r_in, %y_c_in : tensor<16x64xi1>
  %y_in = arith.andi %y_rc_in, %z_all""",
    "%y_base = tt.splat %b :": "%y_base = tt.splat %b_z :",
}
"""Changes of the loop's text: b is a matrix of a batch, and the mask says how many matrices there are."""


@pytest.mark.parametrize(("first", "matrices", "size"), [(0, "M", "M"), (0, "one", "1"), (1, "one", "1")])
def test_a_mask_says_how_many_matrices_a_batch_has(
    rng: np.random.Generator, first: int, matrices: str, size: str
) -> None:
    text = LOOP.text()
    for before, after in BATCH.items():
        assert before in text
        text = text.replace(before, after.replace("FIRST", str(first)).replace("MATRICES", matrices))
    made = compile_tiles(parse_ir(text))
    (box,) = [each for each in boxes(made.signature) if each.argument == "b"]
    assert feeds(made) == (3, 0) and str(box.sizes[2]) == size
    m, n, k = LOOP.tile
    # An array of one matrix, with as many more as the mask leaves out.
    run = LOOP.drawn(rng, m, n, 3 * k)
    if matrices == "M":
        run.arguments["b"] = np.concatenate([run.arguments["b"]] * m)
    # Beyond the last matrix are zeros.
    replace(run, expected=run.expected * (first == 0)).emulate(made)


def test_targets_without_bulk_copies_have_none() -> None:
    made = compile_tiles(parse_ir(LOOP.text()), "sm_80")
    assert not boxes(made.signature) and feeds(made)[0] == 0 and "cp.async" in made.ptx


def test_one_kernel_without_bulk_copies_is_left() -> None:
    made = changed("as it is", boxes=False)
    assert feeds(made) == (0, 3) and not boxes(made.signature) and "mbarrier" not in made.ptx


@pytest.mark.parametrize(
    ("name", "boxes"),
    [
        ("as it is", True),
        pytest.param("as it is", False, marks=pytest.mark.slow),
        pytest.param("a mask that is no bound", True, marks=pytest.mark.slow),
    ],
)
def test_every_wait_and_barrier_is_needed_and_its_absence_noticed(
    rng: np.random.Generator, name: str, boxes: bool
) -> None:
    made = changed(name, boxes=boxes)
    m, n, k = LOOP.tile
    # More steps than slots, so that each slot is filled again. Of the second call copies bring fewer rows than a slot has.
    runs = [LOOP.drawn(rng, *size, 10 * k) for size in ((m, n), (m - 24, n - 7))]

    def attempt(kernel: Kernel, order: Order) -> None:
        for run in runs:
            run.emulate(made, order, kernel)

    assert not undetected(survey(made.kernel, attempt))
