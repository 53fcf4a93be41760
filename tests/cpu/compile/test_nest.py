"""Reading tile IR into a product nest: what the builder writes, what users might write instead."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from louver.compile.plan.nest import read_nest
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.context import parse_ir
from louver.ir.product import (
    Accumulator,
    Apply,
    Argument,
    Cast,
    Constant,
    Expression,
    Load,
    LoadScalar,
    LoadVector,
    Number,
    ProductNest,
    Store,
    walk,
)
from louver.isa.elementwise import ELEMENTWISE_STEPS
from louver.isa.wgmma import TRANSPOSABLE
from support.products import OF_NUMBERS
from support.sizes import size, sizes
from support.tile_ir import TILE, rewritten

INPUTS = Path(__file__).parent.parent / "ir" / "inputs"

PROBLEMS = [
    Problem(kind, a, b, out, b_layout=layout, bias=bias)
    for (a, b), outputs in OF_NUMBERS.items()
    for out, bias in itertools.product(outputs, (None, "row"))
    for kind, layout in (("matmul", "k_major"), ("matmul", "n_major"), ("linear", "k_major"))
    if layout == "k_major" or b in TRANSPOSABLE
]

MLIR = {
    **{name: name for name in ("f16", "bf16", "f32")},
    "e4m3": "f8E4M3FN",
    "e5m2": "f8E5M2",
    "s8": "i8",
    "u8": "ui8",
    "s32": "i32",
}
"""How tile IR spells element types."""


def stored(epilogue: Expression, problem: Problem) -> Expression:
    if problem.out == problem.accumulate:
        return epilogue
    if problem.accumulate == "s32" and problem.out in ("e4m3", "e5m2", "s8"):
        epilogue = Cast(epilogue, "f32")
    if problem.out == "s8":
        low, high = (Constant(limit, "f32") for limit in (-128.0, 127.0))
        clamped = Apply.of("minimum", Apply.of("maximum", epilogue, low), high)
        epilogue = Apply.of("round_even", clamped)
    return Cast(epilogue, problem.out)


def expected(problem: Problem, tile: Tile) -> ProductNest:
    epilogue: Expression = Accumulator()
    if problem.bias:
        bias: Expression = LoadVector("bias", problem.bias_element, "m")
        same = problem.bias_element == problem.accumulate
        epilogue = Apply.of("add", epilogue, bias if same else Cast(bias, problem.accumulate))
    epilogue = stored(epilogue, problem)
    encoding = f"NV{problem.pattern.replace(':', '')}"
    pointers = {"a": f'!tt.ptr<{MLIR[problem.a]}, #tt.sparse<"{encoding}">>', "b": f"!tt.ptr<{MLIR[problem.b]}>"}
    pointers["d"] = f"!tt.ptr<{MLIR[problem.out]}>"
    if problem.bias:
        pointers["bias"] = f"!tt.ptr<{MLIR[problem.bias_element]}>"
    scalars = dict.fromkeys("MNK", "i32") | dict.fromkeys(("stride_a", "stride_b", "stride_d"), "i64")
    return ProductNest(
        name=problem.kind,
        arguments=tuple(Argument(name, type_) for name, type_ in (pointers | scalars).items()),
        a=Load("a", problem.a, problem.pattern, *sizes("M", "K", "stride_a"), k_major=True),
        b=Load("b", problem.b, None, *sizes("N", "K", "stride_b"), k_major=problem.b_layout == "k_major"),
        tile_m=tile.m,
        tile_n=tile.n,
        tile_k=tile.k,
        accumulator=problem.accumulate,
        epilogue=epilogue,
        store=Store("d", problem.out, size("stride_d"), transposed=problem.kind == "linear"),
    )


def random_tile(rng: np.random.Generator) -> Tile:
    m, n, k = (int(size) for size in rng.integers(1, 40, 3))
    return Tile(8 * m, 8 * n, 4 * k)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_what_the_builder_writes_is_read_back(problem: Problem, rng: np.random.Generator) -> None:
    tile = random_tile(rng)
    module = build_tile_ir(problem, tile)
    assert read_nest(module) == expected(problem, tile)
    assert read_nest(parse_ir(str(module))) == expected(problem, tile)


@pytest.mark.parametrize(("a", "mode"), [("f16", "f16"), ("e4m3", "f16"), ("e5m2", "promoted")])
def test_ways_to_accumulate_are_the_dot_s(a: str, mode: str) -> None:
    problem, tile = Problem("linear", a, a, "bf16", accumulate=mode), Tile(64, 32, 128)
    module = build_tile_ir(problem, tile)
    nest = read_nest(parse_ir(str(module)))
    assert nest == read_nest(module)
    half = mode == "f16"
    assert (nest.accumulator, nest.promoted) == (("f16", None) if half else ("f32", 256))
    assert nest.epilogue == Cast(Cast(Accumulator(), "f32") if half else Accumulator(), "bf16")
    assert ("maxNumImpreciseAcc = 256 : i32" in str(module)) is not half


@pytest.mark.parametrize(
    ("element", "limit", "promoted"),
    [("e4m3", 128, 128), ("e4m3", 1000, 1000), ("e4m3", 0, None), ("e4m3", 1 << 30, None), ("f16", 32, None)],
)
def test_how_often_a_user_promotes(element: str, limit: int, promoted: int | None) -> None:
    """As Triton's max_num_imprecise_acc has it: 2^30 where nothing was asked for."""
    problem = Problem("matmul", element, element, "f32")
    text = str(build_tile_ir(problem, Tile(64, 32, 64)))
    changed = text.replace("%b_tile, %partial :", f"%b_tile, %partial {{maxNumImpreciseAcc = {limit} : i32}} :")
    assert changed != text
    assert read_nest(parse_ir(changed)).promoted == promoted


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
    assert (nest.m, nest.n, nest.k, nest.store.stride) == sizes("arg3", "arg4", "arg5", "arg8")


