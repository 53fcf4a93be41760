"""Draws ladders: a panel for each element type, a bar for each rung, and the worklog's claims as marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, head, titles, write
from louver.measure.report.ladder import CLAIMS, Ladder, LadderRecord

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
