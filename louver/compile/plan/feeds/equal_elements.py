"""A quotient that all elements of a tile have in common is computed once.

The scales of blocks of a weight are at such quotients: `tl.load(scales + columns // 128 * stride)` loads one number for all columns
of a tile that lies in one block. The pass takes valid tile IR without sparse types, descriptors and block pointers, before
encodings.
"""

from __future__ import annotations

from typing import NamedTuple

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import (
    ModuleOp,
    Signedness,
    SignednessAttr,
    i32,
)
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.affine import is_count
from louver.analysis.atoms import Lane, Wrapped, lanes
from louver.analysis.integers import constant_everywhere
from louver.analysis.passages import passed_to
from louver.compile.canonical.describe_tiles import Describer
from louver.compile.rewrite.insert import insert_before, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.arith import ExtSIOp
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import AddPtrOp, BroadcastOp, ExpandDimsOp, FuncOp, LoadOp, SplatOp
from louver.ir.tile.multiples import multiples_of
from louver.ir.tile.types import as_tensor, element_of, tensor_of
from louver.ir.walk import each_once

SIGNLESS = SignednessAttr(Signedness.SIGNLESS)


class _Tile(NamedTuple):
    """Indices of a tile that an operation divides, all in one group of any size that is a multiple of `extent`.

    first: the first of them. size: where they wrap; None if they do not.
    """

    first: Polynomial
    extent: int
    size: Polynomial | None


class _Divisor(NamedTuple):
    """What a tile is divided by, and a number that divides it."""

    value: SSAValue | int
    multiple: int


def join_quotients(module: ModuleOp) -> None:
    """join-quotients: computes a quotient of a tile's indices once, if the tile lies in one group of the divisor's size.

    Rows that wrap are taken as if they did not, where no result of theirs is stored.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        found = _divided(function)
        for op, (by, multiple), tile, describer in found:
            start = _first(describer, tile, op) if multiple % tile.extent == 0 else None
            if start is not None:
                quotient = insert_before(op, arith.DivSIOp(start, integer(op, by) if isinstance(by, int) else by))
                Rewriter.replace_op(op, SplatOp(quotient, tensor_of(op.result).get_shape()))
        if found:
            remove_dead(function)


def divisors_of(function: FuncOp) -> tuple[tuple[str, int], ...]:
    """Arguments by which indices of tiles are divided, each with the elements of a tile. If they are known to divide the argument,
    `join_quotients` computes one quotient.
    """
    names = function.argument_names
    found = ((by, multiple, tile.extent) for _, (by, multiple), tile, _ in _divided(function))
    return tuple(
        sorted({(names[by], extent) for by, multiple, extent in found if not isinstance(by, int) and multiple % extent})
    )


def _divided(function: FuncOp) -> list[tuple[arith.DivSIOp, _Divisor, _Tile, Describer]]:
    """The divisions of tiles of neighbours by one number."""
    tiles = [op for op in function.body.walk() if isinstance(op, arith.DivSIOp) and as_tensor(op.result.type)]
    divisions = [(op, by) for op in tiles if (by := _divisor(function, op)) is not None]
    describer = Describer.of(function) if divisions else None
    return [
        (op, by, tile, describer) for op, by in divisions if describer and (tile := _tile(describer, op)) is not None
    ]


def _divisor(function: FuncOp, op: arith.DivSIOp) -> _Divisor | None:
    number, value = constant_everywhere(op.rhs), op.rhs
    if number is not None:
        return None if number < 1 else _Divisor(number, number)
    while isinstance(value.owner, SplatOp | BroadcastOp | ExpandDimsOp):
        value = value.owner.src
    multiple = dict(zip(function.argument_names, multiples_of(function), strict=True)).get(value)
    return None if multiple is None else _Divisor(value, multiple)


def _tile(describer: Describer, op: arith.DivSIOp) -> _Tile | None:
    """The indices that an operation divides, if they are neighbours and it only computes addresses of loads."""
    loads = _addressed(op.result)
    if loads is None or element_of(op.result.type) != i32:
        return None
    try:
        index, size = describer.affine.integer(op.lhs), None
        for atom in index.atoms:
            if isinstance(atom, Wrapped) and index == Polynomial.atom(atom):
                index, size = atom.index, atom.size
        if len(lanes(index)) != 1:
            return None
        (number,) = lanes(index)
        first, extent = index - Polynomial.atom(Lane(number)), tensor_of(op.result).get_shape()[number]
        whole = not lanes(first) and first.quotient(Polynomial.number(extent)) is not None
        if not whole or not is_count(first):
            return None
        if size is not None:
            for load in loads:
                describer.check_beyond(load, number, first - size)
        return _Tile(first, extent, size)
    except UnsupportedKernelError:
        return None


def _first(describer: Describer, tile: _Tile, op: arith.DivSIOp) -> SSAValue | None:
    """The first of a tile's indices, computed before an operation; None if it cannot be."""
    try:
        start = _scalar(describer, tile.first, op)
        if tile.size is None:
            return start
        return insert_before(op, arith.RemSIOp(start, _scalar(describer, tile.size, op)))
    except UnsupportedKernelError:
        return None


def _scalar(describer: Describer, value: Polynomial, op: Operation) -> SSAValue:
    found = describer.descriptors.first(value, op)
    return integer(op, found) if isinstance(found, int) else found


def _addressed(value: SSAValue) -> set[LoadOp] | None:
    """The loads whose addresses are computed from a tile of integers; None if it has another use."""
    found, pending = set[LoadOp](), [value]
    for current in each_once(pending):
        for use in current.uses:
            op = use.operation
            match op:
                case LoadOp() if use.index == 0:
                    found.add(op)
                case ExtSIOp() | arith.MuliOp() | arith.AddiOp() | arith.SubiOp() | AddPtrOp():
                    pending += op.results
                case scf.ForOp() | scf.YieldOp():
                    pending += passed_to(op, use.index)
                case _:
                    return None
    return found
