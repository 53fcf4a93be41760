"""The end of a kernel's unmasked reads of a sparse tensor along a dimension, as a size that a launch computes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.access import Dimension
from louver.analysis.affine import Affine, launch_size
from louver.analysis.alignment import NOTHING, Needs, multiple_if
from louver.analysis.atoms import Iteration
from louver.analysis.ends import Ends
from louver.analysis.implied import facts_at
from louver.analysis.integers import constant_integer, steps_of
from louver.ir.polynomial import ONE, Extreme, Part, Polynomial, Size, programs, remainders
from louver.ir.tile import GetProgramIdOp


@dataclass(frozen=True, slots=True)
class Reached:
    """The end of the reads along a dimension, and the counts that it depends on, see `louver.ir.conditions.Reach`.

    needs: sizes that must be at least 0, or else the reads may begin before the tensor.
    whole: numbers that must be whole steps of loops, or else the reads may end later.
    loose: whether a number that is not known may end the reads earlier.
    """

    end: Size
    counts: tuple[Size, ...]
    needs: tuple[Size, ...]
    whole: Needs
    loose: bool


def reach(dimension: Dimension, affine: Affine, names: Mapping[SSAValue, str], op: Operation) -> Reached | None:
    """How far `op` reads a dimension without a bound. None if a launch cannot compute a tile's start: it must be a multiple
    of a number for each program, or for each iteration of a loop that ends at a size, or of a number that conditions limit.
    """
    end, counts = Polynomial.number(dimension.extent), set[Size]()
    ends = Ends(affine, names, facts_at(affine, op))
    first, last_steps, whole = _behind_steps(dimension.first, affine, names)
    end -= last_steps
    for rest in remainders(first):
        if not ends.require(ends.of(rest.whole, "least")):
            return None
        first, end = first - rest.terms, end + rest.factor * (rest.by - 1)
    for terms, factor, turn in _turns(first):
        most, by = ends.of(turn.whole, "greatest"), ends.of(turn.by, "greatest")
        known = ends.require(ends.of(turn.whole, "least")) and ends.require(ends.of(turn.by, "least"), 1)
        if most is None or by is None or not known:
            return None
        first, end = first - terms, end + factor * Extreme("min", most, by - 1).made(most, by - 1)
    for factor, found in affine.rounds(first):
        count = launch_size(found.count, names)
        if count is None:
            return None
        first, end = first - factor * found.step, end + factor * (count - 1)
        counts.add(count)
    for monomial, factor in first:
        if monomial == ONE:
            end += factor
            continue
        counters = [each for each in monomial if launch_size(Polynomial.atom(each[0]), names) is None]
        step = launch_size(Polynomial.of({monomial - frozenset(counters): factor}), names)
        if factor < 0 or step is None or len(counters) != 1 or counters[0][1] != 1:
            return None
        found = _count(counters[0][0], step, ends)
        if found is None:
            return None
        times, count = found
        end += step * times * (count - 1)
        counts.add(count)
    return Reached(end, tuple(sorted(counts, key=str)), tuple(ends.needs), whole, ends.loose)


def _turns(first: Polynomial) -> Iterator[tuple[Polynomial, int, Part]]:
    """The terms `factor * (whole - whole // by * by)` of an index, for a `by` that the launch knows: tiles that begin again."""
    for monomial, factor in first:
        for part in (atom for atom, power in monomial if isinstance(atom, Part) and power == 1):
            times = Polynomial.of({monomial - {(part, 1)}: factor}).quotient(part.by)
            dividend = None if times is None or times.constant is None else part.whole * -times.constant
            if times is not None and dividend is not None and factor < 0 and dividend.terms <= first.terms:
                yield dividend + Polynomial.of({monomial: factor}), -(times.constant or 0), part


def _behind_steps(first: Polynomial, affine: Affine, names: Mapping[SSAValue, str]) -> tuple[Polynomial, int, Needs]:
    """The index behind the last step of loops that end at a number of elements which no launch knows, such as
    `min(start + PART, K) - start`; the last steps; and what makes these numbers whole steps.
    """
    steps, needs = 0, NOTHING
    for monomial, factor in first:
        ((atom, power), *others) = [*monomial] or [(None, 0)]
        found = steps_of(atom.loop.ub) if isinstance(atom, Iteration) and power == 1 and not others else None
        if found is None or not isinstance(atom, Iteration):
            continue
        number, by = found
        length = affine.integer(number)
        whole = multiple_if(number, by) if by in POWERS and factor % by == 0 else None
        begins = constant_integer(atom.loop.lb), constant_integer(atom.loop.step)
        if whole is None or launch_size(length, names) is not None or begins != (0, 1):
            continue
        first += length * (factor // by) - Polynomial.of({monomial: factor})
        steps, needs = steps + factor, needs | whole
    return first, steps, needs


def _count(atom: Hashable, step: Size, ends: Ends) -> tuple[int, Size] | None:
    """The steps from one program, or loop iteration, to the next, and the number of programs or iterations."""
    if isinstance(atom, SSAValue) and isinstance(atom.owner, GetProgramIdOp):
        return 1, Polynomial.atom(programs(atom.owner.axis.value.data))
    if isinstance(atom, Iteration):
        first, by = constant_integer(atom.loop.lb), constant_integer(atom.loop.step)
        steps = steps_of(atom.loop.ub) if (first, by) == (0, 1) else None
        end, by = (atom.loop.ub, by) if steps is None else steps
        count = None if first is None or by is None or by < 1 else _steps(end, first, by, ends)
        return None if count is None else (1, count)
    shared = _shared(cast(SSAValue, atom), step, ends) if isinstance(atom, SSAValue) else None
    if shared is not None:
        return shared
    number = Polynomial.atom(cast(Hashable, atom))
    last = ends.of(number, "greatest") if ends.require(ends.of(number, "least")) else None
    # No program may have the last number.
    ends.loose = True
    return None if last is None else (1, last + 1)


def _steps(end: SSAValue, first: int, by: int, ends: Ends) -> Size | None:
    """The iterations of a loop that ends at a size, or at the least of it and others. Below 1, there are none."""
    found = ends.of(ends.affine.integer(end), "greatest")
    return None if found is None else (found - first).ceil(by)


def _shared(number: SSAValue, step: Size, ends: Ends) -> tuple[int, Size] | None:
    """The same for a loop whose iterations programs share: `step` times its counter, which stays below the loop's end."""
    loop = number.owner.parent_op() if isinstance(number.owner, Block) else None
    if not isinstance(loop, scf.ForOp) or number is not loop.body.block.args[0] or step.constant is None:
        return None
    if not ends.require(ends.of(ends.affine.integer(loop.lb), "least")):
        return None
    # A counter that is a multiple of a power of two stays that far below the end.
    whole = next((each for each in POWERS if multiple_if(number, each) == NOTHING), 1)
    steps = steps_of(loop.ub) if whole == 1 else None
    end, by = (loop.ub, whole) if steps is None else steps
    count = _steps(end, 0, by, ends)
    return None if count is None else (whole, count)


POWERS = tuple(2**each for each in range(10, 0, -1))
"""Powers of two that may divide the first number and the step of a loop."""
