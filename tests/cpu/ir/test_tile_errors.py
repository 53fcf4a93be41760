"""The refusals of tile IR, and their words."""

from __future__ import annotations

import re

import pytest
from xdsl.dialects.builtin import f64
from xdsl.ir import Block
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from louver.ir.context import make_context, parse_ir
from louver.ir.tile import GetProgramIdOp, TransOp, element_attribute, element_name

SPARSE = '#tt.sparse<"NV24">'

TYPES = [
    (
        '!tt.ptr<f16, #tt.sparse<"NV99">>',
        "a sparse encoding is one of 'NV24', 'NV12' or of vectors, such as '2:4@16', got 'NV99'",
    ),
    (f"!tt.ptr<f32, {SPARSE}>", "is for elements of f16, bf16, e4m3, e5m2, s8, u8, e2m1, e2m3, e3m2, got f32"),
    ('!tt.ptr<f16, #tt.sparse<"NV12">>', "is for elements of f32, got f16"),
    ("!tt.ptr<f16, 3 : i32>", "a pointer's encoding is #tt.sparse<…>, got 3 : i32"),
    (f"!tt.ptr<tensor<8x4xf16>, {SPARSE}>", "has its encoding in the tensor type"),
    (f"!tt.ptr<tensor<8x4xf32, {SPARSE}>>", "is for elements of f16"),
    (f"!tt.tensordesc<tensor<8x4xi32, {SPARSE}>>", "is for elements of f16"),
    ("!tt.tensordesc<tensor<f16>>", "a descriptor has 1 to 5 dimensions, got 0"),
    ("!tt.tensordesc<tensor<1x1x1x1x1x1xf16>>", "a descriptor has 1 to 5 dimensions, got 6"),
]


@pytest.mark.parametrize(("text", "message"), TYPES)
def test_type_is_refused(text: str, message: str) -> None:
    with pytest.raises(VerifyException, match=re.escape(message)):
        Parser(make_context(), text).parse_type()


DOT = "%a: tensor<8x16xf16>, %b: tensor<16x4xf16>, %c: tensor<8x4xf32>"
ASYNC = "%r = tt.dot %a, %b, %c {isAsync} : tensor<8x16xf16> * tensor<16x4xf16> -> tensor<8x4xf32>"

