"""The work of choosing encodings grows with a kernel, not with its square. Unrolled loops make kernels of hundreds of operations."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp

from louver.compile.plan.encode import assign_encodings
from louver.compile.plan.encode.anchors import Natures
from louver.compile.plan.encode.compact import choose_compact
from louver.compile.plan.encode.demand import Demands
from louver.compile.plan.feeds.hoist_invariants import hoist_invariants
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp
from support.work import calls

TILE = "tensor<16x32xf32>"


def module_of(*lines: str) -> ModuleOp:
    return parse_ir("\n".join(("tt.func public @k(%x: f32, %p: !tt.ptr<f32>, %n: i32) {", *lines, "  tt.return", "}")))


def function_of(*lines: str) -> FuncOp:
    (function,) = [op for op in module_of(*lines).body.ops if isinstance(op, FuncOp)]
    return function


def scans(count: int) -> Callable[[], object]:
    """Scans, each of the scan before: the encoding of the first is that of all."""
    lines = [
        f'  %t{n + 1} = "tt.scan"(%t{n}) <{{axis = 1 : i32, reverse = false}}> ({{\n  ^bb{n}(%a{n}: f32, %b{n}: f32):\n'
        f"    %c{n} = arith.addf %a{n}, %b{n} : f32\n    tt.scan.return %c{n} : f32\n  }}) : ({TILE}) -> {TILE}"
        for n in range(count)
    ]
    function = function_of(f"  %t0 = tt.splat %x : f32 -> {TILE}", *lines)
    return lambda: Natures(function, 4, registers=65536)


def test_tiles_that_have_their_encodings_are_settled_once() -> None:
    few, many = (calls(scans(count)) for count in (8, 32))
    assert many < 5 * few


def rows(count: int) -> Callable[[], object]:
    """A vector of integers of `count` operations, of which each element of a tile's row needs one."""
    vector = "tensor<128xi32>"
    lines = [f"  %v{n + 1} = arith.addi %v{n}, %v{n} : {vector}" for n in range(count)]
    function = function_of(
        f"  %v0 = tt.make_range {{start = 0 : i32, end = 128 : i32}} : {vector}",
        *lines,
        f"  %e = tt.expand_dims %v{count} {{axis = 0 : i32}} : {vector} -> tensor<1x128xi32>",
        "  %b = tt.broadcast %e : tensor<1x128xi32> -> tensor<128x128xi32>",
        "  %s = tt.splat %p : !tt.ptr<f32> -> tensor<128x128x!tt.ptr<f32>>",
        "  %q = tt.addptr %s, %b : tensor<128x128x!tt.ptr<f32>>, tensor<128x128xi32>",
        "  %z = tt.splat %x : f32 -> tensor<128x128xf32>",
        "  tt.store %q, %z : tensor<128x128x!tt.ptr<f32>>",
    )
    natures = Natures(function, 4, registers=65536)
    demands = Demands(function, natures)
    return lambda: choose_compact(function, natures, demands)


def test_no_layout_is_found_for_numbers_of_addresses() -> None:
    few, many = (calls(rows(count)) for count in (10, 110))
    assert many - few < 100 * 400


def varying(count: int) -> Callable[[], object]:
    """A loop with `count` operations that its counter changes."""
    lines = [f"    %v{n + 1} = arith.addi %v{n}, %v{n} : tensor<128xi32>" for n in range(count)]
    module = module_of(
        "  %c0 = arith.constant 0 : i32",
        "  %c1 = arith.constant 1 : i32",
        "  scf.for %i = %c0 to %n step %c1 : i32 {",
        "    %v0 = tt.splat %i : i32 -> tensor<128xi32>",
        *lines,
        "    %s = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>",
        f"    %q = tt.addptr %s, %v{count} : tensor<128x!tt.ptr<f32>>, tensor<128xi32>",
        "    %z = tt.splat %x : f32 -> tensor<128xf32>",
        "    tt.store %q, %z : tensor<128x!tt.ptr<f32>>",
        "  }",
    )
    encoded = assign_encodings(module, 4, registers=65536)
    return lambda: hoist_invariants(encoded)


def test_no_layout_is_found_for_what_cannot_leave_a_loop() -> None:
    few, many = (calls(varying(count)) for count in (10, 110))
    assert many - few < 100 * 60
