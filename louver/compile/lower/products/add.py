"""Adds results to memory. One instruction adds two neighbours of a row, if they are aligned.

The output may have any address and any pitch, as arrays of an epilogue may. The kernel tests the address of each row
for aligned pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.compile.lower.products.convert import half, stored_bits, stored_pair
from louver.compile.lower.products.state import Lowering
from louver.formats.dtypes import element_type
from louver.isa.machine import AtomicKind
from louver.isa.memory import AddVector, AtomicAdd
from louver.ptx.module import Address, Reg

KINDS: dict[str, AtomicKind] = {"f32": "f32", "f16": "f16", "bf16": "bf16", "s32": "s32"}
"""The instruction that adds to an element in memory."""


@dataclass(frozen=True, slots=True)
class Adder:
    """Adds results to one row of the output.

    paired: columns below this number are added in pairs. A pair of a thread begins at an even column. None if the
    columns of a pair are not neighbours in memory, or no instruction adds both.
    """

    low: Lowering
    element: str
    paired: Reg | None

    @classmethod
    def of_row(cls, low: Lowering, address: Reg, element: str, *, transposed: bool) -> Adder:
        """The adder of a row. address: the address of the thread's first column."""
        if transposed or element == "s32":
            return cls(low, element, None)
        k = low.k
        aligned = k.setp("eq", "u64", k.and_(address, 2 * element_type(element).bytes - 1), 0)
        return cls(low, element, k.selp(k.and_(low.sizes["N"], ~1 & 0xFFFFFFFF), 0, aligned))

    def one(self, address: Address, value: Reg, inside: Reg) -> None:
        """Add one element if it is inside the output."""
        self.low.k.emit(
            AtomicAdd(KINDS[self.element]), address, stored_bits(self.low, value, self.element), guard=inside
        )

    def pair(self, base: Reg, offset: int, values: tuple[Reg, Reg], column: Reg, inside: tuple[Reg, Reg]) -> None:
        """Add the elements of `column` and the next column at `base + offset` bytes, if they are inside the output."""
        k, size = self.low.k, element_type(self.element).bytes
        if self.paired is None:
            raise ValueError(f"{self.element} here is added element by element")
        both, alone = k.setp("lt", "u32", column, self.paired), k.setp("ge", "u32", column, self.paired)
        if self.element == "f32":
            held = tuple(stored_bits(self.low, value, "f32") for value in values)
            k.emit(AddVector(), Address(base, offset), held, guard=both)
        else:
            kind = half(self.element)
            packed = stored_pair(self.low, *values, kind)
            k.emit(AtomicAdd("f16x2" if kind == "f16" else "bf16x2"), Address(base, offset), packed, guard=both)
        for index, (value, here) in enumerate(zip(values, inside, strict=True)):
            self.one(Address(base, offset + index * size), value, k.and_pred(here, alone))
