"""Loads of what branches of a loop multiply move before the branches, masked; others stay where they are."""

from __future__ import annotations

import pytest

from louver.compile.plan.feeds.load_before_branches import load_before_branches
from louver.ir.context import parse_ir
from louver.ir.tile import LoadOp
from support.golden import Golden
from support.pass_golden import check_pass

KERNEL = """builtin.module {
  tt.func public @k(%x: !tt.ptr<f16>, %y: !tt.ptr<f32>, %taken: !tt.ptr<i1>, %steps: i32) attributes {noinline = false} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %none = arith.constant dense<0.000000e+00> : tensor<16x16xf32>
    %flat = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32>
    %columns = tt.expand_dims %flat {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %at = tt.broadcast %columns : tensor<1x16xi32> -> tensor<16x16xi32>
    %base = tt.splat %x : !tt.ptr<f16> -> tensor<16x16x!tt.ptr<f16>>
    %out = tt.splat %y : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
    %to = tt.addptr %out, %at : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    %total = scf.for %i = %zero to %steps step %one iter_args(%sum = %none) -> (tensor<16x16xf32>) : i32 {
      %place = tt.addptr %taken, %i : !tt.ptr<i1>, i32
      %goes = tt.load %place : !tt.ptr<i1>
      %next = scf.if %goes -> (tensor<16x16xf32>) {
        STORE
        %first = DIVIDED
        %more = tt.splat %first : i32 -> tensor<16x16xi32>
        %there = arith.addi %more, %at : tensor<16x16xi32>
        %from = tt.addptr %base, %there : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
        %a = tt.load %from : tensor<16x16x!tt.ptr<f16>>
        %d = tt.dot %a, %a, %sum : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
        scf.yield %d : tensor<16x16xf32>
      } else {
        scf.yield %sum : tensor<16x16xf32>
      }
      scf.yield %next : tensor<16x16xf32>
    }
    tt.store %to, %total : tensor<16x16x!tt.ptr<f32>>
    tt.return
  }
}
"""


def kernel(first: str = "arith.muli %i, %steps : i32", store: str = "") -> str:
    """A kernel that multiplies a tile in some steps. first: its first index. store: what the branch does before."""
    return KERNEL.replace("DIVIDED", first).replace("STORE", store)


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "load-before-branches", parse_ir(kernel()))


@pytest.mark.parametrize(
    ("store", "moves"), [("", True), ("tt.store %to, %none : tensor<16x16x!tt.ptr<f32>>", False)], ids=["", "stores"]
)
def test_loads_that_a_store_may_change_stay(store: str, *, moves: bool) -> None:
    module = parse_ir(kernel(store=store))
    load_before_branches(module)
    module.verify()
    tiles = [op for op in module.walk() if isinstance(op, LoadOp) and op.mask is not None]
    assert bool(tiles) == moves


def test_a_divisor_is_no_number_of_steps_that_are_not_taken() -> None:
    module = parse_ir(kernel("arith.divsi %steps, %i : i32"))
    load_before_branches(module)
    module.verify()
    assert "arith.select %goes, %i," in str(module)
