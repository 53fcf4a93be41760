"""Tiles that are stored in parts are stored at once, with the same results; stores that are no parts of a tile stay apart."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.canonical.join_stores import join_stores
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from support.golden import Golden
from support.pass_golden import check_pass

HALVES = """
    %two = tt.reshape %whole : tensor<4x8xf32> -> tensor<4x2x4xf32>
    %last = tt.trans %two {order = array<i32: 0, 2, 1>} : tensor<4x2x4xf32> -> tensor<4x4x2xf32>
    %a, %b = tt.split %last : tensor<4x4x2xf32> -> tensor<4x4xf32>"""
BETWEEN = """
    %two = tt.reshape %whole : tensor<4x8xf32> -> tensor<4x4x2xf32>
    %a, %b = tt.split %two : tensor<4x4x2xf32> -> tensor<4x4xf32>"""


def kernel(split: str, low: str, high: str, *, first: str = "%n", then: str = "%next", between: str = "") -> str:
    """Two halves of a tile of 4 × 8, what `low` and `high` make of them, %c and %d, stored at two places of a row."""
    return f"""builtin.module {{
  tt.func public @k(%x: !tt.ptr<f32>, %v: !tt.ptr<f32>, %y: !tt.ptr<f32>, %N: i32) attributes {{noinline = false}} {{
    %zero = arith.constant 0 : i32
    %four = arith.constant 4 : i32
    %eight = arith.constant 8 : i32
    %step = arith.extsi %N : i32 to i64
    %in = tt.make_tensor_descriptor %x, [4, %N], [%step, 1] : <f32>, <tensor<4x8xf32>>
    %vector = tt.make_tensor_descriptor %v, [%N], [1] : <f32>, <tensor<4xf32>>
    %out = tt.make_tensor_descriptor %y, [4, %N], [%step, 1] : <f32>, <tensor<4x4xf32>>
    %program = tt.get_program_id x : i32
    %n = arith.muli %program, %eight : i32
    %next = arith.addi %four, %n : i32
    %whole = tt.descriptor_load %in[0, %n] : !tt.tensordesc<tensor<4x8xf32>> -> tensor<4x8xf32>{split}
    {low}
    tt.descriptor_store %out[0, {first}], %c : !tt.tensordesc<tensor<4x4xf32>>, tensor<4x4xf32>
    {between}
    {high}
    tt.descriptor_store %out[0, {then}], %d : !tt.tensordesc<tensor<4x4xf32>>, tensor<4x4xf32>
    tt.return
  }}
}}
"""


def biased(half: str, at: str, to: str, name: str) -> str:
    return f"""
    %{name}v = tt.descriptor_load %vector[{at}] : !tt.tensordesc<tensor<4xf32>> -> tensor<4xf32>
    %{name}e = tt.expand_dims %{name}v {{axis = 0 : i32}} : tensor<4xf32> -> tensor<1x4xf32>
    %{name}b = tt.broadcast %{name}e : tensor<1x4xf32> -> tensor<4x4xf32>
    {to} = arith.addf {half}, %{name}b : tensor<4x4xf32>"""


def twice(half: str, to: str) -> str:
    return f"{to} = arith.addf {half}, {half} : tensor<4x4xf32>"


LOW, HIGH = twice("%a", "%c"), twice("%b", "%d")
JOINED = {
    "halves": kernel(HALVES, LOW, HIGH),
    "the second half first": kernel(HALVES, twice("%b", "%c"), twice("%a", "%d"), first="%next", then="%n"),
    "parts of a bias": kernel(HALVES, biased("%a", "%n", "%c", "p"), biased("%b", "%next", "%d", "q")),
}
APART = {
    "every other column": kernel(BETWEEN, LOW, HIGH),
    "halves exchanged": kernel(HALVES, twice("%b", "%c"), twice("%a", "%d")),
    "another place": kernel(HALVES, LOW, HIGH, then="%zero"),
    "another function": kernel(HALVES, LOW, "%d = arith.mulf %b, %b : tensor<4x4xf32>"),
    "operands of two parts": kernel(HALVES, "%c = arith.mulf %a, %b : tensor<4x4xf32>", "%d = arith.mulf %b, %b : tensor<4x4xf32>"),
    "one part of a bias": kernel(HALVES, biased("%a", "%n", "%c", "p"), biased("%b", "%n", "%d", "q")),
    "a store between": kernel(
        HALVES, LOW, HIGH, between="tt.descriptor_store %in[0, %zero], %whole : !tt.tensordesc<tensor<4x8xf32>>, tensor<4x8xf32>"
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", [*JOINED, *APART])
def test_kernels_keep_their_results(form: str, rng: np.random.Generator) -> None:
    before = parse_ir({**JOINED, **APART}[form])
    after = before.clone()
    join_stores(after)
    after.verify()
    many = [sum(op.name == "tt.descriptor_store" for op in each.walk()) for each in (before, after)]
    assert many[1] == (1 if form in JOINED else many[0])
    x, v = rng.standard_normal((4, 14), np.float32), rng.standard_normal(14, np.float32)
    found = [np.full((4, 14), -1, np.float32) for _ in range(2)]
    for module, y in zip((before, after), found, strict=True):
        run_kernel(module, (2,), {"x": x.copy(), "v": v, "y": y, "N": 14})
    np.testing.assert_array_equal(*found)
    assert (found[0] != -1).any()


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "join-stores", parse_ir(JOINED["parts of a bias"]))
