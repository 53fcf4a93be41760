"""Why a kernel is as it is: which pattern was found or promised, what the candidates were predicted to take, and which
instruction was selected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, Unpack

from louver.choose.choose_tiles import costs
from louver.choose.configure import costs_for
from louver.choose.demand import Demand
from louver.choose.times import CLOCK
from louver.choose.tuned import Origin, Terms, decide
from louver.compile.plan.register_tiles import AnySchedule, RegisterTiles
from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import element_type, multiplied_as
from louver.frontend.problem import Problem
from louver.ir.product import selection_of, unit_of
from louver.isa.targets import Target
from louver.isa.targets import target as target_named
from louver.runtime.device import Device

SHOWN = 4
"""Most candidates that are shown, the best ones by the model."""

ORIGINS: dict[Origin, str] = {
    "tuned": "measured here",
    "table": "measured, from the package's table",
    "model": "the model's choice",
}


@dataclass(frozen=True, slots=True)
class Reasons:
    """The three decisions about a kernel, in their order. The kernel's record keeps them beside its cubin.

    detect: the pattern of the sparse operand, and who says so.
    cost: the candidates with what they are predicted to take, the best one first.
    select: the instruction, and why.
    sizes: m, n, k and the number of products that `cost` is for; None if no sizes were weighed. Other sizes may share
        the kernel.
    """

    detect: str
    cost: tuple[str, ...]
    select: str
    sizes: tuple[int, int, int, int] | None = None

    def __str__(self) -> str:
        lines = [("detect", self.detect), *(("cost", each) for each in self.cost), ("select", self.select)]
        named = [
            (name if index == 0 or lines[index - 1][0] != name else "", text)
            for index, (name, text) in enumerate(lines)
        ]
        return "\n".join(f"{f'{name}:' if name else '':8}{text}" for name, text in named)


Why: TypeAlias = Callable[[], Reasons]
"""Makes the reasons of a kernel that is compiled now."""


def reasons_for(
    problem: Problem,
    m: int,
    n: int,
    k: int,
    place: Device,
    *,
    aligned_output: bool,
    **terms: Unpack[Terms],
) -> Reasons:
    """The reasons for the schedule that `tuned.decide` takes with these arguments."""
    found = decide(problem, m, n, k, place, aligned_output=aligned_output, **terms)
    origin = "; ".join(filter(None, (ORIGINS[found.origin], found.reason)))
    return weighed(
        problem,
        (m, n, k, terms.get("batch", 1)),
        target_named(terms.get("form") or place.target),
        place.sm_count,
        found.schedule,
        origin,
        aligned_output=aligned_output,
        cuts=not terms.get("batch_invariant", False),
    )


def weighed(
    problem: Problem,
    sizes: tuple[int, int, int, int],
    target: Target,
    sm_count: int,
    schedule: AnySchedule,
    origin: str = ORIGINS["model"],
    *,
    aligned_output: bool,
    cuts: bool,
) -> Reasons:
    """The reasons for a schedule that was chosen for sizes: m, n, k and the number of such products. origin: of the choice."""
    told = predicted(problem, sizes, target, sm_count, aligned_output=aligned_output, cuts=cuts)
    m, _, k, _ = sizes
    return Reasons(_weight(problem, m, k), told, selected(target, problem.a, problem.pattern, schedule, origin), sizes)


def given(problem: Problem, schedule: AnySchedule, target: str) -> Reasons:
    """The reasons for a schedule that the caller names."""
    told = ("the caller names the schedule: nothing was compared",)
    return Reasons(
        _weight(problem), told, selected(target_named(target), problem.a, problem.pattern, schedule, "the caller's")
    )


def _weight(problem: Problem, *sizes: int) -> str:
    return promised(problem.pattern, problem.a, f"the weight {list(sizes)}" if sizes else "the weight")


def promised(pattern: str | None, element: str, operand: str, *, found: bool = False) -> str:
    """What is known of an operand. found: whether it is given as a dense array that is checked."""
    if pattern is None:
        return f"{operand} of {element} is dense"
    origin = (
        "found by a check of its elements"
        if found
        else "promised by its type: a sparse tensor stores no other elements"
    )
    return f"{operand} of {element} holds {pattern}, {origin}"


def predicted(
    subject: Demand | Problem,
    sizes: tuple[int, int, int, int],
    target: Target,
    sm_count: int,
    *,
    aligned_output: bool,
    cuts: bool,
) -> tuple[str, ...]:
    """The best candidates for a product. sizes: m, n, k and the number of such products."""
    if isinstance(subject, Problem) and not target.support("wgmma.sp", multiplied_as(subject.a)):
        found = costs(subject, sizes, target, sm_count, aligned_output=aligned_output)
        return (*map(str, found[:SHOWN]), _compared(len(found), sizes, sm_count, "from documents, not measured"))
    demand = Demand.of_problem(subject) if isinstance(subject, Problem) else subject
    known = costs_for(demand, sizes, target, sm_count, aligned_output=aligned_output, cuts=cuts)
    lines = [
        f"{clocks / CLOCK:,.1f} µs by {_short(schedule)}{_cut(cut.cut, cut.parts)}"
        for schedule, cut, clocks in known[:SHOWN]
    ]
    return (*lines, _compared(len(known), sizes, sm_count, "fitted to an H200"))


def _compared(count: int, sizes: tuple[int, int, int, int], sm_count: int, rates: str) -> str:
    *one, batch = sizes
    several = f", {batch} of them" if batch > 1 else ""
    return f"{count} candidates for {'×'.join(map(str, one))}{several} on {sm_count} SMs; rates {rates}"


def selected(target: Target, element: str, pattern: str | None, schedule: AnySchedule, origin: str) -> str:
    """The instruction of a schedule, and why it is this one. origin: of the schedule."""
    if isinstance(schedule, RegisterTiles):
        k = 512 // element_type(element).bits * element_type(element).numbers
        return (
            f"mma.sp::ordered_metadata.m16n8k{k} of {multiplied_as(element)}, one machine instruction on {target.name}, which has no "
            f"wgmma.sp of it; tile {schedule.tile_m}×{schedule.tile_n}×{schedule.tile_k} ({origin})"
        )
    selection, tile = selection_of(pattern), schedule.tile
    unit = "fma on CUDA cores" if unit_of(pattern, element) == "fma" else "wgmma.sp" if selection.lifted else "wgmma"
    rows = " over gathered rows" if selection.indexed else ""
    return f"{unit}{rows} on {target.name}; tile {tile.m}×{tile.n}×{tile.k}, {schedule.ring.stages} stages ({origin})"


def _short(schedule: Schedule) -> str:
    tile, ring = schedule.tile, schedule.ring
    return (
        f"{tile.m}×{tile.n}×{tile.k}, {schedule.roles.consumers} consumers, {ring.stages} stages, metadata {ring.metadata}, "
        f"store {schedule.store.way}, work {schedule.work.unit}"
    )


def _cut(tiles: int, parts: int) -> str:
    return f", {tiles} tiles cut into {parts} ranges of K" if tiles else ""
