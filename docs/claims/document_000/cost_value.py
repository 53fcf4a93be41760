"""Document 000's cost values: a mantissa of 64 bits and an exponent of 16, with its five operations.

`literal_…` is the document's code, with C's unsigned arithmetic. The others do what its text says that they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

BIAS = 16382
EXPONENT_MAX = 0x3FFF
_WORD = 1 << 64


class Undefined(ArithmeticError):
    """C leaves the operation undefined."""


@dataclass(frozen=True, slots=True)
class CostValue:
    """mantissa × 2^(exponent - 16382). mantissa: unsigned, 64 bits. exponent: signed, 16 bits."""

    mantissa: int
    exponent: int

    def __post_init__(self) -> None:
        if not 0 <= self.mantissa < _WORD or not -(1 << 15) <= self.exponent < 1 << 15:
            raise ValueError(f"a cost has 64 bits of mantissa and 16 of exponent, got {self.mantissa}, {self.exponent}")

    @property
    def value(self) -> Fraction:
        """The cost as a number."""
        return Fraction(self.mantissa) * Fraction(2) ** (self.exponent - BIAS)


INFINITY = CostValue(_WORD - 1, EXPONENT_MAX)
ZERO = CostValue(0, 0)


def cost(mantissa: int) -> CostValue:
    """A cost of that mantissa at exponent 16382, as every example of the document has it; the mantissa wraps."""
    return CostValue(mantissa % _WORD, BIAS)


# --- as the text says --------------------------------------------------------------------------------------------------
def of(value: Fraction) -> CostValue:
    """The nearest cost below or at a number, with as many bits of mantissa as there are; ZERO below the least."""
    if value < 0:
        raise ValueError(f"a cost is not negative, got {value}")
    if value == 0:
        return ZERO
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - 63
    exponent = max(exponent, -BIAS)
    mantissa = int(value / Fraction(2) ** exponent)
    while mantissa >= _WORD:
        mantissa, exponent = mantissa >> 1, exponent + 1
    return INFINITY if exponent + BIAS >= EXPONENT_MAX else CostValue(mantissa, exponent + BIAS) if mantissa else ZERO


def add(first: CostValue, second: CostValue) -> CostValue:
    """The sum; INFINITY stays."""
    return INFINITY if INFINITY in (first, second) else of(first.value + second.value)


def subtract(first: CostValue, second: CostValue) -> CostValue:
    """The difference, ZERO where the second is greater: the document names the operation and gives no code."""
    return INFINITY if first == INFINITY else of(max(first.value - second.value, Fraction(0)))


def multiply(metric: CostValue, weight: int) -> CostValue:
    """A metric times a weight: the document names the operation and gives no code."""
    return INFINITY if metric == INFINITY and weight else of(metric.value * weight)


def normalize(given: CostValue) -> CostValue:
    """The same number with the most bits of mantissa."""
    return INFINITY if given == INFINITY else of(given.value)


def compare(first: CostValue, second: CostValue) -> int:
    """1 where the first is cheaper, -1 where the second is, 0 where they are equal."""
    if INFINITY in (first, second):
        return (second == INFINITY) - (first == INFINITY)
    return (first.value < second.value) - (first.value > second.value)


def total(metrics: Sequence[CostValue], weights: Sequence[int]) -> CostValue:
    """Σ weight · metric (L1199)."""
    found = ZERO
    for metric, weight in zip(metrics, weights, strict=True):
        found = add(found, multiply(metric, weight))
    return found


# --- as the code says --------------------------------------------------------------------------------------------------
def shift_right(value: int, count: int, *, x86: bool) -> int:
    """C's `value >> count` of 64 bits. x86: as its `shr` does, by the count's low six bits; else undefined outside 0 to 63."""
    if not x86 and not 0 <= count < 64:
        raise Undefined(f"a shift of 64 bits is by 0 to 63, got {count}")
    return value >> (count & 63)


def literal_normalize(given: CostValue, weight: int) -> CostValue:
    """`normalize_cost` (L1313-1345). The weight divides the mantissa, and is subtracted from the exponent too."""
    if given.mantissa == 0:
        return ZERO
    if weight == 0:
        return INFINITY
    return CostValue(given.mantissa // weight, given.exponent - weight)


def literal_compare(first: CostValue, second: CostValue, *, x86: bool = False) -> int:
    """`compare_costs` (L1363-1403). Raises Undefined where C leaves the shift undefined, but with `x86`."""
    if first.mantissa == 0:
        return -(second.mantissa != 0)
    if second.mantissa == 0:
        return 1
    difference = first.exponent - second.exponent
    if abs(difference) > 64:
        return -1 if difference > 0 else 1
    aligned = shift_right(second.mantissa, difference, x86=x86)
    return (first.mantissa < aligned) - (first.mantissa > aligned)


def literal_add(first: CostValue, second: CostValue) -> CostValue:
    """`add_costs` (L1421-1467)."""
    if first.exponent < second.exponent:
        first, second = second, first
    difference = first.exponent - second.exponent
    if difference > 127:
        return first
    mantissa = (first.mantissa + (second.mantissa >> min(difference, 63))) % _WORD
    return literal_normalize(CostValue(mantissa, first.exponent), 0)
