"""An element that a whole tile has in common is loaded once, with the same results."""

from __future__ import annotations

import numpy as np

from louver.compile.canonical.load_once import load_once
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from support.golden import Golden
from support.pass_golden import check_pass

SCALES = """builtin.module {
  tt.func public @k(%out: !tt.ptr<f32>, %scale: !tt.ptr<f32>, %rows: !tt.ptr<f32>, %M: i32) attributes {noinline = false} {
    %only = tt.make_range {start = 3 : i32, end = 4 : i32} : tensor<1xi32>
    %many = tt.make_range {start = 0 : i32, end = 4 : i32} : tensor<4xi32>
    %size = tt.splat %M : i32 -> tensor<1xi32>
    %inside = arith.cmpi slt, %only, %size : tensor<1xi32>
    %scales = tt.splat %scale : !tt.ptr<f32> -> tensor<1x!tt.ptr<f32>>
    %at = tt.addptr %scales, %only : tensor<1x!tt.ptr<f32>>, tensor<1xi32>
    %rest = arith.constant dense<0.5> : tensor<1xf32>
    %one = tt.load %at, %inside, %rest : tensor<1x!tt.ptr<f32>>
    %row = tt.splat %rows : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>>
    %row_at = tt.addptr %row, %many : tensor<4x!tt.ptr<f32>>, tensor<4xi32>
    %four = tt.load %row_at : tensor<4x!tt.ptr<f32>>
    %wide = tt.broadcast %one : tensor<1xf32> -> tensor<4xf32>
    %scaled = arith.mulf %four, %wide : tensor<4xf32>
    %outs = tt.splat %out : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>>
    %out_at = tt.addptr %outs, %many : tensor<4x!tt.ptr<f32>>, tensor<4xi32>
    tt.store %out_at, %scaled : tensor<4x!tt.ptr<f32>>
    tt.return
  }
}
"""


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "load-once", parse_ir(SCALES))


def test_results_are_the_same(rng: np.random.Generator) -> None:
    """The element is the fourth of its array, and beyond three it is the constant."""
    scale, rows = rng.standard_normal(4).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    for size, factor in ((4, scale[3]), (3, np.float32(0.5))):
        for rewrite in (False, True):
            module, out = parse_ir(SCALES), np.full(4, np.nan, np.float32)
            if rewrite:
                load_once(module)
            run_kernel(module, (1,), {"out": out, "scale": scale, "rows": rows, "M": size})
            np.testing.assert_array_equal(out, rows * factor)
