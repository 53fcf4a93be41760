"""Moves between registers: copies, selection, packing, special registers, and exchange between the lanes of a warp.

Source: PTX ISA, mov, selp, Special Registers, shfl.sync, elect.sync.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from louver.isa.instruction import (
    LANES,
    SM90,
    STORAGE,
    Bits,
    Effect,
    Operand,
    Pure,
    RegType,
    Requirement,
    output,
    reads,
    register,
)
from louver.isa.machine import Outcome, WarpState
from louver.isa.rule import RuleError


@dataclass(frozen=True, slots=True)
class Select(Pure):
    """`selp.type d, a, b, p`: a where p, else b."""

    type: RegType

    opcode = "selp.{self.type}"

    def __post_init__(self) -> None:
        if self.type == "pred":
            raise RuleError("selp chooses between values, got pred: combine predicates with and, or, not")

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


CLUSTER_SPECIAL = ("%cluster_ctarank", "%cluster_nctarank", "%clusterid.x", "%nclusterid.x")
"""Special registers of targets with clusters."""

SPECIAL = (
    "%tid.x",
    *(f"%{name}.{axis}" for name in ("ctaid", "nctaid") for axis in "xyz"),
    "%laneid",
    *CLUSTER_SPECIAL,
)
"""Special registers, all 32 bits."""

FULL_MASK = 0xFFFFFFFF
"""Member mask of the whole warp."""


@dataclass(frozen=True, slots=True)
class Special(Effect):
    """`mov.u32 d, %name`."""

    name: str

    opcode = "mov.u32"
    takes = (output("b32"),)

    def __post_init__(self) -> None:
        if self.name not in SPECIAL:
            raise RuleError(f"the special registers are {', '.join(SPECIAL)}, got {self.name!r}")

    def text(self, *args: str) -> str:
        return f"{self.mnemonic} {args[0]}, {self.name}"

    @property
    def requires(self) -> Requirement:
        return Requirement((7, 8), "sm_90") if self.name in CLUSTER_SPECIAL else Requirement()

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return (warp.special(self.name),)


@dataclass(frozen=True, slots=True)
class ShuffleIndex(Effect):
    """`shfl.sync.idx.b32 d, a, lane, 31, 0xffffffff`: `a` of the given lane."""

    aligned = True
    opcode = "shfl.sync.idx.b32"
    takes = (output("b32"), *reads("b32", "a", "lane"))

    def text(self, *args: str) -> str:
        return f"{self.mnemonic} {', '.join(args)}, 31, {FULL_MASK:#x}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return (warp.shuffle(inputs[0], inputs[1]),)


@dataclass(frozen=True, slots=True)
class ShuffleButterfly(Effect):
    """`shfl.sync.bfly.b32 d, a, mask, 31, 0xffffffff`: `a` of lane (own number) xor mask; its low five bits count."""

    aligned = True
    opcode = "shfl.sync.bfly.b32"
    takes = (output("b32"), *reads("b32", "a", "mask"))

    def text(self, *args: str) -> str:
        return f"{self.mnemonic} {', '.join(args)}, {LANES - 1}, {FULL_MASK:#x}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        value, mask = inputs
        return (warp.shuffle(value, np.arange(LANES, dtype=np.uint32) ^ (mask & np.uint32(LANES - 1))),)


@dataclass(frozen=True, slots=True)
class Elect(Effect):
    """`elect.sync _|p, 0xffffffff`: true in one lane of the whole warp, the same each time."""

    aligned = True
    opcode = "elect.sync"
    takes = (output("pred", "p"),)
    needs = SM90

    def text(self, *args: str) -> str:
        """`_`: the number of the elected lane is not used."""
        return f"{self.mnemonic} _|{args[0]}, {FULL_MASK:#x}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        elected = np.zeros(LANES, np.bool_)
        elected[np.flatnonzero(warp.active)[:1]] = True
        return (elected,)
