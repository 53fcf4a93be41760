"""Numbers that a launch computes, as text: what is written is read again as the same number."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.ir import Block, SSAValue

from louver.analysis.atoms import Iteration, Part
from louver.analysis.number_text import number_text, value_of
from louver.analysis.polynomial import Polynomial

BLOCK = Block(arg_types=[i32, i32])
NAMES: dict[SSAValue, str] = dict(zip(BLOCK.args, ("M", "x.stride.0"), strict=True))
NUMBERS = {"M": 37, "x.stride.0": 5, "programs x": 3}
M, S = (Polynomial.atom(each) for each in BLOCK.args)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Polynomial.number(0), 0),
        (Polynomial.number(-7), -7),
        (M * S + M * Polynomial.number(3) - Polynomial.number(4), 37 * 5 + 3 * 37 - 4),
        (Polynomial.atom(Part(M + Polynomial.number(15), 16)) * Polynomial.number(64), 3 * 64),
        (M * M, 37 * 37),
    ],
)
def test_what_is_written_is_read(value: Polynomial, expected: int) -> None:
    text = number_text(value, NAMES)
    assert text is not None and value_of(text, NUMBERS) == expected


@pytest.mark.parametrize(
    ("operation", "expected"),
    [(arith.MinSIOp, 5), (arith.MaxSIOp, 37), (arith.SubiOp, 32), (arith.DivUIOp, 7), (arith.MuliOp, 185)],
)
def test_operations_of_the_kernel(operation: type[arith.MinSIOp], expected: int) -> None:
    made = operation(*BLOCK.args)
    text = number_text(Polynomial.atom(made.result), NAMES)
    assert text is not None and value_of(text, NUMBERS) == expected


def test_programs() -> None:
    assert value_of("* 64 programs:x", NUMBERS) == 192


def test_what_no_launch_knows_has_no_text() -> None:
    other = Block(arg_types=[i32]).args[0]
    assert number_text(M + Polynomial.atom(other), NAMES) is None
    assert number_text(Polynomial.atom(arith.RemSIOp(*BLOCK.args).result), NAMES) is None
    assert number_text(Polynomial.atom(Iteration(None)), NAMES) is None  # type: ignore[arg-type]


def test_a_quotient_that_kernels_round_another_way_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"a size is divided as numbers that are not negative are, got -37 / 16"):
        value_of("/ - 0 M 16", NUMBERS)
