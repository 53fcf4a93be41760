"""Finds the best schedule of a problem on the current GPU, and keeps it for later calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from louver.compile.plan.register_tiles import AnySchedule
from louver.compile.plan.schedule import Schedule
from louver.isa.targets import target
from louver.library.choose_tiles import choose_tiles, costs
from louver.library.configure import choose
from louver.library.execute import schedule_for
from louver.library.tuned import keep
from louver.library.tuned_entry import Entry, place_of, size_class
from louver.measure.protocol import Protocol
from louver.measure.tune_run import Task, set_up, whole_k
from louver.measure.tune_search import Found, neighbours, search
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import source_hash
from louver.runtime.device import Device

PROTOCOL = Protocol(rounds=3)
"""Fewer bursts than for a record, because only the order matters."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The results of a task. refused: reasons by schedule that was left out."""

    task: Task
    found: Found
    refused: dict[AnySchedule, str]

    @property
    def gain(self) -> float:
        """Speed of the best schedule relative to the model's choice."""
        times = self.found.times
        return times[self.found.base] / times[self.found.best]


def tune(torch: Any, task: Task, place: Device, protocol: Protocol = PROTOCOL) -> Tuned:
    """Search from the model's choice; of register tiles, all that the model compares are measured. Raises
    ArithmeticError if a result is wrong.
    """
    machine = target(place.target)
    aligned = task.aligned_output
    sizes = task.m, task.n, whole_k(task.k), 1
    bench = set_up(torch, task, place, protocol)

    def around(schedule: AnySchedule) -> Iterator[AnySchedule]:
        if isinstance(schedule, Schedule):
            yield from neighbours(task.problem, schedule, task.n, machine, aligned=aligned)
            return
        found = costs(task.problem, sizes, machine, place.sm_count, aligned_output=aligned)
        yield from (each.schedule for each in found if each.schedule != schedule)

    if machine.has("wgmma.sp"):
        wide = partial(choose, aligned_output=aligned, k=task.k, cuts=True)
        base: AnySchedule = wide(task.problem, task.m, task.n, machine, place.sm_count)
    else:
        base = choose_tiles(task.problem, sizes, machine, place.sm_count, aligned_output=aligned)

    return Tuned(task, search(base, around, bench.measure), bench.refused)


def entry_of(tuned: Tuned, place: Device) -> Entry:
    """The entry that keeps the result."""
    task, found = tuned.task, tuned.found
    wanted = partial(place_of, task.problem, task.m, task.n, task.k, place.name)
    return Entry(
        wanted(aligned_output=task.aligned_output),
        found.best.flat(),
        round(found.times[found.best] * 1e6, 3),
        round(found.times[found.base] * 1e6, 3),
        (task.m, task.n, task.k),
        source_hash(),
        ptxas_version(),
    )


def tune_and_keep(torch: Any, tasks: Iterable[Task], place: Device) -> Iterator[Tuned]:
    """Tune each task and keep its entry for later calls, also in this process. Raises OSError if it cannot be kept."""
    for task in tasks:
        tuned = tune(torch, task, place)
        keep(entry_of(tuned, place))
        schedule_for.cache_clear()
        torch.cuda.empty_cache()
        yield tuned


def classes_between(low: int, high: int) -> Iterator[int]:
    """One N for each size class of a range: the class itself, or the end of the range in the last class."""
    if not 1 <= low <= high:
        raise ValueError(f"N is at least 1, a range from least to greatest, got {low} to {high}")
    n = low
    while n <= high:
        top = size_class(n)
        yield min(top, high)
        n = top + 1
