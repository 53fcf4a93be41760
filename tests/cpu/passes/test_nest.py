"""Reading tile IR into a product nest: what the builder writes, what users might write, and what is refused."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import PRODUCTS, Problem, Tile
from louver.ir.context import parse_ir
from louver.passes.nest import (
    Accumulator,
    Add,
    Argument,
    Cast,
    Expression,
    Load,
    LoadVector,
    Multiply,
    ProductNest,
    Store,
    UnsupportedKernelError,
    read_nest,
    walk,
)

INPUTS = Path(__file__).parent.parent / "ir" / "inputs"

PROBLEMS = [
    Problem(kind, a, b, out, b_layout=layout, bias=bias)
    for (a, b), outputs in PRODUCTS.items()
    for out, bias in itertools.product(outputs, (None, "row"))
    for kind, layout in (("matmul", "k_major"), ("matmul", "n_major"), ("linear", "k_major"))
]


def expected(problem: Problem, tile: Tile) -> ProductNest:
    epilogue: Expression = Accumulator()
    if problem.bias:
        epilogue = Add(epilogue, Cast(LoadVector("bias", problem.a, "m"), "f32"))
    if problem.out != "f32":
        epilogue = Cast(epilogue, problem.out)
    pointers = {"a": f'!tt.ptr<{problem.a}, #tt.sparse<"NV24">>', "b": f"!tt.ptr<{problem.b}>"}
    pointers["d"] = f"!tt.ptr<{problem.out}>"
    if problem.bias:
        pointers["bias"] = f"!tt.ptr<{problem.a}>"
    scalars = dict.fromkeys("MNK", "i32") | dict.fromkeys(("stride_a", "stride_b", "stride_d"), "i64")
    return ProductNest(
        name=problem.kind,
        arguments=tuple(Argument(name, type_) for name, type_ in (pointers | scalars).items()),
        a=Load("a", problem.a, "2:4", "M", "K", "stride_a", k_major=True),
        b=Load("b", problem.b, None, "N", "K", "stride_b", k_major=problem.b_layout == "k_major"),
        tile_m=tile.m,
        tile_n=tile.n,
        tile_k=tile.k,
        accumulator="f32",
        epilogue=epilogue,
        store=Store("d", problem.out, "stride_d", transposed=problem.kind == "linear"),
    )


def random_tile(rng: np.random.Generator) -> Tile:
    m, n, k = (int(size) for size in rng.integers(1, 40, 3))
    return Tile(8 * m, 8 * n, 4 * k)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_what_the_builder_writes_is_read_back(problem: Problem, rng: np.random.Generator) -> None:
    tile = random_tile(rng)
    module = build_tile_ir(problem, tile)
    assert read_nest(module) == expected(problem, tile)
    assert read_nest(parse_ir(str(module))) == expected(problem, tile)


def shuffle(block: Block, rng: np.random.Generator) -> None:
    """Put a block's operations in a random order that keeps definitions before uses; the last one stays last."""
    *waiting, last = list(block.ops)
    for op in [*waiting, last]:
        op.detach()
    while waiting:
        inside = {result for op in waiting for result in op.results}
        ready = [op for op in waiting if not any(o in inside for inner in op.walk() for o in inner.operands)]
        chosen = ready[rng.integers(len(ready))]
        waiting.remove(chosen)
        block.add_op(chosen)
    block.add_op(last)


def loops(module: ModuleOp) -> list[scf.ForOp]:
    return [op for op in module.walk() if isinstance(op, scf.ForOp)]


@pytest.mark.parametrize("problem", [Problem("linear", bias="row"), Problem(b_layout="n_major")], ids=str)
def test_order_of_operations_does_not_matter(problem: Problem, rng: np.random.Generator) -> None:
    tile = random_tile(rng)
    for _ in range(10):
        module = build_tile_ir(problem, tile)
        (loop,) = loops(module)
        shuffle(loop.body.block, rng)
        assert loop.parent is not None
        shuffle(loop.parent, rng)
        assert read_nest(parse_ir(str(module))) == expected(problem, tile)


def test_names_of_values_do_not_matter() -> None:
    text = str(build_tile_ir(Problem("linear", bias="row"), Tile(128, 64, 64)))
    arguments = {"a", "b", "d", "bias", "M", "N", "K", "stride_a", "stride_b", "stride_d"}
    names = sorted(set(re.findall(r"%(\w+)", text)) - arguments)
    # Names that suggest another role must not mislead the reader.
    for name, other in zip(names, reversed(names), strict=True):
        text = re.sub(rf"%{name}\b", f"%@{other}", text)
    assert read_nest(parse_ir(text.replace("%@", "%"))) == expected(Problem("linear", bias="row"), Tile(128, 64, 64))


