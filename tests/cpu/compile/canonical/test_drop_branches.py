"""The arm stays that every program takes; a branch stays that may take the other one."""

from __future__ import annotations

import pytest
from xdsl.dialects import scf

from louver.compile.canonical.drop_branches import drop_branches
from louver.ir.context import parse_ir
from louver.ir.tile import StoreOp
from support.golden import Golden
from support.pass_golden import check_pass


def kernel(compare: str) -> str:
    """A program stores 1 where its remainder by 8 compares as asked, else 2."""
    return f"""builtin.module {{
  tt.func public @k(%y: !tt.ptr<i32>, %more: i32) attributes {{noinline = false}} {{
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c7 = arith.constant 7 : i32
    %c8 = arith.constant 8 : i32
    %c9 = arith.constant 9 : i32
    %x = tt.get_program_id x : i32
    %part = arith.remsi %x, %c8 : i32
    %asked = arith.cmpi {compare} : i32
    %value = scf.if %asked -> (i32) {{
      %one = arith.addi %c1, %x : i32
      scf.yield %one : i32
    }} else {{
      %two = arith.muli %c2, %x : i32
      scf.yield %two : i32
    }}
    tt.store %y, %value : !tt.ptr<i32>
    tt.return
  }}
}}
"""


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "drop-branches", parse_ir(kernel("slt, %part, %c8")))


@pytest.mark.parametrize(
    ("compare", "kept"),
    [
        ("slt, %part, %c8", 0),
        ("slt, %part, %c9", 0),
        ("slt, %part, %c7", 1),
        ("slt, %part, %more", 1),
        ("sle, %part, %c8", 1),
        ("slt, %c7, %part", 1),
        ("slt, %x, %c8", 1),
    ],
)
def test_branches_that_stay(compare: str, kept: int) -> None:
    module = parse_ir(kernel(compare))
    drop_branches(module)
    module.verify()
    assert sum(isinstance(op, scf.IfOp) for op in module.walk()) == kept
    assert sum(isinstance(op, StoreOp) for op in module.walk()) == 1
