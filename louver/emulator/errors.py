"""Errors of the emulator: an exception for each kind of misuse, with its place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the run.

    cta: linear index in the grid. warp: index in the CTA. thread: index in the CTA, or None for the whole warp.
    instruction: PTX text with the kernel's register names. position: its index in program order.
    """

    cta: int
    warp: int
    thread: int | None
    instruction: str
    position: int

    def __str__(self) -> str:
        thread = "" if self.thread is None else f", thread {self.thread}"
        return f"CTA {self.cta}, warp {self.warp}{thread}, instruction {self.position}: {self.instruction}"


class EmulationError(Exception):
    """Base of all reports. problem: text of the error. place: None if no single instruction is to blame. lane: the lane
    at fault, if it is known before the place.
    """

    def __init__(self, problem: str, place: Place | None = None, lane: int | None = None) -> None:
        super().__init__(problem if place is None else f"{problem}\n  at {place}")
        self.problem = problem
        self.place = place
        self.lane = lane


class DeadlockError(EmulationError):
    """No warp can run and no engine has work, or clusters poll memory that nobody changes. The message names them."""


class UseBeforeArrivalError(EmulationError):
    """Bytes are read, but no barrier that the reader waited for orders their last write first."""


class EarlierGridError(EmulationError):
    """Memory that an earlier grid may still use is accessed before `griddepcontrol.wait`."""


class OverwriteInUseError(EmulationError):
    """Bytes are written that an earlier, unordered read or write still uses."""


class ProxyFenceError(EmulationError):
    """An asynchronous access touches bytes of ordinary stores without a `fence.proxy.async` between them."""


class OutOfBoundsError(EmulationError):
    """An address outside every allocation, or a write to an input."""


class MisalignedError(EmulationError):
    """An address that is not a multiple of the access's alignment."""


class UninitialisedError(EmulationError):
    """Bytes or registers are read before they are written."""


class BarrierError(EmulationError):
    """A barrier or `setmaxnreg` is misused: not initialised, initialised twice, too many arrivals, illegal counts."""


class RegisterHazardError(EmulationError):
    """Registers of an unfinished wgmma are used, or a wgmma lacks its `wgmma.fence`."""


class ConvergenceError(EmulationError):
    """Lanes or warps that must act together differ: `.aligned`, `bra.uni`, shuffles, bulk copies, warpgroups."""


class ExitError(EmulationError):
    """A CTA or thread ends before asynchronous work, or work of another CTA on its memory, is waited for."""


class LaunchError(EmulationError):
    """The launch itself is wrong (arguments, grid, shared-memory size), or the kernel uses what is not modelled."""


class LimitError(EmulationError):
    """A cluster executes more steps than `INSTRUCTION_LIMIT`: probably a loop that never ends."""
