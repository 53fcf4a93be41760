"""Special registers, and exchange between the lanes of a warp.

Source: PTX ISA, Special Registers, shfl.sync, elect.sync.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from louver.isa.instruction import LANES, SM90, Bits, Effect, Requirement, output, reads
from louver.isa.machine import Outcome, WarpState

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
            raise ValueError(f"the special registers are {', '.join(SPECIAL)}, got {self.name!r}")

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
