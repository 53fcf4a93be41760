"""Neighbours are moved together where a call's addresses and sizes are multiples of 16, and by tile IR with such a mark."""

from __future__ import annotations

import json

import numpy as np
import pytest

import louver
from louver.compile.pipeline import compile_tiles
from louver.emulator import Seeded
from louver.frontend.ttir import read_ttir
from louver.ir.conditions import SparseView
from louver.ir.context import parse_ir
from louver.isa.instruction import LANES
from louver.library.compiled import Launch, from_json, to_json
from louver.ptx.assembler import assemble
from support.compiled import read_copy
from support.emulate_tiles import emulate_tiles
from support.multiples import mark_arguments, marked
from support.sizes import size, sizes
from support.triton.tile_cases import TILE_CASES, kept_tiles
from support.triton.tile_runs import ELEMENTS, RUNS, draw, poisoned, product, tiles

M, N, K = 80, 48, 208
"""Multiples of 16 that are no whole tiles."""

LOADS = {
    "dot_f16": "ld.global.b32",
    "dot_bf16": "ld.global.b32",
    "dot_e4m3": "ld.global.b32",
    "dot_s8": "ld.global.b32",
    "dense_bf16": "cp.async.cg",
    "dense_s8": "cp.async.cg",
}


@pytest.mark.parametrize("name", [*LOADS, "dot_tf32", "dense_f16_sum", "dense_e5m2"])
def test_products_of_whole_multiples(rng: np.random.Generator, name: str) -> None:
    case = TILE_CASES[name]
    left, right, out = (ELEMENTS[case.signature[each].removeprefix("*")] for each in "abd")
    a, b = draw(rng, left, M, K), draw(rng, right, K, N)
    pattern = case.sparse.get("a")
    a = a if pattern is None else louver.prune(a, pattern)
    d = poisoned((M, N), out)
    arguments = {"d": d, "a": a if pattern is None else louver.compress(a, pattern), "b": b, "M": M, "N": N, "K": K}
    # Bulk copies would take some of the loads whose accesses are counted here.
    compiled = compile_tiles(marked(read_copy(kept_tiles(name)), arguments), boxes=False)
    plain = compile_tiles(read_copy(kept_tiles(name)), warps=compiled.signature.threads // LANES)
    assert compiled.ptx.count("ld.global") < plain.ptx.count("ld.global") or name == "dot_tf32"
    assert compiled.ptx.count("st.global") == plain.ptx.count("st.global") / 2
    assert name not in LOADS or LOADS[name] in compiled.ptx
    grid = tiles(M, case.constexprs["BM"]), tiles(N, case.constexprs["BN"])
    emulate_tiles(compiled, grid, arguments, order=Seeded(5), uninitialised=["d"])  # type: ignore[arg-type]
    expected = product(a, b, out)
    if name == "dense_f16_sum":
        off = np.abs(d.astype(np.float64) - expected.value)
        assert (off <= 2.0**-11 * (1 + tiles(K, 32)) * (np.abs(a.astype(float)) @ np.abs(b.astype(float)))).all()
    else:
        expected.check(d)


COPY = """tt.func public @copy(%out: !tt.ptr<{t}>, %x: !tt.ptr<{t}>, %rows: i32, %columns: i32, %first: i32, %stride: i32) {{
  %m = tt.make_range {{start = 0 : i32, end = 16 : i32}} : tensor<16xi32>
  %n = tt.make_range {{start = 0 : i32, end = 64 : i32}} : tensor<64xi32>
  %m1 = tt.expand_dims %m {{axis = 1 : i32}} : tensor<16xi32> -> tensor<16x1xi32>
  %n0 = tt.expand_dims %n {{axis = 0 : i32}} : tensor<64xi32> -> tensor<1x64xi32>
  %f = tt.splat %first : i32 -> tensor<1x64xi32>
  %n1 = arith.addi %n0, %f : tensor<1x64xi32>
  %pitch = tt.splat %stride : i32 -> tensor<16x1xi32>
  %limit = tt.splat %rows : i32 -> tensor<16x1xi32>
  %end = tt.splat %columns : i32 -> tensor<1x64xi32>
  %in_m = arith.cmpi slt, %m1, %limit : tensor<16x1xi32>
  %in_n = arith.cmpi {compare} : tensor<1x64xi32>
  %mm = tt.broadcast %in_m : tensor<16x1xi1> -> tensor<16x64xi1>
  %mn = tt.broadcast %in_n : tensor<1x64xi1> -> tensor<16x64xi1>
  %mask = arith.{join} %mm, %mn : tensor<16x64xi1>
  %row = arith.muli %m1, %pitch : tensor<16x1xi32>
  %rb = tt.broadcast %row : tensor<16x1xi32> -> tensor<16x64xi32>
  %nb = tt.broadcast %n1 : tensor<1x64xi32> -> tensor<16x64xi32>
  %at = arith.addi %rb, %nb : tensor<16x64xi32>
  %px = tt.splat %x : !tt.ptr<{t}> -> tensor<16x64x!tt.ptr<{t}>>
  %po = tt.splat %out : !tt.ptr<{t}> -> tensor<16x64x!tt.ptr<{t}>>
  %qx = tt.addptr %px, %at : tensor<16x64x!tt.ptr<{t}>>, tensor<16x64xi32>
  %qo = tt.addptr %po, %at : tensor<16x64x!tt.ptr<{t}>>, tensor<16x64xi32>
  %other = arith.constant dense<{zero}> : tensor<16x64x{t}>
  %v = tt.load %qx, %mask, %other : tensor<16x64x!tt.ptr<{t}>>
  tt.store %qo, %v, %mask : tensor<16x64x!tt.ptr<{t}>>
  tt.return
}}"""

INSIDE = ["slt, %n1, %end", "ult, %n1, %end", "sgt, %end, %n1"]
"""Conditions that neighbours share where both sides are multiples."""

APART = ["sle, %n1, %end", "ne, %n1, %end", "sge, %end, %n1"]
"""Conditions that they do not."""


@pytest.mark.parametrize("first", [0, 16, -32])
@pytest.mark.parametrize("compare", [*INSIDE, *APART])
@pytest.mark.parametrize("element", ["i8", "i16", "f16", "f32", "i64"])
def test_copies_of_tiles(rng: np.random.Generator, element: str, compare: str, first: int) -> None:
    dtype = {"i8": np.int8, "i16": np.int16, "f16": np.float16, "f32": np.float32, "i64": np.int64}[element]
    rows, columns = 13, 48
    zero = "0.0" if element.startswith("f") else "0"
    text = COPY.format(t=element, compare=compare, join="andi", zero=zero)
    x = rng.integers(-100, 100, (32, 96)).astype(dtype)
    out = np.full((32, 96), 101, dtype)
    given = {"rows": rows, "columns": columns, "first": first, "stride": 96}
    compiled = compile_tiles(marked(parse_ir(text), ["out", "x", "columns", "first", "stride"]))
    # Room before and behind the tile: what is addressed is inside of the array, whatever the condition.
    wanted = out.copy()
    flat, source = wanted.reshape(-1), x.reshape(-1)
    predicates = {
        "slt": np.less, "ult": lambda a, b: a.astype(np.uint32) < np.uint32(b), "sgt": np.less,
        "sle": np.less_equal, "ne": np.not_equal, "sge": np.less_equal,
    }  # fmt: skip
    base = 8 * 96
    for m in range(16):
        n = np.arange(64, dtype=np.int32) + first
        taken = (
            n[predicates[compare[:3]](n, columns) & (m < rows)]
            if compare[:2] != "ne"
            else n[(n != columns) & (m < rows)]
        )
        places = base + m * 96 + taken
        flat[places] = source[places]
    arguments = {"out": out.reshape(-1)[base:], "x": x.reshape(-1)[base:], **given}
    if first < 0 and compare not in ("ult, %n1, %end",):
        pytest.skip("it would begin before its array")
    wide = {"i8": "v2.b32", "i16": "v4.b32", "f16": "v4.b32", "f32": "v4.f32", "i64": "v2.b64"}[element]
    assert (f"ld.global.{wide}" in compiled.ptx and f"st.global.{wide}" in compiled.ptx) == (compare in INSIDE)
    emulate_tiles(compiled, (1,), arguments, order=Seeded(2))  # type: ignore[arg-type]
    np.testing.assert_array_equal(out, wanted)
    assemble(compiled.ptx)


def test_what_is_taken_for_granted_is_in_the_signature() -> None:
    text = COPY.format(t="f32", compare=INSIDE[0], join="andi", zero="0.0")
    compiled = compile_tiles(marked(parse_ir(text), ["out", "x", "columns", "first", "stride"]))
    assert [each.multiple for each in compiled.signature.parameters] == [16, 16, 1, 16, 16, 16]


NEGATED = """tt.func public @negated(%out: !tt.ptr<i64>, %x: i32) {
  %i = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32>
  %at = tt.splat %x : i32 -> tensor<32xi32>
  %sum = arith.addi %i, %at : tensor<32xi32>
  %zero = arith.constant dense<0> : tensor<32xi32>
  %eight = arith.constant dense<8> : tensor<32xi32>
  %less = arith.subi %zero, %sum : tensor<32xi32>
  %more = arith.addi %less, %eight : tensor<32xi32>
  %wide = arith.extsi %more : tensor<32xi32> to tensor<32xi64>
  %p = tt.splat %out : !tt.ptr<i64> -> tensor<32x!tt.ptr<i64>>
  %q = tt.addptr %p, %i : tensor<32x!tt.ptr<i64>>, tensor<32xi32>
  tt.store %q, %wide : tensor<32x!tt.ptr<i64>>
  tt.return }"""


@pytest.mark.parametrize("x", [-(2**31), -64, 0, 2**31 - 64])
def test_integers_that_wrap_once_they_are_negated(x: int) -> None:
    out = np.full(32, 99, np.int64)
    emulate_tiles(compile_tiles(marked(read_ttir(NEGATED), ["x"])), (1,), {"out": out, "x": x})
    expected = (8 - (np.arange(32) + x)).astype(np.int32).astype(np.int64)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", TILE_CASES)
def test_every_kernel(rng: np.random.Generator, name: str) -> None:
    run = RUNS[name](rng, name)
    compiled = compile_tiles(mark_arguments(read_copy(kept_tiles(name)), run.arguments))
    outputs = [each for each in run.expected if each not in run.read_first]
    emulate_tiles(compiled, run.grid, run.arguments, order=Seeded(7), uninitialised=outputs)
    run.check()


SHIFTED = """tt.func public @k(%out: !tt.ptr<i64>, %x: !tt.ptr<i64>, %n: i64) {{
  %big = arith.constant 4294967296 : i64
  %by = arith.constant {by} : i64
  %a = arith.muli %n, %big : i64
  %b = arith.{op} %a, %by : i64
  %r = tt.make_range {{start = 0 : i32, end = 256 : i32}} : tensor<256xi32>
  %p = tt.addptr %x, %b : !tt.ptr<i64>, i64
  %px = tt.splat %p : !tt.ptr<i64> -> tensor<256x!tt.ptr<i64>>
  %qx = tt.addptr %px, %r : tensor<256x!tt.ptr<i64>>, tensor<256xi32>
  %po = tt.splat %out : !tt.ptr<i64> -> tensor<256x!tt.ptr<i64>>
  %qo = tt.addptr %po, %r : tensor<256x!tt.ptr<i64>>, tensor<256xi32>
  %v = tt.load %qx : tensor<256x!tt.ptr<i64>>
  tt.store %qo, %v : tensor<256x!tt.ptr<i64>>
  tt.return
}}"""


@pytest.mark.parametrize(("op", "by"), [("shrsi", 33), ("shrui", 32), ("divsi", 1 << 33), ("divui", 1 << 31)])
def test_parts_of_large_multiples(rng: np.random.Generator, op: str, by: int) -> None:
    """The rest of a multiple of 2^32 need not be even: such addresses are not aligned for two elements."""
    n = 6
    first = (n << 32) >> by if op.startswith("shr") else (n << 32) // by
    x, out = rng.integers(0, 1 << 40, 300), np.zeros(256, np.int64)
    compiled = compile_tiles(marked(parse_ir(SHIFTED.format(op=op, by=by)), ["out", "x"]))
    assert ("ld.global.v2.b64" in compiled.ptx) == ((1 << 32) % (2 * by if op.startswith("div") else 2 << by) == 0)
    emulate_tiles(compiled, (1,), {"out": out, "x": x, "n": n})
    np.testing.assert_array_equal(out, x[first : first + 256])


def test_signatures_say_how_sparse_tensors_are_described() -> None:
    made = compile_tiles(read_copy(kept_tiles("dot_f16")))
    assert made.checked.views == (SparseView("a", size("K"), sizes("M"), sizes("K")),)
    launch = Launch.of(made)
    assert from_json(Launch, json.loads(json.dumps(to_json(launch)))) == launch


PRODUCT = """tt.func public @k(%out: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %m: i32, %n: i32 {tt.divisibility = 16 : i32}) {
  %c = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32>
  %r = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32>
  %ms = tt.splat %m : i32 -> tensor<16xi32>
  %ns = tt.splat %n : i32 -> tensor<64xi32>
  %rm = arith.cmpi slt, %r, %ms : tensor<16xi32>
  %cn = arith.cmpi slt, %c, %ns : tensor<64xi32>
  %r1 = tt.expand_dims %r {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
  %c1 = tt.expand_dims %c {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
  %rm1 = tt.expand_dims %rm {axis = 1 : i32} : tensor<16xi1> -> tensor<16x1xi1>
  %cn1 = tt.expand_dims %cn {axis = 0 : i32} : tensor<64xi1> -> tensor<1x64xi1>
  %rm2 = tt.broadcast %rm1 : tensor<16x1xi1> -> tensor<16x64xi1>
  %cn2 = tt.broadcast %cn1 : tensor<1x64xi1> -> tensor<16x64xi1>
  %mask = arith.muli %rm2, %cn2 : tensor<16x64xi1>
  %w = arith.constant dense<64> : tensor<16x1xi32>
  %r2 = arith.muli %r1, %w : tensor<16x1xi32>
  %r3 = tt.broadcast %r2 : tensor<16x1xi32> -> tensor<16x64xi32>
  %c3 = tt.broadcast %c1 : tensor<1x64xi32> -> tensor<16x64xi32>
  %at = arith.addi %r3, %c3 : tensor<16x64xi32>
  %px = tt.splat %x : !tt.ptr<f32> -> tensor<16x64x!tt.ptr<f32>>
  %po = tt.splat %out : !tt.ptr<f32> -> tensor<16x64x!tt.ptr<f32>>
  %qx = tt.addptr %px, %at : tensor<16x64x!tt.ptr<f32>>, tensor<16x64xi32>
  %qo = tt.addptr %po, %at : tensor<16x64x!tt.ptr<f32>>, tensor<16x64xi32>
  %v = tt.load %qx, %mask : tensor<16x64x!tt.ptr<f32>>
  tt.store %qo, %v, %mask : tensor<16x64x!tt.ptr<f32>>
  tt.return
}"""


@pytest.mark.parametrize(("m", "n"), [(16, 64), (5, 48), (16, 0), (0, 16)])
def test_masks_that_are_products_of_conditions(rng: np.random.Generator, m: int, n: int) -> None:
    x, out = rng.standard_normal((16, 64)).astype(np.float32), np.full((16, 64), np.nan, np.float32)
    kernel = compile_tiles(read_ttir(PRODUCT))
    assert "ld.global.v4" in kernel.ptx and "st.global.v4" in kernel.ptx
    emulate_tiles(kernel, (1,), {"out": out, "x": x, "m": m, "n": n})
    wanted = np.full((16, 64), np.nan)
    wanted[:m, :n] = x[:m, :n]
    np.testing.assert_array_equal(out, wanted)
