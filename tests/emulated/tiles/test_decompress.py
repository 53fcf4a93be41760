"""Sparse tiles as dense ones: every element in its place, by threads that decompress their own groups."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.compile.pipeline import compile_tiles
from louver.ir.context import parse_ir
from louver.ptx.assembler import assemble
from support.dot_loops import DotLoop
from support.emulate_tiles import emulate_tiles

TYPES: dict[str, tuple[str, Any]] = {
    "f16": ("f16", np.float16),
    "bf16": ("bf16", ml_dtypes.bfloat16),
    "f32": ("f32", np.float32),
    "e4m3": ("f8E4M3FN", ml_dtypes.float8_e4m3fn),
    "s8": ("i8", np.int8),
}


def _text(element: str, rows: int, columns: int, *, turned: bool) -> str:
    """d [M, K], or its transpose: a tile of the sparse a [M, K] for each program."""
    t, _ = TYPES[element]
    mark = "NV12" if element == "f32" else "NV24"
    shape = f"{rows}x{columns}"
    out = f"{columns}x{rows}" if turned else shape
    places = DotLoop.places("x", rows, columns, "%m0", "%k0", "%M", "%K")
    turn = f"%t = tt.trans %x {{order = array<i32: 1, 0>}} : tensor<{shape}x{t}> -> tensor<{out}x{t}>"
    if turned:
        outs = DotLoop.places("o", columns, rows, "%k0", "%m0", "%K", "%M")
    else:
        outs = DotLoop.places("o", rows, columns, "%m0", "%k0", "%M", "%K")
    return f"""tt.func public @k(%d: !tt.ptr<{t}> {{tt.divisibility = 16 : i32}},
    %a: !tt.ptr<{t}> {{tt.divisibility = 16 : i32, louver.sparse.{mark} = 1 : i32}},
    %M: i32 {{tt.divisibility = 16 : i32}}, %K: i32 {{tt.divisibility = 16 : i32}}) {{
  %bm = arith.constant {rows} : i32
  %bk = arith.constant {columns} : i32
  %row = tt.get_program_id x : i32
  %column = tt.get_program_id y : i32
  %m0 = arith.muli %row, %bm : i32
  %k0 = arith.muli %column, %bk : i32
{places}
  %x_pitch = tt.splat %K : i32 -> tensor<{shape}xi32>
  %x_flat = arith.muli %x_rows, %x_pitch : tensor<{shape}xi32>
  %x_at = arith.addi %x_flat, %x_columns : tensor<{shape}xi32>
  %x_base = tt.splat %a : !tt.ptr<{t}> -> tensor<{shape}x!tt.ptr<{t}>>
  %x_ptr = tt.addptr %x_base, %x_at : tensor<{shape}x!tt.ptr<{t}>>, tensor<{shape}xi32>
  %x_none = arith.constant dense<{"0" if element == "s8" else "0.0"}> : tensor<{shape}x{t}>
  %x = tt.load %x_ptr, %x_in, %x_none : tensor<{shape}x!tt.ptr<{t}>>
  {turn if turned else ""}
{outs}
  %o_pitch = tt.splat {"%M" if turned else "%K"} : i32 -> tensor<{out}xi32>
  %o_flat = arith.muli %o_rows, %o_pitch : tensor<{out}xi32>
  %o_at = arith.addi %o_flat, %o_columns : tensor<{out}xi32>
  %o_base = tt.splat %d : !tt.ptr<{t}> -> tensor<{out}x!tt.ptr<{t}>>
  %o_ptr = tt.addptr %o_base, %o_at : tensor<{out}x!tt.ptr<{t}>>, tensor<{out}xi32>
  tt.store %o_ptr, {"%t" if turned else "%x"}, %o_in : tensor<{out}x!tt.ptr<{t}>>
  tt.return
}}"""


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("tile", [(16, 32), (16, 64), (64, 128), (128, 64)], ids=str)
@pytest.mark.parametrize("element", TYPES)
def test_every_element_is_in_its_place(
    rng: np.random.Generator, element: str, tile: tuple[int, int], turned: bool, warps: int
) -> None:
    rows, columns = tile[0], tile[1] * (2 if element in ("s8", "e4m3") and tile[1] < 64 else 1)
    made = compile_tiles(parse_ir(_text(element, rows, columns, turned=turned)), warps=warps)
    m, k = 2 * rows, 3 * columns - 16
    numpy_type = TYPES[element][1]
    a = rng.integers(1, 100, (m, k)).astype(np.float32).astype(numpy_type)
    a = louver.prune(a, "1:2" if element == "f32" else "2:4")
    d = np.full((k, m) if turned else (m, k), 99, numpy_type)
    sparse = louver.compress(a, "1:2" if element == "f32" else "2:4")
    emulate_tiles(made, (2, 3), {"d": d, "a": sparse, "M": m, "K": k}, uninitialised=["d"])
    np.testing.assert_array_equal(d.astype(np.float32), (a.T if turned else a).astype(np.float32))


@pytest.mark.parametrize("element", ["f16", "s8"])
def test_a_dense_product_of_one_waits_for_nothing_but_its_copies(element: str) -> None:
    """Both parts come by the ring; the tile is made a step ahead, without an exchange: threads meet once a step."""
    made = DotLoop(element, (64, 64, 64), raised=True, sparse="b").compiled(boxes=False)
    loop = made.text("encoded").split("scf.for")[1]
    body = loop[: loop.index("scf.yield")]
    assert "tt.decompress" in body and "tt.load" not in body
    assert body.count("async_copy_global_to_local") == 3
    lines = made.ptx.splitlines()
    labels = {line.rstrip(":"): number for number, line in enumerate(lines) if line.endswith(":")}
    ends = [(number, re.search(r"bra[.\w]* (\S+);", line)) for number, line in enumerate(lines)]
    bodies = [lines[labels[end[1]] : number] for number, end in ends if end and labels.get(end[1], number) < number]
    (body_lines,) = [each for each in bodies if any("wgmma.mma" in line for line in each)]
    assert sum("bar.sync" in line or "barrier" in line for line in body_lines) == 1
    assert assemble(made.ptx, "sm_90a").faults == ()
