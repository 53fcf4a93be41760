"""Ends of a kernel's integers, as sizes of a launch, against all values that the interpreter's arithmetic gives."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import i32
from xdsl.ir import Block, Operation, Region, SSAValue

from louver.analysis.affine import Affine
from louver.analysis.ends import Ends
from louver.ir.polynomial import Polynomial
from louver.ir.tile import GetNumProgramsOp, GetProgramIdOp

BLOCK = Block(arg_types=[i32, i32, i32])
M, N, UNKNOWN = BLOCK.args
NAMES: dict[SSAValue, str] = {M: "M", N: "N"}
NUMBERS = {"M": 70, "N": 4, "programs x": 10}

KEPT: list[Operation] = []


def put(op: Operation) -> SSAValue:
    KEPT.append(op)
    return op.results[0]


def number(value: int) -> SSAValue:
    return put(arith.ConstantOp.from_int_and_width(value, 32))


X = put(GetProgramIdOp(0))
PROGRAMS = put(GetNumProgramsOp(0))
GROUP = put(arith.MuliOp(number(4), N))
FIRST = put(arith.MuliOp(put(arith.DivSIOp(X, GROUP)), number(4)))
HEIGHT = put(arith.MinSIOp(put(arith.SubiOp(PROGRAMS, FIRST)), number(4)))


def loop() -> SSAValue:
    """The counter of a loop from the program's number on."""
    body = Block(arg_types=[i32])
    body.add_op(scf.YieldOp())
    KEPT.append(scf.ForOp(X, M, PROGRAMS, [], Region(body)))
    return body.args[0]


@pytest.mark.parametrize(
    ("value", "least", "greatest", "needs"),
    [
        (put(arith.SubiOp(M, number(64))), "M - 64", "M - 64", []),
        (put(arith.MuliOp(X, number(64))), "0", "64*programs x - 64", []),
        (put(arith.SubiOp(PROGRAMS, X)), "1", "programs x", []),
        (put(arith.MuliOp(X, M)), "0", "M*programs x - M", ["M"]),
        (put(arith.RemSIOp(X, N)), "0", "min(N - 1, programs x - 1)", ["N - 1"]),
        (put(arith.RemSIOp(M, X)), "0", "M", ["M"]),
        (put(arith.DivSIOp(X, N)), "0", "(programs x - 1)/N", ["N - 1"]),
        (put(arith.RemSIOp(X, number(4))), "0", "min(3, programs x - 1)", []),
        (put(arith.RemSIOp(UNKNOWN, number(4))), None, "3", []),
        # Tiles of a matrix in groups that are larger than the matrix: all are in the first group.
        (put(arith.DivSIOp(put(arith.RemSIOp(X, number(4))), number(16))), "0", "0", []),
        (put(arith.DivSIOp(put(arith.RemSIOp(UNKNOWN, number(4))), number(4))), "0", "0", []),
        (
            put(
                arith.SubiOp(
                    put(arith.MuliOp(X, number(31))), put(arith.MuliOp(put(arith.DivSIOp(X, number(8))), number(247)))
                )
            ),
            "0",
            "(programs x - 1)/8 + 31*min(7, programs x - 1)",
            [],
        ),
        (put(arith.MinSIOp(X, UNKNOWN)), None, "programs x - 1", []),
        (put(arith.MaxSIOp(X, UNKNOWN)), "0", None, []),
        (put(arith.MaxSIOp(X, N)), "max(0, N)", "max(programs x - 1, N)", []),
        (loop(), "0", "M - 1", []),
        (UNKNOWN, None, None, []),
        (put(arith.AddiOp(X, UNKNOWN)), None, None, []),
        (put(arith.RemSIOp(UNKNOWN, N)), None, None, []),
        (put(arith.DivSIOp(X, UNKNOWN)), None, None, []),
    ],
)
def test_ends(value: SSAValue, least: str | None, greatest: str | None, needs: list[str]) -> None:
    affine = Affine()
    for end, expected in (("least", least), ("greatest", greatest)):
        ends = Ends(affine, NAMES)
        found = ends.of(affine.integer(value), end)  # type: ignore[arg-type]
        assert (None if found is None else str(found)) == expected
        if expected is not None and end == "greatest":
            assert {str(each) for each in ends.needs} == set(needs)


