"""Draws the speedups of a model's sparse sides: a bar for each case."""

from __future__ import annotations

from pathlib import Path

from louver.measure.report.canvas import COLORS, INK, clean, figure, foot, head, titles, write
from louver.measure.report.model import FASTER, ModelRecord, fact_lines, speedups

WIDTH, CASE_HEIGHT = 10.0, 0.5
HEAD, FOOT = 0.55, 1.0
"""Inches above and below the panel."""

FOOT_COLUMNS = 190
BARS = dict(zip(FASTER, (COLORS["ours"], COLORS["cusparselt"]), strict=True))


def plot_model(record: ModelRecord, path: Path) -> Path:
    """Speed of each sparse side over the fastest dense one, a bar for each case. Returns `path`.

    Raises ValueError without a speedup and ModuleNotFoundError without Matplotlib.
    """
    rows = [row for row in record.rows if speedups(row.ms)]
    if not rows:
        raise ValueError("a plot of a model needs a case with a dense and a sparse time, got none")
    height = CASE_HEIGHT * len(rows) + 0.6 + HEAD + FOOT
    made = figure(WIDTH, height)
    head(made, "A language model with 2:4 weights", 1 - 0.5 * HEAD / height)
    axes = made.subplots()
    for shift, (side, color) in enumerate(BARS.items()):
        places = [(place, speedups(row.ms)[side]) for place, row in enumerate(rows) if side in speedups(row.ms)]
        if places:
            at = [place + 0.38 * (shift - 0.5) for place, _ in places]
            gains = [gain for _, gain in places]
            axes.barh(at, gains, 0.36, color=color, label=side)
            for place, gain in zip(at, gains, strict=True):
                axes.text(gain + 0.01, place, f"{gain:.2f}", va="center", fontsize=7, color=INK)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row.title for row in rows], fontsize=7)
    axes.invert_yaxis()
    clean(axes, "x")
    titles(axes, f"{record.blocks} blocks{' and head' if record.head else ''}", "× the fastest dense side")
    axes.set_xlim(0, 1.08 * max(gain for row in rows for gain in speedups(row.ms).values()))
    place = (0.99, 1 - 0.5 * HEAD / height)
    made.legend(loc="center right", bbox_to_anchor=place, ncols=len(BARS), frameon=False, fontsize=9)
    foot(made, f"{record.foot} {' '.join(fact_lines(record.facts))}", FOOT_COLUMNS, FOOT / height)
    made.tight_layout(rect=(0, FOOT / height, 1, 1 - HEAD / height))
    return write(made, path)
