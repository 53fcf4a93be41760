"""A product that is added to a sum becomes one that begins with the sum. Of register tiles promoted sums and elements moved one by one stay."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.canonical.fold_sums import fold_sums
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from support.golden import Golden
from support.pass_golden import check_pass

KERNEL = """builtin.module {
  tt.func public @k(%x: !tt.ptr<f16> MARK, %y: !tt.ptr<f32>, %N: i32) attributes {noinline = false} {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %none = arith.constant dense<START> : tensor<16x16xf32>
    %sum0 = arith.constant dense<0.0> : tensor<16x16xf32>
    %r = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32>
    %rows = tt.expand_dims %r {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %columns = tt.expand_dims %r {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %sixteen = arith.constant dense<16> : tensor<16x1xi32>
    %first = arith.muli %rows, %sixteen : tensor<16x1xi32>
    %down = tt.broadcast %first : tensor<16x1xi32> -> tensor<16x16xi32>
    %along = tt.broadcast %columns : tensor<1x16xi32> -> tensor<16x16xi32>
    %at = arith.addi %down, %along : tensor<16x16xi32>
    %base = tt.splat %x : !tt.ptr<f16> -> tensor<16x16x!tt.ptr<f16>>
    %places = tt.addptr %base, %at : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    %a = tt.load %places : tensor<16x16x!tt.ptr<f16>>
    %total = scf.for %i = %zero to %N step %one iter_args(%sum = %sum0) -> (tensor<16x16xf32>) : i32 {
      %p = tt.dot %a, %a, %none : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
      %next = arith.addf %sum, %p : tensor<16x16xf32>
      scf.yield %next : tensor<16x16xf32>
    }
    %out = tt.splat %y : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
    %to = tt.addptr %out, %at : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    tt.store %to, %total : tensor<16x16x!tt.ptr<f32>>
    tt.return
  }
}
"""
ALIGNED = "{tt.divisibility = 16 : i32}"
FOLDED = KERNEL.replace("MARK", ALIGNED).replace("START", "0.0")
STAYS = {
    "a product that begins with a number": KERNEL.replace("MARK", ALIGNED).replace("START", "1.0"),
    "elements that are moved one by one": KERNEL.replace("MARK", "").replace("START", "0.0"),
}


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "fold-sums", parse_ir(FOLDED))


@pytest.mark.parametrize("form", STAYS)
def test_what_stays(form: str) -> None:
    module = parse_ir(STAYS[form])
    text = str(module)
    fold_sums(module)
    assert str(module) == text


def test_kernels_keep_their_results(rng: np.random.Generator) -> None:
    """Of integers, whose sums are exact in every order."""
    x = rng.integers(-8, 9, (16, 16)).astype(np.float16)
    found: list[np.ndarray] = []
    for folded in (False, True):
        module = parse_ir(FOLDED)
        if folded:
            fold_sums(module)
            module.verify()
            assert "arith.addf" not in str(module)
        y = np.full((16, 16), np.nan, np.float32)
        run_kernel(module, (1,), {"x": x, "y": y, "N": 3})
        found.append(y)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], 3 * (x.astype(np.float32) @ x.astype(np.float32)))
