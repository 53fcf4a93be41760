"""Two narrow steps of K become one with the same results; loops whose next step is another one stay."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.compile.condition_attributes import conditions
from louver.compile.decompose.widen_steps import widen_steps
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from louver.ir.tile import FuncOp
from louver.ir.tile.multiples import mark_multiples
from support.golden import Golden
from support.pass_golden import check_pass

KERNEL = """builtin.module {
  tt.func public @k(%x: !tt.ptr<f16>, %w: !tt.ptr<f16, #tt.sparse<"NV24">>, %y: !tt.ptr<f32>, %K: i32) attributes {noinline = false} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %columns = arith.constant 32 : i32
    %most = arith.constant 31 : i32
    %zeros = arith.constant dense<0.0> : tensor<16x32xf16>
    %none = arith.constant dense<0.0> : tensor<16x16xf32>
    %sixteen = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32>
    %down = tt.expand_dims %sixteen {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %lanes = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32>
    %along = tt.expand_dims %lanes {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
    %pitch = tt.splat %K : i32 -> tensor<16x1xi32>
    %rows = arith.muli %down, %pitch : tensor<16x1xi32>
    %all = tt.broadcast %rows : tensor<16x1xi32> -> tensor<16x32xi32>
    %whole = tt.splat %K : i32 -> tensor<1x32xi32>
    %by = tt.splat %columns : i32 -> tensor<16x32xi32>
    %xs = tt.splat %x : !tt.ptr<f16> -> tensor<16x32x!tt.ptr<f16>>
    %ws = tt.splat %w : !tt.ptr<f16, #tt.sparse<"NV24">> -> tensor<16x32x!tt.ptr<f16, #tt.sparse<"NV24">>>
    %across = tt.broadcast %along : tensor<1x32xi32> -> tensor<16x32xi32>
    %start = arith.addi %all, %across : tensor<16x32xi32>
    %xs0 = tt.addptr %xs, %start : tensor<16x32x!tt.ptr<f16>>, tensor<16x32xi32>
    %above = arith.addi %K, %most : i32
    %times = arith.divsi %above, %columns : i32
    %total, %moved = scf.for %i = %zero to %times step %one iter_args(%sum = %none, %at = %xs0) -> (tensor<16x16xf32>, tensor<16x32x!tt.ptr<f16>>) : i32 {
      %first = arith.muli %i, %columns : i32
      %all_first = tt.splat %first : i32 -> tensor<1x32xi32>
      %k = arith.addi %all_first, %along : tensor<1x32xi32>
      %inside = arith.cmpi slt, %k, %whole : tensor<1x32xi32>
      %mask = tt.broadcast %inside : tensor<1x32xi1> -> tensor<16x32xi1>
      %ks = tt.broadcast %k : tensor<1x32xi32> -> tensor<16x32xi32>
      %place = arith.addi %all, %ks : tensor<16x32xi32>
      %ws0 = tt.addptr %ws, %place : tensor<16x32x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<16x32xi32>
      %b = tt.load %ws0, %mask, %zeros : tensor<16x32x!tt.ptr<f16, #tt.sparse<"NV24">>>
      %a = tt.load %at, %mask, %zeros : tensor<16x32x!tt.ptr<f16>>
      %turned = tt.trans %a {order = array<i32: 1, 0>} : tensor<16x32xf16> -> tensor<32x16xf16>
      %next = tt.dot %b, %turned, %sum : tensor<16x32xf16, #tt.sparse<"NV24">> * tensor<32x16xf16> -> tensor<16x16xf32>
      %after = tt.addptr %at, %by : tensor<16x32x!tt.ptr<f16>>, tensor<16x32xi32>
      scf.yield %next, %after : tensor<16x16xf32>, tensor<16x32x!tt.ptr<f16>>
    }
    %wide = tt.broadcast %sixteen_down : tensor<16x1xi32> -> tensor<16x16xi32>
    %outs = tt.splat %y : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
    %line = tt.expand_dims %sixteen {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %lines = tt.broadcast %line : tensor<1x16xi32> -> tensor<16x16xi32>
    %to = arith.addi %wide, %lines : tensor<16x16xi32>
    %out = tt.addptr %outs, %to : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    tt.store %out, %total : tensor<16x16x!tt.ptr<f32>>
    tt.return
  }
}
""".replace(
    "    %wide =",
    "    %width = arith.constant dense<16> : tensor<16x1xi32>\n"
    "    %sixteen_down = arith.muli %down, %width : tensor<16x1xi32>\n    %wide =",
)

UNMASKED = [("%ws0, %mask, %zeros", "%ws0"), ("%at, %mask, %zeros", "%at")]

OTHERS = {
    "moves by more than a step": [("%by = tt.splat %columns", "%by = tt.splat %most")],
    "a mask that stays": [("arith.cmpi slt, %k, %whole", "arith.cmpi slt, %along, %whole")],
    "a mask of one operand": [("%at, %mask, %zeros", "%at")],
    "a pointer that is used behind the loop": [("tt.store %out,", "%last = tt.load %moved : tensor<16x32x!tt.ptr<f16>>\n    tt.store %out,")],
    "sums that are used in the loop": [("%after = ", "%twice = arith.addf %next, %next : tensor<16x16xf32>\n      %after = ")],
    "one step more": [("arith.addi %K, %most", "arith.addi %K, %columns")],
    "a counter as an operand": [("scf.yield %next,", "%n = arith.addi %i, %one : i32\n      scf.yield %next,"), ("%first = arith.muli %i, %columns", "%square = arith.muli %i, %i : i32\n      %first = arith.muli %square, %columns")],
    "a branch": [("%after = ", "%begins = arith.cmpi eq, %i, %zero : i32\n      %chosen = scf.if %begins -> (i32) {\n        scf.yield %one : i32\n      } else {\n        scf.yield %i : i32\n      }\n      %after = ")],
    "other than zeros": [("%zeros = arith.constant dense<0.0>", "%zeros = arith.constant dense<1.0>")],
}  # fmt: skip
"""Changes by which two steps are not one."""


def changed(*changes: tuple[str, str]) -> str:
    text = KERNEL
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "widen-steps", parse_ir(KERNEL))


@pytest.mark.parametrize("k", [4, 32, 60, 64, 96, 100])
def test_results_are_the_same(rng: np.random.Generator, k: int) -> None:
    module = parse_ir(KERNEL)
    widen_steps(module)
    module.verify()
    assert "tensor<16x64xf16" in str(module)
    w = louver.prune(rng.standard_normal((16, k)).astype(np.float16), "2:4")
    x, outs = rng.standard_normal((16, k)).astype(np.float16), np.full((2, 16, 16), np.nan, np.float32)
    for each, out in zip((parse_ir(KERNEL), module), outs, strict=True):
        run_kernel(each, (1,), {"x": x, "w": louver.compress(w, "2:4"), "y": out, "K": k})
    np.testing.assert_allclose(outs[1], outs[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outs[1], w.astype(np.float64) @ x.astype(np.float64).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_stay(name: str) -> None:
    module = parse_ir(changed(*OTHERS[name]))
    before = str(module)
    widen_steps(module)
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    function.attributes.pop("louver.divisor", None)
    assert str(module) == before


def test_a_kernel_without_masks_is_compiled_for_whole_pairs_of_steps() -> None:
    module = parse_ir(changed(*UNMASKED))
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    mark_multiples(function, {"K": 32})
    widen_steps(module)
    assert "tensor<16x64xf16" not in str(module) and conditions(function).divisors == (("K", 64),)
    mark_multiples(function, {"K": 64})
    widen_steps(module)
    assert "tensor<16x64xf16" in str(module)
