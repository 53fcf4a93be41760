"""Kernels as users write them, pass by pass: what becomes of them, what a launch must check, and what is refused at its line."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from louver.compile.canonical.canonicalize import canonicalize
from louver.compile.canonical.unroll_programs import unroll_programs
from louver.compile.pipeline import compile_tiles
from louver.compile.plan.nest import read_nest
from louver.frontend.ttir import read_ttir
from louver.ir.interpret import InterpretationError
from louver.ir.polynomial import Polynomial
from louver.ir.product import Apply, Number, walk
from louver.ir.refusal import UnsupportedKernelError
from support.compiled import read_copy
from support.interpreted import run_triton, triton_given
from support.sizes import size, sizes
from support.triton.cases import CASES, kept
from support.triton.texts import changed, nest

PERSISTENT, PAIR, LAYER, WHOLE = "persistent_groups", "gated_pointers", "weight_pointers", "whole_k"
LOOP = r"scf.for %tile = %0 to %1 step %2"
CONSTANT = [
    (LOOP, "scf.for %tile = %0 to %1 step %sms"),
    (r"(    %0 = tt.get_program_id)", r"    %sms = arith.constant 132 : i32\n\1"),
]


def test_a_sparse_weight_on_the_right_is_a_transposed_product() -> None:
    found = nest(LAYER)
    assert (found.a.argument, found.b.argument, found.store.argument) == ("w", "x", "y")
    assert (str(found.m), str(found.n), found.tile_m, found.tile_n) == ("N", "M", 128, 64)
    assert found.store.transposed and found.a.k_major and found.b.k_major
    assert nest("weight_descriptors").b == found.b
    assert replace(nest("weight_blocks"), name="", arguments=()) == replace(found, name="", arguments=())


TURNED = [
    (r"louver.sparse.NV24 = 1 : i32", "louver.sparse.NV24 = 2 : i32"),
    (r"\[%c1_i64, %right_5\]", "[%right_5, %c1_i64]"),
    (r"\[%c0_i32, %column_1\] \{order = array<i32: 0, 1>\}", "[%c0_i32, %column_1] {order = array<i32: 1, 0>}"),
]
"""Changes to `weight_blocks` by which its weight is stored [K, N], and sparse along K."""


def test_block_pointers_to_weights_that_are_sparse_along_their_rows_are_descriptors() -> None:
    found = nest("weight_blocks", *TURNED)
    assert (str(found.a.extent), str(found.a.stride), found.a.k_major) == ("N", "w.K", True)
    assert [(name, str(apart)) for name, apart in found.conditions.rows_apart] == [("w", "stride_w")]
    assert not compile_tiles(changed("weight_blocks", *TURNED)).signature.computed


def test_a_pair_is_one_operand_of_two_arguments() -> None:
    found = nest(PAIR)
    assert found.gated and found.a.gated == ("gate", "up") and found.a.argument == "gate_up"
    assert str(found.a.extent) == "2*M"
    # Whole rows of 8 are a condition of a product alone: register tiles run other calls.
    rows = Polynomial.atom("M")
    whole = rows // Polynomial.number(8) * 8, rows
    assert (found.conditions.equal, found.conditions.multiples) == ((whole, sizes("stride_gate", "stride_up")), ())
    layer = nest("gated_layer")
    assert layer.store.transposed and layer.a.gated == ("gate", "up")
    assert list(map(str, layer.conditions.equal[0])) == ["8*(N/8)", "N"] and len(layer.conditions.equal) == 1
    assert [argument.name for argument in layer.arguments[:3]] == ["y", "x", "gate_up"]


def test_a_product_without_a_loop_says_how_large_k_may_be() -> None:
    found = nest(WHOLE)
    assert (found.tile_k, found.k, found.conditions.at_most) == (64, size("K"), ((size("K"), 64),))
    assert (nest("whole_blocks").m, nest("whole_blocks").k) == sizes(128, 64) and not nest(
        "whole_blocks"
    ).conditions.at_most


def test_a_loop_to_a_number_says_how_large_k_may_be() -> None:
    text = re.sub(r"to %K step %c64_i32", "to %c128 step %c64_i32", kept(LAYER))
    text = text.replace("    %c0_i32 =", "    %c128 = arith.constant 128 : i32\n    %c0_i32 =", 1)
    assert read_nest(canonicalize(read_ttir(text))).conditions.at_most == ((size("K"), 128),)


def test_how_persistent_programs_go_on() -> None:
    assert (nest(PERSISTENT).conditions.programs, nest(PERSISTENT, *CONSTANT).conditions.programs) == (0, 132)
    assert nest("grouped_pointers").conditions.programs is None


COUNTED = [
    (r"scf.for %tile = %0 to %1 step %2  : i32 \{", "%last = scf.for %tile = %0 to %1 step %2 iter_args(%count = %before) -> (i32) : i32 {\n"
     "      %again = arith.addi %count, %2 : i32"),
    (r"(%first_m = arith.divsi) %tile,", r"\1 %again,"),
    (r"    %last = scf.for", "    %before = arith.subi %0, %2 : i32\n    %last = scf.for"),
    (r"(tt.descriptor_store %d_tiles.*)", r"\1" "\n      scf.yield %again : i32"),
]  # fmt: skip
"""The tile's number once more, carried by the loop and a step ahead of it, as Triton's own persistent kernels have it."""


def test_tiles_that_are_counted_twice() -> None:
    assert nest(PERSISTENT, *COUNTED) == nest(PERSISTENT)


@pytest.mark.parametrize("programs", [1, 3, 50])
def test_persistent_programs_whatever_their_number(rng: np.random.Generator, programs: int) -> None:
    operands = triton_given(rng, PERSISTENT, 300, 150, 70)
    module = read_copy(kept(PERSISTENT))
    expected = run_triton(module, operands, programs=(programs,))
    operands.assert_close(expected)
    tiles = 3 * 3
    unroll_programs(module)
    np.testing.assert_array_equal(run_triton(module, operands, programs=(tiles,)), expected)
    with pytest.raises(InterpretationError, match="a condition of tl.assume must be true"):
        run_triton(module, operands, programs=(tiles + 1,))


def test_branches_by_numbers_become_choices() -> None:
    numbers = [node for node in walk(nest(PERSISTENT).epilogue) if isinstance(node, Number)]
    assert {number.argument for number in numbers} == {"limit", "mode"}
    steps = {node.step for node in walk(nest(PERSISTENT).epilogue) if isinstance(node, Apply)}
    assert {"where_equal", "where_greater"} <= steps


def test_counts_rounded_down_want_multiples() -> None:
    found = nest("grouped_pointers", (r"%tiles_n_5 = arith.divsi %tiles_n,", "%tiles_n_5 = arith.divsi %N,"))
    expected = nest("grouped_pointers")
    assert found == replace(expected, conditions=replace(expected.conditions, multiples=(("N", 64),)))


REFUSED = {
    "numbers of tiles by a size itself": (
        "grouped_pointers", [(r"%tile_n = arith.divsi %tile_m, %rows_7", "%odd = arith.remsi %N, %c8_i32 : i32\n"
                              "    %same = arith.subi %odd, %odd : i32\n    %tile_n_0 = arith.divsi %tile_m, %rows_7 : i32\n"
                              "    %tile_n = arith.addi %tile_n_0, %same")],
        r"a tile's number may use N only to count tiles, as tl.cdiv\(size, 64\)",
    ),
    "a persistent loop that ends elsewhere": (
        PERSISTENT, [(r"%1 = arith.muli %tiles_m_3, %tiles_n_4", "%1 = arith.muli %tiles_m_3, %tiles_m_3")],
        r"every tile of the output must be computed by exactly one program, got at .*weights.py",
    ),
    "a persistent loop by another axis": (
        PERSISTENT, [(r"%2 = tt.get_num_programs x", "%2 = tt.get_num_programs y")], r"tiles must be numbered along the grid's axis x, or along x and y.*weights.py",
    ),
    "a branch that reads": (
        PERSISTENT,
        [(r"%total_14 = arith.minnumf %total, %total_13", "%c = tt.load %d : !tt.ptr<f16>\n        %c32 = arith.extf %c : f16 to f32\n"
          "        %cs = tt.splat %c32 : f32 -> tensor<128x64xf32>\n        %total_14 = arith.addf %total, %cs")],
        r"a branch in an epilogue must not read or write memory.*weights.py:\d+:\d+: %",
    ),
    "a branch by an integer beyond f32": (
        PERSISTENT, [(r"%6 = arith.cmpi eq, %mode, %c1_i32", "%big = arith.constant 16777217 : i32\n      %6 = arith.cmpi eq, %mode, %big")],
        "an integer argument must be compared with a constant below 16777216, got .*weights.py",
    ),
    "a branch by two arguments": (
        PERSISTENT, [(r"%6 = arith.cmpi eq, %mode, %c1_i32", "%6 = arith.cmpi eq, %mode, %M")],
        "an integer argument must be compared with a constant below",
    ),
    "a branch by unsigned numbers": (
        PERSISTENT, [(r"%6 = arith.cmpi eq, %mode", "%6 = arith.cmpi ult, %mode")], "a choice in an epilogue needs one comparison of numbers",
    ),
    "gate and up of two sizes": (
        "gated_layer", [(r"%ups = tt.make_tensor_descriptor %up, \[%N,", "%ups = tt.make_tensor_descriptor %up, [%M,")],
        r"two sparse operands of one dense operand .* must have one shape and one row stride, got at .*weights.py:\d+:\d+: %ups",
    ),
    "gate and up of two dense operands": (
        "gated_layer", [(r"tt.descriptor_load %ups(_\d+)?\[%column(_\d+)?, %k\]", r"tt.descriptor_load %ups\1[%row_1, %k]")],
        r"a stored tile must come from one sum of products, in one orientation; there are 2, got at .*weights.py",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_refused(change: str) -> None:
    name, changes, message = REFUSED[change]
    with pytest.raises(UnsupportedKernelError, match=f"(?s){message}"):
        nest(name, *changes)


def test_a_pair_of_which_one_part_is_added_elsewhere_stays_two() -> None:
    """Refused, and not fused: the second sum starts at ones."""
    changes = [
        (r"%two_6 = %cst_0", "%two_6 = %ones"),
        (r"(    %c1_i64 =)", r"    %ones = arith.constant dense<1.0> : tensor<64x64xf32>\n\1"),
    ]
    with pytest.raises(UnsupportedKernelError, match="one sum of products, in one orientation; there are 2"):
        nest("gated_layer", *changes)


def test_kernels_without_these_styles_stay_as_they_are() -> None:
    for name in ("made_descriptors", "grouped_pointers"):
        found = nest(name)
        assert (found.conditions.at_most, found.conditions.multiples, found.conditions.programs, found.a.gated) == (
            (),
            (),
            None,
            None,
        )
    assert set(CASES) > {PERSISTENT, PAIR, LAYER, WHOLE}
    assert str(changed(LAYER)) == str(read_copy(kept(LAYER)))
