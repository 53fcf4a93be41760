"""A dot of zeros that is added to a sum of dots begins with that sum. What an epilogue adds stays behind the sum, as do two products."""

from __future__ import annotations

from louver.compile.canonical.fold_sums import add_in_place
from louver.ir.context import parse_ir
from support.golden import Golden
from support.pass_golden import before, check_pass

STAYS = """builtin.module {
  tt.func public @k(%a: tensor<16x16xf16>, %bias: tensor<16x16xf32>) attributes {noinline = false} {
    %none = arith.constant dense<0.0> : tensor<16x16xf32>
    %p = tt.dot %a, %a, %none : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
    %q = tt.dot %a, %a, %none : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
    %total = arith.addf %p, %q : tensor<16x16xf32>
    %out = arith.addf %total, %bias : tensor<16x16xf32>
    tt.return
  }
}
"""


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "add-in-place", before("add-in-place", "rest_of_k"))


def test_sums_of_two_products_and_what_an_epilogue_adds_stay() -> None:
    module = parse_ir(STAYS)
    text = str(module)
    add_in_place(module)
    assert str(module) == text
