"""Calls whose addresses and sizes are multiples of 16 move neighbours together; kernels that spill get more warps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from louver.choose import occupancy
from louver.choose.occupancy import with_room
from louver.compile.compiled import CompiledKernel, CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.emulator import Seeded
from louver.frontend.ttir import read_ttir
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp
from louver.ir.tile.multiples import mark_apart
from louver.ptx.assembler import Assembling
from louver.runtime.arrays import view
from louver.user.arguments import Call, Kind
from louver.user.compiled import apart_of, multiples_of
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.dot_loops import DotLoop
from support.emulate_tiles import emulate_tiles
from support.jit import tile_source
from support.multiples import marked
from support.triton.cases import kept
from support.triton.tile_cases import TILE_CASES


def kernel_and_arguments(rng: np.random.Generator, size: int, first: int) -> tuple[JitKernel, dict[str, object]]:
    x = rng.standard_normal(size + first, np.float32)
    case = TILE_CASES["pointer_loop"]
    out = np.full(256 + first, np.nan, np.float32)[first:]
    arguments = {"out": out, "x": x[first:], "STEPS": 4, "ROW": 144, **case.constexprs}
    return JitKernel(tile_source("pointer_loop"), Hints()), arguments


@pytest.mark.parametrize("first", [0, 1])
def test_calls_go_by_their_alignment(rng: np.random.Generator, first: int) -> None:
    kernel, arguments = kernel_and_arguments(rng, 144 * 5, first)
    x, out = np.asarray(arguments["x"]), np.asarray(arguments["out"])
    (call, _), aligned = kernel._call((), arguments), out.ctypes.data % 16 == 0 and x.ctypes.data % 16 == 0  # type: ignore[attr-defined]
    assert multiples_of(call) == (("ROW", "out", "x") if aligned else ("ROW",)) or not (aligned or first)
    one, other = np.zeros(128), np.ones(128)
    for step in range(4):
        one, other = other + x[step * 144 : step * 144 + 128], one
        one = one * 0.5 if step % 2 == 0 else one
    kernel.emulate[(1,)](**arguments)
    np.testing.assert_allclose(out, np.concatenate([one, one[::-1] + other]), rtol=1e-5, atol=1e-6)
    explained = kernel.explain(**arguments)
    assert explained.warning is None
    assert ("ld.global.v" in explained.ptx) == aligned or not first


def test_sizes_of_descriptors_are_multiples_too() -> None:
    numbers = {"d.shape.0": 40, "d.shape.1": 48, "d.stride.0": 64, "d.stride.1": 1, "t.shape.0": 32, "n": 16, "one": 32}
    kind = Kind((("d", "tensordesc<fp16[16,16]>"), ("t.shape.0", "i32"), ("n", "i32")), (), (), ())
    call = Call(kind, numbers=dict(numbers))
    assert multiples_of(call) == ("d.shape.1", "d.stride.0", "n", "t.shape.0")


def test_a_kernel_that_spills_gets_more_warps() -> None:
    text = kept("gated_layer")
    narrow = CompiledKernel(compile_tiles(read_ttir(text), warps=1), "no product")
    wider = with_room(narrow, None)
    assert not wider.spilled and wider.warning is None and wider.warps in (2, 4)
    assert wider.kernel.refusal == "no product"
    # Whoever asks for one warp gets it, and is told.
    asked = with_room(narrow, 1)
    assert asked.kernel is narrow and asked.spilled and "with 1 warps each thread moves" in str(asked.warning)


STORES = """tt.func public @k(%a: !tt.ptr<f16>, %seen: !tt.ptr<f32>, %times: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %size = arith.constant 1024 : i32
  %r = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32>
  %down = tt.expand_dims %r {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
  %along = tt.expand_dims %r {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32>
  %rows = tt.broadcast %down : tensor<32x1xi32> -> tensor<32x32xi32>
  %columns = tt.broadcast %along : tensor<1x32xi32> -> tensor<32x32xi32>
  %pitch = arith.constant dense<32> : tensor<32x32xi32>
  %flat = arith.muli %rows, %pitch : tensor<32x32xi32>
  %place = arith.addi %flat, %columns : tensor<32x32xi32>
  %zeros = arith.constant dense<0.0> : tensor<32x32xf32>
  %sum = scf.for %i = %zero to %times step %one iter_args(%c = %zeros) -> (tensor<32x32xf32>) : i32 {
    %by = arith.muli %i, %size : i32
    %p = tt.addptr %a, %by : !tt.ptr<f16>, i32
    %p0 = tt.splat %p : !tt.ptr<f16> -> tensor<32x32x!tt.ptr<f16>>
    %p1 = tt.addptr %p0, %place : tensor<32x32x!tt.ptr<f16>>, tensor<32x32xi32>
    %x = tt.load %p1 : tensor<32x32x!tt.ptr<f16>>
    %d = tt.dot %x, %x, %c : tensor<32x32xf16> * tensor<32x32xf16> -> tensor<32x32xf32>
    %o = tt.addptr %seen, %by : !tt.ptr<f32>, i32
    %o0 = tt.splat %o : !tt.ptr<f32> -> tensor<32x32x!tt.ptr<f32>>
    %o1 = tt.addptr %o0, %place : tensor<32x32x!tt.ptr<f32>>, tensor<32x32xi32>
    tt.store %o1, %d : tensor<32x32x!tt.ptr<f32>>
    scf.yield %d : tensor<32x32xf32>
  }
  tt.return
}"""


@pytest.mark.parametrize("apart", [(), ("a",), ("seen",), ("a", "seen")])
def test_loops_that_store_copy_ahead_from_arrays_apart(rng: np.random.Generator, apart: tuple[str, ...]) -> None:
    module = marked(parse_ir(STORES), ["a", "seen"])
    mark_apart(next(op for op in module.walk() if isinstance(op, FuncOp)), apart)
    made = compile_tiles(module, warps=2)
    assert ("cp.async" in made.ptx) == bool(apart)
    a, seen = rng.standard_normal((5, 32, 32)).astype(np.float16), np.full((5, 32, 32), np.nan, np.float32)
    emulate_tiles(made, (1,), {"a": a, "seen": seen, "times": 5}, order=Seeded(2), uninitialised=["seen"])
    wide = a.astype(np.float64)
    np.testing.assert_allclose(seen, np.cumsum(wide @ wide, 0), rtol=1e-3, atol=1e-2)


def test_a_loop_that_stores_to_what_it_multiplies_is_not_copied_ahead(rng: np.random.Generator) -> None:
    """Each step stores the sum so far to where the next step loads."""
    before, _, after = STORES.partition("    %o = ")
    stores = """    %after = arith.addi %by, %size : i32
    %h = arith.truncf %d : tensor<32x32xf32> to tensor<32x32xf16>
    %o = """ + after.replace("%seen, %by", "%a, %after").replace("tt.ptr<f32>", "tt.ptr<f16>").replace(
        "%o1, %d", "%o1, %h"
    )
    text = before.replace(", %seen: !tt.ptr<f32>", "") + stores
    module = marked(parse_ir(text), ["a"])
    mark_apart(next(op for op in module.walk() if isinstance(op, FuncOp)), ["a"])
    made = compile_tiles(module, warps=2)
    assert "cp.async" not in made.ptx
    a = np.zeros((4, 32, 32), np.float16)
    a[0] = rng.standard_normal((32, 32)) / 8
    expected = a.astype(np.float64)
    total = np.zeros((32, 32))
    for step in range(3):
        total += expected[step] @ expected[step]
        expected[step + 1] = total.astype(np.float16)
    emulate_tiles(made, (1,), {"a": a, "times": 3}, order=Seeded(2))
    np.testing.assert_allclose(a, expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(("first", "apart"), [(640, ("a", "out", "x")), (639, ("out",))])
def test_arrays_apart_share_no_address(first: int, apart: tuple[str, ...]) -> None:
    whole, out = np.zeros(2048, np.float32), np.zeros(4, np.float32)
    arrays = {"a": view(whole[:640]), "x": view(whole[first:]), "out": view(out)}
    assert apart_of(Call(Kind((), (), (), ()), arrays=arrays)) == apart


@pytest.mark.parametrize("scaled", [False, True], ids=["copied", "computed"])
def test_rings_shrink_where_registers_let_two_ctas_share_an_sm(scaled: bool) -> None:
    """A ring for one CTA, because a thread was taken to have more registers than the assembler gives it."""
    tile = parse_ir(DotLoop("f16", (128, 128, 64), warps=8, scaled=scaled).text())
    alone = compile_tiles(tile, warps=8, registers=168)
    assert alone.ctas_by_shared == 1
    shared = with_room(CompiledKernel(alone, ""), 8).kernel.made
    assert isinstance(shared, CompiledTiles)
    assert shared.ctas_by_shared == 2
    # The page of a kernel compiles it again by what the kernel says of itself.
    again = compile_tiles(
        tile, warps=8, ctas=shared.options.ctas, registers=shared.options.registers, ahead=shared.options.ahead
    )
    assert again.with_ctas(shared.kernel.min_ctas).ptx == shared.ptx


def test_rings_grow_where_registers_let_fewer_ctas_share_an_sm() -> None:
    """A ring for two CTAs, because a thread was taken to have fewer registers than the assembler gives it."""
    tile = parse_ir(DotLoop("f16", (128, 256, 64), warps=8).text())
    two = compile_tiles(tile, warps=8, registers=100)
    assert two.ctas_by_shared == 2
    found = with_room(CompiledKernel(two, ""), 8)
    assert isinstance(found.kernel.made, CompiledTiles) and found.registers > 128 and found.assembly.clean
    assert found.kernel.made.kernel.dynamic_shared > two.kernel.dynamic_shared
    assert found.kernel.made.ctas_by_shared == 1


@pytest.mark.parametrize("scaled", [True, False])
def test_assemblies_that_begin_ahead_make_the_same_kernel(monkeypatch: pytest.MonkeyPatch, scaled: bool) -> None:
    tile = parse_ir(DotLoop("f16", (128, 128, 64), warps=8, scaled=scaled).text())
    made = compile_tiles(tile, warps=8)
    monkeypatch.setattr(occupancy, "SLOW", 600)
    alone = with_room(CompiledKernel(made, ""), 8)
    monkeypatch.setattr(occupancy, "SLOW", 0)
    monkeypatch.setattr(occupancy.os, "sched_getaffinity", lambda _: set(range(8)))
    ahead = with_room(CompiledKernel(made, ""), 8)
    assert ahead.kernel.made.ptx == alone.kernel.made.ptx and ahead.assembly.cubin == alone.assembly.cubin


def test_a_kernel_that_would_surely_spill_is_not_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    """One warp has 512 sums a thread, two have 256, four have 128."""
    tile = parse_ir(DotLoop("f16", (128, 128, 64), warps=4).text())
    made = compile_tiles(tile, target_name="sm_80", warps=1)
    texts: list[str] = []
    begin = Assembling.__init__

    def begun(self: Assembling, ptx: str, *given: Any, **options: Any) -> None:
        texts.append(ptx)
        begin(self, ptx, *given, **options)

    monkeypatch.setattr(Assembling, "__init__", begun)
    found = with_room(CompiledKernel(made, ""), None)
    assert not any(".reqntid 32," in each for each in texts)
    assert found.warps >= 4 and found.assembly.clean
    texts.clear()
    assert with_room(CompiledKernel(made, ""), 1).warps == 1, "who asks for one warp gets it"
