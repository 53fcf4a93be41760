"""Bit manipulation of 32-bit registers: fields and byte permutation. Source: PTX ISA, bfe, bfi, prmt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from louver.isa.instruction import Bits, Operand, Pure

BITS = 32
"""Width of the registers."""


def _inputs(*names: str) -> tuple[Operand, ...]:
    return Operand("d", "out", "b32", kind="register"), *(Operand(name, "in", "b32") for name in names)


def _mask(length: Bits) -> Bits:
    """That many low ones, uint64; lengths are below 256."""
    return (np.uint64(1) << np.minimum(length.astype(np.uint64), BITS)) - np.uint64(1)


@dataclass(frozen=True, slots=True)
class ExtractField(Pure):
    """`bfe.type d, a, position, length`: bits position … position + length - 1 of a; of position and length the low byte counts.

    u32 fills with zeros; s32 with the field's top bit, or a's where the field passes it. A field of no bits is 0.
    """

    type: Literal["u32", "s32"] = "u32"

    takes = _inputs("a", "position", "length")

    @property
    def mnemonic(self) -> str:
        return f"bfe.{self.type}"

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        a, position, length = inputs[0], inputs[1] & 0xFF, inputs[2] & 0xFF
        shift = np.minimum(position, BITS).astype(np.uint64)
        field = a.astype(np.uint64) >> shift & _mask(length)
        if self.type == "s32":
            top = np.minimum(position.astype(np.int64) + length - 1, BITS - 1)
            negative = (length > 0) & ((a.astype(np.int64) >> np.maximum(top, 0)) & 1 == 1)
            # Where the field reaches past bit 31 the sign starts right behind the bits that exist.
            existing = np.minimum(length.astype(np.int64), np.maximum(BITS - position.astype(np.int64), 0))
            field = np.where(negative, field | ~_mask(existing), field)
        return (field.astype(np.uint32),)


@dataclass(frozen=True, slots=True)
class PermuteBytes(Pure):
    """`prmt.b32 d, a, b, selector`: byte i of d is the byte of {b, a} (a's are 0 to 3) that nibble i of the selector names.

    Bit 3 of a nibble replaces the byte by copies of its top bit.
    """

    opcode = "prmt.b32"
    takes = _inputs("a", "b", "selector")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        a, b, selector = inputs
        pool = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(BITS)
        result = np.zeros_like(a)
        for index in range(4):
            nibble = selector >> np.uint32(4 * index) & np.uint32(0xF)
            byte = (pool >> (np.uint64(8) * (nibble & 7).astype(np.uint64))).astype(np.uint8)
            byte = np.where(nibble & 8, np.where(byte & 0x80, 0xFF, 0), byte)
            result |= byte.astype(np.uint32) << np.uint32(8 * index)
        return (result,)
