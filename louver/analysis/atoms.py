"""What the polynomials of `affine.py` are over, beside values of the kernel: lanes of tiles, iterations of loops, wrapped indices."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from xdsl.dialects import scf

from louver.analysis.polynomial import Polynomial


@dataclass(frozen=True, slots=True)
class Lane:
    """An element's index along a dimension of its tile."""

    dimension: int


@dataclass(frozen=True, slots=True)
class Wrapped:
    """What is left of `index` by `size`: rows beyond the last one begin anew. `index` runs along one dimension."""

    index: Polynomial
    size: Polynomial


@dataclass(frozen=True, slots=True)
class Iteration:
    """How often a loop's body has been run before."""

    loop: scf.ForOp


@dataclass(frozen=True, slots=True)
class Part:
    """`whole` divided by a number, rounded towards 0, as `//` does in a kernel."""

    whole: Polynomial
    by: int

    @classmethod
    def of(cls, whole: Polynomial, by: int) -> Polynomial:
        """As a polynomial: without a remainder it is that of the quotient."""
        if all(factor % by == 0 for _, factor in whole):
            return Polynomial.of({monomial: factor // by for monomial, factor in whole})
        return Polynomial.atom(cls(whole, by))


def lanes(value: Polynomial) -> frozenset[int]:
    """The dimensions along which it changes."""
    found: set[int] = set()
    for atom in value.atoms:
        if isinstance(atom, Lane):
            found.add(atom.dimension)
        elif isinstance(atom, Wrapped):
            found |= lanes(atom.index)
    return frozenset(found)


def scalars(value: Polynomial) -> frozenset[Hashable]:
    """What it is made of in the end: values of the kernel, lanes and iterations."""
    found: set[Hashable] = set()
    for atom in value.atoms:
        match atom:
            case Wrapped(index, size):
                found |= scalars(index) | scalars(size)
            case Part(whole):
                found |= scalars(whole)
            case _:
                found.add(atom)
    return frozenset(found)


def moved(value: Polynomial, where: Callable[[int], int]) -> Polynomial:
    """The polynomial with its dimensions numbered anew."""

    def change(atom: Hashable) -> Polynomial:
        match atom:
            case Lane(dimension):
                return Polynomial.atom(Lane(where(dimension)))
            case Wrapped(index, size):
                return Polynomial.atom(Wrapped(moved(index, where), size))
            case _:
                return Polynomial.atom(atom)

    return changed(value, change)


def changed(value: Polynomial, change: Callable[[Hashable], Polynomial]) -> Polynomial:
    """The polynomial of other atoms."""
    total = Polynomial.number(0)
    for monomial, factor in value:
        product = Polynomial.number(factor)
        for atom, power in monomial:
            for _ in range(power):
                product = product * change(atom)
        total = total + product
    return total
