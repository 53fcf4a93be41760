"""One loop over the steps of all tiles becomes a loop over tiles around a loop over steps, with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

from louver.compile.canonical.nest_loops import nest_loops
from louver.compile.canonical.unroll_programs import unroll_programs
from louver.compile.condition_attributes import conditions
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from louver.ir.tile import FuncOp
from support.golden import Golden
from support.pass_golden import check_pass

BEFORE = """%old = arith.cmpi eq, %counter, %last : i32
      %more = arith.addi %counter, %c1 : i32
      %step = arith.select %old, %c0, %more : i32"""
"""The step is counted before it is used: `counter` begins at -1."""
BEHIND = """%old = arith.cmpi slt, %counter, %last : i32
      %more = arith.addi %counter, %c1 : i32
      %next = arith.select %old, %more, %c0 : i32"""
"""The step is counted behind its use: `counter` is the step, from 0 on."""
REST = "%step = arith.remsi %i, %steps : i32"
"""The step is computed from the number of the loop."""
WRAPPED = """%more = arith.addi %counter, %c1 : i32
      %next = arith.remsi %more, %steps : i32"""
IN_LAST = """%end = arith.cmpi eq, %step, %last : i32
      %after = arith.select %end, %zeros, %added : tensor<8xi32>
      scf.if %end {
        tt.store %to, %added : tensor<8x!tt.ptr<i32>>
      }"""
"""The last step stores the sum and sets it back."""
IN_ONE_BRANCH = """%end = arith.cmpi ne, %step, %last : i32
      %after = scf.if %end -> (tensor<8xi32>) {
        scf.yield %added : tensor<8xi32>
      } else {
        tt.store %to, %added : tensor<8x!tt.ptr<i32>>
        scf.yield %zeros : tensor<8xi32>
      }"""
STORE = """%end = arith.cmpi eq, %step, %last : i32
      scf.if %end {
        tt.store %to, %added : tensor<8x!tt.ptr<i32>>
      }"""
FIRST = "%first = arith.cmpi eq, %step, %c0 : i32\n      "
ALWAYS = "%base = arith.addi %sum, %zeros : tensor<8xi32>"
AT_FIRST = "%base = arith.select %first, %zeros, %sum : tensor<8xi32>"
TILE = """%here, %scale = scf.if %first -> (i32, i32) {
        %new = arith.addi %tile, %c2 : i32
        %factor = arith.addi %new, %c3 : i32
        scf.yield %new, %factor : i32, i32
      } else {
        scf.yield %tile, %old_scale : i32, i32
      }"""


def kernel(
    count: str = BEFORE, tile: str = TILE, base: str = ALWAYS, end: str = IN_LAST, after: str = "after", tail: str = ""
) -> str:
    """Each of two programs sums K numbers in steps of 8, for every second tile from its own number on."""
    counter = "next" if "%next" in count else "step"
    step = count.replace("%counter", "%step") if counter == "next" else count
    argument = "step" if counter == "next" else "counter"
    given = "%minus" if counter == "step" else "%c0"
    return f"""builtin.module {{
  tt.func public @k(%x: !tt.ptr<i32>, %y: !tt.ptr<i32>, %K: i32, %tiles: i32) attributes {{noinline = false}} {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c3 = arith.constant 3 : i32
    %c7 = arith.constant 7 : i32
    %c8 = arith.constant 8 : i32
    %minus = arith.constant -1 : i32
    %zeros = arith.constant dense<0> : tensor<8xi32>
    %lanes = tt.make_range {{start = 0 : i32, end = 8 : i32}} : tensor<8xi32>
    %program = tt.get_program_id x : i32
    %sum8 = arith.addi %K, %c7 : i32
    %steps = arith.divsi %sum8, %c8 : i32
    %last = arith.subi %steps, %c1 : i32
    %share = arith.divsi %tiles, %c2 : i32
    %left = arith.remsi %tiles, %c2 : i32
    %some = arith.cmpi slt, %program, %left : i32
    %mine = scf.if %some -> (i32) {{
      %one_more = arith.addi %share, %c1 : i32
      scf.yield %one_more : i32
    }} else {{
      scf.yield %share : i32
    }}
    %begin = arith.subi %program, %c2 : i32
    %all = arith.muli %steps, %mine : i32
    %r:4 = scf.for %i = %c0 to %all step %c1 iter_args(%{argument} = {given}, %tile = %begin, %old_scale = %c0, %sum = %zeros) -> (i32, i32, i32, tensor<8xi32>) : i32 {{
      {step}
      {FIRST}{tile}
      {base}
      %from = arith.muli %step, %c8 : i32
      %at = tt.splat %from : i32 -> tensor<8xi32>
      %index = arith.addi %at, %lanes : tensor<8xi32>
      %limit = tt.splat %K : i32 -> tensor<8xi32>
      %inside = arith.cmpi slt, %index, %limit : tensor<8xi32>
      %in = tt.splat %x : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
      %where = tt.addptr %in, %index : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
      %read = tt.load %where, %inside, %zeros : tensor<8x!tt.ptr<i32>>
      %by = tt.splat %scale : i32 -> tensor<8xi32>
      %scaled = arith.muli %read, %by : tensor<8xi32>
      %added = arith.addi %base, %scaled : tensor<8xi32>
      %row = arith.muli %here, %c8 : i32
      %out = tt.addptr %y, %row : !tt.ptr<i32>, i32
      %rows = tt.splat %out : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
      %to = tt.addptr %rows, %lanes : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
      {end}
      {tail}
      scf.yield %{counter}, %here, %scale, %{after} : i32, i32, i32, tensor<8xi32>
    }}
    tt.return
  }}
}}
"""


NESTED = {
    "counted before": kernel(),
    "counted behind": kernel(BEHIND),
    "counted around": kernel(WRAPPED),
    "the rest of the loop's number": kernel(REST),
    "set back in the first step": kernel(base=AT_FIRST, end=STORE, after="added"),
    "one branch": kernel(BEHIND, end=IN_ONE_BRANCH),
    "a sum over all tiles": kernel(end=STORE, after="added"),
    "a store of each step": kernel(
        tail="tt.store %to, %scaled : tensor<8x!tt.ptr<i32>>", end=IN_LAST.split("\n      scf")[0]
    ),
}
STAYS = {
    "a load behind the last step's store": kernel(
        tail="%again = tt.load %to : tensor<8x!tt.ptr<i32>>\n      tt.store %to, %again : tensor<8x!tt.ptr<i32>>"
    ),
    "a store in the other steps": kernel(
        end=IN_ONE_BRANCH.replace(
            "scf.yield %added", "tt.store %to, %zeros : tensor<8x!tt.ptr<i32>>\n        scf.yield %added"
        )
    ),
    "the sum before the step": kernel(end=IN_LAST.replace("store %to, %added", "store %to, %sum")),
    "the tile of the step before": kernel(base=ALWAYS.replace("%zeros", "%old_tile")).replace(
        "%base =", "%old_tile = tt.splat %tile : i32 -> tensor<8xi32>\n      %base ="
    ),
    "another number of steps": kernel(BEFORE.replace("%last", "%c7")),
}


def results(text: str, nested: bool, k: int, tiles: int) -> np.ndarray:
    module = parse_ir(text)
    if nested:
        nest_loops(module)
        module.verify()
    y = np.full(8 * tiles, -1, np.int32)
    x = np.random.default_rng(k).integers(-99, 100, k).astype(np.int32)
    run_kernel(module, (2,), {"x": x, "y": y, "K": k, "tiles": tiles})
    return y


def loops(text: str) -> list[scf.ForOp]:
    module = parse_ir(text)
    nest_loops(module)
    return [op for op in module.walk() if isinstance(op, scf.ForOp)]


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "nest-loops", parse_ir(NESTED["counted before"]))


@pytest.mark.parametrize("form", NESTED)
def test_loops_of_tiles_and_steps(form: str) -> None:
    outer, inner = loops(NESTED[form])
    assert inner.parent_op() is outer and not any(isinstance(op, scf.IfOp) for op in outer.walk())


@pytest.mark.parametrize("form", NESTED)
@pytest.mark.parametrize(("k", "tiles"), [(1, 1), (8, 5), (9, 2), (29, 7), (64, 6)])
def test_kernels_keep_their_results(form: str, k: int, tiles: int) -> None:
    np.testing.assert_array_equal(*(results(NESTED[form], nested, k, tiles) for nested in (False, True)))


@pytest.mark.parametrize("form", STAYS)
def test_other_loops_stay(form: str) -> None:
    text = STAYS[form]
    module = parse_ir(text)
    before = str(module)
    nest_loops(module)
    assert [op for op in module.walk() if isinstance(op, scf.ForOp)] and len(loops(text)) == 1
    assert before.count("tt.store") == str(module).count("tt.store")


def test_the_launch_checks_that_there_are_steps() -> None:
    module = parse_ir(NESTED["counted before"])
    nest_loops(module)
    (function,) = [op for op in module.body.ops if isinstance(op, FuncOp)]
    assert conditions(function).positive == ("K",)


@pytest.mark.parametrize("form", ["counted before", "set back in the first step"])
def test_a_program_that_counts_its_share_becomes_one_for_each_tile(form: str) -> None:
    module = parse_ir(NESTED[form])
    nest_loops(module)
    unroll_programs(module)
    module.verify()
    (function,) = [op for op in module.body.ops if isinstance(op, FuncOp)]
    assert conditions(function).programs == 2
    y = np.full(8 * 7, -1, np.int32)
    x = np.random.default_rng(29).integers(-99, 100, 29).astype(np.int32)
    run_kernel(module, (7,), {"x": x, "y": y, "K": 29, "tiles": 7})
    np.testing.assert_array_equal(y, results(NESTED[form], False, 29, 7))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("arith.cmpi slt, %program, %left", "arith.cmpi sle, %program, %left"),
        ("arith.subi %program, %c2", "arith.muli %program, %c2"),
        ("arith.divsi %tiles, %c2", "arith.divsi %tiles, %c3"),
    ],
)
def test_other_shares_stay(old: str, new: str) -> None:
    module = parse_ir(NESTED["counted before"].replace(old, new))
    nest_loops(module)
    unroll_programs(module)
    (function,) = [op for op in module.body.ops if isinstance(op, FuncOp)]
    assert conditions(function).programs is None
