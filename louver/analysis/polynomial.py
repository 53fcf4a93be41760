"""Integer polynomials over opaque atoms: what offsets of pointers are, whatever order they were computed in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Monomial: TypeAlias = frozenset[tuple[Hashable, int]]
"""Atoms with their powers."""

ONE: Monomial = frozenset()


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of monomials with integer coefficients, none of them 0."""

    terms: frozenset[tuple[Monomial, int]]

    @classmethod
    def of(cls, coefficients: Mapping[Monomial, int]) -> Polynomial:
        """From coefficients by monomial; those of 0 are dropped."""
        return cls(frozenset((monomial, factor) for monomial, factor in coefficients.items() if factor))

    @classmethod
    def number(cls, value: int) -> Polynomial:
        """A constant."""
        return cls.of({ONE: value})

    @classmethod
    def atom(cls, atom: Hashable) -> Polynomial:
        """One atom."""
        return cls.of({frozenset({(atom, 1)}): 1})

    def __iter__(self) -> Iterator[tuple[Monomial, int]]:
        return iter(self.terms)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: Polynomial) -> Polynomial:
        total = Counter(dict(self.terms))
        for monomial, factor in other.terms:
            total[monomial] += factor
        return Polynomial.of(total)

    def __neg__(self) -> Polynomial:
        return Polynomial(frozenset((monomial, -factor) for monomial, factor in self.terms))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        total: Counter[Monomial] = Counter()
        for one, factor in self.terms:
            for two, by in other.terms:
                total[multiply(one, two)] += factor * by
        return Polynomial.of(total)

    def quotient(self, by: Polynomial) -> Polynomial | None:
        """By a single monomial, where nothing is left; None elsewhere."""
        if len(by.terms) != 1:
            return None
        ((monomial, divisor),) = by.terms
        found: dict[Monomial, int] = {}
        for each, factor in self.terms:
            part = divide(each, monomial)
            if part is None or factor % divisor:
                return None
            found[part] = factor // divisor
        return Polynomial.of(found)

    @property
    def constant(self) -> int | None:
        """The number that it is, or None if it has atoms."""
        return self.coefficient(ONE) if all(monomial == ONE for monomial, _ in self.terms) else None

    @property
    def atoms(self) -> frozenset[Hashable]:
        """Every atom in it."""
        return frozenset(atom for monomial, _ in self.terms for atom, _ in monomial)

    def coefficient(self, monomial: Monomial) -> int:
        """Of one monomial."""
        return dict(self.terms).get(monomial, 0)


def multiply(one: Monomial, two: Monomial) -> Monomial:
    """The product of two monomials."""
    powers = Counter(dict(one))
    for atom, power in two:
        powers[atom] += power
    return frozenset(powers.items())


def divide(monomial: Monomial, by: Monomial) -> Monomial | None:
    """The quotient, or None if it is no monomial."""
    powers = Counter(dict(monomial))
    for atom, power in by:
        powers[atom] -= power
    if any(power < 0 for power in powers.values()):
        return None
    return frozenset((atom, power) for atom, power in powers.items() if power)
