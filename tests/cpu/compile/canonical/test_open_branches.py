"""Branches that each call of a product takes: what is opened, what the launch must check for it, and what stays."""

from __future__ import annotations

import pytest

from louver.compile.canonical.open_branches import open_branches
from louver.compile.condition_attributes import conditions
from louver.ir.context import parse_ir
from support.golden import Golden
from support.pass_golden import check_pass


def kernel(condition: str, *, empty_first: bool = False, after: str = "") -> str:
    """A store in a branch by %go, in its second region if `empty_first`."""
    store = "tt.store %y, %zero : !tt.ptr<i32>"
    first, second = ("", store) if empty_first else (store, "")
    return f"""builtin.module {{
  tt.func public @k(%y: !tt.ptr<i32>, %bias: !tt.ptr<f16>, %M: i32, %N: i32, %flag: i32) attributes {{noinline = false}} {{
    %zero = arith.constant 0 : i32
    %none = arith.constant 0 : i64
    %tile = arith.constant 64 : i32
    %m = tt.get_program_id x : i32
    %n = tt.get_program_id y : i32
    %row = arith.muli %m, %tile : i32
    %column = arith.muli %n, %tile : i32
    {condition}
    scf.if %go {{
      {first}
    }} else {{
      {second}
    }}
    {after}
    tt.return
  }}
}}
"""


ADDRESS = "%p = tt.ptr_to_int %bias : !tt.ptr<f16> -> i64\n"
EMPTY = "%count = arith.muli %M, %N : i32\n"
OUTSIDE = "%below = arith.cmpi sge, %row, %M : i32\n%right = arith.cmpi sge, %column, %N : i32\n"
OPENED = {
    "an array that is given": (kernel(ADDRESS + "%go = arith.cmpi ne, %p, %none : i64"), ("bias",), 0),
    "an array that is missing": (kernel(ADDRESS + "%go = arith.cmpi eq, %none, %p : i64", empty_first=True), ("bias",), 0),
    "an array, and more after it": (
        kernel(ADDRESS + "%go = arith.cmpi ne, %p, %none : i64", after="tt.store %y, %tile : !tt.ptr<i32>"), ("bias",), 0,
    ),
    "an empty output": (kernel(EMPTY + "%go = arith.cmpi eq, %count, %zero : i32", empty_first=True), ("M", "N"), 0),
    "an empty output of a constant width": (
        kernel("%count = arith.muli %M, %tile : i32\n%go = arith.cmpi eq, %count, %zero : i32", empty_first=True), ("M",), 0,
    ),
    "a size above zero": (kernel("%go = arith.cmpi sgt, %M, %zero : i32"), ("M",), 0),
    "a tile outside": (kernel("%go = arith.cmpi sge, %row, %M : i32", empty_first=True), (), 1),
    "a tile inside": (kernel("%go = arith.cmpi sgt, %M, %row : i32"), (), 1),
    "a tile outside along either axis": (kernel(OUTSIDE + "%go = arith.ori %below, %right : i1", empty_first=True), (), 2),
}  # fmt: skip
STAYS = {
    "a number that a call decides": kernel(
        "%go = arith.cmpi ne, %flag, %zero : i32", after="tt.store %y, %tile : !tt.ptr<i32>"
    ),
    "tiles beyond the output alone": kernel("%go = arith.cmpi sge, %row, %M : i32"),
    "a tile outside along both axes": kernel(OUTSIDE + "%go = arith.andi %below, %right : i1", empty_first=True),
    "an array that is given has no part": kernel(ADDRESS + "%go = arith.cmpi sgt, %p, %none : i64"),
    "a number below zero times a size": kernel(
        "%low = arith.constant -4 : i32\n%count = arith.muli %M, %low : i32\n%go = arith.cmpi sgt, %count, %zero : i32"
    ),
    "a size that is zero": kernel("%go = arith.cmpi eq, %M, %zero : i32"),
}


@pytest.mark.parametrize("form", OPENED)
def test_what_is_opened_and_what_the_launch_checks(form: str) -> None:
    text, positive, assumed = OPENED[form]
    module = parse_ir(text)
    open_branches(module)
    module.verify()
    names = [op.name for op in module.walk()]
    assert "scf.if" not in names
    assert names.count("tt.store") == text.count("tt.store")
    assert names.count("llvm.intr.assume") == assumed
    (function,) = module.body.ops
    found = conditions(function)  # pyright: ignore[reportArgumentType]
    assert (found.positive, found.guarded) == (positive, assumed > 0)


@pytest.mark.parametrize("form", STAYS)
def test_what_stays(form: str) -> None:
    module = parse_ir(STAYS[form])
    before = str(module)
    open_branches(module)
    assert str(module) == before


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "open-branches", parse_ir(OPENED["a tile outside along either axis"][0]))
