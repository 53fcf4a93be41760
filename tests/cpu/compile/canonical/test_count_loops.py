"""While loops that count become loops over ranges, with the same iterations; every other one stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import scf

from louver.compile.canonical.count_loops import count_loops
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from support.golden import Golden
from support.pass_golden import check_pass

SIZES = [-(2**31), -7, 0, 1, 63, 64, 65, 128, 300]

UP, DOWN = "%next = arith.addi %at, %c64 : i32", "%next = arith.subi %at, %c64 : i32"


def kernel(test: str, turn: str, *, first: str = "%c0", passed: str = "%k, %sum", taken: str = "%at, %total") -> str:
    """A loop that carries `first` and a sum, to which each turn adds the counter (its weight changes from turn to turn)."""
    return f"""builtin.module {{
  tt.func public @k(%out: !tt.ptr<i32>, %K: i32) attributes {{noinline = false}} {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %c64 = arith.constant 64 : i32
    %down = arith.constant -64 : i32
    %r0, %r1 = scf.while (%k = {first}, %sum = %c1) : (i32, i32) -> (i32, i32) {{
      {test}
      scf.condition(%go) {passed} : i32, i32
    }} do {{
    ^bb0({taken.replace(",", ": i32,")}: i32):
      {turn}
      %weighted = arith.muli %total, %c3 : i32
      %after = arith.addi %weighted, %at : i32
      scf.yield %next, %after : i32, i32
    }}
    %p0 = tt.addptr %out, %c0 : !tt.ptr<i32>, i32
    %p1 = tt.addptr %out, %c1 : !tt.ptr<i32>, i32
    tt.store %p0, %r0 : !tt.ptr<i32>
    tt.store %p1, %r1 : !tt.ptr<i32>
    tt.return
  }}
}}
"""


COUNTED = {
    "below": kernel("%go = arith.cmpi slt, %k, %K : i32", UP),
    "above, exchanged": kernel("%go = arith.cmpi sgt, %K, %k : i32", UP),
    "at most": kernel("%go = arith.cmpi sle, %k, %K : i32", UP),
    "down to 0": kernel("%go = arith.cmpi sgt, %k, %c0 : i32", DOWN, first="%K"),
    "down, 0 too": kernel("%go = arith.cmpi sle, %c0, %k : i32", DOWN, first="%K"),
    "down to 64": kernel("%go = arith.cmpi sgt, %k, %c64 : i32", DOWN, first="%K"),
    "up from a size": kernel("%m = arith.addi %K, %c64 : i32\n      %go = arith.cmpi sle, %k, %m : i32", UP, first="%K"),
    "down by a negative number": kernel(
        "%go = arith.cmpi sge, %k, %c3 : i32", "%next = arith.addi %down, %at : i32", first="%K"
    ),
    "a whole step fits": kernel("%v = arith.addi %k, %c64 : i32\n      %go = arith.cmpi sle, %v, %K : i32", UP),
    "what is left": kernel("%v = arith.subi %K, %k : i32\n      %go = arith.cmpi sgt, %v, %c0 : i32", UP),
    "less than before": kernel("%v = arith.subi %k, %c3 : i32\n      %go = arith.cmpi slt, %v, %K : i32", UP),
    "a computed end": kernel(
        "%m = arith.divsi %K, %c3 : i32\n      %go = arith.cmpi slt, %k, %m : i32", UP
    ),
    "by the number of programs": kernel(
        "%go = arith.cmpi slt, %k, %K : i32", "%n = tt.get_num_programs x : i32\n      %next = arith.addi %at, %n : i32"
    ),
    "carried in another order": kernel(
        "%go = arith.cmpi slt, %k, %K : i32", UP, passed="%sum, %k", taken="%total, %at"
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", COUNTED)
def test_a_loop_that_counts_becomes_a_range(form: str) -> None:
    before = parse_ir(COUNTED[form])
    after = before.clone()
    count_loops(after)
    after.verify()
    text = str(after)
    assert "scf.while" not in text and text.count("scf.for") == 1
    assert str(parse_ir(text)) == text
    count_loops(after)
    assert str(after) == text
    for size in SIZES:
        found = [np.full(2, -1, np.int32) for _ in range(2)]
        for module, out in zip((before, after), found, strict=True):
            run_kernel(module, (3,), {"out": out, "K": size})
        assert found[0].tolist() == found[1].tolist(), size


BEGINS = {"cmpi": "cmpi sgt, %K, %c0 : i32", "other": "cmpi sgt, %K, %c1 : i32"}
"""Conditions of a first turn."""


def once(test: str, turn: str, *, first: str = "%c0", begins: str = "true", passed: str = "%k, %sum") -> str:
    """A loop of `kernel` that tests after each turn."""
    return (
        kernel("", turn, first=first, passed=passed)
        .replace("%sum = %c1)", "%sum = %c1, %go = %begins)")
        .replace("(i32, i32) -> (i32, i32) {", "(i32, i32, i1) -> (i32, i32) {")
        .replace("%down =", f"%begins = arith.{BEGINS.get(begins, f'constant {begins}')}\n    %down =")
        .replace("scf.yield %next, %after : i32, i32", f"{test}\n      scf.yield %next, %after, %on : i32, i32, i1")
    )


BELOW = "%on = arith.cmpi slt, %next, %K : i32"

ONCE = {
    "below": once(BELOW, UP),
    "at most": once("%on = arith.cmpi sle, %next, %K : i32", UP),
    "above, exchanged": once("%on = arith.cmpi sgt, %K, %next : i32", UP),
    "up from another number": once(BELOW, UP, first="%c3"),
    "down": once("%on = arith.cmpi sgt, %next, %c3 : i32", DOWN, first="%K"),
    "down, too": once("%on = arith.cmpi sge, %next, %c0 : i32", DOWN, first="%K"),
    "tests before it too": once(BELOW, UP, begins="cmpi"),
    "by the number of programs": once(
        BELOW, "%n = tt.get_num_programs x : i32\n      %next = arith.addi %at, %n : i32"
    ),
}


@pytest.mark.parametrize("form", ONCE)
def test_a_loop_that_tests_after_a_turn_runs_once_at_least(form: str) -> None:
    before = parse_ir(ONCE[form])
    after = before.clone()
    count_loops(after)
    after.verify()
    text = str(after)
    assert "scf.while" not in text and text.count("scf.for") == 1 and "i1" not in text
    count_loops(after)
    assert str(after) == text
    # From -2**31, the counter goes down to 2**31.
    for size in SIZES[1 if form.startswith("down") else 0 :]:
        found = [np.full(2, -1, np.int32) for _ in range(2)]
        for module, out in zip((before, after), found, strict=True):
            run_kernel(module, (3,), {"out": out, "K": size})
        assert found[0].tolist() == found[1].tolist(), size


OTHERS = {
    "may run not at all": once(BELOW, UP, begins="false"),
    "tests another number before it": once(BELOW, UP, begins="other"),
    "tests what it had before": once("%on = arith.cmpi slt, %at, %K : i32", UP),
    "tests a sum": once("%on = arith.cmpi slt, %after, %K : i32", UP),
    "away from the end that it tests": once(BELOW, DOWN),
    "tests what a turn loads": once("%m = tt.load %out : !tt.ptr<i32>\n      %on = arith.cmpi slt, %next, %m : i32", UP),
    "tests equality": once("%on = arith.cmpi ne, %next, %K : i32", UP),
    "until equal": kernel("%go = arith.cmpi ne, %k, %K : i32", UP),
    "unsigned": kernel("%go = arith.cmpi ult, %k, %K : i32", UP),
    "away from its end": kernel("%go = arith.cmpi slt, %k, %K : i32", DOWN),
    "by a size": kernel("%go = arith.cmpi slt, %k, %K : i32", "%next = arith.addi %at, %K : i32"),
    "by nothing": kernel("%go = arith.cmpi slt, %k, %K : i32", "%next = arith.addi %at, %c0 : i32"),
    "by what it carries": kernel("%go = arith.cmpi slt, %k, %K : i32", "%next = arith.addi %at, %total : i32"),
    "doubling": kernel("%go = arith.cmpi slt, %k, %K : i32", "%next = arith.muli %at, %c64 : i32"),
    "to what it carries": kernel("%go = arith.cmpi slt, %k, %sum : i32", UP),
    "two conditions": kernel(
        "%x = arith.cmpi slt, %k, %K : i32\n      %y = arith.cmpi slt, %sum, %K : i32\n"
        "      %go = arith.andi %x, %y : i1", UP,
    ),
    "an end in memory": kernel("%m = tt.load %out : !tt.ptr<i32>\n      %go = arith.cmpi slt, %k, %m : i32", UP),
    "a multiple of its counter": kernel(
        "%v = arith.muli %k, %c3 : i32\n      %go = arith.cmpi slt, %v, %K : i32", UP
    ),
    "what it passes on is computed": kernel(
        "%v = arith.addi %sum, %k : i32\n      %go = arith.cmpi slt, %k, %K : i32", UP, passed="%k, %v"
    ),
    "a queue": kernel(
        "%go = arith.cmpi slt, %k, %K : i32",
        "%true = arith.constant true\n"
        "      %next = tt.atomic_rmw add, acq_rel, gpu, %out, %c1, %true : (!tt.ptr<i32>, i32, i1) -> i32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", OTHERS)
def test_a_loop_that_does_not_count_stays(form: str) -> None:
    module = parse_ir(OTHERS[form])
    before = str(module)
    count_loops(module)
    assert str(module) == before


def test_loops_inside_of_loops_and_pointers(golden: Golden) -> None:
    inner = """%go = arith.cmpi slt, %i, %K : i32
        scf.condition(%go) %i, %q : i32, !tt.ptr<f32>"""
    module = parse_ir(f"""builtin.module {{
  tt.func public @k(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>, %K: i32) attributes {{noinline = false}} {{
    %c0 = arith.constant 0 : i32
    %c2 = arith.constant 2 : i32
    %zero = arith.constant 0.0 : f32
    %left, %total = scf.while (%k = %K, %sum = %zero) : (i32, f32) -> (i32, f32) {{
      %more = arith.cmpi sgt, %k, %c0 : i32
      scf.condition(%more) %k, %sum : i32, f32
    }} do {{
    ^bb0(%k: i32, %sum: f32):
      %j, %end = scf.while (%i = %c0, %q = %x) : (i32, !tt.ptr<f32>) -> (i32, !tt.ptr<f32>) {{
        {inner}
      }} do {{
      ^bb1(%i: i32, %q: !tt.ptr<f32>):
        %r = tt.addptr %q, %c2 : !tt.ptr<f32>, i32
        %next = arith.addi %i, %c2 : i32
        scf.yield %next, %r : i32, !tt.ptr<f32>
      }}
      %value = tt.load %end : !tt.ptr<f32>
      %more_sum = arith.addf %sum, %value : f32
      %less = arith.subi %k, %c2 : i32
      scf.yield %less, %more_sum : i32, f32
    }}
    tt.store %out, %total : !tt.ptr<f32>
    tt.return
  }}
}}
""")
    x = np.random.default_rng(5).standard_normal(20).astype(np.float32)
    found = [np.full(1, np.nan, np.float32) for _ in range(2)]
    run_kernel(module, (1,), {"x": x, "out": found[0], "K": 7})
    check_pass(golden, "count-loops", module)
    assert len([op for op in module.walk() if isinstance(op, scf.ForOp)]) == 2
    run_kernel(module, (1,), {"x": x, "out": found[1], "K": 7})
    assert found[0] == found[1] == np.float32(4 * x[8])
