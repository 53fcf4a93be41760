"""Bit operations on 32-bit registers: fields, bytes, logic, counts. Source: PTX ISA, bfe, prmt, lop3, popc."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from louver.isa.instruction import Bits, Operand, Pure, output, reads
from louver.isa.rule import RuleError

BITS = 32
"""Width of the registers."""


def _mask(length: Bits) -> Bits:
    """`length` low ones, uint64. Lengths are below 256."""
    return (np.uint64(1) << np.minimum(length.astype(np.uint64), BITS)) - np.uint64(1)


@dataclass(frozen=True, slots=True)
class ExtractField(Pure):
    """`bfe.type d, a, position, length`: bits position … position + length - 1 of a. Only the low bytes of position and
    length count. u32 fills with zeros. s32 fills with the top bit of the field, or of a if it is shorter. An empty
    field is 0.
    """

    type: Literal["u32", "s32"] = "u32"

    opcode = "bfe.{self.type}"
    takes = (
        output("b32"),
        *reads("b32", "a"),
        Operand("position", "in", "b32", values=range(256)),
        Operand("length", "in", "b32", values=range(256)),
    )

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        a, position, length = inputs[0], inputs[1] & 0xFF, inputs[2] & 0xFF
        shift = np.minimum(position, BITS).astype(np.uint64)
        field = a.astype(np.uint64) >> shift & _mask(length)
        if self.type == "s32":
            top = np.minimum(position.astype(np.int64) + length - 1, BITS - 1)
            negative = (length > 0) & ((a.astype(np.int64) >> np.maximum(top, 0)) & 1 == 1)
            # If the field exceeds bit 31, the sign bits start right after the existing bits.
            existing = np.minimum(length.astype(np.int64), np.maximum(BITS - position.astype(np.int64), 0))
            field = np.where(negative, field | ~_mask(existing), field)
        return (field.astype(np.uint32),)


@dataclass(frozen=True, slots=True)
class PermuteBytes(Pure):
    """`prmt.b32 d, a, b, selector`: nibble i of the selector names byte i of d among the bytes of a (0-3) and b (4-7).

    Bit 3 of a nibble replaces the byte by copies of its top bit.
    """

    opcode = "prmt.b32"
    takes = (output("b32"), *reads("b32", "a", "b", "selector"))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        a, b, selector = inputs
        pool = np.empty((len(a), 2), np.uint32)
        pool[:, 0], pool[:, 1] = a, b
        nibbles = selector[:, None] >> _NIBBLES & np.uint32(0xF)
        found = np.take_along_axis(pool.view(np.uint8), (nibbles & 7).astype(np.intp), axis=1)
        copies = np.where(found & 0x80, np.uint8(0xFF), np.uint8(0))
        return (np.where(nibbles & 8, copies, found).view(np.uint32)[:, 0],)


_NIBBLES = np.arange(0, 16, 4, dtype=np.uint32)


TRUTH = (0xF0, 0xCC, 0xAA)
"""Columns of the truth table of three bits. A function of these numbers gives its own table in the low byte."""


@dataclass(frozen=True, slots=True)
class Logic3(Pure):
    """`lop3.b32 d, a, b, c, table`: each bit of d is bit 4a + 2b + c of the table, 0 to 255 (see `TRUTH`)."""

    table: int

    opcode = "lop3.b32"
    takes = (output("b32"), *reads("b32", "a", "b", "c"))

    def __post_init__(self) -> None:
        if not 0 <= self.table <= 0xFF:
            raise RuleError(f"a table of three bits has 8 bits, got {self.table:#x}")

    def text(self, *args: str) -> str:
        return f"{self.mnemonic} {', '.join(args)}, {self.table:#04x}"

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        result = np.zeros_like(inputs[0])
        for used in _products(self.table):
            factors = [bits for position, bits in enumerate(inputs) if used >> (2 - position) & 1]
            result ^= functools.reduce(np.bitwise_and, factors) if factors else np.uint32(0xFFFFFFFF)
        return (result,)


@functools.cache
def _products(table: int) -> tuple[int, ...]:
    """The function as an exclusive or of products. Bits name the factors: 4 a, 2 b, 1 c; 0 is the constant 1."""
    bits = [table >> row & 1 for row in range(8)]
    for step in (1, 2, 4):
        for row in range(8):
            if row & step:
                bits[row] ^= bits[row ^ step]
    return tuple(row for row in range(8) if bits[row])


@dataclass(frozen=True, slots=True)
class CountOnes(Pure):
    """`popc.b32 d, a`: the number of set bits of a."""

    opcode = "popc.b32"
    takes = (output("b32"), *reads("b32", "a"))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        ones = np.unpackbits(np.ascontiguousarray(inputs[0])[:, None].view(np.uint8), axis=1)
        return (ones.sum(axis=1, dtype=np.uint32),)
