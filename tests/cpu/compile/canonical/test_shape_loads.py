"""A load of a flat tile that is reshaped to a matrix becomes a load of the matrix, with the same results; others stay."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.canonical.shape_loads import shape_loads
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from support.golden import Golden
from support.pass_golden import check_pass

KERNEL = """builtin.module {
  tt.func public @k(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %pitch: i32) attributes {noinline = false} {
    %columns = arith.constant dense<4> : tensor<8xi32>
    %flat = tt.make_range {start = 0 : i32, end = 8 : i32} : tensor<8xi32>
    %row = arith.divsi %flat, %columns : tensor<8xi32>
    %column = arith.remsi %flat, %columns : tensor<8xi32>
    %step = tt.splat %pitch : i32 -> tensor<8xi32>
    %first = arith.muli %row, %step : tensor<8xi32>
    %at = arith.addi %first, %column : tensor<8xi32>
    %base = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %places = tt.addptr %base, %at : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %read = tt.load %places : tensor<8x!tt.ptr<f32>>
    %matrix = tt.reshape %read : tensor<8xf32> -> tensor<SHAPExf32>
    %sums = "tt.reduce"(%matrix) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %sum = arith.addf %a, %b : f32
      tt.reduce.return %sum : f32
    }) : (tensor<SHAPExf32>) -> tensor<COLUMNSxf32>
    %line = tt.make_range {start = 0 : i32, end = COLUMNS : i32} : tensor<COLUMNSxi32>
    %out = tt.splat %y : !tt.ptr<f32> -> tensor<COLUMNSx!tt.ptr<f32>>
    %to = tt.addptr %out, %line : tensor<COLUMNSx!tt.ptr<f32>>, tensor<COLUMNSxi32>
    tt.store %to, %sums : tensor<COLUMNSx!tt.ptr<f32>>
    tt.return
  }
}
"""


def kernel(rows: int, columns: int) -> str:
    """Sums of columns of a matrix that is read as a flat tile of rows of 4 elements."""
    return KERNEL.replace("SHAPE", f"{rows}x{columns}").replace("COLUMNS", f"{columns}")


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "shape-loads", parse_ir(kernel(2, 4)))


@pytest.mark.parametrize("columns", [4, 2])
def test_kernels_keep_their_results(columns: int, rng: np.random.Generator) -> None:
    before = parse_ir(kernel(8 // columns, columns))
    after = before.clone()
    shape_loads(after)
    after.verify()
    assert ("tt.reshape" in str(after)) == (columns == 2), "rows of 2 are not what the addresses are made of"
    x = rng.standard_normal((2, 7), np.float32)
    found = [np.full(columns, np.nan, np.float32) for _ in range(2)]
    for module, y in zip((before, after), found, strict=True):
        run_kernel(module, (1,), {"x": x, "y": y, "pitch": 7})
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], x[:, :4].reshape(-1, columns).sum(axis=0), rtol=1e-6)
