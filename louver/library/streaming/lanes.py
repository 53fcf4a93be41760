"""Arithmetic on the elements of a register side by side: 4 of 8 bits, 2 of 16 bits, or 1 of 32 bits.

Planes: register i holds element i of several groups, one group for each element of the register. Planes of 2:4 in f16,
for two groups a and b:

    words in memory order   a1 a0   a3 a2   b1 b0   b3 b2
    planes                  b0 a0   b1 a1   b2 a2   b3 a3

A condition is the top bit of each element (`tops`); its other bits are undefined. A mask has all bits of an element set
or cleared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.formats.dtypes import ElementType
from louver.isa.bits import ExtractField
from louver.isa.convert import HalfPairFromFp8, IntegerToF32
from louver.isa.move import Bitcast
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Reg

Byte = tuple[Reg, int]
"""A register, and the number of one of its bytes, 0 for the lowest."""

_SPREAD = {8: 0xBA98, 16: 0xBB99, 32: 0xBBBB}


@dataclass(frozen=True, slots=True)
class Lanes:
    """Operations on the elements of registers. bits: bits of an element."""

    k: KernelBuilder
    bits: int

    @property
    def count(self) -> int:
        """Elements of a register."""
        return 32 // self.bits

    @property
    def top(self) -> int:
        """The top bit of each element."""
        return self.each(1 << self.bits - 1)

    @property
    def low(self) -> int:
        """All bits except the top bit of each element."""
        return ~self.top & 0xFFFFFFFF

    def each(self, number: int) -> int:
        """The constant with a number in each element."""
        return sum(number << place for place in range(0, 32, self.bits))

    def spread(self, tops: Reg) -> Reg:
        """The mask of a condition."""
        return self.k.permute(tops, 0, _SPREAD[self.bits])

    def nonzero(self, x: Reg) -> Reg:
        """Condition: some bit other than the top one is set."""
        return self.k.add(self.k.and_(x, self.low), self.low)

    def at_least(self, a: Sequence[Reg], *, whole: bool) -> dict[tuple[int, int], Reg]:
        """Conditions a[i] >= a[j] for i < j, for unsigned numbers. whole: the numbers may have the top bit set."""
        k = self.k
        raised = [k.or_(x, self.top) for x in a[:-1]]
        lowered = [k.and_(x, self.low) if whole else x for x in a[1:]]
        found: dict[tuple[int, int], Reg] = {}
        for i, high in enumerate(raised):
            for j, low in enumerate(lowered[i:], i + 1):
                # No element borrows from the next: each minuend has the top bit set, each subtrahend has it cleared.
                apart = k.sub(high, low)
                found[i, j] = k.logic(lambda p, q, d: p & ~q | ~(p ^ q) & d, a[i], a[j], apart) if whole else apart
        return found

    def planes(self, words: Sequence[Reg], m: int) -> list[Reg]:
        """The planes of m registers in memory order."""
        size = self.bits // 8
        return assemble(
            self.k,
            [
                [_byte(words, (group * m + i) * size + b) for group in range(self.count) for b in range(size)]
                for i in range(m)
            ],
        )

    def in_order(self, planes: Sequence[Reg]) -> list[Reg]:
        """The words in memory order, from planes. The inverse of `planes`."""
        size, m = self.bits // 8, len(planes)
        places = [(i, group) for group in range(self.count) for i in range(m)]
        bytes_of = [(planes[i], group * size + b) for i, group in places for b in range(size)]
        return assemble(self.k, [bytes_of[at : at + 4] for at in range(0, 4 * m, 4)])


def _byte(words: Sequence[Reg], place: int) -> Byte:
    return words[place // 4], place % 4


def assemble(k: KernelBuilder, targets: Sequence[Sequence[Byte]]) -> list[Reg]:
    """Registers that are assembled from bytes of other registers.

    targets: for each result its bytes, the lowest first, from up to four registers. If there are fewer than four, the
        other bytes are undefined.
    """
    pairs: dict[tuple[Byte, Byte], Reg] = {}
    return [_assembled(k, [*target, *[target[-1]] * (4 - len(target))], pairs) for target in targets]


def _assembled(k: KernelBuilder, target: Sequence[Byte], pairs: dict[tuple[Byte, Byte], Reg]) -> Reg:
    registers = list(dict.fromkeys(register for register, _ in target))
    if len(registers) == 1 and [byte for _, byte in target] == [0, 1, 2, 3]:
        return registers[0]
    if len(registers) <= 2:
        a, b = registers[0], registers[-1]
        return k.permute(a, b, _selector([byte + 4 * (register != a) for register, byte in target]))
    halves: list[Reg] = []
    for one, other in (target[:2], target[2:]):
        # The permute also moves the neighbours of both bytes. The register that is assembled next uses them.
        first, second = (one[0], one[1] & ~1), (other[0], other[1] & ~1)
        if (first, second) not in pairs:
            (a, i), (b, j) = first, second
            pairs[first, second] = k.permute(a, b, _selector([i, 4 + j, i + 1, 5 + j]))
        halves.append(pairs[first, second])
    places = [2 * (byte & 1) + 4 * (at // 2) + at % 2 for at, (_, byte) in enumerate(target)]
    return k.permute(halves[0], halves[1], _selector(places))


def _selector(places: Sequence[int]) -> int:
    return sum(place << 4 * at for at, place in enumerate(places))


def numbers(lanes: Lanes, element: ElementType, plane: Reg) -> list[Reg]:
    """The elements of a register, each as f32. The conversion is exact, except for the payloads of NaNs."""
    k = lanes.k
    match element.name:
        case "f16" | "bf16":
            return [k.to_f32(element.name, half) for half in k.halves(plane)]
        case "e4m3" | "e5m2":
            pairs = k.regs("b32", 2)
            for pair, half in zip(pairs, k.halves(plane), strict=True):
                k.emit(HalfPairFromFp8(element.name), pair, half)
            return [k.to_f32("f16", half) for pair in pairs for half in k.halves(pair)]
        case "s8" | "u8":
            kind = "s32" if element.name == "s8" else "u32"
            found = k.regs("f32", lanes.count)
            for place, value in enumerate(found):
                whole = k.reg("b32")
                k.emit(ExtractField(kind), whole, plane, 8 * place, 8)
                k.emit(IntegerToF32(kind), value, whole)
            return found
        case _:
            value = k.reg("f32")
            k.emit(Bitcast("f32"), value, plane)
            return [value]