def test_arguments_without_names_are_numbered() -> None:
    text = str(build_tile_ir(Problem(), Tile(128, 64, 64)))
    for index, name in enumerate(("a", "b", "d", "M", "N", "K", "stride_a", "stride_b", "stride_d")):
        text = re.sub(rf"%{name}\b", f"%{index}", text)
    nest = read_nest(parse_ir(text))
    assert (nest.a.argument, nest.b.argument, nest.store.argument) == ("arg0", "arg1", "arg2")
    assert (nest.m, nest.n, nest.k, nest.store.stride) == ("arg3", "arg4", "arg5", "arg8")


def test_arguments_of_one_name_are_told_apart() -> None:
    module = build_tile_ir(Problem(), Tile(128, 64, 64))
    for argument in loops(module)[0].parent.args[:2]:
        argument.name_hint = "x"
    nest = read_nest(module)
    assert (nest.a.argument, nest.b.argument) == ("x", "x_1")


def test_a_kernel_as_triton_prints_it() -> None:
    nest = read_nest(parse_ir((INPUTS / "triton_descriptors.mlir").read_text()))
    assert nest.a == Load("arg0", "f16", None, "arg4", "arg6", "arg7", k_major=True)
    assert nest.b == Load("arg1", "f16", None, "arg5", "arg6", "arg8", k_major=True)
    assert nest.epilogue == Cast(Add(Accumulator(), LoadVector("arg3", "f32", "m")), "f16")
    assert nest.store == Store("arg2", "f16", "arg9", transposed=True)
    assert (nest.tile_m, nest.tile_n, nest.tile_k) == (128, 256, 64)


def rewritten(problem: Problem, *changes: tuple[str, str]) -> ModuleOp:
    """The builder's text with parts replaced, each exactly once."""
    text = str(build_tile_ir(problem, Tile(128, 64, 32)))
    for old, new in changes:
        assert text.count(old) == 1, (old, text)
        text = text.replace(old, new)
    return parse_ir(text, "changed.mlir")


MATMUL, BIASED, LINEAR = Problem(), Problem(bias="row"), Problem("linear", bias="row")

SAME = [
    ("factors of a position", MATMUL, [("arith.muli %m_tile, %tile_m", "arith.muli %tile_m, %m_tile")]),
    ("grid axes", MATMUL, [("%m_tile = tt.get_program_id x", "%m_tile = tt.get_program_id z")]),
    (
        "accumulation outside of the dot",
        MATMUL,
        [
            ("tt.dot %a_tile, %b_tile, %partial", "tt.dot %a_tile, %b_tile, %zeros"),
            (
                "scf.yield %product",
                "%next = arith.addf %product, %partial : tensor<128x64xf32>\n      scf.yield %next",
            ),
        ],
    ),
    ("an unused value", MATMUL, [("    tt.return", "    %unused = arith.addi %M, %N : i32\n    tt.return")]),
    (
        "two transpositions",
        MATMUL,
        [
            (
                "    tt.descriptor_store %d_tensor[%m, %n], %result",
                "    %t = tt.trans %result {order = array<i32: 1, 0>} : tensor<128x64xf16> -> tensor<64x128xf16>\n"
                "    %tt = tt.trans %t {order = array<i32: 1, 0>} : tensor<64x128xf16> -> tensor<128x64xf16>\n"
                "    tt.descriptor_store %d_tensor[%m, %n], %tt",
            )
        ],
    ),
    ("literal strides", MATMUL, [("%a, [%M, %K], [%stride_a, %one]", "%a, [%M, %K], [%stride_a, 1]")]),
]


@pytest.mark.parametrize(("problem", "changes"), [case[1:] for case in SAME], ids=[case[0] for case in SAME])
def test_the_same_product_written_otherwise(problem: Problem, changes: list[tuple[str, str]]) -> None:
    assert read_nest(rewritten(problem, *changes)) == expected(problem, Tile(128, 64, 32))


