"""Named barriers, the cluster barrier, and the register pool of `setmaxnreg`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from louver.emulator.clocks import Agents, Clock
from louver.emulator.errors import BarrierError, ConvergenceError
from louver.emulator.waiters import Signal
from louver.isa.instruction import LANES
from louver.isa.machine import Mask, Suspend
from louver.isa.sync import NAMED_BARRIERS
from louver.isa.targets import SM_90A, WARPS_PER_WARPGROUP

if TYPE_CHECKING:
    from louver.emulator.warp import Warp


@dataclass(slots=True, eq=False)
class Turn:
    """One use of a barrier, from the first to the last arrival. holds: the predicate of some thread holds."""

    threads: int
    seen: Clock
    arrived: int = 0
    holds: bool = False
    complete: bool = False
    names: list[str] = field(default_factory=list[str])


class NamedBarriers:
    """The barriers of one CTA that `barrier.sync` names."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._turns: dict[int, Turn] = {}
        self._signals = [Signal() for _ in range(NAMED_BARRIERS)]

    def arrive(self, warp: Warp, index: int, threads: int, *, holds: bool = False) -> Turn:
        """Count the warp in and release what its lanes have seen. holds: the predicate of some lane holds."""
        if not 0 <= index < NAMED_BARRIERS:
            raise BarrierError(f"named barriers are 0 to {NAMED_BARRIERS - 1}, got {index}")
        if threads % LANES or not 0 < threads <= warp.cluster.kernel.threads:
            raise BarrierError(
                f"a named barrier counts whole warps of the CTA's {warp.cluster.kernel.threads} threads, got {threads}"
            )
        if index not in self._turns:
            self._turns[index] = Turn(threads, self._agents.clock())
        turn = self._turns[index]
        if turn.threads != threads:
            raise BarrierError(
                f"named barrier {index} waits for {turn.threads} threads, but {warp.name} names {threads}"
            )
        turn.names.append(warp.name)
        turn.arrived += LANES
        turn.holds |= holds
        turn.seen.join(warp.release(warp.active))
        if turn.arrived == turn.threads:
            turn.complete = True
            del self._turns[index]
            self._signals[index].notify()
        return turn

    def sync(self, warp: Warp, index: int, threads: int) -> Suspend | None:
        """Arrive once, then sleep until all threads have."""
        turn = warp.arrived_at
        if not isinstance(turn, Turn):
            turn = warp.arrived_at = self.arrive(warp, index, threads)
        if not turn.complete:
            return warp.suspend(self._signals[index], self._describe(index, turn))
        warp.arrived_at = None
        warp.clock.join(turn.seen.rows, warp.active)
        return None

    def any(self, warp: Warp, index: int, threads: int, value: Mask) -> Mask | Suspend:
        """As `sync`, with a predicate: whether it holds in any thread."""
        turn = warp.arrived_at
        if not isinstance(turn, Turn):
            turn = warp.arrived_at = self.arrive(warp, index, threads, holds=bool(value[warp.active].any()))
        suspended = self.sync(warp, index, threads)
        return np.full(LANES, turn.holds) if suspended is None else suspended

    @staticmethod
    def _describe(index: int, turn: Turn) -> str:
        return f"named barrier {index} ({turn.arrived} of {turn.threads} threads: {', '.join(turn.names)})"


class ClusterBarrier:
    """`barrier.cluster.arrive` and `.wait`, for all warps of the cluster that have not exited."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._warps: list[Warp] = []
        self._arrived: dict[int, Turn] = {}
        self._turn = Turn(0, agents.clock())
        self._signal = Signal()

    def enter(self, warps: list[Warp]) -> None:
        self._warps = list(warps)

    def arrive(self, warp: Warp) -> None:
        if not np.array_equal(warp.active, warp.exists):
            raise ConvergenceError("all lanes of a warp must arrive together at the cluster barrier, got some of them")
        if warp.agent in self._arrived:
            raise BarrierError(f"{warp.name} arrives twice at the cluster barrier without a wait between")
        self._arrived[warp.agent] = self._turn
        self._turn.names.append(warp.name)
        self._turn.seen.join(warp.release(warp.active))
        self._advance()

    def wait(self, warp: Warp) -> Suspend | None:
        turn = self._arrived.get(warp.agent)
        if turn is None:
            raise BarrierError(f"{warp.name} waits at the cluster barrier without having arrived")
        if not turn.complete:
            late = [w.name for w in self._warps if w.name not in turn.names]
            return warp.suspend(self._signal, f"the cluster barrier ({', '.join(late)} missing)")
        del self._arrived[warp.agent]
        warp.clock.join(turn.seen.rows, warp.active)
        return None

    def leave(self, warp: Warp) -> None:
        """The warp has exited."""
        self._warps.remove(warp)
        self._advance()

    def _advance(self) -> None:
        if self._turn.names and all(warp.name in self._turn.names for warp in self._warps):
            self._turn.complete = True
            self._turn = Turn(0, self._agents.clock())
            self._signal.notify()


class RegisterPool:
    """A CTA's register pool: `setmaxnreg.dec` gives registers back, `.inc` takes them (PTX ISA, `setmaxnreg`).

    Each warp starts with the registers that `.reqntid` and `.minnctapersm` allow. The pool starts empty.
    """

    def __init__(self, threads: int, min_ctas: int, warps: int) -> None:
        step = SM_90A.setmaxnreg_step
        entry = min(SM_90A.registers_per_sm // (threads * min_ctas), SM_90A.registers_per_thread)
        self._held = [entry // step * step] * warps
        self._history: list[list[int]] = [[] for _ in range(warps)]
        self._free = 0
        self._signal = Signal()

    def set(self, warp: Warp, count: int, increase: bool) -> Suspend | None:
        """Set the warp's registers of a thread to `count`. An increase sleeps until the pool holds enough."""
        held = self._held[warp.index]
        self._check(count, held, increase)
        needed = (count - held) * LANES
        if needed > self._free:
            return warp.suspend(
                self._signal,
                f"{needed} registers for setmaxnreg {count} ({held} held per thread, {self._free} in the pool)",
            )
        self._free -= needed
        self._held[warp.index] = count
        self._history[warp.index].append(count)
        self._signal.notify()
        return None

    def held(self, warp: Warp) -> int:
        """Registers of a thread in the warp."""
        return self._held[warp.index]

    def check_exit(self) -> None:
        """Raise ConvergenceError unless all warps of a warpgroup executed the same `setmaxnreg`."""
        for first in range(0, len(self._history), WARPS_PER_WARPGROUP):
            group = self._history[first : first + WARPS_PER_WARPGROUP]
            if any(history != group[0] for history in group):
                raise ConvergenceError(
                    f"setmaxnreg must be executed by all warps of a warpgroup: warps {first} to {first + len(group) - 1} "
                    f"set {group}"
                )

    @staticmethod
    def _check(count: int, held: int, increase: bool) -> None:
        low, high, step = SM_90A.setmaxnreg_min, SM_90A.setmaxnreg_max, SM_90A.setmaxnreg_step
        if count % step or not low <= count <= high:
            raise BarrierError(f"setmaxnreg takes a multiple of {step} from {low} to {high}, got {count}")
        if increase and count < held:
            raise BarrierError(f"setmaxnreg.inc to {count} is below the {held} registers held")
        if not increase and count > held:
            raise BarrierError(f"setmaxnreg.dec to {count} is above the {held} registers held")
