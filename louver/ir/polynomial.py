"""Integer polynomials over atoms. They represent numbers of a kernel, and numbers that a launch computes.

In a kernel, atoms are SSA values, lanes and iterations (`louver.analysis.atoms`). In a `Size`, atoms are names of
numbers of a call, so a launch can compute it by `Size.value(numbers)`. Quotients, minima and maxima of polynomials are
atoms in both.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal, TypeAlias, cast

Monomial: TypeAlias = frozenset[tuple[Hashable, int]]
"""A product of atoms, each with its power."""

Numbers: TypeAlias = Mapping[str, int | float]
"""The numbers of a call, by name."""

ONE: Monomial = frozenset()

MOST_ATOMS = 256
"""Most atoms of a number that a kernel computes from others. What quotients are made of is counted each time that they are used, and
what uses its operand twice would double with each step. A longer number is an atom of its own.
"""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of monomials with integer coefficients, none of them 0. Its text is infix: `2*M`, `K/2`, `min(M, 128) + 1`."""

    terms: frozenset[tuple[Monomial, int]]

    @classmethod
    def of(cls, coefficients: Mapping[Monomial, int]) -> Polynomial:
        """The polynomial with these coefficients by monomial. Coefficients of 0 are dropped."""
        return cls(frozenset((monomial, factor) for monomial, factor in coefficients.items() if factor))

    @classmethod
    def number(cls, value: int) -> Polynomial:
        """A constant."""
        return cls.of({ONE: value})

    @classmethod
    def atom(cls, atom: Hashable) -> Polynomial:
        """The polynomial of one atom."""
        return cls.of({frozenset({(atom, 1)}): 1})

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def parse(cls, text: str) -> Polynomial:
        """The size from a text that `str` wrote. Raises ValueError for other texts."""
        return _Parser(_TOKEN.findall(text), text).whole()

    def __iter__(self) -> Iterator[tuple[Monomial, int]]:
        return iter(self.terms)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: Polynomial | int) -> Polynomial:
        total = Counter(dict(self.terms))
        for monomial, factor in _polynomial(other).terms:
            total[monomial] += factor
        return Polynomial.of(total)

    def __neg__(self) -> Polynomial:
        return Polynomial(frozenset((monomial, -factor) for monomial, factor in self.terms))

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        total: Counter[Monomial] = Counter()
        for one, factor in self.terms:
            for two, by in _polynomial(other).terms:
                total[multiply(one, two)] += factor * by
        return Polynomial.of(total)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Polynomial | int) -> Polynomial:
        """The quotient, rounded towards 0 as in kernels. If the division is exact, the result has no `Part`."""
        by = _polynomial(other)
        exact = self.quotient(by)
        if exact is not None:
            return exact
        if by.constant is not None and self.constant is not None:
            return Polynomial.number(_quotient(self.constant, by.constant))
        if by.constant is not None and any(
            rest.terms == self and rest.factor * (rest.by - 1) < by.constant for rest in remainders(self)
        ):
            # A remainder is nearer to 0 than its divisor.
            return Polynomial.number(0)
        # Both sides lose what divides all of them: 2 * i // 4 is i // 2, which `remainders` then knows beside 64 * i.
        common = Polynomial.number(gcd(*(factor for _, factor in (*self.terms, *by.terms))))
        whole, part = self.quotient(common), by.quotient(common)
        assert whole is not None and part is not None
        return Polynomial.atom(Part(whole, part))

    def quotient(self, by: Polynomial) -> Polynomial | None:
        """The quotient by a single monomial, if the division is exact; else None."""
        if len(by.terms) != 1:
            return None
        ((unit, size),) = by.terms
        found: dict[Monomial, int] = {}
        for monomial, factor in self.terms:
            part = divide(monomial, unit)
            if part is None or factor % size:
                return None
            found[part] = factor // size
        return Polynomial.of(found)

    def ceil(self, by: int) -> Polynomial:
        """The quotient, rounded up. The polynomial must not be negative."""
        return self // by if all(factor % by == 0 for _, factor in self.terms) else (self + (by - 1)) // by

    def __str__(self) -> str:
        terms = sorted(self.terms, key=lambda term: (term[0] == ONE, term[1] < 0, _product(*term)))
        text = " + ".join(_product(*term) for term in terms) or "0"
        return text.replace("+ -", "- ")

    __repr__ = __str__

    @property
    def constant(self) -> int | None:
        """The value, if it has no atoms; else None."""
        return self.coefficient(ONE) if all(monomial == ONE for monomial, _ in self.terms) else None

    @property
    def atoms(self) -> frozenset[Hashable]:
        """All atoms."""
        return frozenset(atom for monomial, _ in self.terms for atom, _ in monomial)

    @property
    def leaves(self) -> frozenset[Hashable]:
        """All atoms, with compound atoms replaced by their leaves."""
        found: set[Hashable] = set()
        for atom in self.atoms:
            found |= frozenset().union(*(part.leaves for part in atom.parts)) if isinstance(atom, Compound) else {atom}
        return frozenset(found)

    @property
    def is_long(self) -> bool:
        """Whether it has more than `MOST_ATOMS`."""
        return self._length() > MOST_ATOMS

    def _length(self) -> int:
        """Its atoms, and those of their parts."""
        atoms = [atom for monomial, _ in self.terms for atom, _ in monomial]
        parts = (part for atom in atoms if isinstance(atom, Compound) for part in atom.parts)
        return len(atoms) + sum(part._length() for part in parts)

    @property
    def name(self) -> str | None:
        """The name, if the size is only a name; else None."""
        (only,) = self.atoms if len(self.atoms) == 1 else (None,)
        return only if isinstance(only, str) and self == Polynomial.atom(only) else None

    def coefficient(self, monomial: Monomial) -> int:
        """The coefficient of a monomial."""
        return dict(self.terms).get(monomial, 0)

    def factor(self, atom: Hashable) -> Polynomial:
        """The factor of an atom: b + 2 for a + 2 * x + b * x."""
        single = frozenset([(atom, 1)])
        found = {rest: factor for one, factor in self if (rest := divide(one, single)) is not None}
        return Polynomial.of(found)

    def over(self, leaf: Callable[[Hashable], Polynomial | None]) -> Polynomial | None:
        """The polynomial with its leaves replaced; None if `leaf` gives None for any of them."""
        total = Polynomial.number(0)
        for monomial, factor in self.terms:
            product = Polynomial.number(factor)
            for atom, power in monomial:
                value = atom.over(leaf) if isinstance(atom, Compound) else leaf(atom)
                if value is None:
                    return None
                for _ in range(power):
                    product *= value
            total += product
        return total

    def value(self, numbers: Numbers) -> int:
        """The value of a size in a call with these numbers. Raises KeyError for any other name."""
        total = 0
        # Launches compute many sizes. Calls, generators and checks for an abstract class would take three times as
        # long.
        for monomial, factor in self.terms:
            for atom, power in monomial:
                found = int(numbers[atom]) if type(atom) is str else cast(Compound, atom).value(numbers)
                factor *= found if power == 1 else found**power
            total += factor
        return total


