"""Proves that a number is a multiple of another one, and lists the conditions on arguments for that."""

from __future__ import annotations

from math import gcd

from xdsl.dialects import arith, scf
from xdsl.ir import Block, BlockArgument, SSAValue

from louver.analysis.integers import literal, position
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.comparisons import SelectOp
from louver.ir.tile import FuncOp, Index

Needs = frozenset[tuple[SSAValue, int]]
"""Arguments of a kernel and what each must be a multiple of."""

NOTHING: Needs = frozenset()


def multiple_if(entry: Index, of: int) -> Needs | None:
    """The conditions under which `entry` is a multiple of `of`, a power of two; None if that cannot be shown.

    Constants, sums, products, and loops that count in steps show it, alone or with arguments that are multiples.
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
        case arith.AddiOp(lhs=left, rhs=right) | arith.SubiOp(lhs=left, rhs=right):
            return _both(left, right, of, assumed)
        case arith.MinSIOp(lhs=left, rhs=right) | arith.MaxSIOp(lhs=left, rhs=right) | SelectOp(lhs=left, rhs=right):
            return _both(left, right, of, assumed)
        case ExtSIOp(input=inner) | TruncIOp(input=inner):
            return _multiple_if(inner, of, assumed)
        case scf.ForOp() as loop:
            return _carried(loop, position(entry, loop.results), entry, of, assumed)
        case scf.WhileOp() as loop:
            return _multiple_if(_condition(loop).args[position(entry, loop.results)], of, assumed)
        case Block() as block if isinstance(loop := block.parent_op(), scf.WhileOp):
            assert isinstance(entry, BlockArgument)
            if block is loop.after_region.block:
                return _multiple_if(_condition(loop).args[entry.index], of, assumed)
            end = loop.after_region.block.last_op
            assert end is not None
            return _both(loop.arguments[entry.index], end.operands[entry.index], of, assumed | {entry})
        case Block() as block if isinstance(block.parent_op(), FuncOp):
            return frozenset({(entry, of)})
        case Block() as block if isinstance(loop := block.parent_op(), scf.ForOp):
            assert isinstance(entry, BlockArgument)
            if entry.index == 0:
                return _both(loop.lb, loop.step, of, assumed)
            return _carried(loop, entry.index - 1, entry, of, assumed)
        case _:
            return None


def _condition(loop: scf.WhileOp) -> scf.ConditionOp:
    end = loop.before_region.block.last_op
    assert isinstance(end, scf.ConditionOp)
    return end


def _is_rest(value: SSAValue, whole: SSAValue, of: int) -> bool:
    """Whether a value is what is left of `whole` by a multiple of `of`."""
    match value.owner:
        case arith.RemSIOp(lhs=left, rhs=right):
            number = literal(right)
            return left is whole and number is not None and number > 0 and number % of == 0
        case _:
            return False


def _both(left: SSAValue, right: SSAValue, of: int, assumed: frozenset[SSAValue]) -> Needs | None:
    needs = _multiple_if(left, of, assumed), _multiple_if(right, of, assumed)
    return None if needs[0] is None or needs[1] is None else needs[0] | needs[1]


def _product(left: SSAValue, right: SSAValue, of: int, assumed: frozenset[SSAValue]) -> Needs | None:
    """One factor that is a multiple is enough; a constant is part of one."""
    known = [number for number in (literal(left), literal(right)) if number is not None]
    rest = of // gcd(of, *known) if known else of
    needs = [_multiple_if(each, rest, assumed) for each in (left, right) if literal(each) is None]
    if rest == 1:
        return NOTHING
    shown = [each for each in needs if each is not None]
    return min(shown, key=len, default=None)


def _carried(loop: scf.ForOp, index: int, value: SSAValue, of: int, assumed: frozenset[SSAValue]) -> Needs | None:
    """By induction: the first value is one, and each is one if that before it is."""
    end = loop.body.block.last_op
    assert end is not None
    return _both(loop.iter_args[index], end.operands[index], of, assumed | {value, loop.body.block.args[index + 1]})
