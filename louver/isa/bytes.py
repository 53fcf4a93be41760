"""Loads and stores of single bytes in global memory, for data of 8-bit elements that no wider access can take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from louver.isa.instruction import Bits, Effect, Operand
from louver.isa.machine import Suspend, WarpState


@dataclass(frozen=True, slots=True)
class LoadByte(Effect):
    """`ld.global.u8 d, [a]`: a byte into a 16-bit register, zero-extended. Source: PTX ISA, ld; Operand Size Exceeding."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d, [a]."""
        return Operand("d", "out", "b16", kind="register"), Operand("a", "in", "b64", kind="address")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return "ld.global.u8"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Load each active lane's byte."""
        return (warp.load("global", inputs[0], 1)[:, 0].astype(np.uint16),)


@dataclass(frozen=True, slots=True)
class StoreByte(Effect):
    """`st.global.u8 [a], b`: the low byte of a 16-bit register. Source: PTX ISA, st; Operand Size Exceeding."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """[a], b."""
        return Operand("a", "in", "b64", kind="address"), Operand("b", "in", "b16")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return "st.global.u8"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Store each active lane's low byte."""
        warp.store("global", inputs[0], (inputs[1] & 0xFF).astype(np.uint8)[:, None])
        return ()