Size: TypeAlias = Polynomial
"""A number that a launch computes. Its leaves are names of numbers of a call."""


class Compound(ABC):
    """An atom with polynomials as parts."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> tuple[Polynomial, ...]:
        """The polynomials of the atom."""

    @abstractmethod
    def made(self, *parts: Polynomial) -> Polynomial:
        """The same operation on other polynomials."""

    def value(self, numbers: Numbers) -> int:
        """The value in a call with these numbers. Raises KeyError for atoms that only kernels have."""
        raise KeyError(str(self))

    def over(self, leaf: Callable[[Hashable], Polynomial | None]) -> Polynomial | None:
        """The atom with its leaves replaced; None if `leaf` gives None for any of them."""
        found = [part.over(leaf) for part in self.parts]
        return None if None in found else self.made(*cast("list[Polynomial]", found))


@dataclass(frozen=True, slots=True)
class Part(Compound):
    """`whole` divided by `by`, rounded towards 0, as `//` in a kernel. If `by` is 0 in a call, it counts as 1."""

    whole: Polynomial
    by: Polynomial

    @property
    def parts(self) -> tuple[Polynomial, ...]:
        """The whole and the divisor."""
        return self.whole, self.by

    def made(self, *parts: Polynomial) -> Polynomial:
        """The quotient of two other polynomials."""
        return parts[0] // parts[1]

    def value(self, numbers: Numbers) -> int:
        """The quotient."""
        return _quotient(self.whole.value(numbers), self.by.value(numbers))

    def __str__(self) -> str:
        whole, by = str(self.whole), str(self.by)
        bare = len(self.whole.terms) == 1 and not whole.startswith("-")
        return f"{whole if bare else f'({whole})'}/{by if _WORD.fullmatch(by) else f'({by})'}"


@dataclass(frozen=True, slots=True)
class Extreme(Compound):
    """The minimum or maximum of two numbers."""

    kind: Literal["min", "max"]
    one: Polynomial
    other: Polynomial

    @property
    def parts(self) -> tuple[Polynomial, ...]:
        """Both numbers."""
        return self.one, self.other

    def made(self, *parts: Polynomial) -> Polynomial:
        """The minimum or maximum of two other numbers."""
        numbers = [part.constant for part in parts]
        if None not in numbers:
            return Polynomial.number(_EXTREMES[self.kind](*cast("list[int]", numbers)))
        return Polynomial.atom(Extreme(self.kind, *parts))

    def value(self, numbers: Numbers) -> int:
        """The minimum or maximum."""
        return _EXTREMES[self.kind](self.one.value(numbers), self.other.value(numbers))

    def __str__(self) -> str:
        return f"{self.kind}({self.one}, {self.other})"


_EXTREMES: Mapping[str, Callable[[int, int], int]] = {"min": min, "max": max}

AXES = "xyz"


def programs(axis: int) -> str:
    """The name of the number of programs along an axis of the grid."""
    return f"programs {AXES[axis]}"


def with_grid(numbers: Numbers, grid: Sequence[int]) -> dict[str, int | float]:
    """The numbers of a call, with the number of programs along each axis."""
    padded = (*grid, 1, 1)
    return {**numbers, **{programs(axis): padded[axis] for axis in range(len(AXES))}}


def multiply(one: Monomial, two: Monomial) -> Monomial:
    """The product of two monomials."""
    powers = Counter(dict(one))
    for atom, power in two:
        powers[atom] += power
    return frozenset(powers.items())


def divide(monomial: Monomial, by: Monomial) -> Monomial | None:
    """The quotient; None if it is not a monomial."""
    powers = Counter(dict(monomial))
    for atom, power in by:
        powers[atom] -= power
    if any(power < 0 for power in powers.values()):
        return None
    return frozenset((atom, power) for atom, power in powers.items() if power)


def _polynomial(value: Polynomial | int) -> Polynomial:
    return Polynomial.number(value) if isinstance(value, int) else value


def _quotient(whole: int, by: int) -> int:
    """The quotient, rounded towards 0. A divisor of 0, such as a stride of 0, counts as 1."""
    by = by or 1
    return whole // by if (whole < 0) == (by < 0) else -(-whole // by)


def _product(monomial: Monomial, factor: int) -> str:
    alone = factor == 1 and sum(power for _, power in monomial) == 1
    texts = [
        f"({atom})" if isinstance(atom, Part) and not alone else str(atom)
        for atom, power in monomial
        for _ in range(power)
    ]
    number = [] if abs(factor) == 1 and monomial else [str(abs(factor))]
    return "-" * (factor < 0) + "*".join([*number, *sorted(texts)])


_WORD = re.compile(r"programs [xyz]|[^\s+\-*/(),]+")
_TOKEN = re.compile(rf"{_WORD.pattern}|\S")


@dataclass(slots=True)
class _Parser:
    """Reads tokens of `text` from left to right."""

    tokens: list[str]
    text: str

    def whole(self) -> Polynomial:
        found = self._sum()
        if self.tokens:
            raise self._error()
        return found

    def _sum(self) -> Polynomial:
        total = -self._term() if self._take("-") else self._term()
        while operator := self._take("+", "-"):
            total = total + self._term() if operator == "+" else total - self._term()
        return total

    def _term(self) -> Polynomial:
        product = self._factor()
        while operator := self._take("*", "/"):
            product = product * self._factor() if operator == "*" else product // self._factor()
        return product

    def _factor(self) -> Polynomial:
        if self._take("("):
            return self._closed(self._sum())
        if not self.tokens or not _WORD.fullmatch(self.tokens[0]):
            raise self._error()
        word = self.tokens.pop(0)
        if word in _EXTREMES and self._take("("):
            one = self._sum()
            if not self._take(","):
                raise self._error()
            return self._closed(Extreme(cast(Literal["min", "max"], word), one, one).made(one, self._sum()))
        return Polynomial.number(int(word)) if word.isdecimal() else Polynomial.atom(word)

    def _closed(self, found: Polynomial) -> Polynomial:
        if not self._take(")"):
            raise self._error()
        return found

    def _take(self, *tokens: str) -> str | None:
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in tokens else None

    def _error(self) -> ValueError:
        rest = "".join(self.tokens) or "nothing more"
        return ValueError(
            f"a size is made of numbers, names, + - * / min max and brackets, got {rest!r} in {self.text!r}"
        )


@dataclass(frozen=True, slots=True)
class Remainder:
    """The terms `factor * (whole - whole // by * by)` of a number: a program's share of K."""

    factor: int
    whole: Polynomial
    by: int
    terms: Polynomial


def remainders(number: Polynomial) -> list[Remainder]:
    """The remainders by numbers among the terms of a number.

    A quotient may be added to them: `64 * x - 511 * (x // 8)` is `64 * (x % 8) + x // 8`.
    """
    found: list[Remainder] = []
    for monomial, times in number:
        part = next((atom for atom, _ in monomial if isinstance(atom, Part)), None)
        by = part.by.constant if part is not None and monomial == frozenset({(part, 1)}) else None
        if part is None or not by or by < 1 or times > 0:
            continue
        factor = -(times // by)
        dividend = part.whole * factor
        if dividend.terms <= number.terms:
            found.append(Remainder(factor, part.whole, by, dividend - Polynomial.of({monomial: factor * by})))
    return found
