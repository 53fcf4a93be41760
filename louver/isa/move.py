"""Moves between registers: copies, selection, packing. Source: PTX ISA, mov, selp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from louver.isa.instruction import STORAGE, Bits, Operand, Pure, RegType, output, reads, register


@dataclass(frozen=True, slots=True)
class Select(Pure):
    """`selp.type d, a, b, p`: a where p, else b."""

    type: RegType

    opcode = "selp.{self.type}"

    def __post_init__(self) -> None:
        if self.type == "pred":
            raise ValueError("selp chooses between values, got pred: combine predicates with and, or, not")

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output(self.type), *reads(self.type, "a", "b"), register("p", "pred")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        a, b, p = inputs
        return (np.where(p, a, b),)


@dataclass(frozen=True, slots=True)
class Move(Pure):
    """`mov.type d, a`."""

    type: Literal["b16", "b32", "b64", "f32", "pred"]

    opcode = "mov.{self.type}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return output(self.type), *reads(self.type, "a")

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        return (inputs[0].copy(),)


@dataclass(frozen=True, slots=True)
class Pack(Pure):
    """`mov.b64 d, {lo, hi}` (or `mov.b32` from two b16): two registers in one of twice the width."""

    type: Literal["b32", "b64"] = "b64"

    opcode = "mov.{self.type}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        half: RegType = "b32" if self.type == "b64" else "b16"
        return output(self.type), Operand("a", "in", half, 2, braces=True)

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        wide = STORAGE[self.type]
        low, high = inputs[0].astype(wide)
        shift = np.array(32 if self.type == "b64" else 16, dtype=wide)
        return (low | high << shift,)


@dataclass(frozen=True, slots=True)
class Unpack(Pure):
    """`mov.b64 {lo, hi}, a` (or `mov.b32` to two b16): one register in two of half the width."""

    type: Literal["b32", "b64"] = "b64"

    opcode = "mov.{self.type}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        half: RegType = "b32" if self.type == "b64" else "b16"
        return Operand("d", "out", half, 2, "register", braces=True), register("a", self.type)

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        half = np.uint32 if self.type == "b64" else np.uint16
        return (np.stack([inputs[0].astype(half), (inputs[0] >> (8 * half().itemsize)).astype(half)]),)


@dataclass(frozen=True, slots=True)
class Bitcast(Pure):
    """`mov.b32 d, a`: the bits of an f32 register in a b32 register, or the reverse."""

    to: Literal["b32", "f32"]

    opcode = "mov.b32"

    @property
    def operands(self) -> tuple[Operand, ...]:
        source: RegType = "f32" if self.to == "b32" else "b32"
        return output(self.to), register("a", source)

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        return (inputs[0].copy(),)
