"""Draws users' kernels: a bar for each call, Triton's dense time over Louver's, grouped by kind."""

from __future__ import annotations

from pathlib import Path

from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, head, write
from louver.measure.report.kernels import KernelsRecord
from louver.measure.report.table import grouped

WIDTH = 11.0
BAR_HEIGHT = 0.2
HEAD, FOOT = 0.5, 0.7
"""Inches above and below the bars."""

LEFT = 0.3
"""The end of the labels, as a fraction of the picture's width."""

FOOT_COLUMNS = 210
TITLE = "Users' kernels with a sparse tensor, beside the dense ones by Triton at the same tile"


def plot_kernels(record: KernelsRecord, path: Path) -> Path:
    """Bars by kind, fastest first. Bars below 1 are pale. Returns `path`.

    Raises ValueError without a call that Triton ran too, and ModuleNotFoundError without Matplotlib.
    """
    timed = [(row.times_dense, row) for row in record.rows if row.times_dense is not None]
    kinds = grouped(timed, lambda each: each[1].kind)
    if not kinds:
        raise ValueError("a plot of kernels needs calls timed beside Triton's, got none: see the record's messages")
    count = sum(map(len, kinds.values()))
    height = BAR_HEIGHT * (count + len(kinds)) + 1 + HEAD + FOOT
    made = figure(WIDTH, height)
    head(made, TITLE, 1 - 0.5 * HEAD / height, 13)
    axes = made.subplots()
    place, ticks = 0, dict[int, str]()
    for kind, calls in kinds.items():
        axes.text(0, place, f" {kind}", va="center", fontsize=8, color=INK, weight="bold")
        place += 1
        for speed, row in sorted(calls, key=lambda each: -each[0]):
            axes.barh(place, speed, 0.72, color=COLORS["ours" if speed >= 1 else "cublas"])
            axes.text(speed, place, f" {speed:.2f}", va="center", fontsize=6, color=INK)
            ticks[place] = row.label
            place += 1
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=6)
    axes.set_ylim(place, -1)
    axes.margins(x=0.08)
    axes.set_xlabel("times the dense kernel's speed", fontsize=8, color=INK)
    clean(axes, grid="x")
    axes.tick_params(axis="y", labelsize=6)
    how = " Every kernel by register tiles." if record.general else ""
    foot(made, f"{record.foot}{how}", FOOT_COLUMNS, FOOT / height)
    made.subplots_adjust(LEFT, (FOOT + 0.5) / height, 0.98, 1 - HEAD / height)
    return write(made, path)
