"""A product whose columns are pairs becomes two products, with the same results; others stay."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.canonical.halve_pairs import halve_pairs
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from louver.ir.tile import DotOp
from support.golden import Golden
from support.pass_golden import check_pass

KERNEL = """builtin.module {
  tt.func public @k(%x: !tt.ptr<f16>, %w: !tt.ptr<f16>, %y: !tt.ptr<f32>, %steps: i32) attributes {noinline = false} {
    %none = arith.constant dense<0.0> : tensor<16x128xf32>
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %two = arith.constant dense<2> : tensor<128xi32>
    %half = arith.constant dense<64> : tensor<128xi32>
    %pitch = arith.constant dense<64> : tensor<128x1xi32>
    %length = arith.constant dense<64> : tensor<16x1xi32>
    %step = arith.constant dense<16> : tensor<128x16xi32>
    %move = arith.constant dense<16> : tensor<16x16xi32>
    %i = tt.make_range {start = 0 : i32, end = 128 : i32} : tensor<128xi32>
    %pair = arith.divsi %i, %two : tensor<128xi32>
    %part = arith.remsi %i, %two : tensor<128xi32>
    %behind = arith.muli %part, %half : tensor<128xi32>
    %row = arith.addi %pair, %behind : tensor<128xi32>
    %rows = tt.expand_dims %row {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %starts = arith.muli %rows, %pitch : tensor<128x1xi32>
    %k = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32>
    %columns = tt.expand_dims %k {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %far = tt.broadcast %starts : tensor<128x1xi32> -> tensor<128x16xi32>
    %near = tt.broadcast %columns : tensor<1x16xi32> -> tensor<128x16xi32>
    %offsets = arith.addi %far, %near : tensor<128x16xi32>
    %base = tt.splat %w : !tt.ptr<f16> -> tensor<128x16x!tt.ptr<f16>>
    %places = tt.addptr %base, %offsets : tensor<128x16x!tt.ptr<f16>>, tensor<128x16xi32>
    %tokens = tt.expand_dims %k {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %begin = arith.muli %tokens, %length : tensor<16x1xi32>
    %down = tt.broadcast %begin : tensor<16x1xi32> -> tensor<16x16xi32>
    %right = tt.broadcast %columns : tensor<1x16xi32> -> tensor<16x16xi32>
    %at = arith.addi %down, %right : tensor<16x16xi32>
    %from = tt.splat %x : !tt.ptr<f16> -> tensor<16x16x!tt.ptr<f16>>
    %first = tt.addptr %from, %at : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    %l, %r, %sum = scf.for %n = %zero to %steps step %one iter_args(%left = %first, %weight = %places, %c = %none) -> (tensor<16x16x!tt.ptr<f16>>, tensor<128x16x!tt.ptr<f16>>, tensor<16x128xf32>) : i32 {
      %a = tt.load %left : tensor<16x16x!tt.ptr<f16>>
      %b = tt.load %weight : tensor<128x16x!tt.ptr<f16>>
      %t = tt.trans %b {order = array<i32: 1, 0>} : tensor<128x16xf16> -> tensor<16x128xf16>
      %d = tt.dot %a, %t, %c, inputPrecision = ieee : tensor<16x16xf16> * tensor<16x128xf16> -> tensor<16x128xf32>
      %left2 = tt.addptr %left, %move : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
      %weight2 = tt.addptr %weight, %step : tensor<128x16x!tt.ptr<f16>>, tensor<128x16xi32>
      scf.yield %left2, %weight2, %d : tensor<16x16x!tt.ptr<f16>>, tensor<128x16x!tt.ptr<f16>>, tensor<16x128xf32>
    }
    %shaped = tt.reshape %sum : tensor<16x128xf32> -> tensor<16x64x2xf32>
    %gate, %up = tt.split %shaped : tensor<16x64x2xf32> -> tensor<16x64xf32>
    %out = arith.subf %gate, %up : tensor<16x64xf32>
    %m = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32>
    %across = tt.expand_dims %m {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %to = tt.broadcast %begin : tensor<16x1xi32> -> tensor<16x64xi32>
    %along = tt.broadcast %across : tensor<1x64xi32> -> tensor<16x64xi32>
    %put = arith.addi %to, %along : tensor<16x64xi32>
    %target = tt.splat %y : !tt.ptr<f32> -> tensor<16x64x!tt.ptr<f32>>
    %stored = tt.addptr %target, %put : tensor<16x64x!tt.ptr<f32>>, tensor<16x64xi32>
    tt.store %stored, %out : tensor<16x64x!tt.ptr<f32>>
    tt.return
  }
}
"""

OTHER = {
    "pairs of three": ("dense<2>", "dense<3>"),
    "neighbours": ("arith.addi %pair, %behind", "arith.addi %i, %i"),
    "a sum that is needed whole": ("%out = arith.subf %gate, %up", "%more = arith.addf %sum, %sum : tensor<16x128xf32>\n    %again = tt.reshape %more : tensor<16x128xf32> -> tensor<16x64x2xf32>\n    %g, %u = tt.split %again : tensor<16x64x2xf32> -> tensor<16x64xf32>\n    %out = arith.subf %g, %up"),
}  # fmt: skip


def test_two_products(golden: Golden, rng: np.random.Generator) -> None:
    check_pass(golden, "halve-pairs", parse_ir(KERNEL))
    x, w = (rng.integers(-3, 4, (rows, 64)).astype(np.float16) for rows in (16, 128))
    expected = x.astype(np.float64) @ (w[:64].astype(np.float64) - w[64:]).T
    halved = parse_ir(KERNEL)
    halve_pairs(halved)
    halved.verify()
    assert len([op for op in halved.walk() if isinstance(op, DotOp)]) == 2
    for module in (parse_ir(KERNEL), halved):
        y = np.full((16, 64), np.nan, np.float32)
        run_kernel(module, (1,), {"x": x, "w": w, "y": y, "steps": 4})
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("name", OTHER)
def test_others_stay(name: str) -> None:
    old, new = OTHER[name]
    assert KERNEL.count(old) == 1
    module = parse_ir(KERNEL.replace(old, new))
    halve_pairs(module)
    assert str(module) == str(parse_ir(KERNEL.replace(old, new)))
