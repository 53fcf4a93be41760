"""Asynchronous copies of single threads: 4, 8 or 16 bytes from global to shared memory, in groups or for mbarriers; and
stores of registers to the shared memory of a CTA of the cluster.

Copies belong to the generic proxy: after the wait, wgmma and bulk copies need `fence.proxy.async` to read them.
Source: PTX ISA, cp.async, cp.async.commit_group and wait_group, cp.async.mbarrier.arrive, st.async.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from louver.isa.instruction import SM90, Bits, Effect, Operand, RegType, Requirement, pointer, register
from louver.isa.machine import Outcome, WarpState
from louver.isa.memory import VECTOR, check_size, registers_to_bytes
from louver.isa.rule import RuleError
from louver.isa.targets import MAX_PENDING_COPIES

CopyBytes = Literal[4, 8, 16]
"""Bytes that a thread copies. Both addresses are multiples of them."""

PAST_L1 = 16
"""Bytes of copies that bypass L1 (`.cg`). Smaller copies go through L1 (`.ca`)."""


@dataclass(frozen=True, slots=True)
class AsyncCopy(Effect):
    """`cp.async.cg.shared.global [dst], [src], 16, ignore-src`: start a copy in the thread's open group.

    size: bytes. partial: the last operand is src-size, not ignore-src: bytes to read, at most `size`; zeros follow.

    If the predicate ignore-src holds, the source is not read and zeros are written. ptxas drops a predicate that is
    known to be false. Copies are not ordered among themselves. The issuing thread sees the bytes after its wait for the
    group (`AsyncWait`); other threads see them after a barrier that follows this wait.
    """

    size: CopyBytes = PAST_L1
    partial: bool = False

    needs = Requirement((7, 5))

    def __post_init__(self) -> None:
        if self.size not in get_args(CopyBytes):
            raise RuleError(f"a thread copies 4, 8 or 16 bytes, got {self.size}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        last = register("src-size", "b32") if self.partial else register("ignore-src", "pred")
        return pointer("dst", "b32"), pointer("src", "b64"), last

    @property
    def mnemonic(self) -> str:
        return f"cp.async.{'cg' if self.size == PAST_L1 else 'ca'}.shared.global"

    def text(self, *args: str) -> str:
        destination, source, left_out = args
        return f"{self.mnemonic} {destination}, {source}, {self.size}, {left_out}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        destination, source, left_out = inputs
        count = left_out if self.partial else np.where(left_out, 0, self.size).astype(np.uint32)
        warp.async_copy(self.size, destination, source, count)


@dataclass(frozen=True, slots=True)
class AsyncCommit(Effect):
    """`cp.async.commit_group`: the thread's copies since the last commit become a group, which may be empty."""

    opcode = "cp.async.commit_group"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.async_commit()


@dataclass(frozen=True, slots=True)
class AsyncWait(Effect):
    """`cp.async.wait_group pending`: wait until the thread's groups are complete, except the newest `pending`.

    It does not wait for copies that are in no group yet.
    """

    pending: int = 0

    opcode = "cp.async.wait_group {self.pending}"

    def __post_init__(self) -> None:
        if not 0 <= self.pending <= MAX_PENDING_COPIES:
            raise RuleError(f"a wait leaves 0 to {MAX_PENDING_COPIES} groups pending, got {self.pending}")

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return warp.async_wait(self.pending)


@dataclass(frozen=True, slots=True)
class AsyncArrive(Effect):
    """`cp.async.mbarrier.arrive.noinc [addr]`: the thread arrives once when all its copies so far are complete.

    noinc: the barrier counts this arrival like any other.
    """

    opcode = "cp.async.mbarrier.arrive.noinc.shared::cta.b64"
    takes = (pointer("addr", "b32"),)
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.async_arrive(inputs[0])


@dataclass(frozen=True, slots=True)
class StoreAsync(Effect):
    """`st.async.vN.type [a], b, [mbar]`: store each lane's bytes later, then complete them on the mbarrier of that CTA.

    type: 32 or 64 bits. count: registers of a lane, at most 16 bytes; `a` is a multiple of their bytes. `MapShared`
    makes both addresses, in the window of one CTA, which may be the executing one. The barrier's phase must expect each
    lane's bytes (`MbarrierArriveExpect`). A thread that waits for the phase sees the bytes. Nothing else orders the
    stores. They belong to the generic proxy.
    """

    type: RegType
    count: Literal[1, 2, 4] = 1

    needs = Requirement((8, 1), "sm_90")

    def __post_init__(self) -> None:
        if self.type == "b16":
            raise RuleError("an asynchronous store moves registers of 32 or 64 bits, got b16: pack two in one")
        check_size("store", self.type, self.count)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (
            pointer("a", "b32"),
            Operand("b", "in", self.type, self.count, "register", braces=self.count > 1),
            pointer("mbar", "b32"),
        )

    @property
    def mnemonic(self) -> str:
        return f"st.async.shared::cluster.mbarrier::complete_tx::bytes{VECTOR[self.count]}.{self.type}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.async_store(inputs[0], registers_to_bytes(inputs[1]), inputs[2])
