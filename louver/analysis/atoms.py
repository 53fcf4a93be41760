"""Atoms of a kernel's polynomials other than SSA values: lanes of tiles, iterations of loops, wrapped indices."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from xdsl.dialects import scf

from louver.ir.polynomial import Compound, Polynomial, remainders


@dataclass(frozen=True, slots=True)
class Lane:
    """An element's index along a dimension of its tile."""

    dimension: int


@dataclass(frozen=True, slots=True)
class Wrapped(Compound):
    """`index` where it is below `size`, and any other row from there on. `index` varies along one dimension.

    again: whether rows begin again at 0 from there on, as by `%`.
    """

    index: Polynomial
    size: Polynomial
    again: bool = False

    @property
    def parts(self) -> tuple[Polynomial, ...]:
        return self.index, self.size

    def made(self, *parts: Polynomial) -> Polynomial:
        index, size = parts
        return Polynomial.atom(Wrapped(index, size, self.again))


@dataclass(frozen=True, slots=True)
class Quotient(Compound):
    """Indices of a tile divided by a number, rounded towards 0. No offset of a tile may depend on it."""

    whole: Polynomial
    by: Polynomial

    @property
    def parts(self) -> tuple[Polynomial, ...]:
        return self.whole, self.by

    def made(self, *parts: Polynomial) -> Polynomial:
        return Polynomial.atom(Quotient(*parts))


@dataclass(frozen=True, slots=True)
class Iteration:
    """The number of completed iterations of a loop."""

    loop: scf.ForOp


def lanes(value: Polynomial) -> frozenset[int]:
    """The dimensions along which a polynomial varies."""
    return frozenset(leaf.dimension for leaf in value.leaves if isinstance(leaf, Lane))


def only_quotient(value: Polynomial) -> Quotient | None:
    """The quotient that a polynomial is; None if it is more or less than one."""
    found = [atom for atom in value.atoms if isinstance(atom, Quotient)]
    return found[0] if len(found) == 1 and value == Polynomial.atom(found[0]) else None


def divided(whole: Polynomial, by: Polynomial) -> Quotient:
    """The quotient of a tile. To divide a quotient again is to divide by the product: x // a // b is x // (a * b)."""
    inner = only_quotient(whole)
    return Quotient(whole, by) if inner is None else Quotient(inner.whole, inner.by * by)


def holds_quotient(value: Polynomial) -> bool:
    """Whether a polynomial depends on a tile that is divided."""
    return any(
        isinstance(atom, Quotient) or (isinstance(atom, Compound) and any(map(holds_quotient, atom.parts)))
        for atom in value.atoms
    )


def always_below(value: Polynomial, dimension: int, extent: int) -> bool:
    """Whether a number plus the lane along a dimension of a tile of `extent` is always below 0.

    A remainder is below its divisor: `64 * (step % 4) + arange(0, 64)` is below 256.
    """
    left = value - Polynomial.atom(Lane(dimension))
    for rest in remainders(left):
        left = left - rest.terms + rest.factor * (rest.by - 1)
    most = left.constant
    return most is not None and most + extent - 1 < 0


def moved(value: Polynomial, where: Callable[[int], int]) -> Polynomial:
    """The polynomial with renumbered dimensions."""

    def leaf(atom: Hashable) -> Polynomial:
        return Polynomial.atom(Lane(where(atom.dimension)) if isinstance(atom, Lane) else atom)

    found = value.over(leaf)
    assert found is not None
    return found
