"""Runs of neighbours in quotients and remainders by numbers that a launch passes."""

from __future__ import annotations

from math import floor

import pytest

from louver.analysis.runs import Run, Runs
from louver.ir import tile as tt
from louver.ir.context import parse_ir

TEXT = """
builtin.module {{
  tt.func public @k(%y: !tt.ptr<i32>, %by: i32) {{
    %all = tt.make_range {{start = 0 : i32, end = 64 : i32}} : tensor<64xi32>
    {divisor}
    %found = {division} %all, %divisor : tensor<64xi32>
    %base = tt.splat %y : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>>
    %at = tt.addptr %base, %all : tensor<64x!tt.ptr<i32>>, tensor<64xi32>
    tt.store %at, %found : tensor<64x!tt.ptr<i32>>
    tt.return
  }}
}}
"""

PASSED = "%divisor = tt.splat %by : i32 -> tensor<64xi32>"
"""A divisor that is an argument, a multiple of 16."""


def run(division: str, divisor: str, count: int) -> Run | None:
    (function,) = parse_ir(TEXT.format(division=f"arith.{division}", divisor=divisor)).body.ops
    assert isinstance(function, tt.FuncOp)
    (store,) = (op for op in function.body.walk() if isinstance(op, tt.StoreOp))
    return Runs({function.body.block.args[1]: 16}).of(store.value, 0, count)


def constant(number: int) -> str:
    return f"%divisor = arith.constant dense<{number}> : tensor<64xi32>"


@pytest.mark.parametrize("division", ["divsi", "divui"])
@pytest.mark.parametrize(("count", "expected"), [(4, Run(0, 1)), (16, Run(0, 1)), (32, None)])
def test_a_quotient_by_an_argument_stays_in_blocks_that_divide_it(division: str, count: int, expected: object) -> None:
    assert run(division, PASSED, count) == expected


@pytest.mark.parametrize("count", [4, 16])
def test_rounding_and_shifts_by_arguments_prove_nothing(count: int) -> None:
    """A quotient that is rounded downwards changes behind the multiples of a negative divisor."""
    assert run("floordivsi", PASSED, count) is None
    assert run("shrsi", PASSED, count) is None


@pytest.mark.parametrize("division", ["divsi", "floordivsi"])
@pytest.mark.parametrize("by", [16, 48, -16, -48, 12, 7, -8])
@pytest.mark.parametrize("count", [4, 8, 16])
def test_quotients_by_constants(division: str, by: int, count: int) -> None:
    found = run(division, constant(by), count)
    whole = (lambda n: floor(n / by)) if division == "floordivsi" else (lambda n: int(n / by))
    stays = all(len({whole(n) for n in range(first, first + count)}) == 1 for first in range(0, 1 << 10, count))
    assert found in (None, Run(0, 1))
    assert stays or found is None
    if by > 0:
        assert (found is not None) == stays
