"""The ladder as a picture: a bar a rung, one panel an element type, the worklog's claims as marks."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from louver.report.canvas import COLORS, INK, MUTED, clean, figure, write
from louver.report.ladder import Ladder, LadderRecord

WIDTH = 12.0
RUNG_HEIGHT = 0.27
FOOT_COLUMNS = 230
TITLE = "From a plain schedule to ours, one field at a time"


def plot_ladder(record: LadderRecord, path: Path) -> Path:
    """Dense-equivalent TFLOP/s of each rung, the baseline on top. Returns `path`.

    Raises ValueError without a ladder and ModuleNotFoundError without Matplotlib.
    """
    if not record.ladders:
        raise ValueError("a plot of ladders needs at least one, got none: run louver bench ladder first")
    most = max(len(ladder.rungs) for ladder in record.ladders)
    made = figure(WIDTH, RUNG_HEIGHT * most + 1.6)
    panels = made.subplots(1, len(record.ladders), squeeze=False)[0]
    made.subplots_adjust(left=0.15, right=0.985, top=0.86, bottom=0.17, wspace=0.5)
    made.text(0.012, 0.955, TITLE, fontsize=14, color=INK, weight="bold", va="center")
    for axes, ladder in zip(panels, record.ladders, strict=True):
        _panel(axes, ladder, record.device)
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    foot = fill(f"{record.device}; {versions}. {record.protocol}", FOOT_COLUMNS)
    made.text(0.012, 0.08, foot, fontsize=6, color=MUTED, va="top", linespacing=1.35)
    return write(made, path)


def _panel(axes: Any, ladder: Ladder, device: str) -> None:
    speeds = [ladder.tflops(rung) for rung in ladder.rungs]
    claims = [(place, rung.claim) for place, rung in enumerate(ladder.rungs) if rung.claim is not None]
    axes.barh(range(len(speeds)), speeds, 0.72, color=COLORS["ours"])
    for place, (rung, speed) in enumerate(zip(ladder.rungs, speeds, strict=True)):
        part = ladder.efficiency(rung, device)
        text = f" {speed:,.0f}" + ("" if part is None else f"  {part:.0%}")
        axes.annotate(text, (max(speed, rung.claim or 0), place), va="center", fontsize=7, color=INK)
    if claims:
        places, values = zip(*claims, strict=True)
        axes.plot(values, places, "D", color=COLORS["cusparselt"], markersize=5, label="the worklog's claim")
        axes.legend(loc="upper right", frameon=False, fontsize=7)
    axes.set_yticks(range(len(speeds)), [rung.change for rung in ladder.rungs], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max([*speeds, *(value for _, value in claims)]))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(ladder.title, fontsize=10, color=INK, weight="bold", loc="left")
    axes.set_xlabel("dense-equivalent TFLOP/s, part of the data sheet's 2:4 peak", fontsize=8, color=INK)
    clean(axes, grid="x")
    axes.tick_params(axis="y", labelsize=7)
