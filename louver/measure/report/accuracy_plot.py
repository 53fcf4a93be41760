"""Draws the frontier: what a model loses against how much faster its linear layers are."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, Final

from louver.measure.report.accuracy import AccuracyRecord, AccuracyRow, Times
from louver.measure.report.canvas import COLORS, INK, MUTED, clean, figure, foot, head, titles, write

WIDTH, HEAD, PANEL = 12.0, 0.7, 4.2
FOOT_COLUMNS: Final = 230
FOOT_LINE: Final = 0.13
"""Inches of a line below the panels."""

MOST: Final = 6.0
"""Greatest ratio that is drawn: worse models are of no use."""

MARKERS: Final = "osD^vP*X<>"
SHADES: Final = (MUTED, COLORS["cusparselt"], "#b45309", COLORS["ours"])
"""By the way in which weights were found: without calibration, by a method alone, refined, distilled."""

WAYS: Final = ("magnitude", "one-shot", "tuned by parts", "distilled")


def plot_accuracy(record: AccuracyRecord, path: Path) -> Path:
    """A panel for each number of tokens: perplexity over dense's by speed over dense's, and the frontier as a line.

    Rows without a fast pattern, and those that lose more than `MOST`, are left out. Returns `path`. Raises ValueError
    without times or rows to draw, and ModuleNotFoundError without Matplotlib.
    """
    drawn = [row for row in record.rows if row.shares and row.ratio[record.first] <= MOST]
    if not drawn or not record.times:
        raise ValueError("a frontier needs rows with fast patterns, and times of layers: run the stages with speed")
    heights = [HEAD, PANEL, FOOT_LINE * (2 + len(textwrap.wrap(record.foot, FOOT_COLUMNS)))]
    made = figure(WIDTH, sum(heights))
    bands = made.subfigures(3, 1, height_ratios=heights)
    head(bands[0], f"Pruned {record.model.split(',')[0]}")
    panels = bands[1].subplots(1, len(record.times), squeeze=False, sharey=True)[0]
    bands[1].subplots_adjust(left=0.06, right=0.99, top=0.92, bottom=0.12, wspace=0.06)
    markers = dict(zip(dict.fromkeys(row.pattern for row in drawn), MARKERS, strict=False))
    for axes, (tokens, times) in zip(panels, record.times.items(), strict=True):
        _panel(axes, record, drawn, times, markers)
        titles(axes, f"{tokens:,} tokens", "speed: shapes of Llama 3 8B")
        axes.set_xlabel("speed of the linear layers over dense", fontsize=8, color=INK)
    panels[0].set_ylabel(f"perplexity over dense ({record.first})", fontsize=8, color=INK)
    handles, labels = panels[0].get_legend_handles_labels()
    place = {"loc": "center right", "bbox_to_anchor": (0.99, 0.5), "ncols": 6}
    bands[0].legend(handles, labels, frameon=False, fontsize=8, **place)
    foot(bands[2], record.foot, FOOT_COLUMNS)
    return write(made, path)


def way(row: AccuracyRow) -> int:
    """Of `WAYS`."""
    if row.minutes:
        return 3
    return 2 if "tuned" in row.method else 0 if row.method.startswith("magnitude") else 1


def _panel(axes: Any, record: AccuracyRecord, rows: list[AccuracyRow], times: Times, markers: dict[str, str]) -> None:
    points = [(row.speed(times), row.ratio[record.first], row) for row in rows]
    for pattern, marker in markers.items():
        axes.plot([], [], marker, color=INK, markersize=5, label=pattern)
    for index, name in enumerate(WAYS):
        mine = [point for point in points if way(point[2]) == index]
        if mine:
            axes.plot([], [], "s", color=SHADES[index], markersize=6, label=name)
        for speed, ratio, row in mine:
            axes.plot(speed, ratio, markers[row.pattern], color=SHADES[index], markersize=6)
    best = frontier([(1.0, 1.0), *((speed, ratio) for speed, ratio, _ in points)])
    axes.plot(*zip(*best, strict=True), color=INK, linewidth=0.9, linestyle=":", zorder=0)
    axes.set_yscale("log")
    axes.set_yticks([1, 1.2, 1.5, 2, 3, 4, 6], labels=["1", "1.2", "1.5", "2", "3", "4", "6"])
    axes.minorticks_off()
    clean(axes, grid="both")


def frontier(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (speed, loss) that no other beats in both, from the slowest."""
    return sorted(p for p in points if not any(q != p and q[0] >= p[0] and q[1] <= p[1] for q in points))
