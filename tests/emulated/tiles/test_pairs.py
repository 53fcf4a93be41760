"""Arithmetic on pairs of 16-bit floats in one register: each result is rounded once, and is that of f32 steps."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.pipeline import compile_tiles
from louver.formats.dtypes import element_type
from louver.ir.context import parse_ir
from louver.isa.floating import f32_to_odd
from louver.ptx.assembler import assemble
from support.emulate_tiles import emulate_tiles

COUNT = 1 << 16

TEXT = """builtin.module {
  tt.func public @k(%out: !tt.ptr<T> {tt.divisibility = 16 : i32}, %x: !tt.ptr<T> {tt.divisibility = 16 : i32}, %y: !tt.ptr<T> {tt.divisibility = 16 : i32}) attributes {noinline = false} {
    %size = arith.constant 4096 : i32
    %pid = tt.get_program_id x : i32
    %first = arith.muli %pid, %size : i32
    %lanes = tt.make_range {start = 0 : i32, end = 4096 : i32} : tensor<4096xi32>
    %from = tt.splat %first : i32 -> tensor<4096xi32>
    %at = arith.addi %from, %lanes : tensor<4096xi32>
    %x0 = tt.splat %x : !tt.ptr<T> -> tensor<4096x!tt.ptr<T>>
    %x1 = tt.addptr %x0, %at : tensor<4096x!tt.ptr<T>>, tensor<4096xi32>
    %one = tt.load %x1 : tensor<4096x!tt.ptr<T>>
    %y0 = tt.splat %y : !tt.ptr<T> -> tensor<4096x!tt.ptr<T>>
    %y1 = tt.addptr %y0, %at : tensor<4096x!tt.ptr<T>>, tensor<4096xi32>
    %two = tt.load %y1 : tensor<4096x!tt.ptr<T>>
    %made = OP %one, %two : tensor<4096xT>
    %out0 = tt.splat %out : !tt.ptr<T> -> tensor<4096x!tt.ptr<T>>
    %out1 = tt.addptr %out0, %at : tensor<4096x!tt.ptr<T>>, tensor<4096xi32>
    tt.store %out1, %made : tensor<4096x!tt.ptr<T>>
    tt.return
  }
}
"""

STEPS = {
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
}


@pytest.mark.parametrize("target", ["sm_90a", "sm_86"])
@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pairs_are_rounded_once(rng: np.random.Generator, kind: str, op: str, target: str) -> None:
    """All bits of one operand, in any order, with random ones or near ones of the other: also halfway cases and tiny numbers."""
    made = compile_tiles(
        parse_ir(TEXT.replace("OP", f"arith.{op}").replace("<T>", f"<{kind}>").replace("xT", f"x{kind}")), target
    )
    assert assemble(made.ptx, target).clean
    rounds = kind == "bf16" and target == "sm_86" and op in ("addf", "subf", "mulf")
    assert (f"{kind}x2 " in made.ptx) == (not rounds), "before sm_90, bf16 has no sums of pairs"
    dtype = element_type(kind).numpy
    x = rng.permutation(COUNT).astype(np.uint16)
    y = np.where(rng.random(COUNT) < 0.5, rng.integers(0, COUNT, COUNT), x ^ rng.integers(0, 1 << 11, COUNT)).astype(
        np.uint16
    )
    one, two, out = x.view(dtype), y.view(dtype), np.zeros(COUNT, dtype)
    emulate_tiles(made, (COUNT // 4096,), {"out": out, "x": one, "y": two})
    with np.errstate(all="ignore"):
        exact = STEPS[op](one.astype(np.float64), two.astype(np.float64))
        expected = f32_to_odd(exact).astype(dtype)
    got, wanted = out.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(got, wanted)
