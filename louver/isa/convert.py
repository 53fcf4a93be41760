"""Conversions between the element types and f32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from louver.formats.dtypes import element_type
from louver.isa.instruction import Bits, Operand, Pure, Requirement

Half = Literal["f16", "bf16"]


@dataclass(frozen=True, slots=True)
class FromF32(Pure):
    """`cvt.rn.f16.f32 d, a` (or bf16): to nearest even; too large gives infinity."""

    to: Half

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d, a."""
        return Operand("d", "out", "b16", kind="register"), Operand("a", "in", "f32")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return f"cvt.rn.{self.to}.f32"

    @property
    def requires(self) -> Requirement:
        """PTX 7.8 for bf16."""
        return Requirement((7, 8) if self.to == "bf16" else (7, 0))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        """Lane by lane."""
        with np.errstate(over="ignore"):
            return (inputs[0].view(np.float32).astype(element_type(self.to).numpy).view(np.uint16),)


@dataclass(frozen=True, slots=True)
class PairFromF32(Pure):
    """`cvt.rn.f16x2.f32 d, a, b` (or bf16x2): a goes to the upper half, b to the lower."""

    to: Half

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d, a, b."""
        return Operand("d", "out", "b32", kind="register"), Operand("a", "in", "f32"), Operand("b", "in", "f32")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return f"cvt.rn.{self.to}x2.f32"

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        """Lane by lane."""
        narrow = FromF32(self.to)
        high, low = (narrow.compute(bits)[0].astype(np.uint32) for bits in inputs)
        return (low | high << np.uint32(16),)


@dataclass(frozen=True, slots=True)
class ToF32(Pure):
    """`cvt.f32.f16 d, a` (or bf16): exact."""

    source: Half

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d, a."""
        return Operand("d", "out", "f32", kind="register"), Operand("a", "in", "b16")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return f"cvt.f32.{self.source}"

    @property
    def requires(self) -> Requirement:
        """PTX 7.8 and sm_90 for bf16."""
        return Requirement((7, 8), "sm_90a") if self.source == "bf16" else Requirement()

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        """Lane by lane."""
        return (inputs[0].view(element_type(self.source).numpy).astype(np.float32).view(np.uint32),)
