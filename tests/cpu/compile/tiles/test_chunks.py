"""The number of neighbouring bytes that a load may move together: by alignment, steps, masks, and induction over loops."""

from __future__ import annotations

import pytest

from louver.compile.plan.feeds.chunks import CHUNK, GUESS, find_chunks
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp, LoadOp

KERNEL = """tt.func public @k(%a: !tt.ptr<f16>, %n: i32, %pitch: i32, %from: !tt.ptr<i32>) {{
  %zero = arith.constant 0 : i32
  %four = arith.constant 4 : i32
  %three = arith.constant 3 : i32
  %size = arith.constant 64 : i32
  %pid = tt.get_program_id x : i32
  %first = arith.muli %pid, %size : i32
  %r = tt.make_range {{start = 0 : i32, end = 64 : i32}} : tensor<64xi32>
  %f = tt.splat %first : i32 -> tensor<64xi32>
  %place = arith.addi %f, %r : tensor<64xi32>
  %limit = tt.splat %n : i32 -> tensor<64xi32>
  %base = tt.splat %a : !tt.ptr<f16> -> tensor<64x!tt.ptr<f16>>
  {body}
  tt.return
}}"""

LOAD = """%p = tt.addptr %base, {at} : tensor<64x!tt.ptr<f16>>, tensor<64xi32>
  %x = tt.load %p{mask} : tensor<64x!tt.ptr<f16>>"""

MASKED = "%m = arith.cmpi slt, %place, %limit : tensor<64xi32>\n  "
PLAIN = LOAD.format(at="%place", mask="")
WITH_MASK = MASKED + LOAD.format(at="%place", mask=", %m")


def moved(by: str) -> str:
    """The tile that starts so many elements further on."""
    return f"""%s = tt.splat %{by} : i32 -> tensor<64xi32>
  %q = arith.addi %place, %s : tensor<64xi32>
  {LOAD.format(at="%q", mask="")}"""


WRAPPED = f"%w = arith.remsi %place, %limit : tensor<64xi32>\n  {LOAD.format(at='%w', mask='')}"
BACK = f"%w = arith.subi %r, %f : tensor<64xi32>\n  %v = arith.remsi %w, %limit : tensor<64xi32>\n  {LOAD.format(at='%v', mask='')}"
TWICE = f"%w = arith.addi %place, %place : tensor<64xi32>\n  {LOAD.format(at='%w', mask='')}"
GATHERED = """%g0 = tt.splat %from : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>>
  %g1 = tt.addptr %g0, %place : tensor<64x!tt.ptr<i32>>, tensor<64xi32>
  %g = tt.load %g1 : tensor<64x!tt.ptr<i32>>
  """ + LOAD.format(at="%g", mask="")
CARRIED = """%end = scf.for %i = %zero to %n step %four iter_args(%c = %zero) -> (i32) : i32 {{
    {inner}
    %next = arith.addi %c, {step} : i32
    scf.yield %next : i32
  }}"""


@pytest.mark.parametrize(
    ("body", "multiples", "chunk"),
    [
        (PLAIN, (16, 1, 1, 1), 16),
        (PLAIN, (8, 1, 1, 1), 8),
        (PLAIN, (4, 1, 1, 1), 4),
        (PLAIN, (2, 1, 1, 1), 0),
        (WITH_MASK, (16, 16, 1, 1), 16),
        (WITH_MASK, (16, 4, 1, 1), 8),
        (WITH_MASK, (16, 1, 1, 1), 0),
        (moved("pitch"), (16, 1, 8, 1), 16),
        (moved("pitch"), (16, 1, 2, 1), 4),
        (moved("pitch"), (16, 1, 1, 1), 0),
        (WRAPPED, (16, 8, 1, 1), 16),
        (WRAPPED, (16, 2, 1, 1), 4),
        (WRAPPED, (16, 1, 1, 1), 0),
        (BACK, (16, 16, 1, 1), 0),
        (TWICE, (16, 1, 1, 1), 0),
        (GATHERED, (16, 1, 1, 16), 0),
        (CARRIED.format(inner=moved("c"), step="%size"), (16, 1, 1, 1), 16),
        (CARRIED.format(inner=moved("c"), step="%four"), (16, 1, 1, 1), 8),
        (CARRIED.format(inner=moved("c"), step="%pitch"), (16, 1, 2, 1), 4),
        (CARRIED.format(inner=moved("c"), step="%three"), (16, 1, 1, 1), 0),
        (CARRIED.format(inner=moved("i"), step="%three"), (16, 1, 1, 1), 8),
    ],
)  # fmt: skip
def test_chunks(body: str, multiples: tuple[int, ...], chunk: int) -> None:
    module = parse_ir(KERNEL.format(body=body))
    function = next(op for op in module.walk() if isinstance(op, FuncOp))
    find_chunks(function, multiples)
    load = [op for op in function.walk() if isinstance(op, LoadOp)][-1]
    found = load.attributes.get(CHUNK)
    assert (found is None) == (chunk == 0)
    if chunk:
        assert str(found) == f"array<i64: 0, {chunk}>"
    # The attribute is text too.
    assert str(parse_ir(str(module))) == str(module)


