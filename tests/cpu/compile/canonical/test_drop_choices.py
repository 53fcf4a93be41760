"""A choice of addresses inside of a tensor becomes a mask where nothing outside of the mask changes a result; else it stays."""

from __future__ import annotations

import pytest

from louver.compile.canonical.drop_choices import drop_choices
from louver.ir.context import parse_ir
from support.golden import Golden
from support.pass_golden import check_pass

INSIDE = """%inside_n = arith.cmpi slt, %n, %N16 : tensor<16x1xi32>
    %inside_k = arith.cmpi slt, %k, %K16 : tensor<1x16xi32>
    %whole_n = tt.broadcast %inside_n : tensor<16x1xi1> -> tensor<16x16xi1>
    %whole_k = tt.broadcast %inside_k : tensor<1x16xi1> -> tensor<16x16xi1>
    %chosen = arith.andi %whole_n, %whole_k : tensor<16x16xi1>
    %safe = arith.select %chosen, %offsets, %zeros : tensor<16x16xi1>, tensor<16x16xi32>"""
OUTSIDE = """%outside_n = arith.cmpi sge, %n, %N16 : tensor<16x1xi32>
    %outside_k = arith.cmpi sge, %k, %K16 : tensor<1x16xi32>
    %whole_n = tt.broadcast %outside_n : tensor<16x1xi1> -> tensor<16x16xi1>
    %whole_k = tt.broadcast %outside_k : tensor<1x16xi1> -> tensor<16x16xi1>
    %chosen = arith.ori %whole_n, %whole_k : tensor<16x16xi1>
    %safe = arith.select %chosen, %zeros, %offsets : tensor<16x16xi1>, tensor<16x16xi32>"""
OTHER = """%other_k = tt.trans %whole_other {order = array<i32: 1, 0>} : tensor<16x16xi1> -> tensor<16x16xi1>
    %x_tile = tt.load %x_at, %other_k, %nothing : tensor<16x16x!tt.ptr<f16>>"""
UNMASKED = "%x_tile = tt.load %x_at : tensor<16x16x!tt.ptr<f16>>"
STORE = """%to_n = arith.cmpi slt, %n, %N16 : tensor<16x1xi32>
    %written = tt.broadcast %to_n : tensor<16x1xi1> -> tensor<16x16xi1>
    tt.store %y_at, %total, %written : tensor<16x16x!tt.ptr<f32>>"""
EVERYWHERE = "tt.store %y_at, %total : tensor<16x16x!tt.ptr<f32>>"
SHORTER = STORE.replace("slt, %n", "sle, %n")


def kernel(choice: str = INSIDE, other: str = OTHER, store: str = STORE, load: str = "%w_at") -> str:
    """y [N, 16] = w [N, K] · x [K, 16], with rows n and columns k of w."""
    return f"""builtin.module {{
  tt.func public @k(%x: !tt.ptr<f16>, %w: !tt.ptr<f16> {{louver.sparse.NV24 = 1 : i32}}, %y: !tt.ptr<f32>, %N: i32, %K: i32) attributes {{noinline = false}} {{
    %zeros = arith.constant dense<0> : tensor<16x16xi32>
    %nothing = arith.constant dense<0.0> : tensor<16x16xf16>
    %none = arith.constant dense<0.0> : tensor<16x16xf32>
    %lanes = tt.make_range {{start = 0 : i32, end = 16 : i32}} : tensor<16xi32>
    %n = tt.expand_dims %lanes {{axis = 1 : i32}} : tensor<16xi32> -> tensor<16x1xi32>
    %k = tt.expand_dims %lanes {{axis = 0 : i32}} : tensor<16xi32> -> tensor<1x16xi32>
    %N16 = tt.splat %N : i32 -> tensor<16x1xi32>
    %K16 = tt.splat %K : i32 -> tensor<1x16xi32>
    %pitch = tt.splat %K : i32 -> tensor<16x1xi32>
    %rows = arith.muli %n, %pitch : tensor<16x1xi32>
    %every_row = tt.broadcast %rows : tensor<16x1xi32> -> tensor<16x16xi32>
    %every_column = tt.broadcast %k : tensor<1x16xi32> -> tensor<16x16xi32>
    %offsets = arith.addi %every_row, %every_column : tensor<16x16xi32>
    {choice}
    %w_all = tt.splat %w : !tt.ptr<f16> -> tensor<16x16x!tt.ptr<f16>>
    %w_at = tt.addptr %w_all, %safe : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    %w_tile = tt.load {load} : tensor<16x16x!tt.ptr<f16>>
    %below_k = arith.cmpi slt, %k, %K16 : tensor<1x16xi32>
    %whole_other = tt.broadcast %below_k : tensor<1x16xi1> -> tensor<16x16xi1>
    %x_all = tt.splat %x : !tt.ptr<f16> -> tensor<16x16x!tt.ptr<f16>>
    %x_at = tt.addptr %x_all, %every_row : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    {other}
    %total = tt.dot %w_tile, %x_tile, %none : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
    %y_all = tt.splat %y : !tt.ptr<f32> -> tensor<16x16x!tt.ptr<f32>>
    %y_at = tt.addptr %y_all, %offsets : tensor<16x16x!tt.ptr<f32>>, tensor<16x16xi32>
    {store}
    tt.return
  }}
}}
"""


def changed(text: str) -> bool:
    module = parse_ir(text)
    before = str(module)
    drop_choices(module)
    module.verify()
    return str(module) != before


@pytest.mark.parametrize("choice", [INSIDE, OUTSIDE], ids=["inside", "outside"])
def test_a_choice_becomes_the_mask(choice: str) -> None:
    module = parse_ir(kernel(choice))
    drop_choices(module)
    module.verify()
    assert "arith.select" not in str(module) and str(module).count("tt.load") == 2


@pytest.mark.parametrize(
    ("other", "store"),
    [(UNMASKED, STORE), (OTHER, EVERYWHERE), (OTHER, SHORTER)],
    ids=["the other operand is not zero", "every row is stored", "one row more is stored"],
)
def test_elements_that_change_a_result_stay(other: str, store: str) -> None:
    assert not changed(kernel(other=other, store=store))


def test_the_mask_of_the_load_is_proof_enough() -> None:
    assert changed(kernel(other=UNMASKED, store=EVERYWHERE, load="%w_at, %chosen, %nothing"))


def test_other_conditions_stay() -> None:
    assert not changed(kernel(INSIDE.replace("cmpi slt, %k", "cmpi ne, %k")))


def test_two_places_to_choose_from_stay() -> None:
    assert not changed(kernel(INSIDE.replace("%offsets, %zeros", "%zeros, %zeros")))


def test_masks_a_choice_inside_of_the_tensor(golden: Golden) -> None:
    check_pass(golden, "drop-choices", parse_ir(kernel()))
