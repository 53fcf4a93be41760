"""Numbers of a kernel that its launch computes, as sizes."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import i32, i64
from xdsl.ir import Block, SSAValue

from louver.analysis.affine import launch_size
from louver.analysis.atoms import Iteration
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.polynomial import Polynomial
from louver.ir.tile import GetNumProgramsOp

BLOCK = Block(arg_types=[i32, i32])
NAMES: dict[SSAValue, str] = dict(zip(BLOCK.args, ("M", "x.stride.0"), strict=True))
NUMBERS = {"M": 37, "x.stride.0": 5, "programs y": 3}
M, S = (Polynomial.atom(each) for each in BLOCK.args)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Polynomial.number(0), "0"),
        (M * S + M * 3 - 4, "3*M + M*x.stride.0 - 4"),
        ((M + 15) // 16 * 64, "64*((M + 15)/16)"),
        (M * M, "M*M"),
        (7, "7"),
        (BLOCK.args[0], "M"),
    ],
)
def test_names_take_the_place_of_arguments(value: Polynomial | SSAValue | int, text: str) -> None:
    assert str(launch_size(value, NAMES)) == text


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (arith.MinSIOp, 5),
        (arith.MaxSIOp, 37),
        (arith.SubiOp, 32),
        (arith.DivSIOp, 7),
        (arith.DivUIOp, 7),
        (arith.MuliOp, 185),
    ],
)
def test_operations_of_the_kernel(operation: type[arith.MinSIOp], expected: int) -> None:
    made = operation(*BLOCK.args)
    wide = TruncIOp(ExtSIOp(made.result, i64), i32)
    for value in (made.result, wide.result):
        found = launch_size(value, NAMES)
        assert found is not None and found.value(NUMBERS) == expected


def test_programs() -> None:
    assert str(launch_size(arith.MuliOp(GetNumProgramsOp(1), BLOCK.args[0]).result, NAMES)) == "M*programs y"


def test_what_no_launch_knows_is_no_size() -> None:
    other = Block(arg_types=[i32]).args[0]
    assert launch_size(M + Polynomial.atom(other), NAMES) is None
    assert launch_size(arith.MinSIOp(BLOCK.args[0], other).result, NAMES) is None
    assert launch_size(arith.RemSIOp(*BLOCK.args).result, NAMES) is None
    assert launch_size(Polynomial.atom(Iteration(None)), NAMES) is None  # type: ignore[arg-type]
