"""Multiples that a kernel shows, and what its arguments must be for the rest."""

from __future__ import annotations

import pytest

from louver.analysis.alignment import multiple_if
from louver.ir.context import parse_ir
from louver.ir.tile import FuncOp

TEXT = """tt.func @f(%K: i32, %E: i64, %p: !tt.ptr<i32>) {{
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c16 = arith.constant 16 : i32
  %c48 = arith.constant 48 : i32
  %c64 = arith.constant 64 : i32
  %program = tt.get_program_id x : i32
  %read = tt.load %p : !tt.ptr<i32>
  %yes = arith.constant true
  {body}
  tt.return
}}"""

SHOWN: dict[str, dict[str, int]] = {
    "%x = arith.muli %program, %c64 : i32": {},
    "%x = arith.muli %read, %c64 : i32": {},
    "%x = arith.addi %c64, %c0 : i32": {},
    "%y = arith.muli %read, %c64 : i32\n%x = arith.subi %y, %c64 : i32": {},
    "%x = arith.muli %program, %K : i32": {"K": 64},
    "%x = arith.muli %K, %c16 : i32": {"K": 4},
    "%x = arith.muli %c48, %K : i32": {"K": 4},
    "%y = arith.muli %K, %c64 : i32\n%x = arith.muli %y, %K : i32": {},
    "%y = arith.extsi %K : i32 to i64\n%z = arith.muli %E, %y : i64\n%x = arith.trunci %z : i64 to i32": {"E": 64},
    "%y = arith.muli %program, %c64 : i32\n%x = arith.minsi %y, %K : i32": {"K": 64},
    "%y = arith.remsi %K, %c64 : i32\n%x = arith.subi %K, %y : i32": {},
    "%x = arith.divsi %K, %c16 : i32": {"x": 64},
    "%y = arith.divsi %K, %c16 : i32\n%x = arith.addi %y, %c64 : i32": {"y": 64},
    "%x = arith.select %yes, %K, %c64 : i32": {"K": 64},
    "%x = scf.for %i = %c0 to %read step %c1 iter_args(%y = %c64) -> (i32) : i32 {\n"
    "    %n = arith.addi %y, %c64 : i32\n    scf.yield %n : i32 }": {},
    "%x = scf.for %i = %K to %read step %c64 iter_args(%y = %c0) -> (i32) : i32 {\n    scf.yield %i : i32 }": {"K": 64},
}  # fmt: skip

REFUSED = [
    "%x = arith.muli %program, %c48 : i32",
    "%x = arith.addi %program, %c64 : i32",
    "%x = arith.divsi %program, %K : i32",
    "%x = arith.addi %c64, %c1 : i32",
    "%y = arith.remsi %read, %c48 : i32\n%x = arith.subi %read, %y : i32",
    "%x = scf.for %i = %c0 to %read step %c1 iter_args(%y = %c64) -> (i32) : i32 {\n"
    "    %n = arith.addi %y, %c16 : i32\n    scf.yield %n : i32 }",
]


def needs(body: str) -> dict[str, int] | None:
    (function,) = parse_ir(TEXT.format(body=body)).body.ops
    assert isinstance(function, FuncOp)
    (x,) = [value for op in function.body.walk() for value in op.results if value.name_hint == "x"]
    found = multiple_if(x, 64)
    return None if found is None else {str(value.name_hint): of for value, of in found}


@pytest.mark.parametrize("body", SHOWN)
def test_what_is_shown_and_what_arguments_must_be(body: str) -> None:
    assert needs(body) == SHOWN[body]


@pytest.mark.parametrize("body", REFUSED)
def test_what_cannot_be_shown(body: str) -> None:
    assert needs(body) is None


def test_literals() -> None:
    assert multiple_if(128, 64) == frozenset() and multiple_if(0, 16) == frozenset()
    assert multiple_if(96, 64) is None
