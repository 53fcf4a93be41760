"""Tile IR written by hand, as register tiles on the emulator: views of all kinds, parts of tensors, loops, what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.compile.pipeline import compile_tiles
from louver.frontend.ttir import read_ttir
from louver.ir.context import parse_ir
from louver.ir.refusal import UnsupportedKernelError
from support.compiled import read_copy
from support.emulate_tiles import emulate_tiles
from support.golden import Golden
from support.signatures import arguments
from support.triton.cases import kept

SPARSE = '#tt.sparse<"NV24">'


def half(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32).astype(np.float16)


def close(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    left, right = a.astype(np.float64), b.astype(np.float64)
    off = np.abs(found.astype(np.float64) - left @ right)
    assert (off <= 2.0**-11 * np.abs(left @ right) + 2.0**-18 * (np.abs(left) @ np.abs(right))).all(), off.max()


def test_the_documented_kernel(rng: np.random.Generator, golden: Golden) -> None:
    """Document 001's kernel: 32x16x64 in f16, from its own text, by mma.sp.m16n8k32."""
    text = (Path(__file__).parents[2] / "cpu/ir/inputs/simplified_sparse_dot.mlir").read_text()
    compiled = compile_tiles(parse_ir(text))
    golden.check("tiles/sparse_dot.mlir", compiled.text("encoded"))
    assert str(parse_ir(compiled.text("encoded"))) == str(compiled.encoded)
    a, b = louver.prune(half(rng, 32, 64), "2:4"), half(rng, 64, 16)
    d = np.full((32, 16), np.nan, np.float16)
    report = emulate_tiles(
        compiled, (1,), {"arg0": d, "arg1": louver.compress(a, "2:4"), "arg2": b}, uninitialised=["arg0"]
    )
    close(d, a, b)
    name = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    assert report.instructions[name] == 2 * 2 * 2


PART = f"""tt.func public @part(%d: !tt.ptr<f32>, %a: !tt.ptr<f16, {SPARSE}>, %b: !tt.ptr<f16>, %M: i32, %K: i32, %pitch: i64, %N: i32) {{
  %c0 = arith.constant 0 : i32
  %zeros = arith.constant dense<0.0> : tensor<32x16xf32>
  %tm = arith.constant 32 : i32
  %tk = arith.constant 64 : i32
  %pid = tt.get_program_id x : i32
  %row = arith.muli %pid, %tm : i32
  %wide = arith.extsi %N : i32 to i64
  %x = tt.make_tensor_descriptor %a, [%M, %K], [%pitch, 1] : <f16, {SPARSE}>, <tensor<32x64xf16, {SPARSE}>>
  %y = tt.make_tensor_descriptor %b, [%K, %N], [%wide, 1] : <f16>, <tensor<64x16xf16>>
  %z = tt.make_tensor_descriptor %d, [%M, %N], [%wide, 1] : <f32>, <tensor<32x16xf32>>
  %total = scf.for %k = %c0 to %K step %tk iter_args(%sum = %zeros) -> (tensor<32x16xf32>) : i32 {{
    %l = tt.descriptor_load %x[%row, %k] : !tt.tensordesc<tensor<32x64xf16, {SPARSE}>> -> tensor<32x64xf16, {SPARSE}>
    %r = tt.descriptor_load %y[%k, %c0] : !tt.tensordesc<tensor<64x16xf16>> -> tensor<64x16xf16>
    %s = tt.dot %l, %r, %sum : tensor<32x64xf16, {SPARSE}> * tensor<64x16xf16> -> tensor<32x16xf32>
    scf.yield %s : tensor<32x16xf32>
  }}
  tt.descriptor_store %z[%row, %c0], %total : !tt.tensordesc<tensor<32x16xf32>>, tensor<32x16xf32>
  tt.return
}}"""


