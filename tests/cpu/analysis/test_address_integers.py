"""The arguments that decide where and whether sparse tiles are read."""

from __future__ import annotations

from louver.analysis.address_integers import address_arguments
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp

KERNEL = """tt.func public @k(%w: !tt.ptr<f16>, %x: !tt.ptr<f16>, %y: !tt.ptr<f16>, %table: !tt.ptr<i32>, %row: i32, %start: i32,
    %stride: i32, %bound: i32, %flag: i32, %steps: i32, %turns: i32, %x_row: i32, %x_end: i32, %scale: i32, %unused: i32) {
  %zero = arith.constant 0 : i32
  %lanes = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32>
  %set = arith.cmpi ne, %flag, %zero : i32
  %many = scf.for %i = %zero to %turns step %turns iter_args(%sum = %zero) -> (i32) : i32 {
    %next = arith.addi %sum, %scale : i32
    scf.yield %next : i32
  }
  scf.if %set {
    %entry = tt.addptr %table, %start : !tt.ptr<i32>, i32
    %loaded = tt.load %entry : !tt.ptr<i32>
    %first = arith.muli %loaded, %row : i32
    %last, %other = scf.for %i = %zero to %steps step %stride iter_args(%at = %first, %carried = %unused) -> (i32, i32) : i32 {
      %w_at = tt.addptr %w, %at : !tt.ptr<f16>, i32
      %base = tt.splat %w_at : !tt.ptr<f16> -> tensor<16x!tt.ptr<f16>>
      %to = tt.addptr %base, %lanes : tensor<16x!tt.ptr<f16>>, tensor<16xi32>
      %size = tt.splat %bound : i32 -> tensor<16xi32>
      %inside = arith.cmpi slt, %lanes, %size : tensor<16xi32>
      %tile = tt.load %to, %inside : tensor<16x!tt.ptr<f16>>
      %x_to = tt.addptr %x, %x_row : !tt.ptr<f16>, i32
      %x_base = tt.splat %x_to : !tt.ptr<f16> -> tensor<16x!tt.ptr<f16>>
      %x_at = tt.addptr %x_base, %lanes : tensor<16x!tt.ptr<f16>>, tensor<16xi32>
      %x_size = tt.splat %x_end : i32 -> tensor<16xi32>
      %x_inside = arith.cmpi slt, %lanes, %x_size : tensor<16xi32>
      %beside = tt.load %x_at, %x_inside : tensor<16x!tt.ptr<f16>>
      %both = arith.addf %tile, %beside : tensor<16xf16>
      %y_to = tt.addptr %y, %many : !tt.ptr<f16>, i32
      %y_base = tt.splat %y_to : !tt.ptr<f16> -> tensor<16x!tt.ptr<f16>>
      tt.store %y_base, %both : tensor<16x!tt.ptr<f16>>
      %more = arith.addi %at, %i : i32
      %changed = arith.addi %carried, %x_row : i32
      scf.yield %more, %changed : i32, i32
    }
    scf.yield
  }
  tt.return
}"""


def test_addresses_masks_loops_and_branches_decide_and_other_values_do_not() -> None:
    (function,) = (op for op in parse_ir(KERNEL).body.ops if isinstance(op, FuncOp))
    found = address_arguments(function, ["w"])
    assert found == {"w", "table", "row", "start", "stride", "bound", "flag", "steps", "x_end"}
    assert address_arguments(function, ["x"]) == {"x", "x_row", "x_end", "bound", "flag", "steps", "stride"}
