"""Pointers become descriptors: what users write otherwise and means the same, and what is refused at its line."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from louver.compile.canonical.canonicalize import CANONICAL, canonicalize
from louver.compile.canonical.describe_tiles import describe_tiles
from louver.compile.passes import State
from louver.compile.plan.nest import read_nest
from louver.frontend.ttir import read_ttir
from louver.ir.product import Apply, LoadMatrix, walk
from louver.ir.refusal import UnsupportedKernelError
from support.compiled import read_copy
from support.golden import Golden
from support.pass_golden import before, check_pass
from support.sizes import size, sizes
from support.triton.cases import CASES, kept
from support.triton.texts import ADDEND, changed, nest

GROUPED, INDEXED, BLOCKS = "grouped_pointers", "indexed_pointers", "block_pointers"


@pytest.mark.parametrize("name", CASES)
def test_canonical_kernels(name: str, golden: Golden) -> None:
    module = read_copy(kept(name))
    before = str(module)
    golden.check(f"canonical/{name}.mlir", str(canonicalize(module)))
    assert str(module) == before


@pytest.mark.parametrize("name", CASES)
def test_every_pass_gives_valid_ir_and_keeps_what_is_canonical(name: str) -> None:
    module = read_copy(kept(name))
    for each in CANONICAL:
        each.run(State(module))
        module.verify()
    canonical = str(module)
    for each in CANONICAL:
        each.run(State(module))
    assert str(module) == canonical


WRAPPING = (
    r"%left_34 = tt.expand_dims %k_31 ",
    "%size_k = tt.splat %K : i32 -> tensor<128xi32>\n"
    "      %round = arith.remsi %k_31, %size_k : tensor<128xi32>\n      %left_34 = tt.expand_dims %round ",
)
"""Columns of `indexed_pointers` that wrap along K."""

SAME = {
    "wrapping along K beside zeros": (INDEXED, [WRAPPING]),
    "loads along K without masks": (
        GROUPED,
        [(r"tt.load %lefts_48, %left_54, %cst_1", "tt.load %lefts_48"), (r"tt.load %rights_49, .*, %cst_0", "tt.load %rights_49")],
    ),
    "only one operand masked along K": (GROUPED, [(r"tt.load %lefts_48, %left_54, %cst_1", "tt.load %lefts_48")]),
    "rows beyond the last one read as they are": (
        GROUPED,
        [(r"%m_read_14 = arith.remsi %m_read_12, %m_read_13", "%m_read_14 = arith.addi %m_read_12, %zeros"),
         (r"(    %m_read_13 = )", r"    %zeros = arith.constant dense<0> : tensor<128xi32>\n\1")],
    ),
    "rows beyond the last one read as that": (
        GROUPED,
        [(r"%m_read_14 = arith.remsi %m_read_12, %m_read_13", "%m_read_14 = arith.minsi %m_read_12, %last"),
         (r"(    %m_read_13 = )", r"    %one = arith.constant 1 : i32\n    %less = arith.subi %M, %one : i32\n"
          r"    %last = tt.splat %less : i32 -> tensor<128xi32>\n\1")],
    ),
    "rows beyond the last one read as the first": (
        GROUPED,
        [(r"%m_read_14 = arith.remsi %m_read_12, %m_read_13",
          "%inside = arith.cmpi slt, %m_read_12, %m_read_13 : tensor<128xi32>\n"
          "    %m_read_14 = arith.select %inside, %m_read_12, %zeros : tensor<128xi1>, tensor<128xi32>\n    %unused = arith.addi %zeros, %zeros"),
         (r"(    %m_read_13 = )", r"    %zeros = arith.constant dense<0> : tensor<128xi32>\n\1")],
    ),
    "sizes on the left of a comparison": (
        GROUPED, [(r"arith.cmpi slt, %lefts_22, %left_52", "arith.cmpi sgt, %left_52, %lefts_22")],
    ),
    "unsigned comparison": (GROUPED, [(r"arith.cmpi slt, %lefts_22", "arith.cmpi ult, %lefts_22")]),
    "no fill value": (GROUPED, [(r"%left_54, %cst_1", "%left_54")]),
    "at most the last index": (
        GROUPED,
        [(r"%left_51 = arith.subi %K, %left ", "%last = arith.subi %K, %c1_i32 : i32\n      %left_51 = arith.subi %last, %left "),
         (r"arith.cmpi slt, %lefts_22", "arith.cmpi sle, %lefts_22"), (r"arith.cmpi slt, %rights, %right", "arith.cmpi sle, %rights, %right")],
    ),
    "a bound that says what wrapping says": (
        GROUPED,
        [(r"(      %left_54 = )", "      %more = tt.splat %M : i32 -> tensor<128x1xi32>\n"
          "      %below = arith.cmpi slt, %lefts, %more : tensor<128x1xi32>\n"
          "      %all = tt.broadcast %below : tensor<128x1xi1> -> tensor<128x64xi1>\n" r"\1"),
         (r"tt.load %lefts_48, %left_54,", "tt.load %lefts_48, %both,"),
         (r"(      %left_55 = )", "      %both = arith.andi %all, %left_54 : tensor<128x64xi1>\n" r"\1")],
    ),
    "block pointers without boundary checks": (
        BLOCKS, [(r"(tt.load %left_\d+) \{[^}]*\}", r"\1"), (r"(tt.load %right_\d+) \{[^}]*\}", r"\1")],
    ),
    "tiles in row-major order": (
        GROUPED,
        [(r"%tile_m_9 = arith.addi %first_m_6, %tile_m_8", "%tile_m_9 = arith.divsi %program, %tiles_n_5"),
         (r"%tile_n = arith.divsi %tile_m, %rows_7", "%tile_n = arith.remsi %program, %tiles_n_5")],
    ),
    "tiles in column-major order": (
        GROUPED,
        [(r"%tile_m_9 = arith.addi %first_m_6, %tile_m_8", "%tile_m_9 = arith.remsi %program, %tiles_m_4"),
         (r"%tile_n = arith.divsi %tile_m, %rows_7", "%tile_n = arith.divsi %program, %tiles_m_4")],
    ),
    "groups that begin anywhere": (GROUPED, [(r"%tile_m_8 = arith.remsi %tile_m, ", "%tile_m_8 = arith.remsi %program, ")]),
    "tiles on two axes, the last first": (
        INDEXED,
        [(r"%m_4 = arith.muli %m, ", "%count = tt.get_num_programs y : i32\n    %next = arith.addi %m, %one : i32\n"
          "    %back = arith.subi %count, %next : i32\n    %m_4 = arith.muli %back, "),
         (r"(    %m = )", "    %one = arith.constant 1 : i32\n" r"\1")],
    ),
    "indices that the loop carries": (
        INDEXED,
        [(r"iter_args\(%total_30 = %cst_3\) -> \(tensor<128x64xi32>\)",
          "iter_args(%total_30 = %cst_3, %here = %m_5) -> (tensor<128x64xi32>, tensor<128xi32>)"),
         (r"%total = scf.for", "%total:2 = scf.for"), (r"arith.sitofp %total ", "arith.sitofp %total#0 "),
         (r"%k_31 = arith.addi %k, %m_5", "%k_31 = arith.addi %here, %origin"),
         (r"(      %k = )", "      %origin = arith.constant dense<0> : tensor<128xi32>\n"
          "      %far = arith.constant dense<128> : tensor<128xi32>\n      %there = arith.addi %here, %far : tensor<128xi32>\n" r"\1"),
         (r"scf.yield %total_66 : tensor<128x64xi32>", "scf.yield %total_66, %there : tensor<128x64xi32>, tensor<128xi32>")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", SAME)
def test_the_same_kernel_written_otherwise(change: str) -> None:
    name, changes = SAME[change]
    assert nest(name, *changes) == nest(name)


def test_sizes_and_strides_may_be_numbers() -> None:
    text = kept(GROUPED).replace("tt.splat %stride_am ", "tt.splat %c512 ").replace("tt.splat %M ", "tt.splat %c300 ")
    text = text.replace("arith.addi %M, %tiles_m", "arith.addi %c300, %tiles_m")
    text = text.replace(
        "    %c63_i32 =",
        "    %c512 = arith.constant 512 : i32\n    %c300 = arith.constant 300 : i32\n    %c63_i32 =",
        1,
    )
    found = read_nest(canonicalize(read_ttir(text)))
    assert (found.a.stride, found.m, found.k) == sizes(512, 300, "K")


def test_an_array_that_the_epilogue_reads_through_pointers() -> None:
    found = nest(GROUPED, *ADDEND)
    (matrix,) = (node for node in walk(found.epilogue) if isinstance(node, LoadMatrix))
    assert matrix == LoadMatrix("d", "f16", size("stride_dm"), transposed=False)
    assert any(isinstance(node, Apply) and node.step == "add" for node in walk(found.epilogue))


REFUSED = {
    "a store to wrapped rows": (
        GROUPED, [(r"%outs = tt.expand_dims %m_read_12", "%outs = tt.expand_dims %m_read_14")],
        r"a store must not wrap \(%\) along dimension 0, got at .*kernels.py:\d+:\d+: tt.store .*: mask it",
    ),
    "rows that nothing bounds": (
        GROUPED,
        [(r"%m_read_14 = arith.remsi %m_read_12, %m_read_13", "%m_read_14 = arith.addi %m_read_12, %next"),
         (r"(    %m_read_13 = )", "    %next = arith.constant dense<1> : tensor<128xi32>\n" r"\1")],
        r"dimension 0 of a tile needs a size, got at .*: %left.*: mask it \(offsets < size\), here or at the store",
    ),
    "rows that start nowhere in particular": (
        GROUPED, [(r"%m_read_14 = arith.remsi %m_read_12, %m_read_13", "%m_read_14 = arith.muli %m_read_12, %m_read_12")],
        "offsets",
    ),
    "a mask of another size": (
        GROUPED, [(r"%4 = tt.splat %M", "%4 = tt.splat %K")], "M is another argument, got at .*: make it a constexpr",
    ),
    "a vector of another size": (
        INDEXED, [(r"%wide_21 = tt.splat %N ", "%wide_21 = tt.splat %K ")], "a vector along n must have the product's size there, N",
    ),
    "a fill value that is not zero": (
        GROUPED,
        [(r"%left_54, %cst_1", "%left_54, %ones"), (r"(    %cst_1 = )", "    %ones = arith.constant dense<1.0> : tensor<128x64xf16>\n" r"\1")],
        "a masked load must give zeros where its mask is false",
    ),
    "a lower bound": (
        GROUPED, [(r"arith.cmpi slt, %lefts_22, %left_52", "arith.cmpi eq, %lefts_22, %left_52")],
        r"a mask must consist of upper bounds .*arith.cmpi eq",
    ),
    "no contiguous dimension": (
        GROUPED,
        [(r"%lefts_24 = tt.broadcast %lefts_22", "%twice = arith.addi %lefts_22, %lefts_22 : tensor<1x64xi32>\n    %lefts_24 = tt.broadcast %twice"),
         (r"tt.addptr %lefts_48, %cst_2", "tt.addptr %lefts_48, %far"), (r"(    %cst_2 = )", "    %far = arith.constant dense<128> : tensor<128x64xi32>\n" r"\1")],
        "one dimension of a tile must be contiguous, got at .*: pass its stride, 1, as a constexpr",
    ),
    "a gather": (
        GROUPED, [(r"%m_read_14 = arith.remsi", "%m_read_14 = arith.xori")], r"offsets are ranges and scalars.*arith.xori",
    ),
    "wrapping along K beside no zeros": (
        INDEXED, [WRAPPING, (r"tt.load %right_63, %right_56", "tt.load %right_63, %right_55")],
        r"rows that wrap \(%\) may reach nothing but a store that masks them, got at .*tt.dot",
    ),
    "a pointer that grows": (
        GROUPED, [(r"tt.addptr %lefts_48, %cst_2", "tt.addptr %lefts_48, %grow"),
                  (r"(      %lefts_60 = )", "      %grow = tt.splat %left : i32 -> tensor<128x64xi32>\n" r"\1")],
        "a pointer that a loop carries must move by one amount for all lanes and iterations",
    ),
    "K that moves too far": (
        GROUPED, [(r"%rights_61 = arith.muli %stride_bk, %c64_i32", "%rights_61 = arith.muli %stride_bk, %c128_i32")],
        "a mask must compare the index that the offsets use with a size, got at .*: use one expression for both",
    ),
    "a tensor that is no argument": (
        GROUPED, [(r"%outs_42 = tt.splat %d ", "%next = tt.addptr %d, %c8_i32 : !tt.ptr<f16>, i32\n    %outs_42 = tt.splat %next ")],
        r"a tile must start at a program's number times a constant, .*kernels.py",
    ),
    "padding with NaN": (
        BLOCKS, [(r"(tt.load %left_\d+ \{[^}]*)padding = 1", r"\1padding = 2")], "a block pointer must read zeros outside its tensor",
    ),
    "a tile computed twice": (
        GROUPED, [(r"%tile_n = arith.divsi %tile_m, %rows_7", "%tile_n = arith.divsi %tile_m, %c8_i32")],
        r"every tile of the output must be computed by exactly one program, got at .*kernels.py",
    ),
    "tiles numbered by another argument": (
        GROUPED, [(r"%of_group = arith.muli %tiles_n_5, %c8_i32", "%of_group = arith.muli %tiles_n_5, %K")],
        "a tile's number may use the program's number and the output's sizes; K is another argument, got at .*: make it a constexpr",
    ),
    "tiles in groups that are too large to try": (
        GROUPED, [(r"%c8_i32 = arith.constant 8 ", "%c8_i32 = arith.constant 512 ")],
        "constants that number tiles are at most 256, not 512",
    ),
    "tiles left out where there are many": (
        GROUPED,
        [(r"%tile_n = arith.divsi %tile_m, %rows_7", "%few = arith.constant 40 : i32\n    %all_n = arith.divsi %tile_m, %rows_7 : i32\n"
          "    %tile_n = arith.minsi %all_n, %few")],
        "every tile of the output must be computed by exactly one program",
    ),
    "tiles numbered by bits": (
        GROUPED, [(r"%tile_n = arith.divsi %tile_m, %rows_7", "%tile_n = arith.shrsi %tile_m, %rows_7")],
        "every tile of the output must be computed by exactly one program",
    ),
    "tiles numbered by rounded numbers": (
        GROUPED,
        [(r"%tile_n = arith.divsi %tile_m, %rows_7",
          "%number = arith.sitofp %tile_m : i32 to f32\n    %rounded = arith.fptosi %number : f32 to i32\n    "
          "%tile_n = arith.divsi %rounded, %rows_7")],
        "a tile's number must be integer arithmetic on program numbers, sizes and constants, got.*arith.fptosi",
    ),
    "rows and columns of one number": (
        GROUPED, [(r"%n_read = arith.muli %tile_n, ", "%n_read = arith.muli %tile_m_9, ")], "the row and the column of a tile must be computed as two numbers",
    ),
    "a program's number in the sum": (
        GROUPED,
        [(r"%result = arith.truncf %total_39", "%number = arith.sitofp %program : i32 to f32\n    %numbers = tt.splat %number : f32 -> "
          "tensor<128x64xf32>\n    %total_40 = arith.addf %total_39, %numbers : tensor<128x64xf32>\n    %result = arith.truncf %total_40")],
        r"a program's number may only select the tile that it computes, got at .*tt.get_program_id x",
    ),
    "tiles along the grid's third axis": (
        GROUPED, [(r"tt.get_program_id x", "tt.get_program_id z")], "tiles must be numbered along the grid's axis x, or along x and y",
    ),
    "a choice by two comparisons": (
        GROUPED, [(r"(    %total_38 = )", "    %either = arith.ori %total_37, %total_37 : tensor<128x64xi1>\n" r"\1"),
                  (r"arith.select %total_37", "arith.select %either")],
        "a choice in an epilogue needs one comparison of floating-point numbers as its condition, got.*arith.ori",
    ),
    "rounding towards zero": (
        "eight_bit_blocks", [(r"rounding = rtne", "rounding = rtz")], r"an epilogue must round to nearest even \(rtne\)",
    ),
    "a reduction": (
        GROUPED, [(r"%total_38 = arith.mulf %total_36#2, %total ", "%total_38 = math.powf %total_36#2, %total ")],
        r"an epilogue may only apply elementwise steps, casts and broadcasts, got at .*math.powf",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_refused(change: str) -> None:
    name, changes, message = REFUSED[change]
    with pytest.raises(UnsupportedKernelError, match=f"(?s){message}") as caught:
        nest(name, *changes)
    # No size changes a gather, a fill value, a pointer's moves, or a store that wraps. Other tiles that wrap may have another form where the
    # size is an argument.
    always = "offsets are ranges", "a masked load must", "a store must not", "a pointer that a loop carries must move"
    assert caught.value.always == message.startswith(always)


def test_comparisons_that_hold_for_nan_choose_the_other_way_round() -> None:
    other = nest(GROUPED, (r"arith.cmpf oge, ", "arith.cmpf ult, "))
    swapped = nest(
        GROUPED, (r"arith.select %total_37, %total_36#2, %total_38", "arith.select %total_37, %total_38, %total_36#2")
    )
    assert other == swapped
    assert other != nest(GROUPED)


def test_changed_reads_what_it_changed() -> None:
    assert "arith.xori" in str(changed(GROUPED, (r"%m_read_14 = arith.remsi", "%m_read_14 = arith.xori")))


def test_descriptors_from_the_host_say_what_a_launch_must_find_equal() -> None:
    assert nest("given_descriptors").conditions.equal == (
        sizes("K", "a_tiles.shape.1"),
        sizes("a_tiles.shape.0", "d_tiles.shape.0"),
        sizes("a_tiles.shape.1", "b_tiles.shape.0"),
        sizes("b_tiles.shape.1", "d_tiles.shape.1"),
    )
    assert nest("made_descriptors").conditions.equal == ()


def test_a_loop_over_a_constant_k_may_go_beyond_it() -> None:
    text = kept("made_descriptors")
    text = re.sub(r"\[(%[MN]), %K\]", r"[\1, %c500]", text)
    text = re.sub(r"(scf.for %step\w* = %\w+ to) %\w+ step", r"\1 %c8 step", text)
    text = text.replace(
        "    %c1_i32 =", "    %c500 = arith.constant 500 : i32\n    %c8 = arith.constant 8 : i32\n    %c1_i32 =", 1
    )
    found = read_nest(canonicalize(read_ttir(text)))
    assert found.k.constant == 500
    with pytest.raises(UnsupportedKernelError, match="the loop over K must run from 0 to 500 in steps of 64"):
        read_nest(canonicalize(read_ttir(text.replace("constant 8 :", "constant 7 :"))))


@pytest.mark.parametrize(("mask", "multiples"), [("", (("M", 128), ("N", 64))), (", %8", (("N", 64),))])
def test_stores_without_masks_are_of_whole_tiles(mask: str, multiples: tuple[tuple[str, int], ...]) -> None:
    """Loads say how large the output is; that its tiles are whole is for the launch to check."""
    found = nest(GROUPED, (r"tt.store %outs_47, %result, %10", f"tt.store %outs_47, %result{mask}"))
    expected = nest(GROUPED)
    assert found == replace(expected, conditions=replace(expected.conditions, multiples=multiples))


def test_sizes_that_nothing_says_are_the_grid_s() -> None:
    found = nest("unmasked_pointers")
    assert (found.m, found.n, found.k) == sizes("128*programs x", "64*programs y", "K")
    assert (str(found.m), found.conditions.multiples, found.conditions.programs) == ("128*programs x", (), None)


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "describe-tiles", before("describe-tiles", "whole_k"))


def test_columns_that_wrap_may_not_pass_to_another_iteration() -> None:
    """There the mask of the other operand, with the same text, speaks of other columns."""
    carried = changed(
        INDEXED,
        WRAPPING,
        (r"tt.dot %left_48, %right_64", "tt.dot %before, %right_64"),
        (
            r"iter_args\(%total_30 = %cst_3\) -> \(tensor<128x64xi32>\)",
            "iter_args(%total_30 = %cst_3, %before = %cst_0) -> (tensor<128x64xi32>, tensor<128x128xi8>)",
        ),
        (
            r"scf.yield (%total_\d+) : tensor<128x64xi32>",
            r"scf.yield \1, %left_48 : tensor<128x64xi32>, tensor<128x128xi8>",
        ),
        (r"%total = scf.for", "%total, %rest = scf.for"),
    )
    with pytest.raises(
        UnsupportedKernelError, match=r"rows that wrap \(%\) may reach nothing .* got at .*kernels.py:109"
    ):
        describe_tiles(carried)