OPERATIONS = [
    # Pointer arithmetic, comparisons and conversions.
    (
        "",
        "%r = tt.make_range {end = 4 : i32, start = 4 : i32} : tensor<0xi32>",
        "a range holds at least one integer, got 4 to 4",
    ),
    (
        "",
        "%r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<8xi32>",
        "tt.make_range gives tensor<4xi32>, got tensor<8xi32>",
    ),
    ("%x: f32, %i: i32", "%r = tt.addptr %x, %i : f32, i32", "tt.addptr moves pointers to elements, got f32"),
    (
        "%p: tensor<8x!tt.ptr<f16>>, %i: tensor<4xi32>",
        "%r = tt.addptr %p, %i : tensor<8x!tt.ptr<f16>>, tensor<4xi32>",
        "pointers and offsets have one shape, got tensor<8x!tt.ptr<f16>> and tensor<4xi32>",
    ),
    ("%x: f32", "%r = tt.clampf %x, %x, %x, propagateNan = some : f32", "propagateNan is none or all, got some"),
    (
        "%x: f32",
        "%r = tt.fp_to_fp %x, rounding = up : f32 -> f16",
        "rounding is rtne (to nearest even) or rtz (towards zero), got up",
    ),
    (
        "%x: tensor<8xf32>",
        "%r = tt.fp_to_fp %x, rounding = rtne : tensor<8xf32> -> tensor<4xf16>",
        "a conversion keeps the shape, got tensor<8xf32> to tensor<4xf16>",
    ),
    (
        "%c: tensor<4xi1>, %x: tensor<8xf32>",
        "%r = arith.select %c, %x, %x : tensor<4xi1>, tensor<8xf32>",
        "a choice between tensor<8xf32> needs a condition of i1 or tensor<8xi1>, got tensor<4xi1>",
    ),
    ("%i: i64", "%r = arith.extsi %i : i64 to i32", "arith.extsi gives integers of more bits, got i64 to i32"),
    ("%i: i32", "%r = arith.trunci %i : i32 to i64", "arith.trunci gives integers of fewer bits, got i32 to i64"),
    (
        "%i: tensor<8xi32>",
        "%r = arith.extsi %i : tensor<8xi32> to tensor<4xi64>",
        "a conversion keeps the shape, got tensor<8xi32> to tensor<4xi64>",
    ),
    (
        "%x: tensor<8xf32>",
        '%r = "arith.cmpf"(%x, %x) {predicate = 1 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<4xi1>',
        "arith.cmpf gives tensor<8xi1>, got tensor<4xi1>",
    ),
    (
        "%x: tensor<8xf32>",
        '%r = "tt.reduce"(%x) <{axis = 1 : i32}> ({\n^bb0(%p: f32, %q: f32):\n  tt.reduce.return %p : f32\n}) : (tensor<8xf32>) -> f32',
        "axis must be 0 to 0, got 1",
    ),
    # Shapes and conversions of epilogues.
    (
        "%a: tensor<8x4xf32>",
        "%r = tt.reshape %a : tensor<8x4xf32> -> tensor<2x8xf32>",
        "a reshape keeps every element, got",
    ),
    (
        "%a: tensor<8x4xf32>",
        "%r = tt.reshape %a : tensor<8x4xf32> -> tensor<2x16xf16>",
        "a reshape keeps every element, got",
    ),
    (
        "%a: tensor<8x4xf32>",
        "%r, %q = tt.split %a : tensor<8x4xf32> -> tensor<8xf32>",
        "a split halves a last dimension of 2 elements, got tensor<8x4xf32>",
    ),
    (
        "%a: tensor<8x2xf32>",
        "%r, %q = tt.split %a : tensor<8x2xf32> -> tensor<4xf32>",
        "tt.split gives tensor<8xf32>, got tensor<4xf32>",
    ),
    (
        "%a: tensor<8x2xf32>",
        "%r = arith.fptosi %a : tensor<8x2xf32> to tensor<8xi8>",
        "a conversion keeps the shape, got tensor<8x2xf32> to tensor<8xi8>",
    ),
    # Products.
    (
        "%a: tensor<8x16xf16>, %b: tensor<8x4xf16>, %c: tensor<8x4xf32>",
        "%r = tt.dot %a, %b, %c : tensor<8x16xf16> * tensor<8x4xf16> -> tensor<8x4xf32>",
        "a dot is [M, K] * [K, N] -> [M, N], got [8, 16] * [8, 4] -> [8, 4]",
    ),
    (
        "%a: tensor<8xf16>, %b: tensor<8x4xf16>, %c: tensor<8x4xf32>",
        "%r = tt.dot %a, %b, %c : tensor<8xf16> * tensor<8x4xf16> -> tensor<8x4xf32>",
        "a dot multiplies matrices, got [8] * [8, 4] -> [8, 4]",
    ),
    (
        "%a: tensor<8x16xf16>, %b: tensor<16x4xf16>, %e: tensor<8x4xf32>",
        "%c = arith.addf %e, %e : tensor<8x4xf32>\n"
        "%r = tt.dot %a, %b, %c {inFlight} : tensor<8x16xf16> * tensor<16x4xf16> -> tensor<8x4xf32>",
        "products in flight add to sums that their loop carries, got other sums",
    ),
    (
        DOT,
        ASYNC,
        "only ttng.warp_group_dot_wait reads the sums of a dot that is async, once",
    ),
    (
        DOT,
        f"{ASYNC}\n%e = arith.addf %r, %r : tensor<8x4xf32>",
        "only ttng.warp_group_dot_wait reads the sums of a dot that is async, once",
    ),
    (
        DOT,
        f"{ASYNC}\n%e = ttng.warp_group_dot_wait %r {{pendings = 1 : i32}} : tensor<8x4xf32>",
        "a wait follows its dot, and leaves at most the 0 later ones pending, got 1",
    ),
    (
        DOT,
        "%e = ttng.warp_group_dot_wait %c {pendings = 0 : i32} : tensor<8x4xf32>",
        "a wait is for a dot of its block that is async, got another value",
    ),
    (
        "%a: tensor<8x16xf16>, %b: tensor<16x4xbf16>, %c: tensor<8x4xf32>",
        "%r = tt.dot %a, %b, %c : tensor<8x16xf16> * tensor<16x4xbf16> -> tensor<8x4xf32>",
        "got f16*bf16: convert one operand",
    ),
    (
        "%a: tensor<8x16xbf16>, %b: tensor<16x4xbf16>, %c: tensor<8x4xbf16>",
        "%r = tt.dot %a, %b, %c : tensor<8x16xbf16> * tensor<16x4xbf16> -> tensor<8x4xbf16>",
        "a dot of bf16*bf16 accumulates in f32, got bf16",
    ),
    (
        "%a: tensor<8x16xf64>, %b: tensor<16x4xf64>, %c: tensor<8x4xf64>",
        "%r = tt.dot %a, %b, %c : tensor<8x16xf64> * tensor<16x4xf64> -> tensor<8x4xf64>",
        "an element type of tile IR is one of",
    ),
    (
        f"%a: tensor<8x6xf16, {SPARSE}>, %b: tensor<6x4xf16>, %c: tensor<8x4xf32>",
        f"%r = tt.dot %a, %b, %c : tensor<8x6xf16, {SPARSE}> * tensor<6x4xf16> -> tensor<8x4xf32>",
        "2:4 needs K to be a multiple of 4, got K = 6",
    ),
    (
        '%a: tensor<8x6xf16, #tt.sparse<"NV12">>, %b: tensor<6x4xf16>, %c: tensor<8x4xf32>',
        '%r = tt.dot %a, %b, %c : tensor<8x6xf16, #tt.sparse<"NV12">> * tensor<6x4xf16> -> tensor<8x4xf32>',
        "is for elements of f32, got f16",
    ),
    (
        f"%a: tensor<8x16xf16>, %b: tensor<16x4xf32, {SPARSE}>, %c: tensor<8x4xf32>",
        f"%r = tt.dot %a, %b, %c : tensor<8x16xf16> * tensor<16x4xf32, {SPARSE}> -> tensor<8x4xf32>",
        "got f16*f32",
    ),
    (
        f"%a: tensor<8x16xf16, {SPARSE}>, %b: tensor<16x4xf16, {SPARSE}>, %c: tensor<8x4xf32>",
        f"%r = tt.dot %a, %b, %c : tensor<8x16xf16, {SPARSE}> * tensor<16x4xf16, {SPARSE}> -> tensor<8x4xf32>",
        "one operand of a dot may be sparse, got two",
    ),
    (
        f"%a: tensor<8x16xf16>, %b: tensor<16x4xf16>, %c: tensor<8x4xf16, {SPARSE}>",
        f"%r = tt.dot %a, %b, %c : tensor<8x16xf16> * tensor<16x4xf16> -> tensor<8x4xf16, {SPARSE}>",
        "a dot's result is dense",
    ),
    # Descriptors.
    (
        "%p: !tt.ptr<f16>, %i: i32, %j: i64",
        "%r = tt.make_tensor_descriptor %p, [%i], [%j, 1] : <f16>, <tensor<8x16xf16>>",
        "a descriptor's shape must have an entry for each of 2 dimensions, got 1",
    ),
    (
        "%p: !tt.ptr<f16>, %i: i32, %j: i64",
        "%r = tt.make_tensor_descriptor %p, [%i, %i], [1] : <f16>, <tensor<8x16xf16>>",
        "a descriptor's strides must have an entry for each of 2 dimensions, got 1",
    ),
    (
        "%p: !tt.ptr<f16>, %i: i32, %j: i64",
        "%r = tt.make_tensor_descriptor %p, [%i, %i], [1, 2] : <f16>, <tensor<8x16xf16>>",
        "its stride must be 1, got 2",
    ),
    (
        f"%p: !tt.ptr<f16, {SPARSE}>, %i: i32, %j: i64",
        f"%r = tt.make_tensor_descriptor %p, [%i, %i], [%j, 1] : <f16, {SPARSE}>, <tensor<8x16xf16>>",
        "a block of type tensor<8x16xf16> needs a base of type !tt.ptr<f16>",
    ),
    (
        "%d: !tt.tensordesc<tensor<8x16xf16>>",
        "%r = tt.descriptor_load %d[0] : !tt.tensordesc<tensor<8x16xf16>> -> tensor<8x16xf16>",
        "the indices of a block must have an entry for each of 2 dimensions, got 1",
    ),
    (
        "%d: !tt.tensordesc<tensor<8x16xf16>>",
        "%r = tt.descriptor_load %d[0, 0] : !tt.tensordesc<tensor<8x16xf16>> -> tensor<16x8xf16>",
        "gives tensor<8x16xf16>, got tensor<16x8xf16>",
    ),
    (
        "%d: !tt.tensordesc<tensor<8x16xf16>>, %t: tensor<16x8xf16>",
        "tt.descriptor_store %d[0, 0], %t : !tt.tensordesc<tensor<8x16xf16>>, tensor<16x8xf16>",
        "needs tensor<8x16xf16>, got tensor<16x8xf16>",
    ),
    (
        f"%d: !tt.tensordesc<tensor<8x16xf16, {SPARSE}>>, %t: tensor<8x16xf16, {SPARSE}>",
        f"tt.descriptor_store %d[0, 0], %t : !tt.tensordesc<tensor<8x16xf16, {SPARSE}>>, tensor<8x16xf16, {SPARSE}>",
        "a sparse tensor cannot be stored",
    ),
    # Block pointers.
    (
        "%p: !tt.ptr<f16>",
        "%r = tt.make_tensor_ptr %p, [8, 4], [4, 1], [0] : <tensor<8x4xf16>>",
        "a block pointer's offsets must have an entry for each of 2 dimensions, got 1",
    ),
    (
        "%p: !tt.ptr<f16>",
        "%r = tt.make_tensor_ptr %p, [8, 4], [4, 1], [0, 0] {order = array<i32: 1, 1>} : <tensor<8x4xf16>>",
        "order must name each of 2 dimensions once, got [1, 1]",
    ),
    (
        "%p: !tt.ptr<tensor<8x4xf16>>",
        "%r = tt.advance %p, [0] : <tensor<8x4xf16>>",
        "an advance must have an entry for each of 2 dimensions, got 1",
    ),
    (
        "%p: !tt.ptr<f16>",
        "%r = tt.advance %p, [0] : <f16>",
        "only a pointer to a block is advanced, got !tt.ptr<f16>",
    ),
    (
        "%p: !tt.ptr<tensor<8x4xf16>>",
        "%r = tt.load %p {boundaryCheck = array<i32: 2>} : !tt.ptr<tensor<8x4xf16>>",
        "boundaryCheck names dimensions 0 to 1, got 2",
    ),
    (
        "%p: !tt.ptr<f16>, %v: f16",
        "tt.store %p, %v {boundaryCheck = array<i32: 0>} : !tt.ptr<f16>",
        "boundaryCheck needs a block pointer, got !tt.ptr<f16>",
    ),
    (
        f"%p: !tt.ptr<tensor<8x4xf16, {SPARSE}>>, %v: tensor<8x4xf16, {SPARSE}>",
        f"tt.store %p, %v : !tt.ptr<tensor<8x4xf16, {SPARSE}>>",
        "a sparse tensor cannot be stored",
    ),
    # Shapes.
    (
        "%t: tensor<8x4xf16>",
        "%r = tt.trans %t {order = array<i32: 0, 0>} : tensor<8x4xf16> -> tensor<4x8xf16>",
        "order must name each of 2 dimensions once, got [0, 0]",
    ),
    (
        "%t: tensor<8x4xf16>",
        "%r = tt.trans %t {order = array<i32: 1, 0>} : tensor<8x4xf16> -> tensor<8x4xf16>",
        "tt.trans gives tensor<4x8xf16>, got tensor<8x4xf16>",
    ),
    (
        f"%t: tensor<8x4xf16, {SPARSE}>",
        "%r = tt.trans %t {order = array<i32: 1, 0>} : tensor<8x4xf16, " + SPARSE + "> -> tensor<4x8xf16>",
        "tt.trans gives tensor<4x8xf16, #tt.sparse",
    ),
    ("%x: f32", "%r = tt.splat %x : f32 -> tensor<8xf16>", "a splat of f32 gives a tensor of it, got tensor<8xf16>"),
    (
        "%t: tensor<8xf16>",
        "%r = tt.expand_dims %t {axis = 2 : i32} : tensor<8xf16> -> tensor<8x1xf16>",
        "axis must be 0 to 1, got 2",
    ),
    (
        "%t: tensor<8xf16>",
        "%r = tt.expand_dims %t {axis = 0 : i32} : tensor<8xf16> -> tensor<8x1xf16>",
        "tt.expand_dims gives tensor<1x8xf16>, got tensor<8x1xf16>",
    ),
    (
        "%t: tensor<2x1xf16>",
        "%r = tt.broadcast %t : tensor<2x1xf16> -> tensor<4x4xf16>",
        "a broadcast repeats dimensions of one element, got tensor<2x1xf16> to tensor<4x4xf16>",
    ),
    (
        "%t: tensor<4xf16>",
        "%r = tt.broadcast %t : tensor<4xf16> -> tensor<4x4xf16>",
        "a broadcast repeats dimensions of one element",
    ),
    (
        "%t: tensor<4x1xf16>",
        "%r = tt.broadcast %t : tensor<4x1xf16> -> tensor<4x4xf32>",
        "tt.broadcast gives tensor<4x4xf16>, got tensor<4x4xf32>",
    ),
]


