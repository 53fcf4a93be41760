"""Loads and stores of single bytes, for 8-bit data that no wider access can move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from louver.isa.instruction import Bits, Effect, Operand, output, reads
from louver.isa.machine import Outcome, WarpState
from louver.isa.memory import VOLATILE, in_space


@dataclass(frozen=True, slots=True)
class LoadByte(Effect):
    """`ld[.volatile].space.u8 d, [a]`: a byte into a 16-bit register, zero-extended. Source: PTX ISA, ld; Operand Size Exceeding."""

    space: Literal["global", "shared"] = "global"
    volatile: bool = False

    @property
    def mnemonic(self) -> str:
        return f"ld{VOLATILE[self.volatile]}.{self.space}.u8"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output("b16"), in_space(self.space)

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return (warp.load(self.space, inputs[0], 1, volatile=self.volatile)[:, 0].astype(np.uint16),)


@dataclass(frozen=True, slots=True)
class StoreByte(Effect):
    """`st[.volatile].space.u8 [a], b`: the low byte of a 16-bit register. Source: PTX ISA, st; Operand Size Exceeding."""

    space: Literal["global", "shared"] = "global"
    volatile: bool = False

    @property
    def mnemonic(self) -> str:
        return f"st{VOLATILE[self.volatile]}.{self.space}.u8"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return in_space(self.space), *reads("b16", "b")

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.store(self.space, inputs[0], (inputs[1] & 0xFF).astype(np.uint8)[:, None], volatile=self.volatile)
