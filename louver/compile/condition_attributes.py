"""Writes and reads conditions of a launch as attributes of the function. Passes record them here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Attribute

from louver.ir.conditions import Conditions, Reach, Split
from louver.ir.polynomial import Polynomial, Size
from louver.ir.tile import FuncOp
from louver.ir.tile.function import text_of
from louver.isa.rule import RuleError

EQUAL, MULTIPLE, PROGRAMS, REACH = "louver.equal", "louver.multiple", "louver.programs", "louver.reach"
REACH_IN_BRANCH, REACH_IN_MATRIX = "louver.reach_in_branch", "louver.reach_in_matrix"
SPLIT, STEPS, DIVISOR = "louver.split", "louver.steps", "louver.divisor"
ROWS_APART, WHOLE, WHOLE_ROWS = "louver.rows_apart", "louver.whole", "louver.whole_rows"
POSITIVE, GUARDED, WHOLE_BATCH = "louver.positive", "louver.guarded", "louver.whole_batch"


def require_equal(function: FuncOp, one: Size, other: Size) -> None:
    """Require that two sizes are equal."""
    _add(function, EQUAL, _array(sorted(map(str, (one, other)))))


def require_multiple(function: FuncOp, argument: str, of: int) -> None:
    """Require that an argument is a multiple of a number."""
    _add(function, MULTIPLE, _array([argument, of]))


def require_whole_rows(function: FuncOp, size: Size, rows: int) -> None:
    """Require that a size at which rows wrap is whole tiles of `rows`."""
    _add(function, WHOLE_ROWS, _array([str(size), rows]))


def require_steps(function: FuncOp, size: Size, step: int) -> None:
    """Require that a size is at most one step, or whole steps."""
    _add(function, STEPS, _array([str(size), step]))


def prefer_multiple(function: FuncOp, argument: str, of: int) -> None:
    """Record that a kernel is better for calls in which an argument is a multiple of a number, if it is told so."""
    _add(function, DIVISOR, _array([argument, of]))


def require_reach(function: FuncOp, reach: Reach) -> None:
    """Require that a sparse argument has at least this number of columns or rows."""
    if reach.held is None:
        name, ends = REACH_IN_BRANCH if reach.in_branch else REACH, (reach.end,)
    else:
        name, ends = REACH_IN_MATRIX, (reach.held, reach.end)
    _add(function, name, _array([reach.argument, reach.of, *map(str, (*ends, *reach.counts))]))


def require_rows_apart(function: FuncOp, argument: str, apart: Size) -> None:
    """Require a stride of rows in the dense tensor, for a tensor that is sparse along its second to last axis, in
    elements.
    """
    _add(function, ROWS_APART, _array([argument, str(apart)]))


def require_whole(function: FuncOp, argument: str, stride: Size, of: Size) -> None:
    """Require that a stride of a sparse batch is a multiple of another one."""
    _add(function, WHOLE, _array([argument, str(stride), str(of)]))


def require_positive(function: FuncOp, argument: str) -> None:
    """Require that an integer, or the address of an array, is above 0."""
    _add(function, POSITIVE, _array([argument]))


def state_guarded(function: FuncOp) -> None:
    """Record that programs without a tile return early."""
    function.attributes[GUARDED] = UnitAttr()


def state_whole_batch(function: FuncOp) -> None:
    """Record that programs number the tiles of all matrices of a batch together."""
    function.attributes[WHOLE_BATCH] = UnitAttr()


def state_programs(function: FuncOp, step: int) -> None:
    """Record that each program computes every `step`-th tile from its own number on; 0 for the number of programs as
    step.
    """
    function.attributes[PROGRAMS] = IntegerAttr(step, i64)


def state_split(function: FuncOp, split: Split) -> None:
    """Record that programs along an axis of the grid sum parts of K. Raises ValueError if that is recorded already."""
    if SPLIT in function.attributes:
        raise RuleError("K may be split among programs once")
    _add(
        function,
        SPLIT,
        _array(
            [split.axis, *("" if each is None else str(each) for each in (split.programs, split.chunk)), split.multiple]
        ),
    )


def conditions(function: FuncOp) -> Conditions:
    """All conditions that passes have recorded for a function."""
    programs = function.attributes.get(PROGRAMS)
    return Conditions(
        equal=tuple((_size(one), _size(other)) for one, other in _rows(function, EQUAL)),
        multiples=tuple((str(name), int(of)) for name, of in _rows(function, MULTIPLE)),
        whole_rows=tuple((_size(size), int(rows)) for size, rows in _rows(function, WHOLE_ROWS)),
        steps=tuple((_size(size), int(step)) for size, step in _rows(function, STEPS)),
        divisors=tuple((str(name), int(of)) for name, of in _rows(function, DIVISOR)),
        positive=tuple(str(argument) for (argument,) in _rows(function, POSITIVE)),
        programs=programs.value.data if isinstance(programs, IntegerAttr) else None,
        guarded=GUARDED in function.attributes,
        whole_batch=WHOLE_BATCH in function.attributes,
        split=next(map(_split, _rows(function, SPLIT)), None),
        rows_apart=tuple((str(argument), _size(apart)) for argument, apart in _rows(function, ROWS_APART)),
        whole=tuple((str(name), _size(stride), _size(of)) for name, stride, of in _rows(function, WHOLE)),
        reaches=(
            *map(_reach, _rows(function, REACH)),
            *(replace(_reach(row), in_branch=True) for row in _rows(function, REACH_IN_BRANCH)),
            *(
                replace(_reach([argument, of, *ends]), held=_size(held))
                for argument, of, held, *ends in _rows(function, REACH_IN_MATRIX)
            ),
        ),
    )


def _reach(row: list[str | int]) -> Reach:
    argument, of, *sizes = row
    end, *counts = map(_size, sizes)
    return Reach(str(argument), "rows" if of == "rows" else "columns", end, tuple(counts))


def _split(row: list[str | int]) -> Split:
    axis, programs, chunk, multiple = row
    return Split(int(axis), _size(programs) if programs else None, _size(chunk) if chunk else None, int(multiple))


def _size(text: str | int) -> Size:
    return Polynomial.parse(str(text))


def _list(function: FuncOp, name: str) -> list[Attribute]:
    found = function.attributes.get(name)
    return list(cast("ArrayAttr[Attribute]", found).data) if isinstance(found, ArrayAttr) else []


def _add(function: FuncOp, name: str, pair: ArrayAttr[Attribute]) -> None:
    pairs = _list(function, name)
    if pair not in pairs:
        function.attributes[name] = ArrayAttr([*pairs, pair])


def _array(row: Sequence[str | int]) -> ArrayAttr[Attribute]:
    return ArrayAttr([StringAttr(each) if isinstance(each, str) else IntegerAttr(each, i64) for each in row])


def _rows(function: FuncOp, name: str) -> list[list[str | int]]:
    found = [cast("ArrayAttr[Attribute]", row).data for row in _list(function, name)]
    return [[each.value.data if isinstance(each, IntegerAttr) else text_of(each) for each in row] for row in found]
