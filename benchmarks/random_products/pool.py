"""The sweep over many processes that share a GPU: they compile in parallel and take turns on the GPU."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from louver.formats.pattern import Pattern, lifted_pattern
from louver.library import execute
from louver.library.compiled import loaded_keys
from random_products.cases import VECTORS, Case, cases
from random_products.check import Outcome, checked, described

MOST_WORKERS = 15


@dataclass(frozen=True, slots=True)
class Part:
    """The outcomes of a group's cases, and the kernels that the process has loaded for them."""

    outcomes: tuple[Outcome, ...]
    kernels: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sweep:
    """All outcomes, in the order of the cases; how many kernels they took, and seconds."""

    outcomes: tuple[Outcome, ...]
    kernels: int
    seconds: float

    @property
    def wrong(self) -> list[Outcome]:
        """The outcomes that are wrong."""
        return [outcome for outcome in self.outcomes if outcome.wrong]

    def to_json(self) -> dict[str, Any]:
        """The record without what it ran on."""
        right = [outcome.worst for outcome in self.outcomes if math.isfinite(outcome.worst)]
        return {
            "cases": len(self.outcomes),
            "exact_cases": sum(outcome.case.exact for outcome in self.outcomes),
            "wrong": len(self.wrong),
            "refused": dict(Counter(outcome.refused for outcome in self.outcomes if outcome.refused)),
            "worst_ratio_to_bound": max(right, default=0.0),
            "kernels": self.kernels,
            "seconds": round(self.seconds, 1),
            "counts": counts(outcome.case for outcome in self.outcomes),
            "failures": [{**described(outcome.case), "wrong": outcome.wrong} for outcome in self.wrong],
        }


def counts(run: Iterable[Case]) -> Mapping[str, Mapping[str, int]]:
    """The number of cases with each product, types, length of vectors, windows, layout and option."""
    names = ("kind", "types", "vectors", "windows", "layout", "options")
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for case in run:
        group, setting = case.group, case.group.setting
        found["kind"][setting.kind] += 1
        found["types"][f"{setting.a}×{setting.b}→{setting.out}"] += 1
        if setting.pattern != lifted_pattern(setting.a):
            found["vectors"][f"{setting.a} N:M@{Pattern.parse(setting.pattern).length}"] += 1
        found["windows"][f"{case.windows}, {'in order' if case.ordered else 'in any order'}"] += 1
        found["layout"][group.layout] += 1
        found["options"].update([f"{name}: {form}" for name, form in group.forms.items()])
        found["options"]["leading axes"] += case.batch > 0
    return {name: dict(sorted(counted.items())) for name, counted in found.items()}


def sweep(
    count: int,
    seed: int,
    say: Callable[[str], object],
    workers: int | None = None,
    vectors: float = VECTORS,
    targets: Sequence[str | None] = (None,),
) -> Sweep:
    """Run `count` cases on the current GPU; `say` hears of each wrong one.

    workers: processes, by default one a core. vectors: as in `cases`. targets: those whose kernels run, each for an equal
    share of the cases; None for the GPU's own.
    """
    begin = time.perf_counter()
    groups = [
        (tuple(found), target)
        for place, target in enumerate(targets)
        for _, found in itertools.groupby(
            cases(count // len(targets), seed + place, vectors, target), key=lambda case: id(case.group)
        )
    ]
    parts: dict[int, Part] = {}
    processes = workers or min(MOST_WORKERS, os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(run_group, *group): index for index, group in enumerate(groups)}
        for job in as_completed(jobs):
            part = parts[jobs[job]] = job.result()
            for outcome in part.outcomes:
                if outcome.wrong:
                    say(f"wrong: {outcome.wrong}: {described(outcome.case)}")
    outcomes = tuple(outcome for index in sorted(parts) for outcome in parts[index].outcomes)
    kernels = frozenset[str]().union(*(part.kernels for part in parts.values()))
    return Sweep(outcomes, len(kernels), time.perf_counter() - begin)


@contextmanager
def running_as(target: str | None) -> Generator[None]:
    """Within the context, calls choose kernels of a target; None for that of the GPU."""
    own: Any = execute.schedule_for

    def schedule(*sizes: Any, **options: Any) -> Any:
        return own(*sizes, **{**options, "form": target})

    execute.schedule_for = own if target is None else schedule
    try:
        yield
    finally:
        execute.schedule_for = own


def run_group(group: Sequence[Case], target: str | None = None) -> Part:
    """Run the cases in this process. Once the device has failed, every later case of the process fails too."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    with running_as(target):
        outcomes = tuple(checked(torch, "cuda", case) for case in group)
    return Part(outcomes, frozenset(map(str, loaded_keys())))
