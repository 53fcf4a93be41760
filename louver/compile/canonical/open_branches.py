"""open-branches: inlines a branch that every call of a product takes.

Three kinds of branches are decided here:

- `if bias:`: the address of an array that is passed is not null.
- `if M * N == 0: return`: a launch has sizes above 0.
- A program returns early if its tile is outside: the program is assumed to have a tile. `number_tiles` tests and
  removes the assumption.

The launch checks the other facts (`Conditions.positive`, `guarded`).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, Region, SSAValue

from louver.analysis.integers import constant_integer, without_extension
from louver.compile.condition_attributes import require_positive, state_guarded
from louver.compile.rewrite.insert import insert, insert_before, keep_region
from louver.ir.comparisons import CmpiOp
from louver.ir.llvm import AssumeOp
from louver.ir.tile import FuncOp, GetProgramIdOp, PtrToIntOp

_OPPOSITES = {"eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sgt": "sle", "sle": "sgt"}
_SWAPPED = {"eq": "eq", "ne": "ne", "slt": "sgt", "sgt": "slt", "sge": "sle", "sle": "sge"}


def open_branches(module: ModuleOp) -> None:
    """Rewrite in place, outer branches first. Branches that depend on the call do not change."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        for branch in [op for op in function.body.walk() if isinstance(op, scf.IfOp)]:
            _open(function, branch)


def _open(function: FuncOp, branch: scf.IfOp) -> None:
    for region, holds in ((branch.true_region, True), (branch.false_region, False)):
        reason = _null_test(function, branch.cond, holds=holds)
        if reason is None and _is_early_return(function, branch, region):
            reason = _reason(function, branch.cond, holds=holds)
        if reason is not None:
            names = function.argument_names
            for argument in reason.positive:
                require_positive(function, names[argument])
            for inside, end in reason.below:
                insert(branch, AssumeOp.build(operands=[insert_before(branch, CmpiOp(inside, end, "slt"))]), branch)
                state_guarded(function)
            keep_region(branch, region)
            return


@dataclass(frozen=True, slots=True)
class _Reason:
    """The facts from which a condition follows.

    positive: arguments that are above 0.
    below: pairs of integers, the first one below the second one.
    """

    positive: tuple[SSAValue, ...] = ()
    below: tuple[tuple[SSAValue, SSAValue], ...] = ()


def _null_test(function: FuncOp, condition: SSAValue, *, holds: bool) -> _Reason | None:
    """The reason that an array is not null, if the condition tests this; else None."""
    compared = condition.owner
    if not isinstance(compared, CmpiOp) or compared.name_of_predicate != ("ne" if holds else "eq"):
        return None
    for address, zero in ((compared.lhs, compared.rhs), (compared.rhs, compared.lhs)):
        made = address.owner
        if isinstance(made, PtrToIntOp) and made.src in function.body.block.args and constant_integer(zero) == 0:
            return _Reason((made.src,))
    return None


def _is_early_return(function: FuncOp, branch: scf.IfOp, region: Region) -> bool:
    """Whether only one region of a branch has operations, and the branch is the last operation of the function."""
    other = branch.false_region if region is branch.true_region else branch.true_region
    after = branch.next_op
    empty = all(isinstance(op, scf.YieldOp) for block in other.blocks for op in block.ops)
    return branch.parent_op() is function and not branch.results and empty and after is function.body.block.last_op


def _reason(function: FuncOp, condition: SSAValue, *, holds: bool) -> _Reason | None:
    """The reason that a condition equals `holds` in programs with a tile of a product that is not empty; None if it may
    not.
    """
    op = condition.owner
    if isinstance(op, arith.AndIOp if holds else arith.OrIOp):
        reasons = [_reason(function, each, holds=holds) for each in op.operands]
        known = [each for each in reasons if each is not None]
        positive = tuple(argument for each in known for argument in each.positive)
        return _Reason(positive, tuple(pair for each in known for pair in each.below)) if len(known) == 2 else None
    if not isinstance(op, CmpiOp) or op.name_of_predicate not in _OPPOSITES:
        return None
    predicate = op.name_of_predicate if holds else _OPPOSITES[op.name_of_predicate]
    for one, other, compared in ((op.lhs, op.rhs, predicate), (op.rhs, op.lhs, _SWAPPED[predicate])):
        least = {"ne": 0, "sgt": 0, "sge": 1}.get(compared)
        factors = _factors(function, one)
        if least is not None and constant_integer(other) == least and factors:
            return _Reason(factors)
        if compared == "slt" and _numbers_programs(one):
            return _Reason(below=((one, other),))
    return None


def _factors(function: FuncOp, value: SSAValue) -> tuple[SSAValue, ...] | None:
    """The arguments whose product a value is, apart from numbers above 0; None for other values."""
    value = without_extension(value)
    if value in function.body.block.args:
        return (value,)
    if (constant_integer(value) or 0) > 0:
        return ()
    if not isinstance(value.owner, arith.MuliOp):
        return None
    one, other = (_factors(function, each) for each in value.owner.operands)
    return None if one is None or other is None else one + other


def _numbers_programs(value: SSAValue) -> bool:
    """Whether an integer is computed from a program number."""
    op = value.owner
    return isinstance(op, GetProgramIdOp) or (isinstance(op, Operation) and any(map(_numbers_programs, op.operands)))
