"""Atoms of a kernel's polynomials beside its values: lanes of tiles, iterations of loops, wrapped indices."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from xdsl.dialects import scf

from louver.ir.polynomial import Compound, Polynomial


@dataclass(frozen=True, slots=True)
class Lane:
    """An element's index along a dimension of its tile."""

    dimension: int


@dataclass(frozen=True, slots=True)
class Wrapped(Compound):
    """The remainder of `index` by `size`: rows beyond the last one wrap to the first. `index` runs along one dimension."""

    index: Polynomial
    size: Polynomial

    @property
    def parts(self) -> tuple[Polynomial, ...]:
        """The index and the size."""
        return self.index, self.size

    def made(self, *parts: Polynomial) -> Polynomial:
        """The same of another index and size."""
        return Polynomial.atom(Wrapped(*parts))


@dataclass(frozen=True, slots=True)
class Iteration:
    """The number of iterations of a loop before this one."""

    loop: scf.ForOp


def lanes(value: Polynomial) -> frozenset[int]:
    """The dimensions along which it changes."""
    return frozenset(leaf.dimension for leaf in value.leaves if isinstance(leaf, Lane))


def moved(value: Polynomial, where: Callable[[int], int]) -> Polynomial:
    """The polynomial with its dimensions numbered anew."""

    def leaf(atom: Hashable) -> Polynomial:
        return Polynomial.atom(Lane(where(atom.dimension)) if isinstance(atom, Lane) else atom)

    found = value.over(leaf)
    assert found is not None
    return found
