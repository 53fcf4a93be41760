"""Draws the speedups of a layer's products over the number of tokens: a panel for each type, a line for each product."""

from __future__ import annotations

from pathlib import Path

from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, head, titles, write
from louver.measure.report.serve import CASES, LAYER, ServeRecord, ratios

WIDTH, HEIGHT = 10.0, 4.6
HEAD, FOOT = 0.55, 1.0
"""Inches above and below the panels."""

FOOT_COLUMNS = 190
STYLES = dict(zip(CASES, ("-", "--", "-.", ":", "-"), strict=True))


def plot_serve(record: ServeRecord, path: Path) -> Path:
    """Ratios by tokens. Returns `path`. Raises ValueError without a ratio and ModuleNotFoundError without Matplotlib."""
    found = ratios(record.rows)
    if not found:
        raise ValueError("a plot of served products needs a dense and a sparse time, got none")
    sides = list(dict.fromkeys(each.side for each in found))
    made = figure(WIDTH, HEIGHT)
    head(made, "A layer's 2:4 products under CUDA graphs", 1 - 0.5 * HEAD / HEIGHT)
    grid = made.subplots(1, len(sides), squeeze=False, sharey=True)[0]
    for side, axes in zip(sides, grid, strict=True):
        mine = {each.case: each for each in found if each.side == side}
        for case in (case for case in CASES if case in mine):
            whole = case == LAYER
            style = {"color": COLORS["ours"] if whole else INK, "linewidth": 2.2 if whole else 1.0}
            style |= {"marker": "o", "markersize": 4} if whole else {}
            label = f"{case}, mean {mine[case].mean:.2f}"
            axes.plot(*zip(*mine[case].found, strict=True), STYLES[case], label=label, **style)
        axes.axhline(1, color=INK, linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("tokens", fontsize=8, color=INK)
        clean(axes, grid="both")
        titles(axes, side, f"× {side.replace('sparse', 'dense')}")
        axes.legend(frameon=False, fontsize=7)
    foot(made, record.foot, FOOT_COLUMNS, FOOT / HEIGHT)
    made.tight_layout(rect=(0, FOOT / HEIGHT, 1, 1 - HEAD / HEIGHT))
    return write(made, path)
