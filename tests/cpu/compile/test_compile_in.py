"""Arguments of a call become constants, and so does what is computed of constants alone."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import arith

from louver.compile.rewrite.compile_in import compile_in
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel

TEXT = """builtin.module {
  tt.func public @k(%y: !tt.ptr<i32>, %K: i32, %L: i32) attributes {noinline = false} {
    %c63 = arith.constant 63 : i32
    %c64 = arith.constant 64 : i32
    %more = arith.addi %K, %c63 : i32
    %steps = arith.divsi %more, %c64 : i32
    %least = arith.subi %K, %c64 : i32
    %most = arith.divsi %least, %c64 : i32
    %scaled = arith.muli %most, %c63 : i32
    %first = arith.addi %steps, %L : i32
    %second = arith.addi %first, %K : i32
    %third = arith.subi %second, %K : i32
    %all = arith.addi %third, %scaled : i32
    tt.store %y, %all : !tt.ptr<i32>
    tt.return
  }
}
"""


@pytest.mark.parametrize(("value", "left"), [(0, 3), (1, 6)])
def test_what_is_computed_of_constants_is_constant(value: int, left: int) -> None:
    """Left are a quotient of a negative number, what is computed of it, and sums with L."""
    before, after = parse_ir(TEXT), parse_ir(TEXT)
    compile_in(after, {"K": value})
    after.verify()
    found = [np.zeros(1, np.int32) for _ in range(2)]
    for module, y in zip((before, after), found, strict=True):
        run_kernel(module, (1,), {"y": y, "K": value, "L": 1000})
    assert found[0] == found[1]
    computed = arith.AddiOp | arith.SubiOp | arith.MuliOp | arith.DivSIOp
    assert sum(isinstance(op, computed) for op in after.walk()) == left
