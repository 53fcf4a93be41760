"""Integers that a kernel computes twice are computed once, with the same results; unequal ones stay apart."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.canonical.join_equal_integers import join_equal_integers
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from support.golden import Golden
from support.pass_golden import check_pass


def kernel(setup: str, first: str, body: str, last: str = "%c0") -> str:
    """A loop over tiles that carries `%behind`, and stores for each two numbers, `%one` and `%two`, that `body` computes."""
    return f"""builtin.module {{
  tt.func public @k(%out: !tt.ptr<i32>, %M: i32, %N: i32) attributes {{noinline = false}} {{
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c3 = arith.constant 3 : i32
    %program = tt.get_program_id x : i32
    {setup}
    %end = scf.for %tile = %program to %M step %c3 iter_args(%behind = {first}) -> (i32) : i32 {{
      {body}
      %twice = arith.muli %tile, %c2 : i32
      %next = arith.addi %twice, %c1 : i32
      %p = tt.addptr %out, %twice : !tt.ptr<i32>, i32
      %q = tt.addptr %out, %next : !tt.ptr<i32>, i32
      tt.store %p, %one : !tt.ptr<i32>
      tt.store %q, %two : !tt.ptr<i32>
      %on = arith.addi %behind, %c3 : i32
      scf.yield %on : i32
    }}
    tt.return
  }}
}}
"""


BEHIND = "%before = arith.subi %program, %c3 : i32"
EQUAL = {
    "a second counter": kernel(
        BEHIND, "%before", "%now = arith.addi %c3, %behind : i32\n%one = arith.remsi %tile, %c2 : i32\n%two = arith.remsi %now, %c2 : i32"
    ),
    "quotients by equal sums": kernel(
        "", "%c0",
        "%a = arith.addi %N, %c1 : i32\n%b = arith.addi %c1, %N : i32\n"
        "%one = arith.divsi %tile, %a : i32\n%two = arith.divsi %tile, %b : i32",
    ),
    "comparisons": kernel(
        "", "%c0",
        "%a = arith.cmpi slt, %tile, %N : i32\n%b = arith.cmpi slt, %tile, %N : i32\n"
        "%one = arith.select %a, %c1, %c2 : i32\n%two = arith.select %b, %c1, %c2 : i32",
    ),
}  # fmt: skip
APART = {
    "another first number": kernel(
        "%before = arith.subi %program, %c2 : i32", "%before",
        "%now = arith.addi %c3, %behind : i32\n%one = arith.remsi %tile, %c2 : i32\n%two = arith.remsi %now, %c2 : i32",
    ),
    "another comparison": kernel(
        "", "%c0",
        "%a = arith.cmpi slt, %tile, %N : i32\n%b = arith.cmpi sle, %tile, %N : i32\n"
        "%one = arith.select %a, %c1, %c2 : i32\n%two = arith.select %b, %c1, %c2 : i32",
    ),
    "a product that wraps": kernel(
        "", "%c0",
        "%s = arith.muli %N, %N : i32\n%w = arith.extsi %s : i32 to i64\n%n = arith.extsi %N : i32 to i64\n"
        "%v = arith.muli %n, %n : i64\n%h = arith.extsi %c1 : i32 to i64\n%r = arith.divsi %v, %w : i64\n"
        "%one = arith.addi %s, %c0 : i32\n%two = arith.trunci %r : i64 to i32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", [*EQUAL, *APART])
def test_kernels_keep_their_results(form: str) -> None:
    before = parse_ir({**EQUAL, **APART}[form])
    after = before.clone()
    join_equal_integers(after)
    after.verify()
    again = str(after)
    join_equal_integers(after)
    assert str(after) == again
    names = [op.operands[1] for op in after.walk() if op.name == "tt.store"]
    assert (names[0] is names[1]) == (form in EQUAL)
    found = [np.full(16, -1, np.int32) for _ in range(2)]
    for module, out in zip((before, after), found, strict=True):
        run_kernel(module, (3,), {"out": out, "M": 8, "N": 70000})
    assert found[0].tolist() == found[1].tolist()
    assert (found[0] >= 0).any()


def test_what_differs_between_branches_stays() -> None:
    text = """builtin.module {
  tt.func public @k(%out: !tt.ptr<i32>, %N: i32) attributes {noinline = false} {
    %c1 = arith.constant 1 : i32
    %go = arith.cmpi slt, %c1, %N : i32
    scf.if %go {
      %a = arith.addi %N, %c1 : i32
      tt.store %out, %a : !tt.ptr<i32>
    } else {
      %b = arith.addi %N, %c1 : i32
      tt.store %out, %b : !tt.ptr<i32>
    }
    tt.return
  }
}
"""
    module = parse_ir(text)
    before = str(module)
    join_equal_integers(module)
    module.verify()
    assert str(module) == before


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "join-equal-integers", parse_ir(EQUAL["a second counter"]))
