"""The record of ladders: schedules, each one change from the one below, and the worklog's claims.

The file is JSON:
`{"schema": 1, "kind": "ladder", "device": …, "versions": {…}, "protocol": …, "ladders": [{"dtype": "e4m3", "out":
"f16", "shape": [M, N, K], "rungs": [{"change": "baseline", "us": 1.0, "claim_tflops": 430.0, "schedule": {…}}, …]},
…]}`.
The first rung is the baseline. A missing claim is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from louver.formats.dtypes import element_type
from louver.measure.report.gemm import types_of
from louver.measure.report.header import Header, header_of, read_record
from louver.measure.report.roofline import DATASHEET
from louver.measure.report.table import Table, folded, number, right

CLAIMS = (
    'Claims are from the worklog "How to optimize a Croqtile 2:4 sparse GEMM" (April 2026): TFLOP/s that its author measured '
    "at the same step on an H800 PCIe, not reproduced here."
)


@dataclass(frozen=True, slots=True)
class LadderRung:
    """A measured schedule. change: from the rung below. us: microseconds of a launch. claim: TFLOP/s of the worklog."""

    change: str
    us: float
    claim: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.us) and self.us > 0):
            raise ValueError(f"us is a positive number of microseconds, got {self.us}")


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs of one element type at one shape, (M, N, K) in elements."""

    dtype: str
    out: str
    shape: tuple[int, int, int]
    rungs: tuple[LadderRung, ...]

    def __post_init__(self) -> None:
        if not self.rungs:
            raise ValueError("a ladder has at least its baseline, got no rungs")

    @property
    def title(self) -> str:
        return f"{'×'.join(map(str, self.shape))} {types_of(self.dtype, self.out)}"

    def tflops(self, rung: LadderRung) -> float:
        """Dense-equivalent TFLOP/s."""
        return 2 * math.prod(self.shape) / rung.us * 1e-6

    def gain(self, rung: LadderRung) -> float:
        """Speed relative to the baseline, minus 1."""
        return self.rungs[0].us / rung.us - 1

    def efficiency(self, rung: LadderRung, device: str) -> float | None:
        """Fraction of the data sheet's 2:4 peak; None for an unknown device."""
        peak = DATASHEET.get(device, {}).get(element_type(self.dtype).bits)
        return None if peak is None else self.tflops(rung) / peak


@dataclass(frozen=True, slots=True)
class LadderRecord(Header):
    """A whole file."""

    ladders: tuple[Ladder, ...]


def ladder_of(found: Mapping[str, Any]) -> Ladder:
    """A ladder from its JSON values."""
    m, n, k = (int(size) for size in found["shape"])
    rungs = tuple(LadderRung(str(r["change"]), float(r["us"]), r.get("claim_tflops")) for r in found["rungs"])
    return Ladder(str(found["dtype"]), str(found["out"]), (m, n, k), rungs)


def read_ladder(path: Path) -> LadderRecord:
    """Read and check a record. Raises ValueError with the file's name and the broken rule."""

    def made(data: Mapping[str, Any]) -> LadderRecord:
        return LadderRecord(*header_of(data, "ladder"), tuple(map(ladder_of, data["ladders"])))

    return read_record(path, "ladder", made)


def ladder_tables(ladders: Sequence[Ladder], device: str) -> list[Table | str]:
    """A table of each ladder from the baseline up, and `CLAIMS` if there are claims."""
    tables: list[Table | str] = [_table(ladder, device) for ladder in ladders]
    claimed = any(rung.claim is not None for ladder in ladders for rung in ladder.rungs)
    return [*tables, CLAIMS] if claimed else tables


def _table(ladder: Ladder, device: str) -> Table:
    numbers = right("TFLOP/s", "Δ vs baseline", "HW efficiency", "worklog's claim TFLOP/s")
    rows = [
        (
            rung.change,
            f"{ladder.tflops(rung):.0f}",
            "" if rung is ladder.rungs[0] else f"{ladder.gain(rung):+.0%}",
            number(ladder.efficiency(rung, device), ".1%"),
            "" if rung.claim is None else f"{rung.claim:.0f}",
        )
        for rung in ladder.rungs
    ]
    title = f"{ladder.title}, 2:4, dense-equivalent, bursts on {device}"
    return Table(title, (*folded("change"), *numbers), rows)
