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
from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, head, titles, write
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


WIDTH = 12.0
RUNG_HEIGHT = 0.27
HEAD, FOOT = 0.55, 0.65
"""Inches above and below the panels."""

FOOT_COLUMNS = 230
TITLE = "From a plain schedule to ours, one field at a time"
BARS_END = 0.8
"""End of the longest bar or claim, as a fraction of the panel's width. The numbers are to its right."""


def plot_ladder(record: LadderRecord, path: Path) -> Path:
    """Dense-equivalent TFLOP/s of each rung, the baseline on top. Returns `path`.

    Raises ValueError without a ladder and ModuleNotFoundError without Matplotlib.
    """
    if not record.ladders:
        raise ValueError("a plot of ladders needs at least one, got none: run louver bench ladder first")
    height = RUNG_HEIGHT * max(len(ladder.rungs) for ladder in record.ladders) + 0.6 + HEAD + FOOT
    made = figure(WIDTH, height)
    head(made, TITLE, 1 - 0.5 * HEAD / height)
    panels = made.subplots(1, len(record.ladders), squeeze=False)[0]
    marks = [_panel(axes, ladder, record.device) for axes, ladder in zip(panels, record.ladders, strict=True)]
    claimed = [mark for mark in marks if mark is not None]
    if claimed:
        place = (0.99, 1 - 0.5 * HEAD / height)
        made.legend(handles=claimed[:1], loc="center right", bbox_to_anchor=place, frameon=False, fontsize=9)
    foot(made, f"{record.foot} {CLAIMS}" if claimed else record.foot, FOOT_COLUMNS, FOOT / height)
    made.tight_layout(rect=(0, FOOT / height, 1, 1 - HEAD / height), w_pad=2)
    return write(made, path)


def _panel(axes: Any, ladder: Ladder, device: str) -> Any:
    """Draw a ladder. Returns the marks of its claims, None without claims."""
    speeds = [ladder.tflops(rung) for rung in ladder.rungs]
    axes.barh(range(len(speeds)), speeds, 0.72, color=COLORS["ours"])
    for place, (rung, speed) in enumerate(zip(ladder.rungs, speeds, strict=True)):
        part = ladder.efficiency(rung, device)
        # Figure spaces are as wide as digits.
        text = f"{speed:,.0f}" + ("" if part is None else f"  {part:.0%}".rjust(5, "\N{FIGURE SPACE}"))
        axes.text(1, place, text, transform=axes.get_yaxis_transform(), ha="right", va="center", fontsize=7, color=INK)
    claims = [(rung.claim, place) for place, rung in enumerate(ladder.rungs) if rung.claim is not None]
    marks = None
    if claims:
        (marks,) = axes.plot(
            *zip(*claims, strict=True),
            "D",
            color=COLORS["cusparselt"],
            markersize=5,
            label="a published worklog's claim",
        )
    axes.set_yticks(range(len(speeds)), [rung.change for rung in ladder.rungs], fontsize=7)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    longest = max([*speeds, *(value for value, _ in claims)])
    axes.set_xlim(0, longest / BARS_END)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    known = ladder.efficiency(ladder.rungs[0], device) is not None
    titles(axes, ladder.title, "TFLOP/s, of the 2:4 peak" if known else "TFLOP/s")
    axes.set_xlabel("dense-equivalent TFLOP/s", fontsize=8, color=INK)
    clean(axes, grid="x")
    axes.tick_params(axis="y", labelsize=7)
    return marks
