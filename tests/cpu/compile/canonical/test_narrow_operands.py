"""Operands that are extended to f32 for a dot are multiplied as they are; others stay."""

from __future__ import annotations

import pytest

from louver.compile.canonical.narrow_operands import narrow_operands
from louver.ir.context import parse_ir
from louver.ir.tile import DotOp
from support.golden import Golden
from support.pass_golden import check_pass


def kernel(one: str = "bf16", other: str = "bf16", between: str = "", operand: str = "%left") -> str:
    """A product of a [32, 64] and the transpose of b [32, 64], both extended."""
    return f"""builtin.module {{
  tt.func public @k(%a: tensor<32x64x{one}>, %b: tensor<32x64x{other}>, %y: tensor<32x32x!tt.ptr<f32>>, %s: tensor<32x1x!tt.ptr<f32>>) attributes {{noinline = false}} {{
    %zeros = arith.constant dense<0.0> : tensor<32x32xf32>
    %left = arith.extf %a : tensor<32x64x{one}> to tensor<32x64xf32>
    {between}
    %wide = arith.extf %b : tensor<32x64x{other}> to tensor<32x64xf32>
    %right = tt.trans %wide {{order = array<i32: 1, 0>}} : tensor<32x64xf32> -> tensor<64x32xf32>
    %d = tt.dot {operand}, %right, %zeros, inputPrecision = tf32 : tensor<32x64xf32> * tensor<64x32xf32> -> tensor<32x32xf32>
    tt.store %y, %d : tensor<32x32x!tt.ptr<f32>>
    tt.return
  }}
}}
"""


def test_before_and_after(golden: Golden) -> None:
    check_pass(
        golden, "narrow-operands", parse_ir(kernel("e4m3", "bf16", BLOCKS, "%scaled").replace("xe4m3", "xf8E4M3FN"))
    )


SCALED = "%scaled = arith.mulf %left, %left : tensor<32x64xf32>"


def scales(shape: str) -> str:
    """A tile of this shape that scales the elements of a."""
    return f"""%some = arith.constant dense<2.0> : tensor<{shape}xf32>
    %parts = tt.broadcast %some : tensor<{shape}xf32> -> tensor<32x64xf32>
    %scaled = arith.mulf %left, %parts : tensor<32x64xf32>"""


BLOCKS = """%some = tt.load %s : tensor<32x1x!tt.ptr<f32>>
    %more = tt.expand_dims %some {axis = 2 : i32} : tensor<32x1xf32> -> tensor<32x1x1xf32>
    %wider = tt.broadcast %more : tensor<32x1x1xf32> -> tensor<32x1x64xf32>
    %parts = tt.reshape %wider : tensor<32x1x64xf32> -> tensor<32x64xf32>
    %two = arith.constant dense<2.0> : tensor<32x64xf32>
    %both = arith.mulf %two, %parts : tensor<32x64xf32>
    %scaled = arith.mulf %both, %left : tensor<32x64xf32>"""
"""Scales of rows, as blocks of 64 columns have them, and a factor of all."""


@pytest.mark.parametrize(
    ("text", "element"),
    [
        (kernel(), "bf16"),
        (kernel("f16", "f16"), "f16"),
        (kernel("f16", "bf16"), "f32"),
        (kernel("f8E4M3FN", "f8E5M2"), "f16"),
        (kernel("f8E4M3FN", "bf16"), "bf16"),
        (kernel("f8E4M3FN", "f16"), "f16"),
        (kernel(between=SCALED, operand="%scaled"), "f32"),
        (kernel(between=scales("32x1"), operand="%scaled"), "bf16"),
        (kernel(between=scales("1x1"), operand="%scaled"), "bf16"),
        (kernel(between=scales("1x64"), operand="%scaled"), "f32"),
        (kernel(between=BLOCKS, operand="%scaled"), "bf16"),
    ],
)
def test_what_is_multiplied(text: str, element: str) -> None:
    module = parse_ir(text)
    narrow_operands(module)
    module.verify()
    (dot,) = (op for op in module.walk() if isinstance(op, DotOp))
    assert all(f"x{element}>" in str(each.type) for each in (dot.a, dot.b))
