"""Tiles that repeat one row, and numbers of programs in 64 bits."""

from __future__ import annotations

import re

import pytest
from xdsl.dialects.builtin import ModuleOp

from louver.compile.canonical.describe_tiles import describe_tiles
from louver.compile.canonical.number_tiles import narrow_sums
from louver.frontend.ttir import read_ttir
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import FuncOp

BIAS = """
tt.func public @bias(%y: !tt.ptr<f16>, %bias: !tt.ptr<f16>, %M: i32, %N: i32) {
  %zeros = arith.constant dense<0.0> : tensor<16x32xf16>
  %c16 = arith.constant 16 : i32
  %p = tt.get_program_id x : i32
  %first = arith.muli %p, %c16 : i32
  %f = tt.splat %first : i32 -> tensor<16xi32>
  %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  %m0 = arith.addi %f, %r : tensor<16xi32>
  %m1 = tt.expand_dims %m0 {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
  %n0 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
  %n1 = tt.expand_dims %n0 {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
  %Ms = tt.splat %M : i32 -> tensor<16x1xi32>
  %Ns = tt.splat %N : i32 -> tensor<1x32xi32>
  %mm = arith.cmpi slt, %m1, %Ms : tensor<16x1xi32>
  %nn = arith.cmpi slt, %n1, %Ns : tensor<1x32xi32>
  %rows = tt.broadcast %mm : tensor<16x1xi1> -> tensor<16x32xi1>
  %columns = tt.broadcast %nn : tensor<1x32xi1> -> tensor<16x32xi1>
  %mask = arith.andi %rows, %columns : tensor<16x32xi1>
  %n = tt.broadcast %n1 : tensor<1x32xi32> -> tensor<16x32xi32>
  %b = tt.splat %bias : !tt.ptr<f16> -> tensor<16x32x!tt.ptr<f16>>
  %bp = tt.addptr %b, %n : tensor<16x32x!tt.ptr<f16>>, tensor<16x32xi32>
  %v = tt.load %bp, %mask, %zeros : tensor<16x32x!tt.ptr<f16>>
  %s = tt.splat %N : i32 -> tensor<16x1xi32>
  %mN = arith.muli %m1, %s : tensor<16x1xi32>
  %mb = tt.broadcast %mN : tensor<16x1xi32> -> tensor<16x32xi32>
  %at = arith.addi %mb, %n : tensor<16x32xi32>
  %yb = tt.splat %y : !tt.ptr<f16> -> tensor<16x32x!tt.ptr<f16>>
  %yp = tt.addptr %yb, %at : tensor<16x32x!tt.ptr<f16>>, tensor<16x32xi32>
  tt.store %yp, %v, %mask : tensor<16x32x!tt.ptr<f16>>
  tt.return
}
"""


def described(text: str) -> str:
    module = read_ttir(text)
    describe_tiles(module)
    module.verify()
    return str(module)


def test_a_row_that_a_tile_repeats_is_loaded_once() -> None:
    found = described(BIAS)
    assert re.search(r"descriptor_load .*tensor<32xf16>", found)
    assert re.search(r"tt.broadcast .*tensor<1x32xf16> -> tensor<16x32xf16>", found)


def test_rows_that_its_mask_leaves_out_are_stored_by_no_one() -> None:
    with pytest.raises(UnsupportedKernelError, match="may reach nothing but a store that masks them"):
        described(BIAS.replace("%yp, %v, %mask", "%yp, %v, %columns"))


SUMS = """
tt.func public @sums(%y: !tt.ptr<i32>) {
  %c8 = arith.constant 4294967304 : i64
  %p = tt.get_program_id x : i32
  %wide = arith.extsi %p : i32 to i64
  %product = arith.muli %wide, %c8 : i64
  %sum = arith.addi %product, %wide : i64
  %low = arith.trunci %sum : i64 to i32
  %half = arith.divsi %sum, %c8 : i64
  %kept = arith.trunci %half : i64 to i32
  tt.store %y, %low : !tt.ptr<i32>
  tt.store %y, %kept : !tt.ptr<i32>
  tt.return
}
"""


def test_sums_that_are_cut_off_are_computed_in_as_few_bits() -> None:
    module: ModuleOp = read_ttir(SUMS)
    (function,) = [op for op in module.body.ops if isinstance(op, FuncOp)]
    narrow_sums(function)
    module.verify()
    found = str(module)
    # Of the constant its low bits are left; a quotient needs all of them.
    assert re.search(r"arith.constant 8 : i32", found) and re.search(r"arith.addi .* : i32", found)
    assert found.count("arith.trunci") == 1 and re.search(r"arith.divsi .* : i64", found)
