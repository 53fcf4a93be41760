"""Facts about integers and addresses during lowering: sums with a constant, and powers of two that divide them.

Neighbouring elements of a thread differ by constants. An integer or address is recorded as a register plus a constant,
through sums, products with constants and extensions. Accesses then share a register and have different offsets.
Neighbours move together if the address is a multiple of their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.ptx.module import Reg

WHOLE = 1 << 32
"""The period of an integer of 32 bits."""


@dataclass(frozen=True, slots=True)
class Sum:
    """`base` plus a constant, or only the constant."""

    base: Reg | None
    constant: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about an integer.

    multiple: a power of two that divides it.
    period, most: the remainder modulo `period`, a power of two, is at most `most`.
    """

    multiple: int = 1
    period: int = 1
    most: int = 0

    @classmethod
    def of(cls, number: int) -> Facts:
        """The facts of a constant."""
        multiple = min(number & -number, WHOLE) if number else WHOLE
        return cls(multiple, WHOLE, number) if 0 <= number < WHOLE else cls(multiple)

    def rest(self, period: int) -> int | None:
        """An upper bound of the remainder modulo a power of two; None if it is not known."""
        if self.multiple % period == 0:
            return 0
        return self.most if period <= self.period and self.most < period else None

    def plus(self, other: Facts) -> Facts:
        """The facts of the sum."""
        multiple = min(self.multiple, other.multiple)
        for period in sorted({self.period, other.period, self.multiple, other.multiple}, reverse=True):
            one, another = self.rest(period), other.rest(period)
            if one is not None and another is not None and one + another < period:
                return Facts(multiple, period, one + another)
        return Facts(multiple)

    def times(self, other: Facts) -> Facts:
        """The facts of the product."""
        return Facts(min(self.multiple * other.multiple, WHOLE))

    def scaled(self, number: int) -> Facts:
        """The facts of the product with a constant."""
        multiple = min(self.multiple * Facts.of(number).multiple, WHOLE)
        fits = number > 0 and self.most * number < self.period
        return Facts(multiple, self.period, self.most * number) if fits else Facts(multiple)

    def takes(self, constant: int) -> bool:
        """Whether a constant may be added before or after a sign extension of 32 bits, with the same result."""
        if not 0 <= constant < WHOLE // 2:
            return False
        return constant < min(self.multiple, WHOLE // 2) or self.most + constant < min(self.period, WHOLE // 2)


@dataclass(frozen=True, slots=True)
class Test:
    """How a condition is computed: an MLIR comparison of integers such as "slt", or "and" or "or" of conditions."""

    name: str
    operands: tuple[Reg, ...]


class Known:
    """Sums and facts by register. For an unknown register, the sum is the register itself, and no divisor is known."""

    def __init__(self) -> None:
        self._sums: dict[Reg, Sum] = {}
        self._facts: dict[Reg, Facts] = {}

    def sum_of(self, register: Reg) -> Sum:
        """The sum that a register holds."""
        return self._sums.get(register, Sum(register, 0))

    def facts_of(self, register: Reg) -> Facts:
        """The facts of the whole sum."""
        found = self.sum_of(register)
        constant = Facts.of(found.constant)
        if found.base is None:
            return constant
        own = self._facts.get(found.base, Facts())
        return own if found.constant == 0 else own.plus(constant)

    def most_of(self, register: Reg) -> int | None:
        """The greatest value of an integer of 32 bits that is not negative; None if it may be negative, or has other bits."""
        facts = self.facts_of(register)
        return facts.most if register.type == "b32" and facts.period == WHOLE and facts.most < WHOLE // 2 else None

    def is_sum(self, register: Reg, base: Reg | None, constant: int) -> None:
        """Record that a register is a sum."""
        self._sums[register] = Sum(base, constant)

    def has(self, register: Reg, facts: Facts) -> None:
        """Record facts of a register that is not a sum."""
        self._facts[register] = facts
