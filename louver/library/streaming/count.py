"""Counts conditions bitwise: the binary digits of their number, by full adders. A digit takes one `lop3`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Reg

Table = Callable[[int, int, int], int]


@dataclass(slots=True, eq=False)
class Bit:
    """A bitwise function of at most three other bits, or a register. The instruction is emitted at the first use of
    `register`.

    negated: the bit is the complement of `register`. A function that reads it applies the negation in its table.
    """

    k: KernelBuilder
    function: Table = lambda a, b, c: a
    inputs: tuple[Bit, ...] = ()
    made: Reg | None = None
    negated: bool = False

    @property
    def register(self) -> Reg:
        """The register of the bit, without the negation."""
        if self.made is None:
            registers = [bit.register for bit in self.inputs]
            negated = [bit.negated for bit in self.inputs]

            def table(a: int, b: int, c: int) -> int:
                given = [~bits if no else bits for bits, no in zip((a, b, c), negated, strict=False)]
                return self.function(*given, *[0] * (3 - len(given)))

            self.made = self.k.logic(table, *registers, *[0] * (3 - len(registers)))
        return self.made


def holds(k: KernelBuilder, condition: Reg) -> Bit:
    """The bit of a condition."""
    return Bit(k, made=condition)


def fails(k: KernelBuilder, condition: Reg) -> Bit:
    """The bit of the opposite of a condition."""
    return Bit(k, made=condition, negated=True)


def digits(k: KernelBuilder, bits: Sequence[Bit]) -> list[Bit]:
    """The binary digits of the number of set bits, the lowest first."""
    found: list[Bit] = []
    column = list(bits)
    while column:
        carries: list[Bit] = []
        while len(column) > 1:
            some = tuple(column[:3])
            column[:3] = [Bit(k, lambda a, b, c: a ^ b ^ c, some)]
            carries.append(Bit(k, lambda a, b, c: a & b | b & c | c & a, some))
        found.append(column[0])
        column = carries
    return found


def at_least(k: KernelBuilder, bits: Sequence[Bit], least: int) -> Reg:
    """Whether at least `least` of the bits are set. least: from 1 to the number of bits."""
    found: Bit | None = None
    for place, digit in enumerate(digits(k, bits)):
        # `found`: whether the number of the digits so far is at least that of `least`; None if it always is.
        if least >> place & 1:
            found = digit if found is None else Bit(k, lambda a, b, c: a & b, (digit, found))
        elif found is not None:
            found = Bit(k, lambda a, b, c: a | b, (digit, found))
    assert found is not None
    return k.xor(found.register, 0xFFFFFFFF) if found.negated else found.register


def exactly(k: KernelBuilder, digits: Sequence[Bit], count: int, among: int) -> Reg:
    """The bits of the constant `among` at which the number with these digits is `count`."""
    found = Bit(k, made=k.mov(among))
    for place in range(0, len(digits), 2):
        some = digits[place : place + 2]
        wanted = [count >> place + at & 1 for at in range(len(some))]

        def table(a: int, b: int, c: int, wanted: Sequence[int] = wanted) -> int:
            result = a
            for bits, one in zip((b, c), wanted, strict=False):
                result &= bits if one else ~bits
            return result

        found = Bit(k, table, (found, *some))
    return found.register
