"""How far a kernel reads a sparse tensor along a dimension that no mask bounds: for a launch to compute."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import cast

from xdsl.dialects import scf
from xdsl.ir import Block, SSAValue

from louver.analysis.access import Dimension
from louver.analysis.affine import Affine
from louver.analysis.alignment import NOTHING, multiple_if
from louver.analysis.atoms import Iteration, Part
from louver.analysis.integers import constant_integer, steps_of
from louver.analysis.polynomial import ONE, Polynomial
from louver.compile.tile_signature import Count
from louver.ir.tile import GetNumProgramsOp, GetProgramIdOp


def reach(dimension: Dimension, affine: Affine, names: Mapping[SSAValue, str]) -> tuple[int, tuple[Count, ...]] | None:
    """How far a dimension is read that nothing bounds, see `Reach`. None for tiles that begin where no launch could tell: elsewhere than
    at a multiple of a number for each program, or for each iteration of a loop that ends at an argument or a number.
    """
    least, counts = dimension.extent, list[Count]()
    for monomial, factor in dimension.first:
        if monomial == ONE:
            least += factor
            continue
        counters = [each for each in monomial if not (isinstance(each[0], SSAValue) and each[0] in names)]
        step = size_text(Polynomial.of({monomial - frozenset(counters): factor}), names)
        if factor < 0 or step is None or len(counters) != 1 or counters[0][1] != 1:
            return None
        count = _count(counters[0][0], step, affine, names)
        if count is None:
            return None
        counts.append(count)
    return least, tuple(sorted(counts, key=repr))


def _count(atom: Hashable, step: str, affine: Affine, names: Mapping[SSAValue, str]) -> Count | None:
    if isinstance(atom, SSAValue) and isinstance(atom.owner, GetProgramIdOp):
        return Count(step, f"programs {'xyz'[atom.owner.axis.value.data]}")
    if isinstance(atom, Iteration):
        first, by = constant_integer(atom.loop.lb), constant_integer(atom.loop.step)
        steps = steps_of(atom.loop.ub) if (first, by) == (0, 1) else None
        end, by = (atom.loop.ub, by) if steps is None else steps
        whole = affine.integer(end)
        if first == 0 and by and (part := _whole_steps(whole, by)) is not None:
            whole, by = part, 1
        text = size_text(whole, names)
        if first is not None and by is not None and by > 0 and text is not None:
            return Count(step, text, first, by)
    return _shared(cast(SSAValue, atom), step, affine, names) if isinstance(atom, SSAValue) else None


def _shared(number: SSAValue, step: str, affine: Affine, names: Mapping[SSAValue, str]) -> Count | None:
    """Of a loop whose iterations programs share: `step` times its number, which is below the loop's end."""
    loop = number.owner.parent_op() if isinstance(number.owner, Block) else None
    if not isinstance(loop, scf.ForOp) or number is not loop.body.block.args[0] or not step.isdigit():
        return None
    first = affine.integer(loop.lb)
    if any(factor < 0 or not all(_is_grid(atom) for atom, _ in monomial) for monomial, factor in first):
        return None
    # A number that is a multiple of a power of two stays that far below the end.
    whole = next((each for each in POWERS if multiple_if(number, each) == NOTHING), 1)
    steps = steps_of(loop.ub) if whole == 1 else None
    end, by = (loop.ub, whole) if steps is None else steps
    text = size_text(affine.integer(end), names)
    return None if text is None else Count(str(int(step) * whole), text, 0, by)


def _is_grid(atom: Hashable) -> bool:
    return isinstance(atom, SSAValue) and isinstance(atom.owner, GetProgramIdOp | GetNumProgramsOp)


POWERS = tuple(2**each for each in range(10, 0, -1))
"""That the first number and the step of a loop may be multiples of."""


def _whole_steps(value: Polynomial, by: int) -> Polynomial | None:
    """How many steps a multiple of `by` is, `K - K % by` as well; None for other numbers."""
    part = Part.of(value, by)
    return None if any(isinstance(atom, Part) and atom.whole == value for atom in part.atoms) else part


def size_text(value: Polynomial, names: Mapping[SSAValue, str]) -> str | None:
    """A product of arguments and a number, or part of an argument, as `louver.user.sizes` reads it; None for anything else."""
    if value.constant is not None:
        return str(value.constant)
    if len(value.terms) != 1:
        return None
    ((monomial, factor),) = value.terms
    factors = [] if factor == 1 else [str(factor)]
    for atom, power in monomial:
        if isinstance(atom, Part) and (factor, power, len(monomial)) == (1, 1, 1):
            whole = size_text(atom.whole, names)
            return None if whole is None or "/" in whole else f"{whole}/{atom.by}"
        if not isinstance(atom, SSAValue) or atom not in names:
            return None
        factors += [names[atom]] * power
    return "*".join(sorted(factors))
