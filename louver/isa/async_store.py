"""Asynchronous stores of registers to the shared memory of a CTA of the cluster (PTX ISA, `st.async`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.isa.instruction import Bits, Effect, Operand, RegType, Requirement, pointer
from louver.isa.machine import Outcome, WarpState
from louver.isa.memory import VECTOR, check_size, registers_to_bytes


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
            raise ValueError("an asynchronous store moves registers of 32 or 64 bits, got b16: pack two in one")
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
