"""Tile IR parses and prints: operation by operation, whole kernels as Triton prints them, and the generic form."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.parser import Parser
from xdsl.printer import Printer

from louver.ir.context import make_context, parse_ir
from louver.ir.tile import ELEMENTS, FORMATS, DescriptorType, PointerType, SparseAttr, sparse_encoding
from support.golden import Golden

INPUTS = Path(__file__).parent / "inputs"

ARGUMENTS = (
    '%p: !tt.ptr<f16>, %s: !tt.ptr<f16, #tt.sparse<"NV24">>, %i: i32, %j: i64, %x: f32, %mask: tensor<8x4xi1>, '
    "%ptrs: tensor<8x4x!tt.ptr<f32>>, %t: tensor<8x4xf32>, %v: tensor<8xf32>, %one: tensor<8x1xf32>, "
    "%a: tensor<8x16xf16>, %b: tensor<16x4xf16>, %block: !tt.ptr<tensor<8x4xf16>>, "
    "%desc: !tt.tensordesc<tensor<8x16xf16>>, %far: tensor<8x4xi64>, %true: i1"
)

OPERATIONS = [
    "%r = tt.get_program_id x : i32",
    "%r = tt.get_program_id z : i32",
    "%r = tt.get_num_programs y : i32",
    "%r = tt.make_tensor_descriptor %p, [%i, %i], [%j, %j] : <f16>, <tensor<8x16xf16>>",
    "%r = tt.make_tensor_descriptor %p, [%i], [%j] {padding = 1 : i32} : <f16>, <tensor<8xf16>>",
    '%r = tt.make_tensor_descriptor %s, [%i, 64], [64, 1] : <f16, #tt.sparse<"NV24">>, '
    '<tensor<8x16xf16, #tt.sparse<"NV24">>>',
    "%r = tt.descriptor_load %desc[%i, 3] : !tt.tensordesc<tensor<8x16xf16>> -> tensor<8x16xf16>",
    "%r = tt.descriptor_load %desc[%i, %i] cacheModifier = ca evictionPolicy = evict_first "
    ": !tt.tensordesc<tensor<8x16xf16>> -> tensor<8x16xf16>",
    "tt.descriptor_store %desc[0, %i], %a : !tt.tensordesc<tensor<8x16xf16>>, tensor<8x16xf16>",
    "%r = tt.make_tensor_ptr %p, [%j, 4], [4, %j], [%i, 0] {order = array<i32: 1, 0>} : <tensor<8x4xf16>>",
    '%r = tt.make_tensor_ptr %s, [%j, %j], [%j, 1], [0, -4] : <tensor<8x4xf16, #tt.sparse<"NV24">>>',
    "%r = tt.advance %block, [0, %i] : <tensor<8x4xf16>>",
    "%r = tt.load %block : !tt.ptr<tensor<8x4xf16>>",
    "%r = tt.load %block {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<8x4xf16>>",
    "%r = tt.load %p : !tt.ptr<f16>",
    "%r = tt.load %ptrs : tensor<8x4x!tt.ptr<f32>>",
    "%r = tt.load %ptrs, %mask : tensor<8x4x!tt.ptr<f32>>",
    "%r = tt.load %ptrs, %mask, %t evictionPolicy = evict_last {isVolatile = true} : tensor<8x4x!tt.ptr<f32>>",
    "%r = tt.load %ptrs {cachePolicy = #tt.cache_policy<cache_modifier = none, eviction_policy = evict_last>} "
    ": tensor<8x4x!tt.ptr<f32>>",
    "tt.store %ptrs, %t : tensor<8x4x!tt.ptr<f32>>",
    "tt.store %ptrs, %t, %mask cacheModifier = cg : tensor<8x4x!tt.ptr<f32>>",
    "%r = tt.dot %a, %b, %t : tensor<8x16xf16> * tensor<16x4xf16> -> tensor<8x4xf32>",
    "%r = tt.dot %a, %b, %t, inputPrecision = tf32 {maxNumImpreciseAcc = 32 : i32} "
    ": tensor<8x16xf16> * tensor<16x4xf16> -> tensor<8x4xf32>",
    "%r = tt.trans %t {order = array<i32: 1, 0>} : tensor<8x4xf32> -> tensor<4x8xf32>",
    "%r = tt.splat %x : f32 -> tensor<8x4xf32>",
    "%r = tt.splat %p : !tt.ptr<f16> -> tensor<8x!tt.ptr<f16>>",
    "%r = tt.expand_dims %v {axis = 1 : i32} : tensor<8xf32> -> tensor<8x1xf32>",
    "%r = tt.broadcast %one : tensor<8x1xf32> -> tensor<8x4xf32>",
    "%r = tt.make_range {end = 12 : i32, start = 4 : i32} : tensor<8xi32>",
    "%r = tt.addptr %p, %i : !tt.ptr<f16>, i32",
    "%r = tt.addptr %ptrs, %far : tensor<8x4x!tt.ptr<f32>>, tensor<8x4xi64>",
    "%r = tt.clampf %t, %t, %t, propagateNan = none : tensor<8x4xf32>",
    "%r = tt.clampf %x, %x, %x, propagateNan = all : f32",
    "%r = tt.fp_to_fp %t, rounding = rtne : tensor<8x4xf32> -> tensor<8x4xf8E4M3FN>",
    "%r = tt.fp_to_fp %t : tensor<8x4xf32> -> tensor<8x4xf64>",
    "%r = arith.cmpi slt, %far, %far : tensor<8x4xi64>",
    "%r = arith.cmpi uge, %i, %i : i32",
    "%r = arith.cmpf oge, %t, %t : tensor<8x4xf32>",
    "%r = arith.cmpf une, %x, %x : f32",
    "%r = arith.select %mask, %t, %t : tensor<8x4xi1>, tensor<8x4xf32>",
    "%r = arith.select %true, %t, %t : tensor<8x4xf32>",
    "%r = arith.select %true, %i, %i : i32",
    "%r = tt.fp_to_fp %t {tt.constancy = dense<1> : tensor<2xi32>}, rounding = rtne "
    ": tensor<8x4xf32> -> tensor<8x4xf8E4M3FN>",
    "%r = arith.cmpi slt, %far, %far {tt.constancy = dense<[4, 1]> : tensor<2xi32>} : tensor<8x4xi64>",
    "%r = arith.cmpf une, %x, %x {tt.constancy = dense<1> : tensor<1xi32>} : f32",
    "%r = arith.select %mask, %far, %far {tt.contiguity = dense<[1, 4]> : tensor<2xi32>} "
    ": tensor<8x4xi1>, tensor<8x4xi64>",
    "%r = arith.select %true, %i, %i {tt.divisibility = dense<16> : tensor<1xi32>} : i32",
    "%r = arith.extsi %i : i32 to i64",
    "%r = arith.extui %mask : tensor<8x4xi1> to tensor<8x4xi32>",
    "%r = arith.trunci %far : tensor<8x4xi64> to tensor<8x4xi32>",
    "llvm.intr.assume %true : i1",
]


def kernel(operation: str) -> str:
    return (
        "builtin.module {\n"
        f"  tt.func public @kernel({ARGUMENTS}) attributes {{noinline = false}} {{\n"
        f"    {operation}\n"
        "    tt.return\n"
        "  }\n"
        "}"
    )


def generic(module: ModuleOp) -> str:
    out = StringIO()
    Printer(out, print_generic_format=True).print_op(module)
    return out.getvalue()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_prints_as_it_was_written(operation: str) -> None:
    module = parse_ir(kernel(operation))
    assert str(module) == kernel(operation)
    assert str(parse_ir(generic(module))) == kernel(operation)


@pytest.mark.parametrize("name", ["triton_descriptors", "triton_block_pointers"])
def test_triton_kernel_round_trips(name: str, golden: Golden) -> None:
    module = parse_ir((INPUTS / f"{name}.mlir").read_text())
    golden.check(f"ir/{name}.mlir", str(module))
    assert str(parse_ir(str(module))) == str(module)


def test_simplified_syntax_becomes_canonical(golden: Golden) -> None:
    module = parse_ir((INPUTS / "simplified_sparse_dot.mlir").read_text())
    golden.check("ir/sparse_dot.mlir", str(module))
    assert str(parse_ir(str(module))) == str(module)


def test_functions_with_results_declarations_and_argument_attributes() -> None:
    text = (
        "builtin.module {\n"
        "  tt.func private @scale(f32) -> f32\n"
        "  tt.func @twice(%x: f32 {tt.divisibility = 16 : i32}) -> f32 {\n"
        "    %r = arith.addf %x, %x : f32\n"
        "    tt.return %r : f32\n"
        "  }\n"
        "}"
    )
    assert str(parse_ir(text)) == text


def test_full_types_are_read_where_triton_strips_them() -> None:
    stripped = "%r = tt.make_tensor_descriptor %p, [%i], [%j] : <f16>, <tensor<8xf16>>"
    full = "%r = tt.make_tensor_descriptor %p, [%i], [%j] : !tt.ptr<f16>, !tt.tensordesc<tensor<8xf16>>"
    assert str(parse_ir(kernel(full))) == kernel(stripped)


def test_random_types_round_trip(rng: np.random.Generator) -> None:
    context = make_context()
    for _ in range(100):
        name = str(rng.choice(list(ELEMENTS)))
        fitting = [key for key, format_ in FORMATS.items() if name in format_.elements]
        encoding = Parser(context, f'#tt.sparse<"{rng.choice(fitting)}">').parse_attribute() if fitting else None
        shape = [int(size) for size in rng.integers(1, 300, rng.integers(1, 6))]
        tensor = TensorType(ELEMENTS[name], shape, encoding) if encoding else TensorType(ELEMENTS[name], shape)
        for type_ in (tensor, PointerType(tensor), DescriptorType(tensor), PointerType(ELEMENTS[name], encoding)):
            assert Parser(context, str(type_)).parse_type() == type_
            assert sparse_encoding(type_) == encoding


def test_patterns_have_encodings() -> None:
    assert str(SparseAttr.of_pattern("2:4")) == '#tt.sparse<"NV24">'
    assert str(SparseAttr.of_pattern("1:2")) == '#tt.sparse<"NV12">'
    assert str(SparseAttr.of_pattern("3:4")) == '#tt.sparse<"3:4">'
    with pytest.raises(ValueError, match=r"patterns with an encoding are 2:4, 1:2 and vectors N:M@L, got '5:4'"):
        SparseAttr.of_pattern("5:4")


def test_newer_descriptor_types_are_read() -> None:
    newer = "tt.descriptor_store %desc[0, %i], %a : !tt.tensordesc<8x16xf16>, tensor<8x16xf16>"
    older = newer.replace("<8x16xf16>,", "<tensor<8x16xf16>>,")
    assert str(parse_ir(kernel(newer))) == kernel(older)


def test_reductions_are_read() -> None:
    text = kernel(
        '%r = "tt.reduce"(%t) <{axis = 1 : i32}> ({\n    ^bb0(%p0: f32, %p1: f32):\n      %m = arith.maxnumf %p0, %p1 : f32\n'
        "      tt.reduce.return %m : f32\n    }) : (tensor<8x4xf32>) -> tensor<8xf32>"
    )
    module = parse_ir(text)
    assert str(parse_ir(str(module))) == str(module)
    assert "tt.reduce.return %m : f32" in str(module)
