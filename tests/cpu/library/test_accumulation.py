"""Ways to accumulate: which schedules the model takes for them, which ones fit, and what the assembler makes of them."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from xdsl.dialects.builtin import ModuleOp

from louver.choose.configure import choose, deepest
from louver.compile.generate.generate import generate
from louver.compile.pipeline import compile_product
from louver.compile.plan.nest import read_nest
from louver.compile.plan.schedule import Schedule, accumulator_registers
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.context import parse_ir
from louver.ir.sched import ops
from louver.isa.targets import SM_90A
from louver.ptx.assembler import assemble
from louver.ptx.sass import disassemble, opcodes

HALF, HALF_8 = Problem("linear", accumulate="f16"), Problem("matmul", "e4m3", "e5m2", "bf16", accumulate="f16")
PROMOTED = Problem("linear", "e4m3", "e4m3", "f16", accumulate="promoted")


@pytest.mark.parametrize("problem", [HALF, HALF_8])
@pytest.mark.parametrize("aligned", [False, True])
def test_sums_in_f16_take_larger_tiles_where_there_are_many(problem: Problem, aligned: bool) -> None:
    large = choose(problem, 4096, 8192, SM_90A, 132, aligned_output=aligned)
    assert (large.tile.m, large.tile.n, large.roles.consumers, large.ring.stages) == (256, 256, 4, 4)
    few = choose(problem, 1024, 4096, SM_90A, 132, aligned_output=aligned)
    assert (few.tile.m, few.tile.n, few.roles.consumers) == (128, 256, 2)
    assert choose(problem, 1 << 16, 64, SM_90A, 132, aligned_output=aligned).tile.n == 64


@pytest.mark.parametrize("out", ["f16", "f32", "e4m3"])
def test_every_output_of_larger_tiles_leaves_four_stages(out: str) -> None:
    problem = Problem("linear", "e4m3", "e4m3", out, accumulate="f16")
    schedule = choose(problem, 4096, 8192, SM_90A, 132, aligned_output=True)
    assert (schedule.tile.m, schedule.store.way, schedule.ring.stages) == (256, "bulk", 4)


def test_promoted_sums_take_narrower_tiles() -> None:
    large = choose(PROMOTED, 4096, 8192, SM_90A, 132).tile
    assert (large.m, large.n) == (128, 192)
    assert choose(PROMOTED, 1 << 20, 256, SM_90A, 132).tile.n == 128
    assert choose(PROMOTED, 4096, 64, SM_90A, 132).tile.n == 64


@pytest.mark.parametrize(
    ("problem", "schedule", "held", "needed"),
    [
        (PROMOTED, Schedule.of(tile_m=128, tile_n=256, tile_k=128), 240, 280),
        (PROMOTED, Schedule.of(tile_m=256, tile_n=128, tile_k=128), 240, 280),
        (PROMOTED, Schedule.of(tile_m=192, tile_n=192, tile_k=128, consumers=3), 160, 216),
        (Problem("linear"), Schedule.of(tile_m=256, tile_n=256, consumers=4, stages=2), 112, 152),
        (Problem("linear"), Schedule.of(tile_m=256, tile_n=256, stages=2), 240, 280),
        (Problem("linear"), Schedule.of(tile_m=192, tile_n=192, consumers=3, stages=2), 160, None),
    ],
)
def test_sums_that_registers_cannot_hold_are_refused(
    problem: Problem, schedule: Schedule, held: int, needed: int | None
) -> None:
    if needed is None:
        deepest(problem, schedule, SM_90A)
        return
    message = f"consumer warpgroups has {held} registers, got a tile of .* need {needed}: use a smaller tile"
    with pytest.raises(ValueError, match=message):
        deepest(problem, schedule, SM_90A)
    with pytest.raises(ValueError, match=message):
        compile_product(problem, schedule)


def test_registers_of_sums() -> None:
    schedule = Schedule.of(tile_m=256, tile_n=128)
    assert accumulator_registers(schedule, "f32", promoted=False) == 128
    assert accumulator_registers(schedule, "f32", promoted=True) == 256
    assert accumulator_registers(schedule, "f16", promoted=False) == 64


@pytest.mark.parametrize(
    ("limit", "tile_k", "groups"),
    [(64, 64, 8), (128, 64, 4), (200, 64, 4), (256, 64, 2), (256, 128, 2), (4096, 128, 1)],
)
def test_a_round_of_the_main_loop_has_whole_groups(limit: int, tile_k: int, groups: int) -> None:
    """At most as many columns as asked for; what is left of K is promoted step by step."""
    schedule = Schedule.of(tile_n=128, tile_k=tile_k)
    module = generate(read_nest(promoting(limit, tile_k)), schedule, SM_90A)
    main, rest = [op for op in module.walk() if isinstance(op, ops.LoopOp) and _multiplies(op)]
    assert _count(main, ops.PromoteOp) == groups
    assert _count(rest, ops.PromoteOp) == rest.unroll.value.data
    for loop in (main, rest):
        fresh = sum(isinstance(op, ops.MmaOp) and op.fresh is not None for op in loop.walk())
        assert fresh == _count(loop, ops.PromoteOp)


def test_sums_are_not_promoted_inside_a_step() -> None:
    with pytest.raises(
        ValueError, match=r"once a K step at most, got 64 columns .* and tile_k 128: promote less often"
    ):
        generate(read_nest(promoting(64, 128)), Schedule.of(tile_n=128, tile_k=128), SM_90A)


def promoting(limit: int, tile_k: int) -> ModuleOp:
    """A user's kernel that promotes at most `limit` columns at a time."""
    text = str(build_tile_ir(PROMOTED, Tile(128, 128, tile_k)))
    return parse_ir(re.sub(r"maxNumImpreciseAcc = \d+", f"maxNumImpreciseAcc = {limit}", text))


