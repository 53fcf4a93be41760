"""The ladder: schedules from a plain one to Louver's, one field at a time, with the claims of a published worklog.

The worklog (Croqtile, 2:4 products on an H800 PCIe, 2026) claims a speed after each step. A step is several rungs here.
Its e4m3 kernels sum in f16; these sum in f32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from louver.compile.plan.schedule import FIELDS, Schedule
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol
from louver.measure.schedules import time_schedules

SHAPE = (4096, 8192, 8192)
"""M, N, K of the worklog's products."""

TILE = ("tile_m", "tile_n", "consumers")
"""Fields that change together, because few of their combinations fit."""

QUICK = Protocol(rounds=2, burst_seconds=0.02, pause_seconds=0.01, rotation_bytes=50_000_000)


@dataclass(frozen=True, slots=True)
class Rung:
    """One schedule of the ladder. change: from the rung below. claim: TFLOP/s of the worklog at this rung."""

    change: str
    schedule: Schedule
    claim: float | None = None


Step = tuple[Mapping[str, Any], float | None]
"""Fields that change, and the worklog's claim after the change."""

BASELINE = Schedule.of(
    tile_m=64, tile_n=256, tile_k=64, consumers=1, stages=1, raster=1, specialized=False, in_flight=0
)
"""One warpgroup copies, waits, multiplies and waits. Tiles are in row order."""

OURS: tuple[Step, ...] = (
    ({"metadata": "global"}, None),
    ({"stages": 4}, None),  # room for staged results
    ({"store": "bulk"}, None),
    ({"raster": None}, None),
    ({"l2": "values"}, None),
    ({"tile_m": 192, "tile_n": 192, "consumers": 3}, None),
    ({"tile_m": 128, "tile_n": 256, "consumers": 2}, None),
    ({"staging": 128}, None),
    ({"cluster": 2}, None),
)
"""Rungs beyond the worklog. A change that does not pay is a rung too, and a later rung reverts it. `staging` becomes
the library's choice for f16.
"""

CLAIMED_BASELINE: Mapping[str, float] = {"e4m3": 430.0, "f16": 457.0}

LADDERS: Mapping[str, tuple[Step, ...]] = {
    "e4m3": (
        ({"specialized": True}, None),
        ({"stages": 2}, None),
        ({"tile_m": 128, "consumers": 2}, 586.0),
        ({"tile_k": 128}, 718.0),
        ({"metadata": "barrier"}, None),
        ({"in_flight": 1}, None),
        ({"stages": 3}, 1401.0),
        ({"stages": 5}, None),
        *OURS,
    ),
    "f16": (
        ({"specialized": True}, None),
        ({"stages": 3}, None),
        ({"tile_m": 128, "consumers": 2}, 531.0),
        ({"stages": 2}, None),  # three stages of the wider steps do not fit
        ({"tile_k": 128}, None),
        ({"metadata": "stage"}, 784.0),
        ({"in_flight": 1}, None),
        ({"tile_k": 64}, None),
        ({"stages": 5}, None),
        *OURS,
    ),
}
"""Changes from rung to rung, by the operands' element type."""


def change_between(below: Schedule, above: Schedule) -> str:
    """The difference in words. Raises ValueError unless it is one field, or the tile."""
    before, after = below.flat(), above.flat()
    names = [name for name in FIELDS if before[name] != after[name]]
    if names and set(names) <= set(TILE):
        return f"tile {above.tile.m}×{above.tile.n}, {above.roles.consumers} consumers"
    if len(names) != 1:
        raise ValueError(
            f"a rung differs from the one below by one field, or by {', '.join(TILE)}, got {', '.join(names) or 'none'}: "
            "give each change a rung of its own"
        )
    return f"{names[0]} {after[names[0]]}"


def climb(baseline: Schedule, steps: Sequence[Step], claim: float | None = None) -> tuple[Rung, ...]:
    """The rungs from `baseline` up. claim: of the baseline. Raises ValueError for a step that is not one change."""
    rungs = [Rung("baseline", baseline, claim)]
    for change, claimed in steps:
        schedule = rungs[-1].schedule.changed(**change)
        rungs.append(Rung(change_between(rungs[-1].schedule, schedule), schedule, claimed))
    return tuple(rungs)


def ladder(dtype: str) -> tuple[Rung, ...]:
    """The ladder of an element type. Raises ValueError for a type without a ladder."""
    if dtype not in LADDERS:
        raise ValueError(f"the ladder is for {' or '.join(LADDERS)}, got {dtype!r}")
    return climb(BASELINE, LADDERS[dtype], CLAIMED_BASELINE[dtype])


def measure_ladder(torch: Any, dtype: str, protocol: Protocol, shape: tuple[int, int, int] = SHAPE) -> dict[str, Any]:
    """Time the rungs of a ladder side by side, as JSON values of `louver.measure.report.ladder`.

    Each rung is first compared with float64. Raises ArithmeticError if a result is wrong.
    """
    gemm = GemmProblem(*shape, dtype)
    rungs = ladder(dtype)
    times = time_schedules(torch, gemm, {str(index): rung.schedule for index, rung in enumerate(rungs)}, protocol)
    found = [_row(rung, times[str(index)]) for index, rung in enumerate(rungs)]
    return {"dtype": dtype, "out": gemm.out, "shape": list(shape), "rungs": found}


def _row(rung: Rung, seconds: float) -> dict[str, Any]:
    return {
        "change": rung.change,
        "us": round(seconds * 1e6, 3),
        "claim_tflops": rung.claim,
        "schedule": rung.schedule.flat(),
    }