def test_sizes_may_be_constants_and_strides_widened() -> None:
    nest = read_nest(
        rewritten(
            MATMUL,
            (
                "    %one = arith.constant 1 : i64\n",
                "    %one = arith.constant 1 : i64\n    %wide = arith.extsi %K : i32 to i64\n",
            ),
            ("%a, [%M, %K], [%stride_a, %one]", "%a, [512, %K], [%wide, %one]"),
            ("%d, [%M, %N]", "%d, [512, %N]"),
        )
    )
    assert (nest.m, nest.n, nest.k, nest.a.stride) == (512, "N", "K", "K")


def test_an_epilogue_along_both_axes() -> None:
    nest = read_nest(
        rewritten(
            BIASED,
            ("%bias: !tt.ptr<f16>", "%bias: !tt.ptr<f16>, %scale: !tt.ptr<f32>"),
            (
                "    %result = arith.truncf %biased",
                "    %s_tensor = tt.make_tensor_descriptor %scale, [%N], [1] : <f32>, <tensor<64xf32>>\n"
                "    %s = tt.descriptor_load %s_tensor[%n] : !tt.tensordesc<tensor<64xf32>> -> tensor<64xf32>\n"
                "    %s_row = tt.expand_dims %s {axis = 0 : i32} : tensor<64xf32> -> tensor<1x64xf32>\n"
                "    %s_all = tt.broadcast %s_row : tensor<1x64xf32> -> tensor<128x64xf32>\n"
                "    %scaled = arith.mulf %s_all, %biased : tensor<128x64xf32>\n"
                "    %result = arith.truncf %scaled",
            ),
        )
    )
    biased = Add(Accumulator(), Cast(LoadVector("bias", "f16", "m"), "f32"))
    assert nest.epilogue == Cast(Multiply(LoadVector("scale", "f32", "n"), biased), "f16")
    assert [type(node).__name__ for node in walk(nest.epilogue)] == [
        "LoadVector",
        "Accumulator",
        "LoadVector",
        "Cast",
        "Add",
        "Multiply",
        "Cast",
    ]


def test_a_bias_added_after_the_transposition() -> None:
    nest = read_nest(
        rewritten(
            Problem("linear"),
            ("%b: !tt.ptr<f16>", "%b: !tt.ptr<f16>, %bias: !tt.ptr<f16>"),
            (
                "    tt.descriptor_store %d_tensor[%n, %m], %transposed",
                "    %v_tensor = tt.make_tensor_descriptor %bias, [%M], [1] : <f16>, <tensor<128xf16>>\n"
                "    %v = tt.descriptor_load %v_tensor[%m] : !tt.tensordesc<tensor<128xf16>> -> tensor<128xf16>\n"
                "    %v_row = tt.expand_dims %v {axis = 0 : i32} : tensor<128xf16> -> tensor<1x128xf16>\n"
                "    %v_all = tt.broadcast %v_row : tensor<1x128xf16> -> tensor<64x128xf16>\n"
                "    %sum = arith.addf %transposed, %v_all : tensor<64x128xf16>\n"
                "    tt.descriptor_store %d_tensor[%n, %m], %sum",
            ),
        )
    )
    assert nest.store.transposed
    assert nest.epilogue == Add(Cast(Accumulator(), "f16"), LoadVector("bias", "f16", "m"))


B_LOAD = "%b_rows = tt.descriptor_load %b_tensor[%n, %k] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>"

