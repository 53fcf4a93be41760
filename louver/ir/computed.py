"""Arguments that are added to a kernel: of a sparse tensor whose tiles are addressed at run time, or that is sparse along its
last axis but one, such as a weight [K, N] or `s.T`; and for exact divisions by a number that a launch knows, by a
multiplication and a shift.
"""

from __future__ import annotations

from dataclasses import dataclass

VALUES = ".values"
"""The values, until they take the name of the tensor."""

CODES = ".codes"
"""The codes of all groups, 4 bits each."""

COUNT = ".count"
"""The elements of the dense tensor."""

NAN = ".nan"
"""The place of the NaN of the page, in elements behind the first value."""

COLUMNS = ".columns"
"""The length of a row of the dense tensor, if rows are not the sparse axis."""

ROWS = ".rows"
"""The rows of the dense tensor, of all its matrices, if rows are not the sparse axis."""

VIOLATIONS = "violations.flag"
"""The page of violations (`louver.runtime.violations`)."""


MULTIPLIER, SHIFT = ".multiplier", ".shift"
"""Suffixes in the names of the two arguments of a kernel that divides by the argument before them."""

MOST_DIVIDED = (1 << 31) - 1
"""The greatest number that is divided, and the greatest divisor."""


@dataclass(frozen=True, slots=True)
class Divisor:
    """A divisor d. n / d, rounded down, is n * multiplier >> shift for all n from 0 to `MOST_DIVIDED`.

    Proof. Let s be the least number with d <= 2^s, shift = 31 + s, and multiplier = ⌈2^shift / d⌉. Then
    multiplier * d = 2^shift + e with 0 <= e < d <= 2^s, so n * multiplier / 2^shift = n / d + n * e / (d * 2^shift). The last
    part is at least 0, and below 1 / d, because n * e < 2^31 * 2^s. A quotient n / d is at most 1 - 1 / d above a whole number,
    so the sum is below the next one. The multiplier has 32 bits: for s = 0 it is 2^31, and else d >= 2^(s - 1) + 1, so that
    2^shift / d <= 2^32 * (1 - 1 / (2^(s - 1) + 1)) < 2^32 - 1. Source: Granlund and Montgomery, Division by Invariant Integers
    using Multiplication, 1994, theorem 4.2.
    """

    value: int

    def __post_init__(self) -> None:
        if not 1 <= self.value <= MOST_DIVIDED:
            raise ValueError(f"divisors are 1 to {MOST_DIVIDED}, got {self.value}")

    @property
    def shift(self) -> int:
        """At least 31, and at most 62."""
        return 31 + (self.value - 1).bit_length()

    @property
    def multiplier(self) -> int:
        """A number of 32 bits."""
        return -(-(1 << self.shift) // self.value)

    def numbers(self, name: str) -> dict[str, int]:
        """The arguments of a kernel that divides by the argument `name`."""
        return {name + MULTIPLIER: self.multiplier, name + SHIFT: self.shift}


TRANSPOSED = ".T"
"""The suffix of the argument's pattern: "2:4.T"."""

LENGTH = ".K"
"""The suffix in the name of an extra argument, the argument's length along its sparse axis."""
