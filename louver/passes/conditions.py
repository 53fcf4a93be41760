"""What passes take for granted and a launch must check: kept as attributes of the function, read into the nest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, SSAValue

from louver.ir.tile import FuncOp

EQUAL, MULTIPLE, PROGRAMS = "louver.equal", "louver.multiple", "louver.programs"


@dataclass(frozen=True, slots=True)
class Conditions:
    """equal: pairs of arguments that are equal. multiples: arguments and what each is a multiple of. programs: see `ProductNest`."""

    equal: tuple[tuple[str, str], ...]
    multiples: tuple[tuple[str, int], ...]
    programs: int | None


def argument_names(function: FuncOp) -> dict[SSAValue, str]:
    """A name for each argument, none of them twice."""
    names: dict[SSAValue, str] = {}
    for index, argument in enumerate(function.body.block.args):
        name = argument.name_hint or f"arg{index}"
        names[argument] = f"{name}_{index}" if name in names.values() else name
    return names


def require_equal(function: FuncOp, one: str, other: str) -> None:
    """Two arguments have one value."""
    pair = ArrayAttr([StringAttr(name) for name in sorted((one, other))])
    _add(function, EQUAL, pair)


def require_multiple(function: FuncOp, argument: str, of: int) -> None:
    """An argument is a multiple of a number."""
    _add(function, MULTIPLE, ArrayAttr([StringAttr(argument), IntegerAttr(of, i64)]))


def state_programs(function: FuncOp, step: int) -> None:
    """Each program computes every `step`-th tile from its own number on; 0: as many as there are programs."""
    function.attributes[PROGRAMS] = IntegerAttr(step, i64)


def conditions(function: FuncOp) -> Conditions:
    """All of a function's."""
    programs = function.attributes.get(PROGRAMS)
    return Conditions(
        tuple((str(one), str(other)) for one, other in _pairs(function, EQUAL)),
        tuple((str(name), int(of)) for name, of in _pairs(function, MULTIPLE)),
        programs.value.data if isinstance(programs, IntegerAttr) else None,
    )


def _list(function: FuncOp, name: str) -> list[Attribute]:
    found = function.attributes.get(name)
    return list(cast("ArrayAttr[Attribute]", found).data) if isinstance(found, ArrayAttr) else []


def _add(function: FuncOp, name: str, pair: ArrayAttr[Attribute]) -> None:
    pairs = _list(function, name)
    if pair not in pairs:
        function.attributes[name] = ArrayAttr([*pairs, pair])


def _pairs(function: FuncOp, name: str) -> list[tuple[str | int, str | int]]:
    pairs = [cast("ArrayAttr[StringAttr | IntegerAttr]", pair).data for pair in _list(function, name)]
    return [(_plain(one), _plain(other)) for one, other in pairs]


def _plain(value: StringAttr | IntegerAttr) -> str | int:
    return value.data if isinstance(value, StringAttr) else value.value.data
