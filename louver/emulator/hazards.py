"""Registers of one warp that unfinished wgmma use, and those used since the last `wgmma.fence`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from louver.emulator.decode import ProductRegisters, Step
from louver.emulator.errors import RegisterHazardError, UninitialisedError
from louver.isa.instruction import LANES

if TYPE_CHECKING:
    from louver.emulator.warp import Warp


class RegisterHazards:
    """One warp's products by number: issued, in groups, settled (waited for), and the registers held until then."""

    def __init__(self, warp: Warp) -> None:
        self._warp = warp
        self.issued = 0
        self._groups: list[int] = []
        self._settled = 0
        self._held: dict[ProductRegisters, int] = {}
        self._touched: set[int] = set()
        self._unfenced: list[ProductRegisters] = []
        self._fenced = False

    def fence(self) -> None:
        self._touched.clear()
        self._unfenced.clear()
        self._fenced = True

    def commit(self) -> None:
        self._groups.append(self.issued)

    def target(self, pending: int) -> int:
        """Number of the last product that must complete so that at most `pending` groups remain."""
        return self._groups[-1 - pending] if pending < len(self._groups) else 0

    def settle(self, target: int) -> None:
        """The warp has waited for products up to `target`: their registers are free."""
        if target > self._settled:
            self._settled = target
            self._held = {registers: number for registers, number in self._held.items() if number > target}

    def touch(self, step: Step) -> None:
        """An ordinary instruction is about to use registers of some wgmma."""
        self._touched.update(step.watched_reads, step.watched_writes)
        for registers, number in self._held.items():
            for slot in (*step.watched_reads, *step.watched_writes):
                if slot in registers.accumulator_set:
                    raise RegisterHazardError(
                        f"register {self._name(slot)} is an accumulator of wgmma {number}, "
                        "which has not been waited for: wgmma.commit_group and wgmma.wait_group must come first"
                    )
            for slot in step.watched_writes:
                if slot in registers.inputs:
                    raise RegisterHazardError(
                        f"register {self._name(slot)} is overwritten, but wgmma {number}, "
                        "which has not been waited for, may still read it"
                    )

    def use(self, step: Step, number: int) -> None:
        registers = step.product
        assert registers is not None
        if not self._fenced:
            raise RegisterHazardError("a wgmma.fence must come before the first wgmma of a warp")
        self._check_budget(registers.count)
        if not self._touched.isdisjoint(registers.fenced):
            slot = min(self._touched & registers.fenced)
            raise RegisterHazardError(
                f"register {self._name(slot)} was used by other instructions since the last wgmma.fence: "
                "a wgmma.fence must come between"
            )
        self._check_accumulators(registers)
        self.issued = self._held[registers] = number
        if registers not in self._unfenced:
            self._unfenced.append(registers)

    def accumulators(self, slots: tuple[int, ...], needed: bool) -> NDArray[np.uint32]:
        """The warp's accumulators, uint32 [count, 32]. Unless `needed`, unwritten ones are zeros."""
        values = [self._warp.registers[slot] for slot in slots]
        if needed and any(value is None for value in values):
            raise UninitialisedError("a wgmma with scale-d true reads accumulators that were never written")
        return np.stack([np.zeros(LANES, np.uint32) if value is None else value for value in values]).astype(np.uint32)

    def unfinished(self) -> int:
        """Number of products issued but not waited for."""
        return self.issued - self._settled

    def _check_budget(self, needed: int) -> None:
        held = self._warp.cta.pool.held(self._warp)
        if needed > held:
            raise RegisterHazardError(
                f"the product alone needs {needed} registers a thread, but the warp holds {held}: setmaxnreg.inc must come first"
            )

    def _check_accumulators(self, registers: ProductRegisters) -> None:
        for other, number in self._held.items():
            if other.accumulators != registers.accumulators and (
                slots := other.accumulator_set & registers.accumulator_set
            ):
                raise RegisterHazardError(
                    f"register {self._name(min(slots))} is an accumulator of the unfinished wgmma {number} "
                    "at another place or of another shape"
                )
        for other in self._unfenced:
            if other.shape != registers.shape and (slots := other.accumulator_set & registers.accumulator_set):
                raise RegisterHazardError(
                    f"register {self._name(min(slots))} was an accumulator of shape {other.shape}, now {registers.shape}: "
                    "a wgmma.fence must come between"
                )

    def _name(self, slot: int) -> str:
        return self._warp.cluster.slot_name(slot)
