"""How far apart rows of a tile are, as a launch computes it."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import IntegerType

from louver.analysis.apart import Apart
from louver.analysis.runs import Runs
from louver.ir import tile as tt
from louver.ir.context import parse_ir
from louver.ir.tile.multiples import multiples_of

TEXT = """
builtin.module {{
  tt.func public @k(%w: !tt.ptr<f16>, %pitch: i32, %n: i32) {{
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %rows = tt.make_range {{start = 0 : i32, end = 16 : i32}} : tensor<16xi32>
    %by = tt.splat %pitch : i32 -> tensor<16xi32>
    %far = arith.muli %rows, %by : tensor<16xi32>
    %base = tt.splat %w : !tt.ptr<f16> -> tensor<16x!tt.ptr<f16>>
    %first = tt.addptr %base, %far : tensor<16x!tt.ptr<f16>>, tensor<16xi32>
    %end = scf.for %i = %zero to %n step %one iter_args(%at = %first) -> (tensor<16x!tt.ptr<f16>>) : i32 {{
      %a = tt.load %at : tensor<16x!tt.ptr<f16>>
      %next = tt.addptr %at, {step} : tensor<16x!tt.ptr<f16>>, tensor<16xi32>
      %b = tt.load %next : tensor<16x!tt.ptr<f16>>
      tt.store %at, %b : tensor<16x!tt.ptr<f16>>
      tt.store %next, %a : tensor<16x!tt.ptr<f16>>
      scf.yield %next : tensor<16x!tt.ptr<f16>>
    }}
    tt.return
  }}
}}
"""


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("step", "expected"), [("%by", "pitch"), ("%far", "None")])
def test_pointers_that_a_loop_carries(step: str, expected: str, backwards: bool) -> None:
    """Rows stay one pitch apart if they move together. If they move apart, neither pointer has a distance."""
    (function,) = parse_ir(TEXT.format(step=step)).body.ops
    assert isinstance(function, tt.FuncOp)
    names = {each: name for each, name in function.argument_names.items() if isinstance(each.type, IntegerType)}
    runs = Runs(dict(zip(function.body.block.args, multiples_of(function), strict=True)))
    loads = [op for op in function.body.walk() if isinstance(op, tt.LoadOp)]
    apart = Apart(runs, names)
    for load in reversed(loads) if backwards else loads:
        assert str(apart.of(load.ptr, 0, 16)) == expected
