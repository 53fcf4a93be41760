"""A tensor that is sparse along its last axis but one is read as it is stored, and the tile is turned back."""

from __future__ import annotations

import re

import pytest

from louver.compile.canonical.turn_across import turn_across
from louver.compile.condition_attributes import conditions
from louver.ir.context import parse_ir
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import FuncOp
from support.golden import Golden
from support.pass_golden import check_pass

KERNEL = """builtin.module {
  tt.func public @k(%w: !tt.ptr<f16, #tt.sparse<"NV24">> {louver.name = "w"}, %y: !tt.ptr<f16> {louver.name = "y"}, %K: i32 {louver.name = "K"}, %N: i32 {louver.name = "N"}, %length: i32 {louver.name = "w.K"}) attributes {noinline = false, louver.across = ["w"]} {
    %zero = arith.constant 0 : i32
    %pitch = arith.extsi %N : i32 to i64
    %tiles = tt.make_tensor_descriptor %w, [%K, %N], [%pitch, 1] : <f16, #tt.sparse<"NV24">>, <tensor<64x32xf16, #tt.sparse<"NV24">>>
    %tile = tt.descriptor_load %tiles[%zero, %N] : !tt.tensordesc<tensor<64x32xf16, #tt.sparse<"NV24">>> -> tensor<64x32xf16, #tt.sparse<"NV24">>
    %x = arith.constant dense<1.0> : tensor<16x64xf16>
    %none = arith.constant dense<0.0> : tensor<16x32xf32>
    %total = tt.dot %x, %tile, %none : tensor<16x64xf16> * tensor<64x32xf16, #tt.sparse<"NV24">> -> tensor<16x32xf32>
    tt.return
  }
}
"""


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "turn-across", parse_ir(KERNEL))


def test_the_launch_checks_how_far_rows_are_apart() -> None:
    module = parse_ir(KERNEL)
    turn_across(module)
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    assert [(name, str(apart)) for name, apart in conditions(function).rows_apart] == [("w", "N")]


def test_without_a_mark_nothing_changes() -> None:
    module = parse_ir(KERNEL.replace(', louver.across = ["w"]', ""))
    before = str(module)
    turn_across(module)
    assert str(module) == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[%K, %N], [%pitch, 1]",
            "[%K, %N], [%odd, 1]",
            "a stride of a sparse tensor must be an argument, a number, or a product",
        ),
    ],
)
def test_strides_that_no_launch_compares_are_refused(old: str, new: str, message: str) -> None:
    odd = "%odd = arith.addi %pitch, %pitch2 : i64"
    text = KERNEL.replace(old, new).replace(
        "    %tiles", f"    %pitch2 = arith.extsi %K : i32 to i64\n    {odd}\n    %tiles"
    )
    with pytest.raises(UnsupportedKernelError, match=re.escape(message)):
        turn_across(parse_ir(text))
