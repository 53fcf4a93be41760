"""A tile that a branch's condition chooses beside it becomes the branch's result, if both values are there before the branch."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.canonical.join_choices import join_choices
from louver.ir.comparisons import SelectOp
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from support.golden import Golden
from support.pass_golden import check_pass

KERNEL = """builtin.module {
  tt.func public @k(%out: !tt.ptr<i32>, %N: i32) attributes {noinline = false} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %eight = arith.constant 8 : i32
    %none = arith.constant dense<0> : tensor<8xi32>
    %r = tt.make_range {start = 0 : i32, end = 8 : i32} : tensor<8xi32>
    %base = tt.splat %out : !tt.ptr<i32> -> tensor<8x!tt.ptr<i32>>
    %end = scf.for %i = %zero to %eight step %one iter_args(%c = %none) -> (tensor<8xi32>) : i32 {
      %p = arith.addi %c, %r : tensor<8xi32>
      %rest = arith.remsi %i, %N : i32
      %last = arith.cmpi eq, %rest, %one : i32
      BEFORE
      scf.if %last {
        %first = arith.muli %i, %eight : i32
        %by = tt.splat %first : i32 -> tensor<8xi32>
        %at = tt.addptr %base, %by : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
        %place = tt.addptr %at, %r : tensor<8x!tt.ptr<i32>>, tensor<8xi32>
        tt.store %place, STORED : tensor<8x!tt.ptr<i32>>
      }
      BEHIND
      scf.yield %next : tensor<8xi32>
    }
    tt.return
  }
}
"""

CHOICE = "%next = arith.select %last, %none, %p : tensor<8xi32>"
TURNED = "%next = arith.select %last, %p, %none : tensor<8xi32>"
LATER = "%q = arith.addi %p, %r : tensor<8xi32>\n%next = arith.select %last, %none, %q : tensor<8xi32>"

CASES = {
    "before": (CHOICE, "%p", "", 0),
    "behind": ("", "%p", CHOICE, 0),
    "the other way around": (TURNED, "%p", "", 0),
    "used in the branch": (CHOICE, "%next", "", 1),
    "of a value made behind": ("", "%p", LATER, 1),
}
"""Text before the branch, what it stores, text behind it, and the choices that stay."""


@pytest.mark.parametrize("name", CASES)
def test_choices_join_the_branch(name: str) -> None:
    before, stored, behind, left = CASES[name]
    module = parse_ir(KERNEL.replace("BEFORE", before).replace("STORED", stored).replace("BEHIND", behind))
    results: list[np.ndarray] = []
    for joined in (False, True):
        if joined:
            join_choices(module)
            module.verify()
            assert sum(isinstance(op, SelectOp) for op in module.walk()) == left
        out = np.full(64, -1, np.int32)
        run_kernel(module, (1,), {"out": out, "N": 3})
        results.append(out)
    np.testing.assert_array_equal(*results)
    assert (results[0] >= 0).any()


def test_before_and_after(golden: Golden) -> None:
    text = KERNEL.replace("BEFORE", CHOICE).replace("STORED", "%p").replace("BEHIND", "")
    check_pass(golden, "join-choices", parse_ir(text))
