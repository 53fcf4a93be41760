"""Ends of loops that leave a step of a size, compared with their values for many sizes."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith
from xdsl.ir import SSAValue

from louver.analysis.residues import size_before, size_of_steps
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp

KERNEL = """builtin.module {{
  tt.func public @k(%y: !tt.ptr<i32>, %K: i32, %L: i32) attributes {{noinline = false}} {{
    %c1 = arith.constant 1 : i32
    %c7 = arith.constant 7 : i32
    %c8 = arith.constant 8 : i32
    %c16 = arith.constant 16 : i32
    %sum = arith.addi %K, %L : i32
    {operations}
    tt.store %y, %end : !tt.ptr<i32>
    tt.return
  }}
}}
"""
UP = "%more = arith.addi %K, %c7 : i32\n%steps = arith.divsi %more, %c8 : i32\n"
BEFORE = {
    "down": "%q = arith.divsi %K, %c8 : i32\n%end = arith.muli %q, %c8 : i32",
    "without the rest": "%r = arith.remsi %K, %c8 : i32\n%end = arith.subi %K, %r : i32",
    "the last step": UP + "%q = arith.subi %steps, %c1 : i32\n%end = arith.muli %q, %c8 : i32",
    "a sum": "%q = arith.divsi %sum, %c8 : i32\n%end = arith.muli %c8, %q : i32",
}
NOT_BEFORE = {
    "up": UP + "%end = arith.muli %steps, %c8 : i32",
    "two steps": UP
    + "%q = arith.subi %steps, %c1 : i32\n%p = arith.subi %q, %c1 : i32\n%end = arith.muli %p, %c8 : i32",
    "another step": "%q = arith.divsi %K, %c16 : i32\n%end = arith.muli %q, %c16 : i32",
    "less": "%q = arith.divsi %K, %c8 : i32\n%end = arith.muli %q, %c7 : i32",
    "the size": "%end = arith.addi %K, %c8 : i32",
    "another size": "%r = arith.remsi %L, %c8 : i32\n%end = arith.subi %K, %r : i32",
}


def read(operations: str) -> tuple[SSAValue, FuncOp]:
    """The number that a kernel stores."""
    (function,) = (op for op in parse_ir(KERNEL.format(operations=operations)).body.ops if isinstance(op, FuncOp))
    return next(op.operands[1] for op in function.body.block.ops if op.name == "tt.store"), function


@pytest.mark.parametrize("form", BEFORE)
def test_ends_that_leave_at_most_a_step(form: str) -> None:
    end, function = read(BEFORE[form])
    size = size_before(end, 8)
    assert size is not None
    named = function.body.block.args[1]
    assert size is named if form != "a sum" else isinstance(size.owner, arith.AddiOp)


@pytest.mark.parametrize("form", NOT_BEFORE)
def test_ends_that_do_not(form: str) -> None:
    assert size_before(read(NOT_BEFORE[form])[0], 8) is None


@pytest.mark.parametrize(
    ("operations", "known"),
    [
        ("%end = arith.divsi %K, %c8 : i32", True),
        (UP + "%end = arith.subi %steps, %c1 : i32", True),
        (UP + "%p = arith.subi %steps, %c1 : i32\n%end = arith.subi %p, %c1 : i32", False),
        ("%end = arith.subi %K, %c1 : i32", False),
    ],
)
def test_numbers_of_steps(operations: str, known: bool) -> None:
    found = size_of_steps(read(operations)[0])
    assert (found is not None) == known
    assert found is None or found[1] == 8
