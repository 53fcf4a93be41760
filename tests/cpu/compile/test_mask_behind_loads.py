"""Masks along K by a loaded number go behind the load of a sparse tile; every other load stays as it is."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from louver.compile.canonical.propagate_sparsity import sparse_arguments
from louver.compile.decompose.mask_behind_loads import mask_behind_loads
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp

LOADED = "%size = tt.load %sizes : !tt.ptr<i32>"
LEAST = f"{LOADED.replace('%size ', '%loaded ')}\n    %size = arith.minsi %loaded, %K : i32"
GIVEN = "%size = arith.addi %K, %zero : i32"
FIRST = "%first = arith.addi %zero, %zero : i32"


def kernel(
    size: str = LOADED, first: str = FIRST, other: str = "", element: str = "f16", stride: str = "%pitch"
) -> str:
    """w [16, K], with rows of %pitch elements, masked along K by %size."""
    zeros = "0.0" if element == "f16" else "0"
    return f"""builtin.module {{
  tt.func public @k(%w: !tt.ptr<{element}> {{louver.sparse.NV24 = 1 : i32}}, %y: !tt.ptr<{element}>, %sizes: !tt.ptr<i32>, %pitch: i32, %K: i32, %N: i32) attributes {{noinline = false}} {{
    %zero = arith.constant 0 : i32
    %nothing = arith.constant dense<{zeros}> : tensor<16x16x{element}>
    %ones = arith.constant dense<{"1.0" if element == "f16" else "1"}> : tensor<16x16x{element}>
    {size}
    {first}
    %lanes = tt.make_range {{start = 0 : i32, end = 16 : i32}} : tensor<16xi32>
    %n = tt.expand_dims %lanes {{axis = 1 : i32}} : tensor<16xi32> -> tensor<16x1xi32>
    %columns = tt.expand_dims %lanes {{axis = 0 : i32}} : tensor<16xi32> -> tensor<1x16xi32>
    %firsts = tt.splat %first : i32 -> tensor<1x16xi32>
    %k = arith.addi %columns, %firsts : tensor<1x16xi32>
    %product = arith.muli %N, %N : i32
    %step = tt.splat {stride} : i32 -> tensor<16x1xi32>
    %rows = arith.muli %n, %step : tensor<16x1xi32>
    %every_row = tt.broadcast %rows : tensor<16x1xi32> -> tensor<16x16xi32>
    %every_column = tt.broadcast %k : tensor<1x16xi32> -> tensor<16x16xi32>
    %at = arith.addi %every_row, %every_column : tensor<16x16xi32>
    %all = tt.splat %w : !tt.ptr<{element}> -> tensor<16x16x!tt.ptr<{element}>>
    %w_at = tt.addptr %all, %at : tensor<16x16x!tt.ptr<{element}>>, tensor<16x16xi32>
    %N16 = tt.splat %N : i32 -> tensor<16x1xi32>
    %below_n = arith.cmpi slt, %n, %N16 : tensor<16x1xi32>
    %K16 = tt.splat %size : i32 -> tensor<1x16xi32>
    %below = arith.cmpi slt, %k, %K16 : tensor<1x16xi32>
    %inside = tt.broadcast %below : tensor<1x16xi1> -> tensor<16x16xi1>
    %inside_n = tt.broadcast %below_n : tensor<16x1xi1> -> tensor<16x16xi1>
    %both = arith.andi %inside_n, %inside : tensor<16x16xi1>
    %tile = tt.load %w_at, %both{other} : tensor<16x16x!tt.ptr<{element}>>
    %y_all = tt.splat %y : !tt.ptr<{element}> -> tensor<16x16x!tt.ptr<{element}>>
    %y_at = tt.addptr %y_all, %at : tensor<16x16x!tt.ptr<{element}>>, tensor<16x16xi32>
    tt.store %y_at, %tile, %inside_n : tensor<16x16x!tt.ptr<{element}>>
    tt.return
  }}
}}
"""


def masked(text: str) -> tuple[str, str]:
    """The text before the pass, and behind it."""
    module: ModuleOp = parse_ir(text)
    before = str(module)
    function = next(op for op in module.body.ops if isinstance(op, FuncOp))
    mask_behind_loads(function, list(sparse_arguments(function)))
    module.verify()
    return before, str(module)


@pytest.mark.parametrize("size", [LOADED, LEAST], ids=["loaded", "the least of a loaded number and an argument"])
@pytest.mark.parametrize("other", ["", ", %nothing"])
def test_a_loaded_k_masks_behind_the_load(other: str, size: str) -> None:
    before, after = masked(kernel(size, other=other))
    assert "arith.select" not in before and after.count("arith.select") == 1
    load = next(line for line in after.splitlines() if "tt.load %w_at" in line)
    assert "%both" not in load and ("%nothing" in load) == bool(other)
    # The load compares with the length of a row, and with N as before.
    assert after.count("arith.cmpi slt") == 3


STAYS = {
    "K is an argument": kernel(GIVEN),
    "the first column is loaded": kernel(GIVEN, first="%first = tt.load %sizes : !tt.ptr<i32>"),
    "integers": kernel(element="i8"),
    "ones beyond K": kernel(other=", %ones"),
    "a length that is computed": kernel(stride="%product"),
    "columns that wrap": kernel(LOADED, first=FIRST).replace(
        "%every_column = tt.broadcast %k", "%in_turn = arith.remsi %k, %K16 : tensor<1x16xi32>\n    %every_column = tt.broadcast %in_turn"
    ).replace("%K16 = tt.splat %size : i32 -> tensor<1x16xi32>", "").replace(
        "%k = arith.addi", "%K16 = tt.splat %size : i32 -> tensor<1x16xi32>\n    %k = arith.addi"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_other_loads_stay(case: str) -> None:
    before, after = masked(STAYS[case])
    assert before == after
