"""Draws a record of products: bars, a roofline, or time over the number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from louver.formats.dtypes import element_type
from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, head, titles, write
from louver.measure.report.gemm import CONTENDERS, LABELS, TIMED, GemmRecord, GemmRow, mean_factor
from louver.measure.report.roofline import ROOFS, draw_roofline
from louver.measure.report.table import grouped

WIDTH = 13.0
ROW_HEIGHT = 3.2
ROOF_HEIGHT = 3.9
MOST_BARS = 16
"""Most products of a panel with bars and names. More products become dots."""

FOOT_COLUMNS = 250
"""Characters of a line below the panels."""


def plot_gemm(record: GemmRecord, path: Path) -> Path:
    """Dense-equivalent TFLOP/s by problem: a row of panels for each operand width, a panel for each combination of
    types.

    Panels with many products have dots, sorted by Louver's speed. Devices in `ROOFS` get a roofline for each width.
    Returns `path`. Raises ValueError without rows and ModuleNotFoundError without Matplotlib.
    """
    if not record.rows:
        raise ValueError("a plot of products needs at least one row, got none: run the benchmark first")
    widths = grouped(record.rows, lambda row: element_type(row.dtype).bits)
    roof = ROOFS.get(record.device)
    heights = [ROW_HEIGHT] * len(widths) + ([ROOF_HEIGHT] if roof else [])
    made = figure(WIDTH, sum(heights) + 1.1)
    bands = made.subfigures(len(heights) + 2, 1, height_ratios=[0.55, *heights, 0.55])
    _head(bands[0], bool(record.sustained))
    for band, rows in zip(bands[1:], widths.values(), strict=False):
        _bars(band, record, rows)
    if roof is not None:
        band = bands[1 + len(widths)]
        for axes, bits in zip(_panels(band, len(widths), bottom=0.14), widths, strict=True):
            draw_roofline(axes, record, roof, bits)
    foot(bands[-1], record.foot, FOOT_COLUMNS)
    return write(made, path)


def _head(band: Any, sustained: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    head(band, "2:4 products beside the vendor's libraries", 0.62)
    marks: list[Any] = [Patch(color=COLORS[name], label=LABELS[name]) for name in CONTENDERS]
    if sustained:
        dot: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "markeredgecolor": INK, "linestyle": "none"}
        marks.append(Line2D([], [], label="sustained, where power is the limit", **dot))
    band.legend(handles=marks, loc="center right", bbox_to_anchor=(0.99, 0.62), ncols=4, frameon=False, fontsize=9)


def _panels(band: Any, count: int, bottom: float) -> list[Any]:
    axes = band.subplots(1, count, squeeze=False)
    band.subplots_adjust(left=0.06, right=0.99, top=0.9, bottom=bottom, wspace=0.13)
    return list(axes[0])


def _bars(band: Any, record: GemmRecord, rows: Sequence[GemmRow]) -> None:
    """A row of panels with one scale."""
    kinds = grouped(rows, lambda row: row.types)
    panels = _panels(band, len(kinds), bottom=0.2)
    top = max((row.tflops(name) or 0.0) for row in rows for name in CONTENDERS)
    for index, (axes, (types, own)) in enumerate(zip(panels, kinds.items(), strict=True)):
        if len(own) > MOST_BARS:
            _dots(axes, own)
        else:
            _gemm_panel(axes, record, own)
        titles(axes, types, _means(own))
        clean(axes, grid="y")
        axes.set_ylim(0, 1.12 * top)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.tick_params(labelleft=not index)
    panels[0].set_ylabel("dense-equivalent TFLOP/s", fontsize=8, color=INK)


def _dots(axes: Any, rows: Sequence[GemmRow]) -> None:
    """Dots of products from the slowest to the fastest, with the libraries' dots at the same place."""
    rows = sorted(rows, key=lambda row: row.tflops("ours") or 0.0)
    for contender in reversed(CONTENDERS):
        found = [(place, row.tflops(contender)) for place, row in enumerate(rows)]
        known = [(place, speed) for place, speed in found if speed is not None]
        axes.plot(
            [place for place, _ in known], [speed for _, speed in known], "o", color=COLORS[contender], markersize=3
        )
    axes.set_xticks([])
    axes.set_xlabel(f"{len(rows)} products, the slowest first", fontsize=8, color=INK)


def _gemm_panel(axes: Any, record: GemmRecord, rows: Sequence[GemmRow]) -> None:
    width = 0.82 / len(CONTENDERS)
    for index, contender in enumerate(CONTENDERS):
        for place, row in enumerate(rows):
            at, height = place + (index - 1) * width, row.tflops(contender)
            if height is None:
                continue
            axes.bar(at, height, width * 0.92, color=COLORS[contender])
            dense = row.tflops("cublas")
            if contender == "ours" and dense:
                top = max(row.tflops(each) or 0.0 for each in CONTENDERS)
                axes.annotate(f"{height / dense:.2f}×", (place, top), ha="center", va="bottom", fontsize=6.5, color=INK)
            for taken in record.sustained:
                if taken.row is row and taken.contender == contender:
                    axes.plot(
                        at, taken.tflops, "o", markersize=4.2, markerfacecolor="white", markeredgecolor=INK, mew=0.8
                    )
    labels = ["\n×".join(str(size) for size in row.shape) for row in rows]
    axes.set_xticks(range(len(rows)), labels, fontsize=7)


def _means(rows: Sequence[GemmRow]) -> str:
    means = {name: mean_factor(rows, name) for name in CONTENDERS[1:]}
    return ", ".join(f"{mean:.2f}× {LABELS[name].split()[0]}" for name, mean in means.items() if mean is not None)


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