IN_A_LOOP = """tt.func public @k(%a: !tt.ptr<f16>, %table: !tt.ptr<i32>, %pitch: i32) {{
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %n = arith.constant 8 : i32
  %none = arith.constant dense<0.0> : tensor<16x16xf32>
  %r = tt.make_range {{start = 0 : i32, end = 16 : i32}} : tensor<16xi32>
  %rows = tt.expand_dims %r {{axis = 1 : i32}} : tensor<16xi32> -> tensor<16x1xi32>
  %columns = tt.expand_dims %r {{axis = 0 : i32}} : tensor<16xi32> -> tensor<1x16xi32>
  %p0 = tt.splat %pitch : i32 -> tensor<16x1xi32>
  %p1 = arith.muli %rows, %p0 : tensor<16x1xi32>
  %p2 = tt.broadcast %p1 : tensor<16x1xi32> -> tensor<16x16xi32>
  %base = tt.splat %a : !tt.ptr<f16> -> tensor<16x16x!tt.ptr<f16>>
  %line = tt.addptr %base, %p2 : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
  %d = scf.for %i = %zero to %n step %one iter_args(%c = %none) -> (tensor<16x16xf32>) : i32 {{
    %t0 = tt.addptr %table, %i : !tt.ptr<i32>, i32
    %t = tt.load %t0 : !tt.ptr<i32>
    %s = tt.splat %t : i32 -> tensor<1x16xi32>
    {place}
    %q = tt.broadcast %w : tensor<1x16xi32> -> tensor<16x16xi32>
    %p = tt.addptr %line, %q : tensor<16x16x!tt.ptr<f16>>, tensor<16x16xi32>
    {mask}
    %x = tt.load %p{masked} : tensor<16x16x!tt.ptr<f16>>
    %next = tt.dot %x, %x, %c : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf32>
    scf.yield %next : tensor<16x16xf32>
  }}
  tt.return
}}"""
PLACE = "%w = arith.addi %s, %columns : tensor<1x16xi32>"
BELOW = """%m0 = arith.cmpi slt, %columns, %s : tensor<1x16xi32>
    %m = tt.broadcast %m0 : tensor<1x16xi1> -> tensor<16x16xi1>"""


@pytest.mark.parametrize(
    ("place", "mask", "pitch", "guess"),
    [
        (PLACE, "", 16, 16),
        (PLACE, "", 4, 8),
        (PLACE, "", 1, 0),
        ("%w = arith.remsi %columns, %s : tensor<1x16xi32>", "", 16, 0),
        ("%w = arith.divsi %columns, %s : tensor<1x16xi32>", "", 16, 0),
        ("%w = arith.muli %columns, %s : tensor<1x16xi32>", "", 16, 0),
        (PLACE, BELOW, 16, 0),
    ],
    ids=["moved", "by a pitch of 4", "by any pitch", "wrapped", "divided", "spread", "masked"],
)
def test_alignment_of_loaded_numbers_is_guessed(place: str, mask: str, pitch: int, guess: int) -> None:
    text = IN_A_LOOP.format(place=place, mask=mask, masked=", %m" if mask else "")
    function = next(op for op in parse_ir(text).walk() if isinstance(op, FuncOp))
    find_chunks(function, (16, 16, pitch))
    load = [op for op in function.walk() if isinstance(op, LoadOp)][-1]
    assert CHUNK not in load.attributes
    assert str(load.attributes.get(GUESS)) == (f"array<i64: 1, {guess}>" if guess else "None")
