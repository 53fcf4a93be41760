"""The least and the greatest value of a kernel's integers over all programs and iterations, as sizes of a launch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal, NamedTuple, TypeAlias, cast

from xdsl.dialects import arith, scf
from xdsl.ir import SSAValue

from louver.analysis.affine import Affine, launch_size, loop_of
from louver.analysis.atoms import Iteration
from louver.analysis.integers import position
from louver.analysis.passages import end_of
from louver.ir.arith import TruncIOp
from louver.ir.comparisons import SelectOp
from louver.ir.polynomial import ONE, Extreme, Monomial, Part, Polynomial, Remainder, Size, programs, remainders
from louver.ir.tile import GetProgramIdOp

End: TypeAlias = Literal["least", "greatest"]

_OTHER: Mapping[End, End] = {"least": "greatest", "greatest": "least"}
_KIND: Mapping[End, Literal["min", "max"]] = {"least": "min", "greatest": "max"}


class _Found(NamedTuple):
    """An end that was found, and what it needs of a launch."""

    size: Size | None
    needs: tuple[Size, ...]


@dataclass(slots=True)
class Ends:
    """Finds ends of integers. They hold for a launch if all sizes of `needs` are at least 0.

    names: of the arguments that a launch knows.
    facts: polynomials that are below 0 wherever the values are used.
    loose: whether an end that was found leaves out a number that is not known.
    """

    affine: Affine
    names: Mapping[SSAValue, str]
    facts: Sequence[Polynomial] = ()
    needs: list[Size] = field(default_factory=list[Size])
    loose: bool = False
    _found: dict[tuple[Polynomial, End], _Found] = field(
        default_factory=dict[tuple[Polynomial, End], "_Found"], init=False
    )

    def of(self, value: Polynomial, end: End) -> Size | None:
        """An end of a value, or a number beyond it. None if a launch cannot compute it."""
        found = self._found.get((value, end))
        if found is None:
            found = self._found[value, end] = self._read(value, end)
        self.needs += (each for each in found.needs if each not in self.needs)
        return found.size

    def _read(self, value: Polynomial, end: End) -> _Found:
        """An end with all that it needs, whatever is needed already."""
        outer, self.needs = self.needs, []
        try:
            size = self._of(value, end)
            return _Found(None, ()) if size is None or size.is_long else _Found(size, tuple(self.needs))
        finally:
            self.needs = outer

    def _of(self, value: Polynomial, end: End) -> Size | None:
        known = launch_size(value, self.names)
        if known is not None:
            return known
        if end == "least":
            # Numbers of the launch may prove less: `n - tiles` is at least 0 behind `n >= tiles`, and -tiles for any n.
            proved = max(
                (each.constant or 0 for each in self._by_facts(value, end) if each.constant is not None), default=-1
            )
            if proved >= 0:
                return Polynomial.number(proved)
        needed = len(self.needs)
        rests = Polynomial.number(0)
        if end == "greatest":
            for rest in remainders(value):
                value, rests = value - rest.terms, rests + rest.factor * self._greatest_of_remainder(rest)
        parts = [rests, *(self._term(*term, end) for term in (self._rounded(value) if end == "least" else value))]
        if None in parts:
            # What was needed until the first unknown part depends on the order of terms, which are a set.
            del self.needs[needed:]
            return next(self._by_facts(value, end), None)
        return sum(cast("list[Size]", parts), Polynomial.number(0))

    def _by_facts(self, value: Polynomial, end: End) -> Iterator[Size]:
        """Ends by facts, times a number, that leave numbers of the launch alone: facts are at most -1."""
        for fact in self.facts:
            sign = -1 if end == "least" else 1
            pairs = (divmod(sign * value.coefficient(term), by) for term, by in fact if term != ONE)
            times = sorted({whole for whole, rest in pairs if whole > 0 == rest})
            beyond = (value - sign * each * (fact + 1) for each in times)
            yield from (size for each in beyond if (size := launch_size(each, self.names)) is not None)

    def _greatest_of_remainder(self, rest: Remainder) -> Size:
        """The divisor minus 1, or the dividend where fewer programs have one."""
        most = Polynomial.number(rest.by - 1)
        whole = self.of(rest.whole, "greatest") if self.of(rest.whole, "least") == Polynomial.number(0) else None
        return most if whole is None else Extreme("min", most, whole).made(most, whole)

    def _free(self, value: Polynomial, end: End) -> Size | None:
        """An end of a value that needs nothing more of a launch; None for others."""
        needed = len(self.needs)
        found = self.of(value, end)
        free = len(self.needs) == needed
        del self.needs[needed:]
        return found if free else None

    def require(self, value: Size | None, least: int = 0) -> bool:
        """Record that a size must be at least this number. Returns False for a size that cannot be."""
        if value is None or (value.constant is not None and value.constant < least):
            return False
        if value.constant is None and (needed := value - least) not in self.needs:
            self.needs.append(needed)
        return True

    def _term(self, monomial: Monomial, factor: int, end: End) -> Size | None:
        inner = end if factor > 0 else _OTHER[end]
        single = sum(power for _, power in monomial) < 2
        product = Polynomial.number(factor)
        for atom, power in monomial:
            found = self._atom(atom, inner)
            # The ends of a product are the products of ends if no factor is negative.
            if found is None or not (single or self.require(found if inner == "least" else self._atom(atom, "least"))):
                return None
            for _ in range(power):
                product *= found
        return product

    def _atom(self, atom: Hashable, end: End) -> Size | None:
        known = launch_size(Polynomial.atom(atom), self.names)
        if known is not None:
            return known
        match atom:
            case Iteration(loop):
                times = None if end == "least" else self.affine.times(loop)
                last = None if times is None else launch_size(times - 1, self.names)
                return Polynomial.number(0) if end == "least" else last
            case Part(whole, by):
                return self._quotient(whole, by, end)
            case Extreme(kind, one, other):
                return self._extreme(kind, (one, other), end)
            case _:
                return self._value(cast(SSAValue, atom), end) if isinstance(atom, SSAValue) else None

    def _value(self, value: SSAValue, end: End) -> Size | None:
        loop = loop_of(value)
        if loop is not None:
            found = self.of(self.affine.integer(loop.lb if end == "least" else loop.ub), end)
            return found if found is None or end == "least" else found - 1
        match value.owner:
            case GetProgramIdOp(axis=axis):
                return Polynomial.number(0) if end == "least" else Polynomial.atom(programs(axis.value.data)) - 1
            case arith.RemSIOp(lhs=whole, rhs=by) | arith.RemUIOp(lhs=whole, rhs=by):
                # A remainder has the sign of the whole.
                least = self.of(self.affine.integer(whole), "least")
                if not self.require(least):
                    return None
                if end == "least":
                    return Polynomial.number(0)
                divisor, dividend = self.affine.integer(by), self.affine.integer(whole)
                if not self.require(self.of(divisor, "least"), 1):
                    return self.of(dividend, end)
                return _lesser(self.of(divisor - 1, end), self._free(dividend, end))
            case arith.DivSIOp(lhs=whole, rhs=by) | arith.DivUIOp(lhs=whole, rhs=by):
                return self._quotient(self.affine.integer(whole), self.affine.integer(by), end)
            case arith.MinSIOp(lhs=one, rhs=other):
                return self._extreme("min", (self.affine.integer(one), self.affine.integer(other)), end)
            case arith.MaxSIOp(lhs=one, rhs=other):
                return self._extreme("max", (self.affine.integer(one), self.affine.integer(other)), end)
            case SelectOp(lhs=one, rhs=other):
                return self._extreme(_KIND[end], (self.affine.integer(one), self.affine.integer(other)), end)
            case scf.IfOp() as branch:
                place = position(value, branch.results)
                arms = [end_of(region.block).operands[place] for region in branch.regions]
                return self._extreme(_KIND[end], (self.affine.integer(arms[0]), self.affine.integer(arms[1])), end)
            case TruncIOp(input=inner):
                return self.of(self.affine.integer(inner), end)
            case _:
                return None

    def _quotient(self, whole: Polynomial, by: Polynomial, end: End) -> Size | None:
        for fact in self.facts:
            # A number from 0 to below `times` divisors shows that divisors are above 0.
            times = (whole - fact).quotient(by)
            most = None if times is None else launch_size(times, self.names)
            if most is not None and self.require(self.of(whole, "least")) and self.require(most, 1):
                return Polynomial.number(0) if end == "least" else most - 1
        least = self.of(by, "least")
        if not self.require(self.of(whole, "least")) or not self.require(least, 1):
            return None
        if end == "least":
            return Polynomial.number(0)
        most = self.of(whole, "greatest")
        return None if most is None or least is None else most // least

    def _extreme(self, kind: Literal["min", "max"], parts: tuple[Polynomial, ...], end: End) -> Size | None:
        found = [self.of(part, end) for part in parts]
        known = [each for each in found if each is not None]
        # The least number that is known is above no minimum, and the greatest one below no maximum.
        if not known or (len(known) < len(found) and kind == _KIND[end]):
            return None
        self.loose |= len(known) < len(found)
        return reduce(lambda one, other: Extreme(kind, one, one).made(one, other), known)

    def _rounded(self, value: Polynomial) -> Polynomial:
        """A lower bound in which no quotient times its divisor is subtracted: it is at most the dividend."""
        found = Polynomial.number(0)
        for monomial, factor in value:
            quotients = ((each, self._as_quotient(each)) for each, power in monomial if power == 1)
            pairs = (
                (each, _beyond_divisor(each, monomial - {(atom, 1)}, factor, value)) for atom, each in quotients if each
            )
            quotient, rest = next(((each, rest) for each, rest in pairs if rest is not None), (None, 0))
            if (
                quotient is not None
                and self.require(self.of(quotient.whole, "least"))
                and self.require(self.of(quotient.by, "least"), 1)
            ):
                ((_, by),) = quotient.by
                found += quotient.whole * ((factor - rest) // by) + Polynomial.of({monomial: rest})
            else:
                found += Polynomial.of({monomial: factor})
        return found

    def _as_quotient(self, atom: Hashable) -> Part | None:
        """A quotient of a kernel's numbers, also by one that changes from call to call; None for other atoms."""
        op = atom.owner if isinstance(atom, SSAValue) else None
        if isinstance(op, arith.DivSIOp) and (by := self.affine.integer(op.rhs)):
            return Part(self.affine.integer(op.lhs), by)
        return atom if isinstance(atom, Part) else None


def _lesser(one: Size | None, other: Size | None) -> Size | None:
    """The lesser of two upper bounds, of which one may not be known."""
    if one is None or other is None:
        return one if other is None else other
    return Extreme("min", one, other).made(one, other)


def _beyond_divisor(quotient: Part, times: Monomial, factor: int, value: Polynomial) -> int | None:
    """What a subtracted quotient times its divisor, which is one term, leaves of a factor; None for other terms. Something is
    left only beside the dividend: `31 * x - 247 * (x // 8)` is `31 * (x - x // 8 * 8) + x // 8`.

    times: what the quotient is multiplied with, beside the factor.
    """
    ((divisor, by), *others) = list(quotient.by)
    if others or divisor != times or not factor < 0 < by:
        return None
    rest = factor % by
    number = (rest - factor) // by
    beside = all(value.coefficient(each) >= number * own > 0 for each, own in quotient.whole)
    return rest if not rest or beside else None