def kernel(arguments: str, operation: str) -> str:
    return f"tt.func public @kernel({arguments}) {{\n  {operation}\n  tt.return\n}}"


@pytest.mark.parametrize(("arguments", "operation", "message"), OPERATIONS)
def test_operation_is_refused(arguments: str, operation: str, message: str) -> None:
    with pytest.raises(VerifyException) as caught:
        parse_ir(kernel(arguments, operation))
    assert message in str(caught.value)


GENERIC = [
    (
        "%p: !tt.ptr<tensor<8x4xf16>>",
        '%r = "tt.load"(%p) <{operandSegmentSizes = array<i32: 1, 0, 0, 0, 0>}> '
        ": (!tt.ptr<tensor<8x4xf16>>) -> tensor<4x8xf16>",
        "a load through !tt.ptr<tensor<8x4xf16>> gives tensor<8x4xf16>, got tensor<4x8xf16>",
    ),
    (
        "%p: tensor<8x!tt.ptr<f16>>, %m: tensor<4xi1>",
        '%r = "tt.load"(%p, %m) <{operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>}> '
        ": (tensor<8x!tt.ptr<f16>>, tensor<4xi1>) -> tensor<8xf16>",
        "the mask of tt.load must be tensor<8xi1>, got tensor<4xi1>",
    ),
    (
        "%p: tensor<8x!tt.ptr<f16>>, %m: tensor<8xi1>, %o: tensor<8xf32>",
        '%r = "tt.load"(%p, %m, %o) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}> '
        ": (tensor<8x!tt.ptr<f16>>, tensor<8xi1>, tensor<8xf32>) -> tensor<8xf16>",
        "the fill value of a load of tensor<8xf16> has its type, got tensor<8xf32>",
    ),
    (
        "%p: !tt.ptr<f16>, %v: f32",
        '"tt.store"(%p, %v) : (!tt.ptr<f16>, f32) -> ()',
        "a store through !tt.ptr<f16> needs f16, got f32",
    ),
    ("%v: f32", '%r = "tt.load"(%v) <{operandSegmentSizes = array<i32: 1, 0, 0, 0, 0>}> : (f32) -> f32', "got f32"),
    (
        "%p: !tt.ptr<tensor<8x4xf16>>",
        '%r = "tt.advance"(%p) <{static_offsets = array<i64: 0, 4>}> '
        ": (!tt.ptr<tensor<8x4xf16>>) -> !tt.ptr<tensor<4x8xf16>>",
        "gives the same type, got !tt.ptr<tensor<4x8xf16>>",
    ),
    (
        "%p: !tt.ptr<f16>",
        '%r = "tt.make_tensor_ptr"(%p) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, static_shape = array<i64>, '
        "static_strides = array<i64>, static_offsets = array<i64>}> : (!tt.ptr<f16>) -> !tt.ptr<f16>",
        "a block pointer points to a tensor, got !tt.ptr<f16>",
    ),
    ("", '%r = "tt.get_program_id"() <{axis = 3 : i32}> : () -> i32', "an axis of the grid is 0, 1 or 2, got 3"),
]