def _multiplies(loop: ops.LoopOp) -> bool:
    return bool(_count(loop, ops.MmaOp))


def _count(loop: ops.LoopOp, kind: type) -> int:
    return sum(isinstance(op, kind) for op in loop.walk())


WIDE = [
    Schedule.of(tile_m=256, tile_n=256, consumers=4, stages=2, staging=32),
    Schedule.of(tile_m=256, tile_n=256, consumers=2, stages=2, staging=32),
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("problem", "schedule"),
    [
        *((HALF, choose(HALF, 4096, 8192, SM_90A, 132, aligned_output=aligned)) for aligned in (False, True)),
        *((HALF_8, choose(HALF_8, 4096, n, SM_90A, 132, aligned_output=True)) for n in (8192, 16)),
        *((PROMOTED, choose(PROMOTED, 4096, n, SM_90A, 132, aligned_output=n > 256)) for n in (8192, 256, 16)),
        (PROMOTED, Schedule.of(tile_m=192, tile_n=128, tile_k=128, consumers=3, stages=4, store="bulk")),
        (Problem("matmul", b_layout="n_major", bias=None, accumulate="f16"), WIDE[0]),
        (Problem("linear", out="f32", bias="row", accumulate="f16"), WIDE[1]),
    ],
)
def test_kernels_assemble_cleanly(problem: Problem, schedule: Schedule) -> None:
    assembly = assemble(compile_product(problem, schedule).ptx)
    assert not [warning.text for warning in assembly.warnings]
    assert assembly.clean, assembly.kernels
    found: Counter[str] = Counter(opcodes(disassemble(assembly.cubin)))
    products = [opcode for opcode in found if "GMMA" in opcode]
    kind = "HGMMA" if problem.a == "f16" else "QGMMA"
    size = "F16" if problem.accumulate == "f16" else "F32"
    assert products and all(
        re.match(rf"{kind}\.SP\.64x{schedule.tile.n}x\d+\.{size}", opcode) for opcode in products
    ), products
    additions = sum(count for opcode, count in found.items() if opcode.startswith("FADD"))
    if problem.accumulate == "promoted":
        assert additions >= schedule.tile.n // 2 * 3
