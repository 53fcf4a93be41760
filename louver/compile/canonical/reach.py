"""How far a kernel reads a sparse tensor along a dimension that no mask bounds: for a launch to compute."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from xdsl.ir import SSAValue

from louver.analysis.access import Dimension
from louver.analysis.affine import Affine
from louver.analysis.atoms import Iteration
from louver.analysis.integers import constant_integer, steps_of
from louver.analysis.launch_size import launch_size
from louver.ir.polynomial import ONE, Polynomial, Size, programs
from louver.ir.tile import GetProgramIdOp


def reach(dimension: Dimension, affine: Affine, names: Mapping[SSAValue, str]) -> tuple[Size, tuple[Size, ...]] | None:
    """How far a dimension is read that nothing bounds, see `Reach`. None for tiles that begin where no launch could tell: elsewhere than
    at a multiple of a number for each program, or for each iteration of a loop that ends at an argument or a number.
    """
    end, counts = Polynomial.number(dimension.extent), set[Size]()
    for monomial, factor in dimension.first:
        if monomial == ONE:
            end += factor
            continue
        counters = [each for each in monomial if not (isinstance(each[0], SSAValue) and each[0] in names)]
        step = launch_size(Polynomial.of({monomial - frozenset(counters): factor}), names)
        if factor < 0 or step is None or len(counters) != 1 or counters[0][1] != 1:
            return None
        count = _count(counters[0][0], affine, names)
        if count is None:
            return None
        end += step * (count - 1)
        counts.add(count)
    return end, tuple(sorted(counts, key=str))


def _count(atom: Hashable, affine: Affine, names: Mapping[SSAValue, str]) -> Size | None:
    """How many programs, or iterations of a loop, there are."""
    if isinstance(atom, SSAValue) and isinstance(atom.owner, GetProgramIdOp):
        return Polynomial.atom(programs(atom.owner.axis.value.data))
    if isinstance(atom, Iteration):
        first, by = constant_integer(atom.loop.lb), constant_integer(atom.loop.step)
        steps = steps_of(atom.loop.ub) if (first, by) == (0, 1) else None
        end, by = (atom.loop.ub, by) if steps is None else steps
        whole = affine.integer(end)
        if first is not None and by is not None and by > 0 and len(whole.terms) < 2:
            return launch_size((whole - first).ceil(by), names, affine)
    return None
