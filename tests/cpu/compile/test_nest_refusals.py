"""The refusals of the reader of product nests, and their words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from xdsl.utils.exceptions import VerifyException

from louver.compile.plan.nest import read_nest
from louver.frontend.builder import build_tile_ir
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem, Tile
from louver.ir.context import parse_ir
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import DotOp
from support.sizes import size
from support.tile_ir import TILE, rewritten

MATMUL, BIASED = Problem(), Problem(bias="row")

B_LOAD = "%b_rows = tt.descriptor_load %b_tensor[%n, %k] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>"

REFUSED = [
    (
        "a loop that ends elsewhere",
        MATMUL,
        [("scf.for %k = %zero to %K", "scf.for %k = %zero to %M")],
        "the loop over K must run from 0 to K in steps of 32, not from 0 to M in steps of 32, got: %total = scf.for",
    ),
    (
        "another step",
        MATMUL,
        [("%tile_k = arith.constant 32", "%tile_k = arith.constant 16")],
        "the loop over K must run from 0 to K in steps of 32",
    ),
    (
        "another start",
        MATMUL,
        [("%zero = arith.constant 0", "%zero = arith.constant 32")],
        "the loop over K must run from 0 to K in steps of 32",
    ),
    (
        "a sum that starts at one",
        MATMUL,
        [("dense<0.000000e+00>", "dense<1.000000e+00>")],
        "the sum of products must start at a constant of zeros",
    ),
    (
        "a sum that starts at a result",
        MATMUL,
        [
            (
                "    %total = scf.for",
                "    %other = arith.addf %zeros, %zeros : tensor<128x64xf32>\n    %total = scf.for",
            ),
            ("%partial = %zeros", "%partial = %other"),
        ],
        "the sum of products must start at a constant of zeros",
    ),
    (
        "another tile's place",
        MATMUL,
        [("%d_tensor[%m, %n]", "%d_tensor[%n, %m]")],
        "a tile must be stored at the row and column where its operands were read, got: tt.descriptor_store",
    ),
    (
        "overlapping tiles",
        MATMUL,
        [("%tile_m = arith.constant 128", "%tile_m = arith.constant 64")],
        "tiles of 128×64 must start at multiples of 128×64, not of 64×64",
    ),
    (
        "one grid axis for both",
        MATMUL,
        [("%n_tile = tt.get_program_id y", "%n_tile = tt.get_program_id x")],
        "rows and columns of tiles must be numbered by different axes of the grid",
    ),
    (
        "a position that is a sum",
        MATMUL,
        [("%m = arith.muli", "%m = arith.addi")],
        "a tile must start at a program's number times a constant, or be the only one and start at 0, got: %m = arith.addi",
    ),
    (
        "a position that is an argument",
        MATMUL,
        [("%a_tensor[%m, %k]", "%a_tensor[%M, %k]")],
        "a tile must start at a program's number times a constant, or be the only one and start at 0, got: %a_tile = tt.descriptor_load",
    ),
    (
        "a literal position",
        MATMUL,
        [("%a_tensor[%m, %k]", "%a_tensor[32, %k]")],
        "a tile must start at a program's number times a constant, or be the only one and start at 0, got: %a_tile = tt.descriptor_load",
    ),
    (
        "an operand's only tile where the output has more",
        MATMUL,
        [("%a_tensor[%m, %k]", "%a_tensor[0, %k]")],
        "a tile must be stored at the row and column where its operands were read, got: tt.descriptor_store",
    ),
    (
        "one tile of more elements",
        MATMUL,
        [("%a_tensor[%m, %k]", "%a_tensor[0, %k]"), ("%a, [%M, %K]", "%a, [129, %K]")],
        "a single tile along an axis must cover it, at most 128 elements, not 129, got: %product = tt.dot",
    ),
    (
        "another size of the result",
        MATMUL,
        [("%d, [%M, %N]", "%d, [%N, %M]")],
        "the stored tensor must have the product's sizes",
    ),
    (
        "two different K",
        MATMUL,
        [("%b, [%N, %K]", "%b, [%N, %M]")],
        "both operands must have the same K, not K and M",
    ),
    (
        "a size that no launch computes",
        MATMUL,
        [
            ("    %a_tensor =", "    %more = arith.xori %M, %N : i32\n    %a_tensor ="),
            ("%a, [%M, %K]", "%a, [%more, %K]"),
        ],
        "sizes and strides must be arguments or constants, or products of these, got: %more = arith.xori",
    ),
    (
        "a size that is computed",
        MATMUL,
        [
            ("    %a_tensor =", "    %more = arith.addi %M, %N : i32\n    %a_tensor ="),
            ("%a, [%M, %K]", "%a, [%more, %K]"),
        ],
        "sizes and strides must be arguments or constants, or products of these, got: %more = arith.addi",
    ),
    (
        "a stride in the last dimension",
        MATMUL,
        [("[%stride_b, %one]", "[%stride_b, %stride_d]")],
        "a descriptor's last stride must be the constant 1, got: %b_tensor",
    ),
    (
        "padding with NaN",
        MATMUL,
        [("[%stride_b, %one]", "[%stride_b, %one] {padding = 2 : i32}")],
        "a descriptor must read zeros outside its tensor",
    ),
    (
        "an operand that the loop position does not select",
        MATMUL,
        [("%b_tensor[%n, %k]", "%b_tensor[%n, %n]")],
        "an operand of a dot must be read at the loop's position along K",
    ),
    (
        "an operand loaded ahead of the loop",
        MATMUL,
        [
            (
                "    %total = scf.for",
                "    %early = tt.descriptor_load %b_tensor[%n, %zero] "
                ": !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>\n    %total = scf.for",
            ),
            (B_LOAD + "\n", "\n"),
            ("tt.trans %b_rows", "tt.trans %early"),
        ],
        "an operand of a dot must be loaded in the loop over K, got: %early",
    ),
    (
        "an operand that is computed",
        MATMUL,
        [
            (
                "%b_tile = tt.trans %b_rows",
                "%twice = arith.addf %b_rows, %b_rows : tensor<64x32xf16>\n      %b_tile = tt.trans %twice",
            )
        ],
        "an operand of a dot must be loaded through a descriptor, got: %twice",
    ),
    (
        "a descriptor that is an argument",
        MATMUL,
        [("%b: !tt.ptr<f16>", "%b: !tt.ptr<f16>, %h: !tt.tensordesc<tensor<64x32xf16>>"), ("%b_tensor[", "%h[")],
        "operand %h must come from an operation, got: %b_rows",
    ),
    (
        "a step that does not accumulate",
        MATMUL,
        [("tt.dot %a_tile, %b_tile, %partial", "tt.dot %a_tile, %b_tile, %zeros")],
        "a step of the loop over K must add one dot to the accumulator, got: %product = tt.dot",
    ),
    (
        "a step that scales the accumulator",
        MATMUL,
        [
            (
                "scf.yield %product",
                "%next = arith.mulf %product, %partial : tensor<128x64xf32>\n      scf.yield %next",
            )
        ],
        "a step of the loop over K must add one dot to the accumulator, got: %next = arith.mulf",
    ),
    (
        "an epilogue with a remainder",
        BIASED,
        [("arith.addf %total", "math.powf %total")],
        "an epilogue may only apply elementwise steps, casts and broadcasts, got: %biased = math.powf",
    ),
    (
        "a bias of another length",
        BIASED,
        [("%bias, [%M]", "%bias, [%N]")],
        "a vector along m must have the product's size there, M, got: %bias_tile",
    ),
    (
        "a bias of another tile",
        BIASED,
        [("%bias_tensor[%m]", "%bias_tensor[%n]")],
        "a vector along m must be read where the tile starts",
    ),
    (
        "a matrix of another tile",
        Problem(out="f32"),
        [
            (
                "    %d_tensor =",
                "    %x_tensor = tt.make_tensor_descriptor %d, [%M, %N], [%stride_d, 1] : <f32>, <tensor<128x64xf32>>\n"
                "    %x = tt.descriptor_load %x_tensor[%n, %m] "
                ": !tt.tensordesc<tensor<128x64xf32>> -> tensor<128x64xf32>\n"
                "    %sum = arith.addf %total, %x : tensor<128x64xf32>\n"
                "    %d_tensor =",
            ),
            ("%d_tensor[%m, %n], %total", "%d_tensor[%m, %n], %sum"),
        ],
        "an array that an epilogue reads must be read where the tile is stored, got: %x = tt.descriptor_load",
    ),
    (
        "a matrix of other sizes",
        Problem(epilogue=Epilogue(c="f16")),
        [("%c, [%M, %N]", "%c, [%N, %M]")],
        "an array that an epilogue reads must be dense, with the output's sizes, got: %c_tile",
    ),
    (
        "a number that is computed of an integer argument",
        Problem(epilogue=Epilogue(alpha=True)),
        [
            ("%alpha: f32", "%alpha: f32, %count: i32"),
            (
                "%alpha_all = tt.splat %alpha",
                "%part = arith.sitofp %count : i32 to f32\n    %parts = arith.mulf %alpha, %part : f32\n"
                "    %alpha_all = tt.splat %parts",
            ),
        ],
        "a scalar in an epilogue must be an f32 argument, or be loaded through a pointer argument, got: %part = arith.sitofp",
    ),
    (
        "a number that is loaded under a mask",
        Problem(epilogue=Epilogue(out_scale="tensor")),
        [
            ("%out_scale: !tt.ptr<f32>", "%out_scale: !tt.ptr<f32>, %given: i1, %else: f32"),
            ("tt.load %out_scale : ", "tt.load %out_scale, %given, %else : "),
        ],
        "a scalar in an epilogue must be loaded without a mask, got: %out_scale_value = tt.load",
    ),
    (
        "rows of gate and up in other blocks",
        Problem(epilogue=Epilogue(gated=True)),
        [
            ("tensor<128x64xf32> -> tensor<8x2x8x64xf32>", "tensor<128x64xf32> -> tensor<16x2x4x64xf32>"),
            ("tensor<8x2x8x64xf32> -> tensor<8x8x64x2xf32>", "tensor<16x2x4x64xf32> -> tensor<16x4x64x2xf32>"),
            ("tensor<8x8x64x2xf32> -> tensor<8x8x64xf32>", "tensor<16x4x64x2xf32> -> tensor<16x4x64xf32>"),
            ("%0 : tensor<8x8x64xf32>", "%0 : tensor<16x4x64xf32>"),
            ("%1 : tensor<8x8x64xf32>", "%1 : tensor<16x4x64xf32>"),
        ],
        "a stored tile must come from one sum of products, in one orientation; there are 0",
    ),
    (
        "a gated output of other sizes",
        Problem(epilogue=Epilogue(gated=True)),
        [("%d, [%M_out, %N]", "%d, [%M, %N]")],
        "the stored tensor must have the product's sizes",
    ),
    (
        "a descriptor that is chosen",
        MATMUL,
        [
            (
                "    %total = scf.for",
                "    %yes = arith.cmpi slt, %m, %M : i32\n"
                "    %one_of = arith.select %yes, %b_tensor, %b_tensor : !tt.tensordesc<tensor<64x32xf16>>\n"
                "    %total = scf.for",
            ),
            ("tt.descriptor_load %b_tensor", "tt.descriptor_load %one_of"),
        ],
        "a descriptor must be made by tt.make_tensor_descriptor, got: %one_of = arith.select",
    ),
    (
        "a base that is loaded",
        MATMUL,
        [
            ("%b: !tt.ptr<f16>", "%b: !tt.ptr<!tt.ptr<f16>>"),
            ("    %b_tensor =", "    %base = tt.load %b : !tt.ptr<!tt.ptr<f16>>\n    %b_tensor ="),
            ("tt.make_tensor_descriptor %b,", "tt.make_tensor_descriptor %base,"),
        ],
        "a descriptor's base must be an argument, got: %b_tensor = tt.make_tensor_descriptor",
    ),
    (
        "a sparse bias",
        BIASED,
        [
            ("%bias: !tt.ptr<f16>", '%bias: !tt.ptr<f16, #tt.sparse<"NV24">>'),
            (
                "[%M], [%one] : <f16>, <tensor<128xf16>>",
                '[%M], [%one] : <f16, #tt.sparse<"NV24">>, <tensor<128xf16, #tt.sparse<"NV24">>>',
            ),
            (
                ": !tt.tensordesc<tensor<128xf16>> -> tensor<128xf16>",
                ': !tt.tensordesc<tensor<128xf16, #tt.sparse<"NV24">>> -> tensor<128xf16, #tt.sparse<"NV24">>',
            ),
            ("arith.extf %bias_tile : tensor<128xf16>", 'arith.extf %bias_tile : tensor<128xf16, #tt.sparse<"NV24">>'),
        ],
        "a vector in an epilogue must be dense",
    ),
    (
        "the product and its transpose",
        Problem(out="f32"),
        [
            ("%d_tensor[%m, %n], %total", "%d_tensor[%m, %n], %both"),
            (
                "    %d_tensor =",
                "    %flat = tt.trans %total {order = array<i32: 1, 0>} : tensor<128x64xf32> -> tensor<64x128xf32>\n"
                "    %row = tt.broadcast %flat : tensor<64x128xf32> -> tensor<64x128xf32>\n"
                "    %back = tt.trans %row {order = array<i32: 0, 1>} : tensor<64x128xf32> -> tensor<64x128xf32>\n"
                "    %up = tt.trans %back {order = array<i32: 1, 0>} : tensor<64x128xf32> -> tensor<128x64xf32>\n"
                "    %both = arith.subf %up, %total : tensor<128x64xf32>\n"
                "    %d_tensor =",
            ),
        ],
        "a stored tile must come from one sum of products, in one orientation; there are 2",
    ),
    (
        "a store of a constant",
        Problem(out="f32"),
        [("%d_tensor[%m, %n], %total", "%d_tensor[%m, %n], %zeros")],
        "there are 0, got: tt.descriptor_store",
    ),
    (
        "a second store",
        MATMUL,
        [
            (
                "    tt.return",
                "    tt.descriptor_store %d_tensor[%m, %n], %result : "
                "!tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>\n    tt.return",
            )
        ],
        "a kernel must store once; there are 2 stores",
    ),
    (
        "a store through pointers",
        MATMUL,
        [
            (
                "    tt.descriptor_store %d_tensor[%m, %n], %result : "
                "!tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>\n",
                "    %p = tt.make_tensor_ptr %d, [128, 64], [64, 1], [0, 0] : <tensor<128x64xf16>>\n"
                "    tt.store %p, %result : !tt.ptr<tensor<128x64xf16>>\n",
            )
        ],
        "a kernel must store through a descriptor (tt.descriptor_store), got: tt.store",
    ),
    (
        "a store in a branch",
        MATMUL,
        [
            (
                "    tt.descriptor_store %d_tensor[%m, %n], %result : "
                "!tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>\n",
                "    %yes = arith.cmpi slt, %m, %M : i32\n    scf.if %yes {\n"
                "      tt.descriptor_store %d_tensor[%m, %n], %result : "
                "!tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>\n    }\n",
            )
        ],
        "the store must stand outside of loops and branches",
    ),
    (
        "sums promoted a negative number of columns at a time",
        Problem("matmul", "e4m3", "e4m3", "f32"),
        [("%b_tile, %partial :", "%b_tile, %partial {maxNumImpreciseAcc = -1 : i32} :")],
        "max_num_imprecise_acc is a number of columns of K, at least 0, got: %product = tt.dot",
    ),
    (
        "sums promoted to f16",
        Problem("matmul", "e4m3", "e4m3", "f32", accumulate="f16"),
        [("%b_tile, %partial :", "%b_tile, %partial {maxNumImpreciseAcc = 64 : i32} :")],
        "a dot with max_num_imprecise_acc has an f32 accumulator, got: %product = tt.dot",
    ),
    (
        "a load that is not used",
        MATMUL,
        [("    tt.return", "    %x = tt.load %b : !tt.ptr<f16>\n    tt.return")],
        "each load, store and other effect of a kernel must be part of its product, got: %x = tt.load",
    ),
]


@pytest.mark.parametrize(
    ("problem", "changes", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_is_not_a_product_is_refused(problem: Problem, changes: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(UnsupportedKernelError) as caught:
        read_nest(rewritten(problem, *changes))
    assert message in str(caught.value)
    assert caught.value.always == any(each in message for each in ("there are 2", "constant of zeros", "add one dot"))


def test_a_loop_that_carries_more_is_refused() -> None:
    with pytest.raises(UnsupportedKernelError, match="the loop over K may carry the accumulator only"):
        read_nest(
            rewritten(
                MATMUL,
                ("%total = scf.for", "%total, %last = scf.for"),
                (
                    "iter_args(%partial = %zeros) -> (tensor<128x64xf32>)",
                    "iter_args(%partial = %zeros, %count = %zero) -> (tensor<128x64xf32>, i32)",
                ),
                ("scf.yield %product : tensor<128x64xf32>", "scf.yield %product, %k : tensor<128x64xf32>, i32"),
            )
        )


def test_a_loop_in_a_branch_is_refused() -> None:
    text = str(build_tile_ir(Problem(out="f32"), TILE))
    start, end = text.index("    %total = scf.for"), text.index("    %d_tensor =")
    loop = text[start:end].replace("%total", "%inner")
    branch = (
        "    %yes = arith.cmpi slt, %m, %M : i32\n"
        "    %total = scf.for %again = %zero to %K step %tile_k iter_args(%x = %zeros) -> (tensor<128x64xf32>) : i32 {\n"
        f"{loop}      scf.yield %inner : tensor<128x64xf32>\n    }}\n"
    )
    with pytest.raises(UnsupportedKernelError, match="a step of the loop over K must add one dot to the accumulator"):
        read_nest(parse_ir(text[:start] + branch + text[end:]))


def test_a_sparse_right_operand_is_refused() -> None:
    text = str(build_tile_ir(MATMUL, TILE))
    sparse = '#tt.sparse<"NV24">'
    for old, new in (
        ("%b: !tt.ptr<f16>", f"%b: !tt.ptr<f16, {sparse}>"),
        ("<f16>, <tensor<64x32xf16>>", f"<f16, {sparse}>, <tensor<64x32xf16, {sparse}>>"),
        ("tensor<64x32xf16>", f"tensor<64x32xf16, {sparse}>"),
        ("tensor<32x64xf16>", f"tensor<32x64xf16, {sparse}>"),
        (f"!tt.ptr<f16, {sparse}>, %b", "!tt.ptr<f16>, %b"),
        (f"<f16, {sparse}>, <tensor<128x32xf16, {sparse}>>", "<f16>, <tensor<128x32xf16>>"),
        (f"tensor<128x32xf16, {sparse}>", "tensor<128x32xf16>"),
    ):
        text = text.replace(old, new)
    with pytest.raises(UnsupportedKernelError, match="the sparse operand of a dot must be the left one"):
        read_nest(parse_ir(text))


def test_modules_hold_one_kernel() -> None:
    text = str(build_tile_ir(MATMUL, TILE))
    function = text[text.index("  tt.func") : text.rindex("}")]
    with pytest.raises(UnsupportedKernelError, match="one public kernel; there are 2, got: tt.func @other"):
        read_nest(parse_ir(function + function.replace("@matmul", "@other")))
    with pytest.raises(UnsupportedKernelError, match="one public kernel; there are 0"):
        read_nest(parse_ir("builtin.module {\n}"))
    with pytest.raises(UnsupportedKernelError, match="one public kernel and nothing else, got: tt.func @f"):
        read_nest(parse_ir(function + "tt.func private @f() {\n  tt.return\n}"))
    with pytest.raises(UnsupportedKernelError, match="a kernel has one block"):
        read_nest(parse_ir("tt.func public @declared(f32)"))
    with pytest.raises(UnsupportedKernelError, match="a kernel must store once; there are 0 stores, got: tt.func"):
        read_nest(parse_ir("tt.func public @empty(%x: f32) {\n  tt.return\n}"))


LOCATIONS = {
    '"kernel.py":7:3': "kernel.py:7:3",
    '"bias"("kernel.py":7:3)': "kernel.py:7:3",
    'callsite("inner.py":2:1 at "kernel.py":7:3)': "inner.py:2:1",
    'fused[unknown, "kernel.py":9:5]': "kernel.py:9:5",
    "unknown": None,
}


@pytest.mark.parametrize("location", LOCATIONS)
def test_a_refusal_names_the_source_line(location: str) -> None:
    where = LOCATIONS[location]
    module = rewritten(
        BIASED,
        ("%biased = arith.addf", "%biased = math.powf"),
        ("    %result =", f"      loc({location})\n    %result ="),
    )
    with pytest.raises(UnsupportedKernelError) as caught:
        read_nest(module)
    assert caught.value.location == where
    assert caught.value.operation.startswith("%biased = math.powf")
    assert ("got:" if where is None else f"got at {where}:") in str(caught.value)


def test_a_nest_checks_itself() -> None:
    nest = read_nest(build_tile_ir(MATMUL, TILE))
    with pytest.raises(ValueError, match="both operands must have one K, got K and L"):
        replace(nest, b=replace(nest.b, depth=size("L")))
    with pytest.raises(ValueError, match="tile sizes are at least 1, got 128×0×32"):
        replace(nest, tile_n=0)


def test_pairs_of_4_bit_integers() -> None:
    module = build_tile_ir(Problem("linear", "s4x2", "u4x2", "s32"), TILE)
    assert str(parse_ir(str(module))) == str(module) and "pairs" in str(module)
    with pytest.raises(UnsupportedKernelError, match="warpgroups multiply no pairs of 4-bit integers"):
        read_nest(module)


def test_scales_of_blocks() -> None:
    """They are written and read again, and warpgroups do not take them."""
    epilogue = Epilogue(scale="blocks", dense_scale="blocks")
    module = build_tile_ir(Problem("linear", "e2m1", "e4m3", "f32", epilogue=epilogue), Tile(128, 64, 128))
    text, types = str(module), "tensor<128x2xui8>, tensor<64x2xui8>"
    assert str(parse_ir(text)) == text and f"scaled {types}" in text
    with pytest.raises(UnsupportedKernelError, match="warpgroups scale no blocks of K"):
        read_nest(module)
    (dot,) = (op for op in module.walk() if isinstance(op, DotOp))
    dot.operands[3], dot.operands[4] = dot.operands[4], dot.operands[3]
    with pytest.raises(
        VerifyException, match=r"scales of blocks are ui8 \[128, 2\] and \[64, 2\], got tensor<64x2xui8>, "
    ):
        dot.verify()


def test_pairs_are_of_bytes() -> None:
    text = str(build_tile_ir(MATMUL, TILE)).replace(
        "tt.dot %a_tile, %b_tile, %partial", "tt.dot %a_tile, %b_tile, %partial {pairs}"
    )
    with pytest.raises(VerifyException, match="pairs are bytes of 4-bit integers, got f16"):
        parse_ir(text)
