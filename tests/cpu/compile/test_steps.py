"""Kernels go through K in steps of any length, with a rest behind the loop, unrolled, by counters of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i32, i64
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.residues import ResidueReader, Residues
from louver.choose.configure import choose_for_nest
from louver.compile.canonical.canonicalize import canonicalize
from louver.compile.canonical.fold_sums import add_in_place
from louver.compile.canonical.join_tails import join_tails
from louver.compile.canonical.roll_sums import roll_sums
from louver.compile.pipeline import compile_tile_ir
from louver.compile.plan.nest import read_nest
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.frontend.ttir import read_ttir
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.comparisons import INTEGER_PREDICATES, CmpiOp
from louver.ir.product import ProductNest
from louver.ir.refusal import UnsupportedKernelError
from louver.isa.targets import SM_90A
from support.compiled import read_copy
from support.interpreted import run_triton, triton_given
from support.sizes import size, sizes
from support.triton.cases import kept
from support.triton.texts import changed, changed_text, nest

REST, LAST, UNROLLED, COUNTED = "rest_of_k", "last_step", "unrolled_k", "counted_offsets"


def nest_of(problem: Problem, *tile: int) -> ProductNest:
    return read_nest(build_tile_ir(problem, Tile(*tile)))


def schedule_step(found: ProductNest) -> int:
    return choose_for_nest(found, SM_90A, aligned_output=False).tile.k


@pytest.mark.parametrize(
    ("element", "step", "scheduled"),
    [("f16", 16, 64), ("f16", 32, 64), ("f16", 64, 64), ("bf16", 128, 128), ("f16", 256, 64)]
    + [(element, step, {64: 64}.get(step, 128)) for element in ("e4m3", "s8") for step in (32, 64, 128, 256)],
)
def test_a_schedule_has_steps_of_its_own(element: Any, step: int, scheduled: int) -> None:
    found = nest_of(Problem("linear", element, element, "f16"), 128, 64, step)
    assert (found.tile_k, schedule_step(found)) == (step, scheduled)


def test_sums_are_promoted_as_often_as_a_kernel_asks() -> None:
    found = replace(nest_of(Problem("linear", "e4m3", "e4m3", "f16"), 128, 64, 32), promoted=64)
    assert schedule_step(found) == 64
    assert schedule_step(replace(found, promoted=128)) == 128


def test_a_kernel_is_compiled_with_another_step_than_its_own() -> None:
    def chosen(nest: ProductNest) -> Any:
        return choose_for_nest(nest, SM_90A, aligned_output=True)

    for name, step, scheduled in (("narrow_steps", 32, 64), ("wide_steps", 256, 128), (UNROLLED, 64, 64)):
        product = compile_tile_ir(read_copy(kept(name)), chosen)
        assert (product.nest.tile_k, product.schedule.tile.k) == (step, scheduled)


def test_other_patterns_are_no_product_whatever_the_tile() -> None:
    found = nest_of(Problem("linear"), 128, 256, 32)
    other = replace(found, a=replace(found.a, pattern="2:8@64"))
    with pytest.raises(ValueError, match="of 2:8@64, rows of K are gathered from .* got f16 with K contiguous"):
        choose_for_nest(other, SM_90A, aligned_output=False)


@pytest.mark.parametrize("rows", [16, 32, 96])
def test_rows_of_a_tile_are_whole_blocks(rows: int) -> None:
    with pytest.raises(
        ValueError, match=f"multiplies whole blocks of 64 rows of the left operand, got a tile of {rows}"
    ):
        choose_for_nest(nest_of(Problem("linear"), rows, 64, 32), SM_90A, aligned_output=False)


def test_strides_are_products_of_sizes() -> None:
    found = nest("joined_entries")
    assert found.a.batch is not None and found.b.batch is not None and found.store.batch is not None
    assert (found.a.batch.stride, found.b.batch.stride) == sizes("K*M", "K*N")
    assert str(found.store.batch.stride) == "M*N" and str(found.a.batch.extent) == "E"
    more = nest(
        "joined_entries",
        (
            r"(%\S+) = arith.muli %M, %K : i32(.*)",
            r"\1_half = arith.muli %K, %c64_i32 : i32\2\n    \1 = arith.muli \1_half, %M : i32\2",
        ),
    )
    assert more.a.batch is not None and str(more.a.batch.stride) == "64*K*M"


def test_every_second_row_is_a_stride_of_two_rows() -> None:
    """That a sparse tensor has no such rows is for the launch to say, as of all its strides."""
    rows = (r"%m_read_14 = arith.remsi %m_read_12, %m_read_13", "%m_read_14 = arith.addi %m_read_12, %m_read_12")
    assert nest("grouped_pointers", rows).a.stride == size("2*stride_am")


def test_what_is_left_of_k_becomes_the_loops() -> None:
    found = nest(REST)
    assert (str(found.k), found.tile_k, found.conditions.at_most, found.conditions.multiples) == ("K", 32, (), ())
    assert replace(found, name="", tile_k=64) == replace(nest(COUNTED), name="")
    by_pointers = nest("rest_by_pointers")
    assert (str(by_pointers.k), by_pointers.conditions.at_most, by_pointers.conditions.multiples) == ("K", (), ())
    assert (str(nest(LAST).k), nest(LAST).tile_k, nest(LAST).store.transposed) == ("K", 128, True)


@pytest.mark.parametrize("k", [4, 28, 32, 36, 64, 100, 128, 132, 256])
@pytest.mark.parametrize("name", [REST, LAST])
def test_joined_tails_compute_the_same(rng: np.random.Generator, name: str, k: int) -> None:
    operands = triton_given(rng, name, 130, 70, k)
    module = read_copy(kept(name))
    expected = run_triton(module, operands)
    operands.assert_close(expected)
    add_in_place(module)
    join_tails(module)
    assert str(module).count("tt.dot ") == 1 and "scf.if" not in str(module)
    operands.assert_close(run_triton(module, operands))


TAIL = r"(%5 = arith.cmpi )sgt, %4, %c0_i32"
SAME_TAILS = {
    "not 0": [(TAIL, r"\1ne, %4, %c0_i32")],
    "at least 1": [(TAIL, r"\1sge, %4, %c1_i32")],
    "the other way round": [(TAIL, r"\1slt, %c0_i32, %4")],
    "by the product": [(TAIL, r"%whole = arith.muli %steps, %c32_i32 : i32\n    \1slt, %whole, %K")],
    "always, because a step beyond K adds nothing": [(TAIL, r"\1sge, %4, %c0_i32")],
    "by what the product leaves": [
        (r"%4 = arith.remsi %K, %c32_i32", "%whole = arith.muli %steps, %c32_i32 : i32\n    %4 = arith.subi %K, %whole"),
    ],
    "in the other branch": [
        (TAIL, r"\1eq, %4, %c0_i32"),
        (r"scf.if %5 -> \(tensor<128x64xf32>\) \{\n", r"\g<0>      scf.yield %total : tensor<128x64xf32>\n    } else {\n"),
        (r"(scf.yield %total_6 : tensor<128x64xf32> loc\(#loc\d+\)\n)    \} else \{\n.*\n", r"\1"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("way", SAME_TAILS)
def test_other_ways_to_say_that_something_is_left(way: str) -> None:
    assert nest(REST, *SAME_TAILS[way]) == nest(REST)


STARTS = r"(%total_1 = arith.muli) %steps, %c32_i32"
BRANCH = "a branch in an epilogue must not read or write memory"
OTHERS = {
    "a tail that leaves a column": ([(TAIL, r"\1sgt, %4, %c1_i32")], BRANCH),
    "a tail by another size": ([(r"%4 = arith.remsi %K,", "%4 = arith.remsi %M,")], BRANCH),
    "a tail that begins elsewhere": ([(STARTS, r"\1 %steps, %c64_i32")], BRANCH),
    "a tail of other rows": (
        [(r"(%total_2 = tt.descriptor_load %a_tiles\[)%1, %total_1", r"\1%3, %total_1")], BRANCH,
    ),
    "a tail that is subtracted": (
        [(r"%total_6 = arith.addf %total, %total_5", "%total_6 = arith.subf %total, %total_5")], BRANCH,
    ),
    "a loop that leaves out a step": (
        [(r"to %steps step", "to %less step"), (r"(    %total = scf.for)", r"    %less = arith.subi %steps, %c1_i32 : i32\n\1")],
        BRANCH,
    ),
    "a sum that is used before its tail": (
        [(r"%7 = arith.truncf %6", "%twice = arith.addf %6, %total : tensor<128x64xf32>\n    %7 = arith.truncf %twice")],
        BRANCH,
    ),
    "a branch that stores": (
        [(r"(      scf.yield %total_6)", r"      tt.descriptor_store %d_tiles[%1, %3], %cst_0 : !tt.tensordesc<128x64xf16>, tensor<128x64xf16>\n\1"),
         (r"(    %c0_i32 =)", r"    %cst_0 = arith.constant dense<0.0> : tensor<128x64xf16>\n\1")],
        "a kernel must store once; there are 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", OTHERS)
def test_other_tails_stay_and_are_refused(change: str) -> None:
    changes, message = OTHERS[change]
    module = changed(REST, *changes)
    add_in_place(module)
    before = str(module)
    join_tails(module)
    assert str(module) == before
    with pytest.raises(UnsupportedKernelError, match=message):
        read_nest(canonicalize(module))


def test_a_loop_without_its_tail_sums_part_of_k() -> None:
    text = changed_text(REST, (TAIL, r"\1sgt, %c0_i32, %c0_i32"))
    with pytest.raises(UnsupportedKernelError, match="got at .*sums.py"):
        read_nest(canonicalize(read_ttir(text)))


def test_pointers_over_whole_steps_alone_sum_part_of_k() -> None:
    without = (r"(%\S+ = arith.cmpi )sgt, %rest, %c0_i32", r"\1slt, %rest, %c0_i32")
    with pytest.raises(UnsupportedKernelError, match="got at .*sums.py"):
        nest("rest_by_pointers", without)


def test_an_unrolled_k_becomes_a_loop() -> None:
    found = nest(UNROLLED)
    assert (found.k.constant, found.tile_k, found.conditions.at_most) == (256, 64, ())
    module = read_copy(kept(UNROLLED))
    canonical = str(canonicalize(module))
    assert canonical.count("tt.dot ") == 1 and canonical.count("tt.make_tensor_descriptor") == 3


def dots_of(text: str) -> int:
    module = read_ttir(text)
    return str(canonicalize(module)).count("tt.dot ")


def test_pieces_of_k_that_do_not_follow_each_other_stay() -> None:
    text = kept(UNROLLED)
    assert text.count("dense<64>") and dots_of(text) == 1
    # A piece is left out, or comes twice.
    for at in ("dense<128>", "dense<256>"):
        with pytest.raises(UnsupportedKernelError):
            read_nest(canonicalize(read_ttir(text.replace("dense<64>", at))))


def test_pieces_of_k_come_in_any_order() -> None:
    text = kept(UNROLLED)
    swapped = text.replace("dense<64>", "dense<?>").replace("dense<128>", "dense<64>").replace("dense<?>", "dense<128>")
    assert swapped != text and dots_of(swapped) == 1
    assert read_nest(canonicalize(read_ttir(swapped))) == read_nest(canonicalize(read_ttir(text)))


def test_rolling_leaves_loops_alone() -> None:
    for name in ("made_descriptors", COUNTED):
        module = canonicalize(read_copy(kept(name)))
        before = str(module)
        roll_sums(module)
        assert str(module) == before


def test_counters_that_are_used_behind_their_loop_stay() -> None:
    with pytest.raises(UnsupportedKernelError):
        nest(COUNTED, (r"tt.descriptor_store %d_tiles\[%1,", "tt.descriptor_store %d_tiles[%total#0,"))


Binary = Callable[[SSAValue, SSAValue], Operation]


def expressions(rng: np.random.Generator, step: int) -> tuple[SSAValue, list[Operation], Callable[[int], int | None]]:
    """A random number that a size decides: as IR, and as Python has it; None where that is not for numbers below 0."""
    block = Block(arg_types=[i32])
    size, *_ = block.args
    operations: list[Operation] = []
    values: list[tuple[SSAValue, Callable[[int], int]]] = [(size, lambda k: k)]

    def constant(value: int) -> SSAValue:
        operations.append(arith.ConstantOp(IntegerAttr(value, i32)))
        return operations[-1].results[0]

    for _ in range(int(rng.integers(1, 6))):
        (left, one), (right, other) = (values[int(rng.integers(len(values)))] for _ in range(2))
        number = int(rng.choice([1, 2, 3, step, step - 1, 2 * step]))
        made: list[tuple[Operation, Callable[[int], int]]] = [
            (arith.AddiOp(left, right), lambda k, a=one, b=other: a(k) + b(k)),
            (arith.SubiOp(left, right), lambda k, a=one, b=other: a(k) - b(k)),
            (arith.AddiOp(left, constant(number)), lambda k, a=one, n=number: a(k) + n),
            (arith.SubiOp(left, constant(number)), lambda k, a=one, n=number: a(k) - n),
            (arith.MuliOp(constant(number), left), lambda k, a=one, n=number: n * a(k)),
            (arith.DivSIOp(left, constant(number)), lambda k, a=one, n=number: a(k) // n),
            (arith.CeilDivSIOp(left, constant(number)), lambda k, a=one, n=number: -(-a(k) // n)),
            (arith.RemSIOp(left, constant(number)), lambda k, a=one, n=number: a(k) % n),
        ]
        op, meaning = made[int(rng.integers(len(made)))]
        operations.append(op)
        values.append((op.results[0], meaning))
    value, meaning = values[-1]
    return value, operations, meaning


@pytest.mark.parametrize("step", [1, 2, 16, 32])
def test_numbers_that_a_size_decides(rng: np.random.Generator, step: int) -> None:
    read = decided = 0
    for _ in range(200):
        value, _, meaning = expressions(rng, step)
        reader = ResidueReader.of([value], step)
        assert reader is not None
        reader = replace(reader, size=value.owner.args[0]) if isinstance(value.owner, Block) else reader
        found = reader.integer(value)
        if found is None:
            continue
        read += 1
        sizes = range(1, 6 * step + 1)
        for k in sizes:
            assert found.slope[k % step] * (k // step) + found.start[k % step] == meaning(k)
        for predicate in INTEGER_PREDICATES[:6]:
            truth = found.truth(predicate)
            zero = arith.ConstantOp(IntegerAttr(0, i32)).result
            again = reader.truth(CmpiOp(value, zero, predicate).results[0])
            assert (truth is None) == (again is None) and (truth is None or np.array_equal(truth, again))
            if truth is None:
                continue
            decided += 1
            compare: dict[str, Callable[[int], bool]] = {
                "eq": lambda v: v == 0,
                "ne": lambda v: v != 0,
                "slt": lambda v: v < 0,
                "sle": lambda v: v <= 0,
                "sgt": lambda v: v > 0,
                "sge": lambda v: v >= 0,
            }
            assert all(truth[k % step] == compare[predicate](meaning(k)) for k in sizes)
    assert read > 20 and decided > 20


def test_bits_that_are_cut_are_those_of_a_number_below_the_size() -> None:
    (size,) = Block(arg_types=[i32]).args
    wide = ExtSIOp(size, i64).results[0]
    constant = arith.ConstantOp(IntegerAttr(64, i64)).result
    quotient, multiple = arith.DivSIOp(wide, constant), arith.MuliOp(wide, constant)
    cut = [TruncIOp(each.result, i32).results[0] for each in (quotient, multiple)]
    reader = ResidueReader.of(cut, 64)
    assert reader is not None and reader.size is size
    assert reader.integer(cut[0]) == Residues.size(64).divided(64)
    assert reader.integer(cut[1]) is None


def test_two_sizes_decide_nothing() -> None:
    one, other = Block(arg_types=[i32, i32]).args
    assert ResidueReader.of([arith.AddiOp(one, other).result], 64) is None
    assert Residues.number(-1, 4).divided(2) is None
