"""Finds the best schedule of a problem on the current GPU, and keeps it for later calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

from louver.choose import tile_shapes
from louver.choose.choose_tiles import choose_tiles, costs
from louver.choose.configure import MAX_STAGES, choose, deepest
from louver.choose.tuned import Entry, keep, place_of, size_class
from louver.compile.plan.register_tiles import AnySchedule
from louver.compile.plan.schedule import FIELDS, Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import Target, target
from louver.library.execute import schedule_for
from louver.measure.protocol import Protocol
from louver.measure.tune_run import Task, set_up, whole_k
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import source_hash
from louver.runtime.device import Device

_ELSEWHERE = ((128, 224, 2), (192, 192, 3), (256, 128, 2), (256, 256, 2), (64, 256, 1))
_SHAPES = dict.fromkeys(
    (*((each.m, each.n, each.consumers) for each in tile_shapes.TILES if each.unit != "fma"), *_ELSEWHERE)
)
TILES: tuple[Mapping[str, int | None], ...] = tuple(
    {"tile_m": m, "tile_n": n, "consumers": consumers, "staging": None} for m, n, consumers in _SHAPES
)
"""The library's tiles for tensor cores, and those that it never chooses. A tile and its consumer warpgroups are one change,
because few other combinations fit. The tile sets the staging.
"""

NUMBERS: Mapping[str, tuple[int | None, ...]] = {
    "tile_k": (64, 128),
    "raster": (None, 1, 2, 4, 8, 12, 16, 24, 32),
    "staging": (None, 32, 48, 64, 96, 128),
    "stages": tuple(range(2, MAX_STAGES + 1)),
}
"""Values of numeric fields. Fields with named or boolean values try all values; other fields stay."""

APART = ("specialized", "dependent")
"""Fields that the search keeps: without a producer, a schedule is only for comparison; `dependent` is the caller's
choice.
"""

GAIN = 0.005
"""Least fraction of the time that a change must save. A smaller gain is noise."""

ROUNDS = 4
"""Most searches from a better schedule."""

Measure = Callable[[Sequence[AnySchedule]], Mapping[AnySchedule, float]]
"""Seconds of each schedule that runs, measured side by side. Schedules that do not run are left out."""


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search. times: seconds by schedule, from its last measurement."""

    best: AnySchedule
    base: AnySchedule
    times: Mapping[AnySchedule, float]


def neighbours(problem: Problem, schedule: Schedule, n: int, machine: Target, *, aligned: bool) -> Iterator[Schedule]:
    """Schedules that fit the target and differ from one by one change, with most stages unless the change is the
    stages.

    n: columns of the product; tiles wider than its size class are left out. aligned: whether bulk stores are allowed.
    """
    seen = {schedule}
    for change in _changes():
        if change.get("tile_n", 0) > max(64, size_class(n)) or (change.get("store") == "bulk" and not aligned):
            continue
        try:
            changed = schedule.changed(**change)
            full = deepest(problem, changed, machine)
        except ValueError:
            continue
        if "stages" not in change:
            changed = full
        if changed not in seen and changed.ring.stages <= full.ring.stages:
            seen.add(changed)
            yield changed


def search(base: AnySchedule, around: Callable[[AnySchedule], Iterator[AnySchedule]], measure: Measure) -> Found:
    """Go from `base` to its fastest neighbour, and repeat from there. Raises ValueError if `base` does not run."""
    best, times = base, dict[AnySchedule, float]()
    for _ in range(ROUNDS):
        fresh = [schedule for schedule in around(best) if schedule not in times]
        taken = measure([best, *fresh])
        if best not in taken:
            raise ValueError(f"a search begins with a schedule that runs, got {best}")
        times.update(taken)
        fastest = min(taken, key=lambda schedule: taken[schedule])
        if taken[fastest] > (1 - GAIN) * taken[best]:
            break
        best = fastest
    if best != base:
        # The clock drifts between rounds, so times of different rounds are not comparable.
        times.update(measure([base, best]))
        best = best if times[best] < times[base] else base
    return Found(best, base, times)


def _changes() -> Iterator[Mapping[str, Any]]:
    yield from TILES
    records = get_type_hints(Schedule)
    for name, (record, part) in FIELDS.items():
        for value in () if name in APART else _values(name, get_type_hints(records[record])[part]):
            yield {name: value}


def _values(name: str, hint: Any) -> Sequence[Any]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    return (False, True) if hint is bool else NUMBERS.get(name, ())


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
