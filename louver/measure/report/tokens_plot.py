"""Draws time over the number of tokens: a column of panels for each weight, a row for each combination of types."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, write
from louver.measure.report.gemm import LABELS, TIMED, GemmRecord, GemmRow
from louver.measure.report.table import grouped

PANEL_WIDTH, PANEL_HEIGHT = 2.7, 2.5
HEAD, FOOT, LEFT = 0.7, 0.9, 0.75
"""Inches above, below and left of the panels."""

FOOT_COLUMNS_PER_INCH = 19
LABEL_WIDTH = 1.9
"""Inches of a line's name."""

NARROWEST = len(TIMED) * LABEL_WIDTH
"""Least width in inches: one row of names and the foot's lines fit."""

COPY = "copy of as many bytes"
STYLES = {
    "dependent": {"linestyle": "--", "marker": "o", "color": COLORS["ours"]},
    "copy": {"linestyle": ":", "color": INK},
}
LEAST_POINTS = 3


def over_tokens(record: GemmRecord) -> bool:
    """Whether each weight of the record is multiplied by several numbers of tokens."""
    counts = [len(rows) for rows in _by_weight(record.rows).values()]
    return bool(counts) and min(counts) >= LEAST_POINTS


def _by_weight(rows: Sequence[GemmRow]) -> dict[tuple[str, int, int], list[GemmRow]]:
    return grouped(sorted(rows, key=lambda row: row.shape[1]), lambda row: (row.types, row.shape[0], row.shape[2]))


def plot_tokens(record: GemmRecord, path: Path) -> Path:
    """Microseconds by N. Returns `path`. Raises ModuleNotFoundError without Matplotlib."""
    panels = _by_weight(record.rows)
    kinds, weights = (list(dict.fromkeys(part)) for part in ([t for t, *_ in panels], [(m, k) for _, m, k in panels]))
    width, height = max(PANEL_WIDTH * len(weights) + LEFT, NARROWEST), PANEL_HEIGHT * len(kinds) + HEAD + FOOT
    made = figure(width, height)
    grid = made.subplots(len(kinds), len(weights), squeeze=False, sharex=True)
    for (types, m, k), rows in panels.items():
        axes = grid[kinds.index(types)][weights.index((m, k))]
        _panel(axes, rows)
        axes.set_title(f"{m:,} × {k:,}, {types}", fontsize=8, color=INK, loc="left")
    for axes in grid[:, 0]:
        axes.set_ylabel("µs", fontsize=8, color=INK)
    for axes in grid[-1]:
        axes.set_xlabel("tokens", fontsize=8, color=INK)
    made.legend(*_named_lines(grid), loc="upper left", ncols=int(width / LABEL_WIDTH), frameon=False, fontsize=9)
    foot(made, record.foot, int(FOOT_COLUMNS_PER_INCH * width), (FOOT - 0.45) / height)
    made.subplots_adjust(LEFT / width, FOOT / height, 0.99, 1 - HEAD / height, wspace=0.22, hspace=0.3)
    return write(made, path)


def _panel(axes: Any, rows: Sequence[GemmRow]) -> None:
    for name in TIMED:
        taken = [(row.shape[1], row.times_us[name]) for row in rows if name in row.times_us]
        if taken:
            style = STYLES.get(name) or {"marker": "o", "color": COLORS[name]}
            axes.plot(*zip(*taken, strict=True), markersize=3, linewidth=1.4, label=LABELS.get(name, COPY), **style)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    clean(axes, grid="both")


def _named_lines(grid: Any) -> tuple[list[Any], list[str]]:
    """Each line of the legend once, from any panel."""
    found = {label: line for axes in grid.flat for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    return list(found.values()), list(found)