@pytest.mark.parametrize(("arguments", "operation", "message"), GENERIC)
def test_generic_operation_is_refused(arguments: str, operation: str, message: str) -> None:
    with pytest.raises(VerifyException) as caught:
        parse_ir(kernel(arguments, operation))
    assert message in str(caught.value)


SYNTAX = [
    ("%i: i32", "%r = tt.get_program_id w : i32", "an axis of the grid is one of x, y, z, got 'w'"),
    ("%v: f32", "%r = tt.load %v : f32", "memory is reached by !tt.ptr<…> or by a tensor of such pointers, got f32"),
    ("%p: !tt.ptr<f16>", "%r = tt.make_tensor_ptr %p, [8], [1], [0] : <f16>", "expected a pointer to a tile"),
    (
        "%p: !tt.ptr<f16>, %i: i32, %j: i64",
        "%r = tt.make_tensor_descriptor %p, [%i], [%j] : <f16>, !tt.ptr<f16>",
        "expected !tt.tensordesc<…>, got !tt.ptr<f16>",
    ),
]


@pytest.mark.parametrize(("arguments", "operation", "message"), SYNTAX)
def test_text_is_refused_with_its_line(arguments: str, operation: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_ir(kernel(arguments, operation), "kernel.mlir")
    assert message in str(caught.value)
    assert "kernel.mlir:2:" in str(caught.value)


def test_functions_check_their_types() -> None:
    with pytest.raises(VerifyException, match="the returned values have the function's result types"):
        parse_ir("tt.func public @f(%x: f32) -> f16 {\n  tt.return %x : f32\n}")
    wrong = (
        '"tt.func"() <{sym_name = "f", function_type = (f16) -> ()}> ({\n^entry(%x: f32):\n  tt.return\n}) : () -> ()'
    )
    with pytest.raises(VerifyException, match="the entry block's arguments have the function's types"):
        parse_ir(wrong)


def test_elements_without_a_name_are_refused() -> None:
    with pytest.raises(ValueError, match="one of f16, bf16, f32, e4m3, e5m2, e2m3, e3m2, e2m1, s8, u8, s32, got 'f64'"):
        element_attribute("f64")
    with pytest.raises(ValueError, match="got f64"):
        element_name(f64)
    assert element_name(element_attribute("e4m3")) == "e4m3"


def test_a_shape_operation_needs_a_tensor() -> None:
    with pytest.raises(TypeError, match="expected a tensor, got i32"):
        TransOp(GetProgramIdOp(0).result)


def test_operations_keep_the_encoding() -> None:
    tensor = Parser(make_context(), f"tensor<8x4xf16, {SPARSE}>").parse_type()
    assert str(TransOp(Block(arg_types=[tensor]).args[0]).result.type) == f"tensor<4x8xf16, {SPARSE}>"


def test_the_context_has_the_dialects_of_both_levels() -> None:
    names = {dialect.name for dialect in make_context().loaded_dialects}
    assert {"builtin", "arith", "math", "scf", "tt", "sched"} <= names
