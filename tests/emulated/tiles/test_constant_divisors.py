"""Quotients and remainders by constants need no division, and neighbours that wrap together are moved together."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.pipeline import compile_tiles
from louver.ir.context import parse_ir
from support.emulate_tiles import emulate_tiles
from support.tile_operations import DTYPES, ELEMENTWISE, SIZE

DIVISORS = [1, 2, 3, 5, 7, 12, 64, 100, 641, 2047, 2048, 6700417, 2**30, 2**31 - 1]

OPERATIONS = ["divsi", "floordivsi", "ceildivsi", "remsi"]


@pytest.mark.parametrize("element", ["i32", "i64"])
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("by", DIVISORS)
def test_all_signs(rng: np.random.Generator, op: str, by: int, element: str) -> None:
    dtype = DTYPES[element]
    x = rng.integers(-(2**31), 2**31, SIZE).astype(dtype)
    multiples = np.arange(-4, 4) * by
    near = np.concatenate([multiples - 1, multiples, multiples + 1, [2**31 - 1, -(2**31), 2**31 - 2]])
    near = near[(near < 2**31) & (near >= -(2**31))]
    x[: len(near)] = near
    op_text = f"arith.constant dense<{by}> : tensor<256x{element}>\n  %v = arith.{op} %a, %c"
    kernel = compile_tiles(parse_ir(ELEMENTWISE.replace("%v =", "%c =").format(t=element, op=op_text)))
    if element == "i32" or by & (by - 1) == 0:
        assert "div." not in kernel.ptx and "rem." not in kernel.ptx
    out = np.full(SIZE, -99, dtype)
    emulate_tiles(kernel, (1,), {"out": out, "x": x, "y": x.copy()})
    whole = [int(each) for each in x]
    truncated = [abs(each) // by * (1 if each >= 0 else -1) for each in whole]
    wanted = {
        "divsi": truncated,
        "floordivsi": [each // by for each in whole],
        "ceildivsi": [-(-each // by) for each in whole],
        "remsi": [each - by * quotient for each, quotient in zip(whole, truncated, strict=True)],
    }
    np.testing.assert_array_equal(out, wanted[op])


WRAPPED = """tt.func public @k(%out: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 16 : i32}, %s: i32 {tt.divisibility = 16 : i32}) {
  %p = tt.get_program_id x : i32
  %c = arith.constant 512 : i32
  %b = arith.muli %p, %c : i32
  %r = tt.make_range {start = 0 : i32, end = 512 : i32} : tensor<512xi32>
  %f = tt.splat START : i32 -> tensor<512xi32>
  %i = arith.addi %f, %r : tensor<512xi32>
  %z = tt.splat %n : i32 -> tensor<512xi32>
  %w = arith.remsi %i, %z : tensor<512xi32>
  %px = tt.splat %x : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
  %qx = tt.addptr %px, %r : tensor<512x!tt.ptr<f32>>, tensor<512xi32>
  %v = tt.load %qx : tensor<512x!tt.ptr<f32>>
  %po = tt.splat %out : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>>
  %qo = tt.addptr %po, %w : tensor<512x!tt.ptr<f32>>, tensor<512xi32>
  tt.store %qo, %v : tensor<512x!tt.ptr<f32>>
  tt.return
}"""

AHEAD = "%d = arith.constant dense<1024> : tensor<512xi32>\n  %w = arith.addi %m, %d : tensor<512xi32>\n"


@pytest.mark.parametrize("n", [1024, 1040])
def test_neighbours_that_wrap(rng: np.random.Generator, n: int) -> None:
    x, out = rng.standard_normal(512).astype(np.float32), np.full(n, np.nan, np.float32)
    kernel = compile_tiles(parse_ir(WRAPPED.replace("START", "%b")))
    assert "st.global.v4" in kernel.ptx
    assert kernel.ptx.count("rem.s32") == kernel.ptx.count("st.global")
    emulate_tiles(kernel, (2,), {"out": out, "x": x, "n": n, "s": 0})
    wanted = np.full(n, np.nan, np.float32)
    for program in range(2):
        wanted[(program * 512 + np.arange(512)) % n] = x
    np.testing.assert_array_equal(out, wanted)


def test_indices_below_zero_do_not_wrap_together(rng: np.random.Generator) -> None:
    """-1024 leaves 0 but -1023 leaves -1023: the remainder has the sign of the index."""
    x, out = rng.standard_normal(512).astype(np.float32), np.full(1536, np.nan, np.float32)
    text = WRAPPED.replace("START", "%s").replace("%w = arith", "%m = arith").replace("%po = tt", AHEAD + "  %po = tt")
    emulate_tiles(compile_tiles(parse_ir(text)), (1,), {"out": out, "x": x, "n": 1024, "s": -1024})
    wanted = np.full(1536, np.nan, np.float32)
    wanted[1024 + np.fmod(np.arange(512) - 1024, 1024)] = x
    np.testing.assert_array_equal(out, wanted)


def test_neighbours_of_one_group(rng: np.random.Generator) -> None:
    """Rows of n elements are stored with gaps of n."""
    x, out, n = rng.standard_normal(512).astype(np.float32), np.full(2048, np.nan, np.float32), 272
    groups = "%g = arith.divsi %i, %z : tensor<512xi32>\n  %h = arith.muli %g, %z : tensor<512xi32>\n"
    text = WRAPPED.replace("START", "%b").replace("%w = arith.remsi %i, %z", groups + "  %w = arith.addi %i, %h")
    kernel = compile_tiles(parse_ir(text))
    assert "st.global.v4" in kernel.ptx
    assert kernel.ptx.count("div.s32") == kernel.ptx.count("st.global")
    emulate_tiles(kernel, (2,), {"out": out, "x": x, "n": n, "s": 0})
    wanted = np.full(2048, np.nan, np.float32)
    for index in range(1024):
        wanted[index + index // n * n] = x[index % 512]
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("by", [16, 128, 24, 1024])
def test_numbers_of_a_range_are_divided_once(by: int) -> None:
    """Numbers of a range are not negative. A thread's numbers that are whole groups apart have one remainder."""
    text = f"""tt.func public @k(%out: !tt.ptr<i32>, %n: i32) {{
      %r = tt.make_range {{start = 0 : i32, end = 4096 : i32}} : tensor<4096xi32>
      %by = arith.constant dense<{by}> : tensor<4096xi32>
      %w = tt.splat %n : i32 -> tensor<4096xi32>
      %rest = arith.remsi %r, %by : tensor<4096xi32>
      %group = arith.divsi %r, %by : tensor<4096xi32>
      %far = arith.muli %group, %w : tensor<4096xi32>
      %sum = arith.addi %far, %rest : tensor<4096xi32>
      %p = tt.splat %out : !tt.ptr<i32> -> tensor<4096x!tt.ptr<i32>>
      %q = tt.addptr %p, %r : tensor<4096x!tt.ptr<i32>>, tensor<4096xi32>
      tt.store %q, %sum : tensor<4096x!tt.ptr<i32>>
      tt.return }}"""
    kernel = compile_tiles(parse_ir(text))
    whole = by & (by - 1) == 0
    # A quotient, and that of the remainder. A sign would take two more, and so would each number.
    assert not whole or kernel.ptx.count("shr.") <= 2
    out, r = np.full(4096, -1, np.int32), np.arange(4096)
    emulate_tiles(kernel, (1,), {"out": out, "n": 3000}, uninitialised=["out"])
    np.testing.assert_array_equal(out, r // by * 3000 + r % by)
