"""Which integers of 1 a product needs as arguments of the launch."""

from __future__ import annotations

import pytest

from louver.analysis.sizes_of_one import Ones
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp

POINTERS = """tt.func public @k(%x: !tt.ptr<f16>, %M: i32, %N: i32, %row: i32, %column: i32, %flag: i32) {
  %m = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32>
  %rows = tt.expand_dims %m {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
  %columns = tt.expand_dims %m {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
  %r = tt.splat %row : i32 -> tensor<16x1xi32>
  %c = tt.splat %column : i32 -> tensor<1x16xi32>
  %by_row = arith.muli %rows, %r : tensor<16x1xi32>
  %by_column = arith.muli %columns, %c : tensor<1x16xi32>
  %wide = tt.broadcast %by_row : tensor<16x1xi32> -> tensor<16x16xi32>
  %across = tt.broadcast ACROSS : tensor<1x16xi32> -> tensor<16x16xi32>
  %at = arith.addi %wide, %across : tensor<16x16xi32>
  %base = tt.splat %x : !tt.ptr<f16> -> tensor<16x16x!tt.ptr<f16>>
  %to = tt.addptr %base, %at : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
  %size = tt.splat %M : i32 -> tensor<16x1xi32>
  %inside = arith.cmpi slt, %rows, %size : tensor<16x1xi32>
  %mask = tt.broadcast %inside : tensor<16x1xi1> -> tensor<16x16xi1>
  %zero = arith.constant 0 : i32
  %set = arith.cmpi ne, %flag, %zero : i32
  %y = tt.load %to, %mask : tensor<16x16x!tt.ptr<f16>>
  STORE
  tt.return
}"""

STORE = "tt.store %to, %y, %mask : tensor<16x16x!tt.ptr<f16>>"


def ones(text: str, names: str) -> Ones:
    (function,) = (op for op in parse_ir(text).body.ops if isinstance(op, FuncOp))
    return Ones.of(function, names.split())


@pytest.mark.parametrize(
    ("across", "names", "sizes", "pitches"),
    [
        ("%by_column", "M N row column flag", ("M", "N"), ("row",)),
        ("%by_column", "M column", ("M",), ()),
        ("%by_column", "row", (), ()),
        ("%columns", "M row flag", ("M",), ("row",)),
        ("%columns", "", (), ()),
    ],
    ids=["both strides", "a stride of columns", "a stride of rows alone", "neighbours by rows", "none"],
)
def test_strides_between_neighbours_and_flags_stay(
    across: str, names: str, sizes: tuple[str, ...], pitches: tuple[str, ...]
) -> None:
    assert ones(POINTERS.replace("ACROSS", across).replace("STORE", ""), names) == Ones(sizes, pitches)


def test_a_pitch_that_is_also_a_size_is_a_size() -> None:
    text = POINTERS.replace("ACROSS", "%columns").replace("STORE", "").replace("splat %M", "splat %row")
    assert ones(text, "row N") == Ones(("N", "row"), ())


def test_a_stored_tile_may_have_rows_that_are_1_apart() -> None:
    loaded = POINTERS.replace("ACROSS", "%columns").replace("STORE", STORE)
    stored = loaded.replace(
        "%y = tt.load %to, %mask : tensor<16x16x!tt.ptr<f16>>", "%y = arith.constant dense<1.0> : tensor<16x16xf16>"
    )
    assert ones(loaded, "row") == Ones((), ("row",))
    assert ones(stored, "row") == Ones(("row",), ())


@pytest.mark.parametrize("one", ["1", "%one"])
@pytest.mark.parametrize(
    "made",
    [
        "tt.make_tensor_descriptor %x, [%M, %K], [%row, ONE] : <f16>, <tensor<16x16xf16>>",
        "tt.make_tensor_ptr %x, [%m, %k], [%row, ONE], [%zero, %zero] {order = array<i32: 1, 0>} : <tensor<16x16xf16>>",
    ],
)
def test_descriptors_and_block_pointers_have_neighbours(made: str, one: str) -> None:
    text = f"""tt.func public @k(%x: !tt.ptr<f16>, %M: i32, %K: i32, %row: i64) {{
  %one = arith.constant 1 : i64
  %zero = arith.constant 0 : i32
  %m = arith.extsi %M : i32 to i64
  %k = arith.extsi %K : i32 to i64
  %d = {made.replace("ONE", one)}
  tt.return
}}"""
    assert ones(text, "M K row") == Ones(("M", "K"), ("row",))
