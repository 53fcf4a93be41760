"""Searches schedules: changes the best schedule so far in one way, until no change is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from louver.compile.plan.register_tiles import AnySchedule
from louver.compile.plan.schedule import FIELDS, Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import Target
from louver.library import tile_shapes
from louver.library.configure import MAX_STAGES, deepest
from louver.library.tuned_entry import size_class

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
