"""Errors of the emulator: an exception for each kind of misuse, with the place where it was found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The place in the run where something was found.

    cta: linear CTA index in the grid. warp: index in the CTA. thread: index in the CTA, or None for the whole warp.
    instruction: PTX text with the kernel's own register names. position: its index in the kernel's program order.
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
    """Base of all reports. `problem` states what is wrong; `place` is None when no single instruction is to blame.

    lane: the lane of the warp whose access is at fault, where that is known before the place is.
    """

    def __init__(self, problem: str, place: Place | None = None, lane: int | None = None) -> None:
        super().__init__(problem if place is None else f"{problem}\n  at {place}")
        self.problem = problem
        self.place = place
        self.lane = lane


class DeadlockError(EmulationError):
    """No warp can run and no engine has work; the message lists each waiting warp and what it waits for."""


class UseBeforeArrivalError(EmulationError):
    """Bytes are read whose last writer is not ordered before the read by any barrier that the reader waited for."""


class EarlierGridError(EmulationError):
    """Memory that an earlier grid may still use is accessed before a wait for that grid (`griddepcontrol.wait`)."""


class OverwriteInUseError(EmulationError):
    """Bytes are written that an earlier read or write, not ordered before this one, still uses."""


class ProxyFenceError(EmulationError):
    """Ordinary stores meet an asynchronous access without `fence.proxy.async` by the thread that stored."""


class OutOfBoundsError(EmulationError):
    """An address outside every allocation."""


class MisalignedError(EmulationError):
    """An address that is not a multiple of what the access needs."""


class UninitialisedError(EmulationError):
    """Bytes or registers are read that nothing has written."""


class BarrierError(EmulationError):
    """An mbarrier or a named barrier is misused: not initialised, twice initialised, over-arrival, count limits."""


class RegisterHazardError(EmulationError):
    """Registers of an unfinished wgmma are touched, or a wgmma lacks its `wgmma.fence`."""


class ConvergenceError(EmulationError):
    """An `.aligned` instruction runs with part of a warp, or the warps of a warpgroup disagree."""


class ExitError(EmulationError):
    """A CTA or a thread ends with asynchronous work, or work of a cluster peer, that it has not waited for."""


class LaunchError(EmulationError):
    """The launch itself is wrong: arguments, grid, shared-memory size."""


class LimitError(EmulationError):
    """The kernel ran for more instructions than `INSTRUCTION_LIMIT`: probably a loop that never ends."""