@pytest.mark.parametrize(
    ("m", "k", "whole", "n"), [(70, 132, 260, 13), (1, 4, 4, 1), (33, 64, 64, 16), (48, 60, 200, 9)]
)
def test_part_of_a_sparse_tensor(rng: np.random.Generator, m: int, k: int, whole: int, n: int) -> None:
    """A kernel that reads fewer columns than the tensor has: metadata lies as the whole tensor's does."""
    a, b = louver.prune(half(rng, m, whole), "2:4"), half(rng, k, n)
    d = np.full((m, n), np.nan, np.float32)
    arguments = {"d": d, "a": louver.compress(a, "2:4"), "b": b, "M": m, "K": k, "pitch": whole, "N": n}
    emulate_tiles(compile_tiles(parse_ir(PART)), (-(-m // 32),), arguments, uninitialised=["d"])
    close(d, a[:, :k], b)


@pytest.mark.parametrize(
    "name", ["block_pointers", "grouped_pointers", "made_descriptors", "given_descriptors", "indexed_pointers"]
)
def test_kernels_that_are_products_too(rng: np.random.Generator, name: str) -> None:
    """Every style of kernel, with its 128x64 tiles and tails."""
    m, n, k = 140, 70, 132
    # Rows of K elements are no multiple of 16 bytes.
    compiled = compile_tiles(read_copy(kept(name)), boxes=False)
    element = {"indexed_pointers": np.int8, "given_descriptors": ml_dtypes.bfloat16}.get(name, np.float16)
    integer = element == np.int8

    def draw(*shape: int) -> np.ndarray:
        return rng.integers(-9, 10, shape).astype(element) if integer else rng.standard_normal(shape).astype(element)

    a, b = louver.prune(draw(m, k), "2:4"), draw(k, n)
    transposed = name in ("block_pointers", "indexed_pointers", "made_descriptors")
    d = np.full((n, m) if integer else (m, n), np.nan, np.float16 if integer else element)
    given = np.ascontiguousarray(b.T) if transposed else b
    known = {"M": m, "N": n, "K": k, "stride_a": k, "stride_am": k, "stride_b": k, "stride_bk": n, "stride_dm": n}
    known |= {"stride_d": m if integer else n, "scale": np.full(m, 0.5, np.float32), "bias": np.ones(n, np.float32)}
    known |= dict.fromkeys(("d", "d_tiles"), d) | dict.fromkeys(("b", "b_tiles"), given)
    known |= dict.fromkeys(("a", "a_tiles"), louver.compress(a, "2:4"))
    programs = (2, 2) if name not in ("grouped_pointers",) else (4,)
    if integer:
        programs = (2, 2)
    emulate_tiles(compiled, programs, {each: known[each] for each in arguments(compiled.signature)})
    total = a.astype(np.float64) @ b.astype(np.float64)
    if name == "grouped_pointers":
        total = np.where(total >= 0, total, total * 0.01)
    if integer:
        total = np.clip(total * 0.5 + 1, -100, 100).T
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    unit = 2.0**-8 if element == ml_dtypes.bfloat16 else 2.0**-11
    bound = unit * np.abs(total) + 2.0**-16 * (magnitude.T if integer else magnitude)
    assert (np.abs(d.astype(np.float64) - total) <= bound).all()


LOOP = """tt.func public @k(%out: !tt.ptr<i32>, %n: i32) {
  %one = arith.constant dense<1> : tensor<64xi32>
  %r = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32>
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %x, %i = scf.while (%a = %r, %j = %c0) : (tensor<64xi32>, i32) -> (tensor<64xi32>, i32) {
    %more = arith.cmpi slt, %j, %n : i32
    scf.condition(%more) %a, %j : tensor<64xi32>, i32
  } do {
  ^bb0(%a: tensor<64xi32>, %j: i32):
    %b = arith.addi %a, %a : tensor<64xi32>
    %c = arith.addi %b, %one : tensor<64xi32>
    %m = arith.addi %j, %c1 : i32
    scf.yield %c, %m : tensor<64xi32>, i32
  }
  %p = tt.splat %out : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>>
  %q = tt.addptr %p, %r : tensor<64x!tt.ptr<i32>>, tensor<64xi32>
  tt.store %q, %x : tensor<64x!tt.ptr<i32>>
  tt.return
}"""


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_while_loop_that_carries_a_tile(n: int) -> None:
    out = np.full(64, -1, np.int32)
    emulate_tiles(compile_tiles(parse_ir(LOOP)), (1,), {"out": out, "n": n}, uninitialised=["out"])
    np.testing.assert_array_equal(out, np.arange(64) * 2**n + 2**n - 1)


LATER = "%later = tt.load %count : !tt.ptr<i32>\n tt.store %count, %later : !tt.ptr<i32>"
READ = "%next = arith.addi %old, %one : i32\n tt.store %count, %next : !tt.ptr<i32>"


@pytest.mark.parametrize(
    ("order", "behind", "fences"),
    [
        *[("acq_rel", "", 1), ("acq_rel", LATER, 1), ("acq_rel", READ, 2)],
        *[("release", READ, 1), ("acquire", READ, 1), ("acquire", LATER, 0), ("relaxed", "", 0)],
    ],
)
def test_atomic_sums_hand_on_what_was_stored(order: str, behind: str, fences: int) -> None:
    """A store, then an atomic sum of one element by one thread: between both the threads meet. The fences are of this thread, and the
    one behind the sum is for who reads the old number.
    """
    text = f"""tt.func public @k(%out: !tt.ptr<i32>, %count: !tt.ptr<i32>) {{
      %one = arith.constant 1 : i32
      %yes = arith.constant true
      %r = tt.make_range {{start = 0 : i32, end = 256 : i32}} : tensor<256xi32>
      %p = tt.splat %out : !tt.ptr<i32> -> tensor<256x!tt.ptr<i32>>
      %q = tt.addptr %p, %r : tensor<256x!tt.ptr<i32>>, tensor<256xi32>
      tt.store %q, %r : tensor<256x!tt.ptr<i32>>
      %old = tt.atomic_rmw add, {order}, gpu, %count, %one, %yes : (!tt.ptr<i32>, i32, i1) -> i32
      {behind}
      tt.return }}"""
    compiled = compile_tiles(parse_ir(text))
    assert (
        compiled.ptx.count("fence.acq_rel.gpu") == len(re.findall(r"@%p\d+ fence.acq_rel.gpu", compiled.ptx)) == fences
    )
    assert behind or compiled.ptx.count("barrier.sync") == 1
    assert str(parse_ir(str(parse_ir(text)))) == str(parse_ir(text))
    out, count = np.full(256, -1, np.int32), np.zeros(1, np.int32)
    emulate_tiles(compiled, (1,), {"out": out, "count": count}, uninitialised=["out"])
    np.testing.assert_array_equal(out, np.arange(256))
    assert count[0] == 1


EXCHANGE = """tt.func public @k(%out: !tt.ptr<f16>, %x: !tt.ptr<f16>) {
  %r = tt.make_range {start = 0 : i32, end = 256 : i32} : tensor<256xi32>
  %p = tt.splat %x : !tt.ptr<f16> -> tensor<256x!tt.ptr<f16>>
  %q = tt.addptr %p, %r : tensor<256x!tt.ptr<f16>>, tensor<256xi32>
  %v = tt.load %q : tensor<256x!tt.ptr<f16>>
  %m = tt.reshape %v : tensor<256xf16> -> tensor<16x8x2xf16>
  %one, %two = tt.split %m : tensor<16x8x2xf16> -> tensor<16x8xf16>
  %d = arith.subf %one, %two : tensor<16x8xf16>
  %t = tt.trans %d {order = array<i32: 1, 0>} : tensor<16x8xf16> -> tensor<8x16xf16>
  %f = tt.reshape %t : tensor<8x16xf16> -> tensor<128xf16>
  %s = tt.make_range {start = 0 : i32, end = 128 : i32} : tensor<128xi32>
  %o = tt.splat %out : !tt.ptr<f16> -> tensor<128x!tt.ptr<f16>>
  %w = tt.addptr %o, %s : tensor<128x!tt.ptr<f16>>, tensor<128xi32>
  tt.store %w, %f : tensor<128x!tt.ptr<f16>>
  tt.return
}"""


def test_tiles_are_reshaped_split_and_turned(rng: np.random.Generator) -> None:
    x, out = half(rng, 256), np.full(128, np.nan, np.float16)
    emulate_tiles(compile_tiles(parse_ir(EXCHANGE)), (1,), {"out": out, "x": x}, uninitialised=["out"])
    pairs = x.reshape(16, 8, 2)
    np.testing.assert_array_equal(out, (pairs[..., 0] - pairs[..., 1]).T.reshape(-1))


NUMBER = "%q = tt.splat %p : !tt.ptr<{0}> -> tensor<64x!tt.ptr<{0}>>"
STORED = "tt.store %q, %b : tensor<64x!tt.ptr<f32>>"
REFUSED = {
    "%u = arith.constant dense<0.0> : tensor<48xf32>\n %w = tt.splat %p : !tt.ptr<f32> -> tensor<48x!tt.ptr<f32>>\n"
    " tt.store %w, %u : tensor<48x!tt.ptr<f32>>": "powers of two",
    f"%b = math.tan %v : tensor<64xf32>\n {STORED}": "math.tan is not computed on tiles in registers",
    f"%w = arith.extf %v : tensor<64xf32> to tensor<64xf64>\n %b = arith.truncf %w : tensor<64xf64> to tensor<64xf32>\n {STORED}": (
        "integers, f32, f16, bf16 and 8-bit floats, not f64"
    ),
    "%b = tt.atomic_rmw max, acq_rel, gpu, %q, %v : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>) -> tensor<64xf32>": "not max on f32",
    "%x = tt.reshape %v : tensor<64xf32> -> tensor<32x2xf32>\n %y = tt.reshape %v : tensor<64xf32> -> tensor<2x32xf32>\n"
    " %z = arith.constant dense<0.0> : tensor<2x2xf32>\n"
    " %w = tt.dot %y, %x, %z, inputPrecision = tf32 : tensor<2x32xf32> * tensor<32x2xf32> -> tensor<2x2xf32>\n"
    " %i = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>\n %b = arith.addf %w, %i : tensor<2x2xf32>\n"
    " %o = tt.splat %p : !tt.ptr<f32> -> tensor<2x2x!tt.ptr<f32>>\n tt.store %o, %b : tensor<2x2x!tt.ptr<f32>>": "one number for all elements",
}


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: REFUSED[body][:30])
def test_what_is_not_lowered_is_refused(body: str) -> None:
    text = f"""tt.func public @k(%p: !tt.ptr<f32>) {{
      {NUMBER.format("f32")}
      %v = tt.load %q : tensor<64x!tt.ptr<f32>>
      {body} loc("kernel.py":7:3)
      tt.return }}"""
    with pytest.raises(UnsupportedKernelError, match=REFUSED[body]) as caught:
        compile_tiles(read_ttir(text))
    assert caught.value.operation


def test_arguments_of_the_compiler_are_checked() -> None:
    with pytest.raises(ValueError, match="a power of two of warps, 1 to 32, got 3"):
        compile_tiles(parse_ir(LOOP), warps=3)
    with pytest.raises(ValueError, match="one kernel, got 0"):
        compile_tiles(parse_ir("builtin.module {}"))