def test_the_last_group_of_programs_may_be_smaller() -> None:
    """The divisor is at least 1 for a grid that the groups cover, so no number is below 0."""
    affine = Affine()
    ends = Ends(affine, NAMES)
    number = put(arith.DivSIOp(put(arith.RemSIOp(X, GROUP)), HEIGHT))
    assert ends.of(affine.integer(number), "least") == Polynomial.number(0)
    assert all(each.value(NUMBERS) >= 0 for each in ends.needs)
    assert any(each.value(NUMBERS | {"N": 0}) < 0 for each in ends.needs)


def test_a_number_that_wraps_at_a_size_is_not_below_0() -> None:
    """x - x / N * N, as rows that begin again at 0 are written."""
    affine = Affine()
    x, size = affine.integer(X), affine.integer(N)
    ends = Ends(affine, NAMES)
    assert str(ends.of((x - x // size * size) * 64, "least")) == "0"
    assert [str(each) for each in ends.needs] == ["N - 1"]
    tiles = size // 64
    ends = Ends(affine, NAMES)
    assert str(ends.of(x - x // tiles * tiles, "least")) == "0"
    assert [str(each) for each in ends.needs] == ["N/64 - 1"]
    # Twice the quotient is more than the number.
    ends = Ends(affine, NAMES)
    assert str(ends.of(x - x // size * size * 2, "least")) != "0"


@pytest.mark.parametrize(
    ("value", "fact", "least", "greatest", "needs"),
    [
        # X < UNKNOWN * M: programs share M tiles of each of an unknown number of rows.
        (put(arith.DivSIOp(X, UNKNOWN)), "X - UNKNOWN * M", "0", "M - 1", ["M - 1"]),
        (put(arith.DivSIOp(X, UNKNOWN)), "X - UNKNOWN", "0", "0", []),
        (put(arith.DivSIOp(X, UNKNOWN)), "X - M", None, None, []),
        (UNKNOWN, "UNKNOWN - M", None, "M - 1", []),
        (UNKNOWN, "N - UNKNOWN", "N + 1", None, []),
        (put(arith.AddiOp(UNKNOWN, M)), "UNKNOWN - N", None, "M + N - 1", []),
        # Several times a fact: tiles behind those of another output.
        (put(arith.MuliOp(UNKNOWN, number(64))), "N - UNKNOWN - 1", "64 * N", None, []),
        (put(arith.MuliOp(put(arith.SubiOp(X, N)), number(64))), "N - X - 1", "0", "64 * programs x - 64 * N - 64", []),
    ],
)
def test_facts_limit_numbers(
    value: SSAValue, fact: str, least: str | None, greatest: str | None, needs: list[str]
) -> None:
    affine = Affine()
    numbers = {name: affine.integer(each) for name, each in {"X": X, "UNKNOWN": UNKNOWN, "M": M, "N": N}.items()}
    below = eval(fact, {"__builtins__": {}}, numbers)
    for end, expected in (("least", least), ("greatest", greatest)):
        ends = Ends(affine, NAMES, [below])
        assert ends.of(affine.integer(value), end) == (None if expected is None else Polynomial.parse(expected))
        assert [str(each) for each in ends.needs] == (needs if expected is not None else [])


@pytest.mark.parametrize(("least", "holds"), [(0, True), (1, True), (2, False)])
def test_a_number_is_compared_at_once(least: int, holds: bool) -> None:
    ends = Ends(Affine(), NAMES)
    assert ends.require(Polynomial.number(1), least) is holds and not ends.needs
    assert not ends.require(None)
