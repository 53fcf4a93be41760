"""Assigns registers to values that loops carry: one for each element, or one for several packed elements."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from louver.compile.lower.tiles.numbers import element_bytes
from louver.compile.lower.tiles.packing import WORD, pack_elements, unpack_elements
from louver.compile.lower.tiles.pairs import pair_step
from louver.compile.lower.tiles.state import Lowering, Registers, register_class
from louver.compile.plan.encode.anchors import is_tile
from louver.ir.tile import DotOperandAttr, MmaAttr
from louver.ir.tile.types import element_of, register_encoding


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that a loop carries.

    registers: registers that keep it from iteration to iteration.
    size: bytes of an element if several elements share a register; None if each element has a register.
    """

    value: SSAValue
    registers: Registers
    size: int | None

    @classmethod
    def of(cls, low: Lowering, value: SSAValue, op: Operation, later: SSAValue | None = None) -> Carried:
        """Copy the value before the loop to new registers. Elements from wide loads stay packed, and so do those that each step
        computes in pairs.

        later: the value behind a step.
        """
        registers = low.values[value]
        size = _packed_size(value, op)
        words = None if size is None else _words(low, registers, WORD // size)
        in_pairs = later is not None and len(registers) % 2 == 0 and pair_step(low, later.owner) is not None
        if words is None and size is not None and (_of_warpgroup(value) or in_pairs):
            # Products read or write these registers, so they must be the same in each iteration.
            groups = [registers[first : first + WORD // size] for first in range(0, len(registers), WORD // size)]
            words = tuple(pack_elements(low, group, size) for group in groups)
        if words is None:
            return cls(value, tuple(low.copy(register) for register in registers), None)
        return cls(value, tuple(low.copy(word) for word in words), size)

    def elements(self, low: Lowering) -> Registers:
        """The elements, unpacked at the current position. A later pass removes unused ones."""
        if self.size is None:
            return self.registers
        element, count = element_of(self.value.type), WORD // self.size
        return tuple(each for word in self.registers for each in unpack_elements(low, word, count, element, self.size))

    def held(self, low: Lowering, elements: Registers) -> Registers:
        """Registers with these elements, in the format in which the loop carries them."""
        if self.size is None:
            return elements
        count = WORD // self.size
        return tuple(
            pack_elements(low, elements[first : first + count], self.size) for first in range(0, len(elements), count)
        )


def _of_warpgroup(value: SSAValue) -> bool:
    """Whether a tile has the layout of the sums of warpgroup products, or of their left operand."""
    encoding = register_encoding(value.type)
    if isinstance(encoding, DotOperandAttr):
        encoding = encoding.parent
    return isinstance(encoding, MmaAttr) and encoding.of_warpgroup


def _packed_size(value: SSAValue, op: Operation) -> int | None:
    """Bytes of a tile's elements if several fit a register; else None."""
    element = element_of(value.type)
    if not is_tile(value) or register_class(element, op) not in ("b16", "b32"):
        return None
    size = element_bytes(element, op)
    return size if size < WORD else None


def _words(low: Lowering, registers: Registers, count: int) -> Registers | None:
    """The words that contain all elements; None if some elements are not in known words."""
    words = [low.packed.get(registers[first : first + count]) for first in range(0, len(registers), count)]
    found = tuple(word for word in words if word is not None)
    return found if len(found) == len(words) else None
