"""Proves that a number is a multiple of another one, and lists the conditions on arguments for the proof."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from xdsl.dialects import arith, scf
from xdsl.ir import Block, SSAValue

from louver.analysis.integers import literal
from louver.analysis.passages import came_from
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.comparisons import SelectOp
from louver.ir.tile import FuncOp, Index

Needs = frozenset[tuple[SSAValue, int]]
"""Arguments of a kernel, and quotients of arguments, each with a number that must divide it."""

NOTHING: Needs = frozenset()


def multiple_if(entry: Index, of: int) -> Needs | None:
    """The conditions under which `entry` is a multiple of `of`, a power of two; None if there is no proof. The proof
    covers constants, arguments, sums, products, remainders, selections, and loops with suitable bounds and steps.
    """
    return _multiple_if(entry, of, frozenset())


def _multiple_if(entry: Index, of: int, assumed: frozenset[SSAValue]) -> Needs | None:
    number = literal(entry)
    if number is not None or isinstance(entry, int):
        return NOTHING if number is not None and number % of == 0 else None
    if entry in assumed or of == 1:
        return NOTHING
    match entry.owner:
        case arith.MuliOp(lhs=left, rhs=right):
            return _product(left, right, of, assumed)
        case arith.SubiOp(lhs=left, rhs=right) if _is_rest(right, left, of):
            return NOTHING
        case (
            arith.AddiOp(lhs=left, rhs=right)
            | arith.SubiOp(lhs=left, rhs=right)
            | arith.RemSIOp(lhs=left, rhs=right)
            | arith.RemUIOp(lhs=left, rhs=right)
        ):
            return _all((left, right), of, assumed)
        case arith.MinSIOp(lhs=left, rhs=right) | arith.MaxSIOp(lhs=left, rhs=right) | SelectOp(lhs=left, rhs=right):
            return _all((left, right), of, assumed)
        case ExtSIOp(input=inner) | TruncIOp(input=inner):
            return _multiple_if(inner, of, assumed)
        case arith.DivSIOp() if _is_of_arguments(entry):
            return frozenset({(entry, of)})
        case Block() as block if isinstance(block.parent_op(), FuncOp):
            return frozenset({(entry, of)})
        case Block() as block if isinstance(loop := block.parent_op(), scf.ForOp) and entry is block.args[0]:
            return _all((loop.lb, loop.step), of, assumed)
        case Block() | scf.ForOp() | scf.WhileOp() if sources := came_from(entry):
            # By induction: the first value is a multiple, and each step keeps it a multiple.
            return _all(sources, of, assumed | {entry})
        case _:
            return None


def _is_of_arguments(value: SSAValue) -> bool:
    """Whether a number is computed of arguments and constants: half of N."""
    match value.owner:
        case arith.DivSIOp() | arith.AddiOp() | arith.SubiOp() | arith.MuliOp() as op:
            return all(map(_is_of_arguments, op.operands))
        case Block() as block:
            return isinstance(block.parent_op(), FuncOp)
        case _:
            return literal(value) is not None


def _is_rest(value: SSAValue, whole: SSAValue, of: int) -> bool:
    """Whether the value is `whole` modulo a multiple of `of`."""
    match value.owner:
        case arith.RemSIOp(lhs=left, rhs=right):
            number = literal(right)
            return left is whole and number is not None and number > 0 and number % of == 0
        case _:
            return False


def _all(values: Iterable[SSAValue], of: int, assumed: frozenset[SSAValue]) -> Needs | None:
    found = NOTHING
    for value in values:
        needs = _multiple_if(value, of, assumed)
        if needs is None:
            return None
        found |= needs
    return found


def _product(left: SSAValue, right: SSAValue, of: int, assumed: frozenset[SSAValue]) -> Needs | None:
    """One factor that is a multiple is enough. A constant factor is part of the multiple."""
    known = [number for number in (literal(left), literal(right)) if number is not None]
    rest = of // gcd(of, *known) if known else of
    needs = [_multiple_if(each, rest, assumed) for each in (left, right) if literal(each) is None]
    if rest == 1:
        return NOTHING
    shown = [each for each in needs if each is not None]
    return min(shown, key=len, default=None)
