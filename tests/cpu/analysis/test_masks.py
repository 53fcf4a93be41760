"""Masks as bounds: what is true wherever a mask is, of signed and unsigned comparisons."""

from __future__ import annotations

import numpy as np
import pytest

from louver.analysis.affine import Affine
from louver.analysis.atoms import Lane
from louver.analysis.masks import read_mask
from louver.ir.context import parse_ir
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import LoadOp

KERNEL = """module {{
  tt.func public @k(%x: !tt.ptr<f16>, %first: i32) {{
    %lane = tt.make_range {{end = 16 : i32, start = 0 : i32}} : tensor<16xi32>
    %start = tt.splat %first : i32 -> tensor<16xi32>
    %index = arith.addi %start, %lane : tensor<16xi32>
    %limit = arith.constant dense<{limit}> : tensor<16xi32>
    %mask = arith.cmpi {predicate}, {pair} : tensor<16xi32>
    %base = tt.splat %x : !tt.ptr<f16> -> tensor<16x!tt.ptr<f16>>
    %at = tt.addptr %base, %index : tensor<16x!tt.ptr<f16>>, tensor<16xi32>
    %tile = tt.load %at, %mask : tensor<16x!tt.ptr<f16>>
    tt.return
  }}
}}"""

TRUE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


@pytest.mark.parametrize("pair", ["%index, %limit", "%limit, %index"])
@pytest.mark.parametrize("limit", [0, 5, 40])
@pytest.mark.parametrize("relation", TRUE)
@pytest.mark.parametrize("sign", ["s", "u"])
def test_bounds_hold_where_and_only_where_the_mask_does(sign: str, relation: str, limit: int, pair: str) -> None:
    module = parse_ir(KERNEL.format(predicate=sign + relation, pair=pair, limit=limit))
    (load,) = [op for op in module.walk() if isinstance(op, LoadOp)]
    assert load.mask is not None
    above = (relation in ("gt", "ge")) == pair.startswith("%index")
    if sign == "u" and above:
        with pytest.raises(UnsupportedKernelError, match="a mask must consist of upper bounds"):
            read_mask(Affine(), load.mask, load)
        return
    (bound,) = read_mask(Affine(), load.mask, load)
    assert (bound.unsigned is None) == (sign == "s")
    for first in (-20, -3, 0, 30):
        index = first + np.arange(16)
        sides = [index, np.full(16, limit)]
        sides = [each.astype(np.int32) for each in (sides if pair.startswith("%index") else sides[::-1])]
        wanted = TRUE[relation](*(each.view(np.uint32) if sign == "u" else each for each in sides))
        found = [_value(bound.value, first, lane) < 0 for lane in range(16)]
        if bound.unsigned is not None:
            found = [each and first + lane >= 0 for lane, each in enumerate(found)]
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("sign", "first", "always"), [("s", -4, True), ("u", -4, False), ("u", 4, True), ("s", 30, False)]
)
def test_a_mask_that_holds_for_a_whole_tile(sign: str, first: int, always: bool) -> None:
    """A number below 0 is a great one without a sign."""
    text = KERNEL.format(predicate=sign + "lt", pair="%index, %limit", limit=40)
    text = text.replace("%start = tt.splat %first : i32 -> ", f"%start = arith.constant dense<{first}> : ")
    (load,) = [op for op in parse_ir(text).walk() if isinstance(op, LoadOp)]
    assert load.mask is not None
    (bound,) = read_mask(Affine(), load.mask, load)
    assert bound.always((16,)) == always


def _value(value: Polynomial, first: int, lane: int) -> int:
    found = value.over(lambda atom: Polynomial.number(lane if isinstance(atom, Lane) else first))
    assert found is not None and found.constant is not None
    return found.constant
