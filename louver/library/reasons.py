"""Why a kernel is as it is: which pattern was found or promised, what the candidates were predicted to take, and which
instruction was selected.
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.compile.plan.register_tiles import AnySchedule, RegisterTiles
from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import element_type, multiplied_as
from louver.frontend.problem import Problem
from louver.ir.product import selection_of, unit_of
from louver.isa.targets import Target
from louver.library.choose_tiles import costs
from louver.library.configure import costs_for
from louver.library.demand import Demand
from louver.library.times import CLOCK

SHOWN = 4
"""Most candidates that are shown, the best ones by the model."""


@dataclass(frozen=True, slots=True)
class Reasons:
    """The three decisions about a kernel, in their order.

    detect: the pattern of the sparse operand, and who says so.
    cost: the candidates with what they are predicted to take, the best one first.
    select: the instruction, and why.
    """

    detect: str
    cost: tuple[str, ...]
    select: str

    def __str__(self) -> str:
        lines = [("detect", self.detect), *(("cost", each) for each in self.cost), ("select", self.select)]
        named = [
            (name if index == 0 or lines[index - 1][0] != name else "", text)
            for index, (name, text) in enumerate(lines)
        ]
        return "\n".join(f"{f'{name}:' if name else '':8}{text}" for name, text in named)


def promised(pattern: str | None, element: str, operand: str) -> str:
    """What is known of an operand that is given as a sparse tensor."""
    if pattern is None:
        return f"{operand} of {element} is dense"
    return f"{operand} of {element} holds {pattern}, promised by its type: a sparse tensor stores no other elements"


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
    if isinstance(subject, Problem) and not target.has("wgmma.sp"):
        found = costs(subject, sizes, target, sm_count, aligned_output=aligned_output)
        return (*map(str, found[:SHOWN]), f"{len(found)} candidates; rates from documents, not measured")
    demand = Demand.of_problem(subject) if isinstance(subject, Problem) else subject
    known = costs_for(demand, sizes, target, sm_count, aligned_output=aligned_output, cuts=cuts)
    lines = [
        f"{clocks / CLOCK:,.1f} µs by {_short(schedule)}{_cut(cut.cut, cut.parts)}"
        for schedule, cut, clocks in known[:SHOWN]
    ]
    return (*lines, f"{len(known)} candidates; rates fitted to an H200")


def selected(target: Target, element: str, pattern: str | None, schedule: AnySchedule, origin: str) -> str:
    """The instruction of a schedule, and why it is this one. origin: of the schedule."""
    if isinstance(schedule, RegisterTiles):
        k = 512 // element_type(element).bits
        return (
            f"mma.sp::ordered_metadata.m16n8k{k} of {multiplied_as(element)}, one machine instruction on {target.name}, which has no "
            f"wgmma.sp; tile {schedule.tile_m}×{schedule.tile_n}×{schedule.tile_k} ({origin})"
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