REFUSED = [
    (
        "a loop that ends elsewhere",
        MATMUL,
        [("scf.for %k = %zero to %K", "scf.for %k = %zero to %M")],
        "the loop over K must run from 0 to K in steps of 32, got: %total = scf.for",
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
        "a tile must be stored where its operands were read, got: tt.descriptor_store",
    ),
    (
        "overlapping tiles",
        MATMUL,
        [("%tile_m = arith.constant 128", "%tile_m = arith.constant 64")],
        "tiles of 128×64 must start at multiples of it, not of 64×64",
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
        "a tile starts at a program's number times a constant, got: %m = arith.addi",
    ),
    (
        "a position that is an argument",
        MATMUL,
        [("%a_tensor[%m, %k]", "%a_tensor[%M, %k]")],
        "a tile starts at a program's number times a constant, got: %a_tile = tt.descriptor_load",
    ),
    (
        "a literal position",
        MATMUL,
        [("%a_tensor[%m, %k]", "%a_tensor[0, %k]")],
        "a tile starts at a program's number times a constant, got: %a_tile = tt.descriptor_load",
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
        "a size that is computed",
        MATMUL,
        [
            ("    %a_tensor =", "    %more = arith.addi %M, %N : i32\n    %a_tensor ="),
            ("%a, [%M, %K]", "%a, [%more, %K]"),
        ],
        "sizes and strides must be arguments or constants, got: %more = arith.addi",
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
        "a step over K adds one dot to the accumulator, got: %product = tt.dot",
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
        "a step over K adds one dot to the accumulator, got: %next = arith.mulf",
    ),
    (
        "an epilogue that subtracts",
        BIASED,
        [("arith.addf %total", "arith.subf %total")],
        "an epilogue adds, multiplies, casts and broadcasts, got: %biased = arith.subf",
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
        "an epilogue reads dense vectors",
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
        "a store must have one sum of products as source, in one orientation; there are 2",
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
        "a kernel stores once; there are 2 stores",
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
        "a kernel stores through a descriptor (tt.descriptor_store), got: tt.store",
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
        "a load that is not used",
        MATMUL,
        [("    tt.return", "    %x = tt.load %b : !tt.ptr<f16>\n    tt.return")],
        "every effect of a kernel must belong to its product, got: %x = tt.load",
    ),
]


@pytest.mark.parametrize(
    ("problem", "changes", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_is_not_a_product_is_refused(problem: Problem, changes: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(UnsupportedKernelError) as caught:
        read_nest(rewritten(problem, *changes))
    assert message in str(caught.value)


def test_a_loop_that_carries_more_is_refused() -> None:
    with pytest.raises(UnsupportedKernelError, match="the loop over K carries the accumulator and nothing else"):
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
    text = str(build_tile_ir(Problem(out="f32"), Tile(128, 64, 32)))
    start, end = text.index("    %total = scf.for"), text.index("    %d_tensor =")
    loop = text[start:end].replace("%total", "%inner")
    branch = (
        "    %yes = arith.cmpi slt, %m, %M : i32\n"
        "    %total = scf.for %again = %zero to %K step %tile_k iter_args(%x = %zeros) -> (tensor<128x64xf32>) : i32 {\n"
        f"{loop}      scf.yield %inner : tensor<128x64xf32>\n    }}\n"
    )
    with pytest.raises(UnsupportedKernelError, match="a step over K adds one dot to the accumulator"):
        read_nest(parse_ir(text[:start] + branch + text[end:]))


def test_a_sparse_right_operand_is_refused() -> None:
    text = str(build_tile_ir(MATMUL, Tile(128, 64, 32)))
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
    text = str(build_tile_ir(MATMUL, Tile(128, 64, 32)))
    function = text[text.index("  tt.func") : text.rindex("}")]
    with pytest.raises(UnsupportedKernelError, match="one public kernel; there are 2, got: tt.func public @other"):
        read_nest(parse_ir(function + function.replace("@matmul", "@other")))
    with pytest.raises(UnsupportedKernelError, match="one public kernel; there are 0"):
        read_nest(parse_ir("builtin.module {\n}"))
    with pytest.raises(UnsupportedKernelError, match="one public kernel and nothing else, got: tt.func private @f"):
        read_nest(parse_ir(function + "tt.func private @f() {\n  tt.return\n}"))
    with pytest.raises(UnsupportedKernelError, match="a kernel has one block"):
        read_nest(parse_ir("tt.func public @declared(f32)"))
    with pytest.raises(UnsupportedKernelError, match="a kernel stores once; there are 0 stores, got: tt.func"):
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
        ("%biased = arith.addf", "%biased = arith.divf"),
        ("    %result =", f"      loc({location})\n    %result ="),
    )
    with pytest.raises(UnsupportedKernelError) as caught:
        read_nest(module)
    assert caught.value.location == where
    assert caught.value.operation.startswith("%biased = arith.divf")
    assert ("got:" if where is None else f"got at {where}:") in str(caught.value)


def test_a_nest_checks_itself() -> None:
    nest = expected(MATMUL, Tile(128, 64, 32))
    fields = {name: getattr(nest, name) for name in nest.__dataclass_fields__}
    other = Load("b", "f16", None, "N", "L", "stride_b", k_major=True)
    with pytest.raises(ValueError, match="both operands must have one K, got 'K' and 'L'"):
        ProductNest(**(fields | {"b": other}))
    with pytest.raises(ValueError, match="tile sizes are at least 1, got 128×0×32"):
        ProductNest(**(fields | {"tile_n": 0}))
