"""A remainder beside the quotient of the same numbers needs no division of its own."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import arith

from louver.compile.rewrite.join_remainders import join_remainders
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel

KERNEL = """tt.func public @k(%out: !tt.ptr<i32>, %x: i32, %y: i32, %z: i32) {
  BODY
  %p = tt.splat %out : !tt.ptr<i32> -> tensor<2x!tt.ptr<i32>>
  %r = tt.make_range {start = 0 : i32, end = 2 : i32} : tensor<2xi32>
  %at = tt.addptr %p, %r : tensor<2x!tt.ptr<i32>>, tensor<2xi32>
  %zero = arith.constant dense<0> : tensor<2xi32>
  %first = arith.cmpi eq, %r, %zero : tensor<2xi32>
  %one = tt.splat %q : i32 -> tensor<2xi32>
  %two = tt.splat %m : i32 -> tensor<2xi32>
  %both = arith.select %first, %one, %two : tensor<2xi1>, tensor<2xi32>
  tt.store %at, %both : tensor<2x!tt.ptr<i32>>
  tt.return
}"""

CASES = {
    "behind": ("%q = arith.divsi %x, %y : i32\n  %m = arith.remsi %x, %y : i32", 0),
    "before": ("%m = arith.remsi %x, %y : i32\n  %q = arith.divsi %x, %y : i32", 0),
    "without a sign": ("%m = arith.remui %x, %y : i32\n  %q = arith.divui %x, %y : i32", 0),
    "of another divisor": ("%m = arith.remsi %x, %y : i32\n  %q = arith.divsi %x, %z : i32", 1),
    "the other way around": ("%m = arith.remsi %x, %y : i32\n  %q = arith.divsi %y, %x : i32", 1),
    "with another sign": ("%m = arith.remsi %x, %y : i32\n  %q = arith.divui %x, %y : i32", 1),
}
"""Text of a quotient and a remainder, and the remainders that stay."""


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("x", [17, -17, 0, 3])
def test_remainders_join_quotients(name: str, x: int) -> None:
    body, left = CASES[name]
    x = abs(x) + 1 if name in ("the other way around", "without a sign") else x
    module = parse_ir(KERNEL.replace("BODY", body))
    results: list[np.ndarray] = []
    for joined in (False, True):
        if joined:
            join_remainders(module)
            module.verify()
            assert sum(isinstance(op, arith.RemSIOp | arith.RemUIOp) for op in module.walk()) == left
        out = np.full(2, -99, np.int32)
        run_kernel(module, (1,), {"out": out, "x": x, "y": 5, "z": 7})
        results.append(out)
    np.testing.assert_array_equal(*results)
    assert (results[0] != -99).all()


def test_tiles_keep_their_remainders() -> None:
    text = KERNEL.replace("BODY", "%m = arith.remsi %x, %y : i32\n  %q = arith.divsi %x, %z : i32").replace(
        "%both = arith.select",
        "%ys = tt.splat %y : i32 -> tensor<2xi32>\n  %u = arith.divsi %one, %ys : tensor<2xi32>\n"
        "  %v = arith.remsi %one, %ys : tensor<2xi32>\n  %both = arith.select",
    )
    module = parse_ir(text)
    join_remainders(module)
    assert sum(isinstance(op, arith.RemSIOp) for op in module.walk()) == 2
