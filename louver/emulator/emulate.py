"""`run`: executes a kernel on the CPU and reports its hazards."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

import numpy as np

from louver.emulator.cluster import Cluster
from louver.emulator.decode import Program, decode
from louver.emulator.errors import DeadlockError, LaunchError, LimitError
from louver.emulator.execute import run_burst
from louver.emulator.memory import GlobalMemory
from louver.emulator.order import Earliest, Latest, Order, Seeded
from louver.emulator.parameters import Argument, Parameters
from louver.emulator.writes import Writes
from louver.isa.targets import SM_90A
from louver.ptx.module import Kernel

INSTRUCTION_LIMIT = 20_000_000
"""Most steps of all warps of a cluster together."""

IDLE_TURNS = 64
"""Turns in which each cluster with a waiting atomic finds nothing changed, before that counts as a deadlock."""

SHARES = tuple(1 << power for power in range(13))
"""Steps of a cluster before others get their turn, in a seeded order: short and long shares are equally likely."""

AT_ONCE = 8
"""Most clusters that are begun at a time in a seeded order, unless they wait for others."""

FILLS = 0x3C, 0xBD
"""Bytes of shared memory before their first write: positive, then negative numbers in every type."""

MOST = 4
"""Kinds of instructions that a report names, most frequent first."""


@dataclass(frozen=True, slots=True)
class Report:
    """Counts of a run. instructions: executed per warp, by mnemonic. bulk_loads, bulk_stores: bulk copies, one for each
    CTA written. products: warpgroup products (wgmma).

    executed: positions in program order (as in errors) of instructions that at least one thread executed.
    """

    instructions: Counter[str] = field(repr=False)
    executed: frozenset[int] = field(repr=False)
    bulk_loads: int
    bulk_stores: int
    products: int

    def __str__(self) -> str:
        most = ", ".join(f"{name} {count:,}" for name, count in self.instructions.most_common(MOST))
        return (
            f"{self.instructions.total():,} instructions of warps, {len(self.instructions)} kinds: {most}\n"
            f"{self.bulk_loads:,} bulk loads, {self.bulk_stores:,} bulk stores, {self.products:,} products of warpgroups\n"
            f"{len(self.executed):,} instructions of the program executed"
        )


def run(
    kernel: Kernel,
    grid: int | Sequence[int],
    arguments: Mapping[str, Argument],
    *,
    memory: GlobalMemory,
    order: Order = Latest(),  # noqa: B008 - frozen
    dependent: bool = False,
    most_steps: int | None = None,
) -> Report:
    """Run `grid` CTAs of `kernel` to their end. Results are in the arrays of `memory`.

    grid: CTAs along x, a multiple of `kernel.cluster`, or along one to three axes. arguments: by parameter name.
    Clusters run one after the other. If the atomics of one change nothing, others continue; if all wait, the next one
    begins. A seeded order interleaves them. dependent: a programmatic dependent launch: earlier grids may still use all
    memory that is not settled. most_steps: each cluster stops without an error after so many steps of its warps. If a
    product reads columns of B that nothing wrote, the kernel runs again with other bytes there, and results must not
    differ. Raises a subclass of EmulationError for the first misuse found.
    """
    axes = _axes(grid)
    _check_launch(kernel, axes[0])
    parameters = Parameters(kernel, arguments, memory)
    program = decode(kernel, parameters.symbols())
    before = memory.saved()
    report, undefined = _run(
        kernel, program, axes, parameters, memory, order, FILLS[0], most_steps, dependent=dependent
    )
    if undefined:
        first = memory.saved()
        memory.restore(before)
        _run(kernel, program, axes, parameters, memory, order, FILLS[1], most_steps, dependent=dependent)
        memory.check_equal(first)
    return report


def _run(
    kernel: Kernel,
    program: Program,
    axes: tuple[int, int, int],
    parameters: Parameters,
    memory: GlobalMemory,
    order: Order,
    fill: int,
    most_steps: int | None,
    *,
    dependent: bool,
) -> tuple[Report, bool]:
    """Run all clusters. Returns the counts, and whether a product read columns of B that nothing wrote. fill: the bytes
    of shared memory before their first write.
    """
    total, undefined = Report(Counter(), frozenset(), 0, 0, 0), False
    writes = Writes()
    firsts = list(range(0, prod(axes), kernel.cluster))
    coming = deque(firsts if isinstance(order, Earliest) else reversed(firsts))
    begun: deque[Cluster] = deque()
    in_vain = 0
    turns = random.Random(str(order)) if isinstance(order, Seeded) else None
    with np.errstate(all="ignore"):
        while coming or begun:
            if coming and (in_vain >= len(begun) or (turns is not None and len(begun) < AT_ONCE)):
                first = coming.popleft()
                begun.appendleft(
                    Cluster(kernel, program, memory, parameters, writes, order, axes, first, fill, dependent=dependent)
                )
            if turns is not None:
                begun.rotate(turns.randrange(len(begun)))
            cluster, changes = begun.popleft(), writes.changes
            state = _run_cluster(cluster, None if turns is None else turns.choice(SHARES), most_steps)
            if state == "ended":
                total, in_vain, undefined = _add(total, cluster), 0, undefined or cluster.undefined
                continue
            begun.append(cluster)
            # Another cluster that continues may still change the memory that this one polls.
            asked = in_vain + 1 if state == "asks" else max(0, in_vain - 1)
            in_vain = asked if writes.changes == changes else 0
            if in_vain > IDLE_TURNS * len(begun):
                names = ", ".join(str(cta.index) for each in begun for cta in each.ctas)
                raise DeadlockError(f"deadlock: atomics of CTA {names} poll memory that no other CTA changes")
    return total, undefined


def _axes(grid: int | Sequence[int]) -> tuple[int, int, int]:
    given = (grid,) if isinstance(grid, int) else tuple(grid)
    if not 1 <= len(given) <= 3 or min(given) < 1:
        raise LaunchError(f"a grid has one to three axes of at least one CTA, got {', '.join(map(str, given))}")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _check_launch(kernel: Kernel, grid: int) -> None:
    if grid % kernel.cluster:
        raise LaunchError(f"the grid is a multiple of the cluster size {kernel.cluster}, got {grid}")
    if not 1 <= kernel.threads <= SM_90A.max_threads:
        raise LaunchError(f"a CTA has 1 to {SM_90A.max_threads} threads, got {kernel.threads}")
    if not 0 <= kernel.dynamic_shared <= SM_90A.max_shared_bytes:
        raise LaunchError(
            f"a CTA has at most {SM_90A.max_shared_bytes} bytes of shared memory, got {kernel.dynamic_shared}"
        )
    if not 1 <= kernel.cluster <= SM_90A.max_cluster:
        raise LaunchError(f"a cluster has 1 to {SM_90A.max_cluster} CTAs, got {kernel.cluster}")


def _run_cluster(cluster: Cluster, share: int | None, most_steps: int | None) -> Literal["ended", "asks", "paused"]:
    """Run a cluster until it ends, until an atomic leaves memory unchanged, or for a share of steps."""
    begun = cluster.steps
    if not cluster.steps:
        for warp in cluster.warps:
            cluster.scheduler.ready(warp)
    while (turn := cluster.scheduler.next()) is not None:
        cluster.steps += run_burst(*turn)
        if most_steps is not None and cluster.steps > most_steps:
            return "ended"
        if cluster.steps > INSTRUCTION_LIMIT:
            raise LimitError(f"the cluster has run {cluster.steps} steps and does not end", turn[0].place())
        if cluster.asks:
            cluster.asks = False
            return "asks"
        if share is not None and cluster.steps - begun >= share:
            return "paused"
    if not all(warp.done for warp in cluster.warps):
        raise DeadlockError("deadlock: no warp can run and nothing is under way\n" + _explain(cluster))
    cluster.scheduler.drain()
    cluster.check_exit()
    return "ended"


def _explain(cluster: Cluster) -> str:
    waiting = [warp for warp in cluster.warps if not warp.done]
    for warp in waiting:
        # A retry changes nothing. It tells what is missing now, not when the wait began.
        run_burst(warp, 1)
    lines = [f"  {warp.place()}\n    waits for {warp.waits_for}" for warp in waiting]
    return "\n".join(lines)


def _add(total: Report, cluster: Cluster) -> Report:
    products = sum(group.completed for cta in cluster.ctas for group in cta.warpgroups)
    hits = [(step, count) for step, count in zip(cluster.program.steps, cluster.hits, strict=True) if count]
    counts = total.instructions.copy()
    for step, count in hits:
        counts[step.name] += count
    return Report(
        counts,
        total.executed | {step.position for step, _ in hits},
        total.bulk_loads + cluster.bulk.loads,
        total.bulk_stores + cluster.bulk.stores,
        total.products + products,
    )