def test_name_hints_are_no_names() -> None:
    module = build_tile_ir(Problem(), Tile(128, 64, 64))
    for argument in loops(module)[0].parent.args:
        argument.name_hint = "x"
    nest = read_nest(module)
    assert (nest.a.argument, nest.b.argument, nest.store.argument, str(nest.m)) == ("a", "b", "d", "M")


def test_a_kernel_as_triton_prints_it() -> None:
    nest = read_nest(parse_ir((INPUTS / "triton_descriptors.mlir").read_text()))
    assert nest.a == Load("arg0", "f16", None, *sizes("arg4", "arg6", "arg7"), k_major=True)
    assert nest.b == Load("arg1", "f16", None, *sizes("arg5", "arg6", "arg8"), k_major=True)
    assert nest.epilogue == Cast(Apply.of("add", Accumulator(), LoadVector("arg3", "f32", "m")), "f16")
    assert nest.store == Store("arg2", "f16", size("arg9"), transposed=True)
    assert (nest.tile_m, nest.tile_n, nest.tile_k) == (128, 256, 64)


MATMUL = Problem()

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
    assert read_nest(rewritten(problem, *changes)) == expected(problem, TILE)


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
    assert (nest.m, nest.n, nest.k, nest.a.stride) == sizes(512, "N", "K", "K")


def test_an_epilogue_along_both_axes() -> None:
    nest = read_nest(
        rewritten(
            Problem(bias="row"),
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
    biased = Apply.of("add", Accumulator(), Cast(LoadVector("bias", "f16", "m"), "f32"))
    assert nest.epilogue == Cast(Apply.of("multiply", LoadVector("scale", "f32", "n"), biased), "f16")
    assert [type(node).__name__ for node in walk(nest.epilogue)] == [
        "LoadVector",
        "Accumulator",
        "LoadVector",
        "Cast",
        "Apply",
        "Apply",
        "Cast",
    ]


def test_a_value_may_be_used_twice() -> None:
    nest = read_nest(
        rewritten(
            Problem(),
            ("    %result =", "    %twice = arith.addf %total, %total : tensor<128x64xf32>\n    %result ="),
            ("arith.truncf %total", "arith.truncf %twice"),
        )
    )
    assert nest.epilogue == Cast(Apply.of("add", Accumulator(), Accumulator()), "f16")


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
    assert nest.epilogue == Apply.of("add", Cast(Accumulator(), "f16"), LoadVector("bias", "f16", "m"))


@pytest.mark.parametrize("name", [name for name, step in ELEMENTWISE_STEPS.items() if "." in step.operation])
def test_every_elementwise_step_is_read(name: str) -> None:
    step = ELEMENTWISE_STEPS[name]
    operands = ", ".join(["%total"] * step.arity)
    module = rewritten(
        Problem(),
        ("    %result =", f"    %mine = {step.operation} {operands} : tensor<128x64xf32>\n    %result ="),
        ("arith.truncf %total", "arith.truncf %mine"),
    )
    assert read_nest(module).epilogue == Cast(Apply(name, (Accumulator(),) * step.arity), "f16")


def test_numbers_constants_and_arrays_of_a_kernel_of_ones_own() -> None:
    nest = read_nest(
        rewritten(
            Problem(out="f32"),
            ("%b: !tt.ptr<f16>", "%b: !tt.ptr<f16>, %gain: f32, %offset: !tt.ptr<bf16>"),
            (
                "    %d_tensor =",
                "    %gains = tt.splat %gain : f32 -> tensor<128x64xf32>\n"
                "    %half = arith.constant dense<0.5> : tensor<128x64xf32>\n"
                "    %offset_value = tt.load %offset : !tt.ptr<bf16>\n"
                "    %offsets = tt.splat %offset_value : bf16 -> tensor<128x64xbf16>\n"
                "    %wide_offsets = arith.extf %offsets : tensor<128x64xbf16> to tensor<128x64xf32>\n"
                "    %one_more = arith.mulf %total, %gains : tensor<128x64xf32>\n"
                "    %two_more = arith.minnumf %one_more, %half : tensor<128x64xf32>\n"
                "    %three_more = arith.addf %two_more, %wide_offsets : tensor<128x64xf32>\n"
                "    %d_tensor =",
            ),
            ("%d_tensor[%m, %n], %total", "%d_tensor[%m, %n], %three_more"),
        )
    )
    least = Apply.of("minimum_number", Apply.of("multiply", Accumulator(), Number("gain")), Constant(0.5, "f32"))
    assert nest.epilogue == Apply.of("add", least, Cast(LoadScalar("offset", "bf16"), "f32"))
