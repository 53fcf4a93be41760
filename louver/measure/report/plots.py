"""Draws a checkpoint's tensors before and after pruning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from louver.measure.report.canvas import COLORS, INK, clean, figure, write
from louver.models.layer_row import LayerRow

MOST_BARS = 48
"""Most tensors of a picture; names of more tensors are unreadable."""


def plot_layers(rows: Sequence[LayerRow], path: Path, title: str) -> Path:
    """Bytes before and after, and the error of pruning, by tensor. Returns `path`.

    Only the largest `MOST_BARS` tensors are drawn; the title then gives both numbers. Raises ValueError without rows
    and ModuleNotFoundError without Matplotlib.
    """
    if not rows:
        raise ValueError("a plot of layers needs at least one row, got none: nothing was pruned")
    largest = sorted(rows, key=lambda row: -row.dense_bytes)[:MOST_BARS]
    shown = [row for row in rows if row in largest]
    if len(shown) < len(rows):
        title += f" (the {len(shown)} largest of {len(rows)} tensors)"
    made = figure(11, 1.6 + 0.24 * len(shown))
    sizes, errors = made.subplots(1, 2, width_ratios=(2, 1), sharey=True)
    places = range(len(shown))
    dense_mib = [row.dense_bytes / 2**20 for row in shown]
    sparse_mib = [row.stored_bytes / 2**20 for row in shown]
    sizes.barh(places, dense_mib, height=0.72, color=COLORS["cublas"], label="dense")
    sizes.barh(places, sparse_mib, height=0.4, color=COLORS["ours"], label="compressed")
    sizes.invert_yaxis()
    sizes.set_xlabel("MiB")
    sizes.margins(y=0.01)
    sizes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=8)
    # An error of 0 lies on the edge.
    errors.plot([row.error for row in shown], places, "o", color=COLORS["ours"], markersize=4, clip_on=False)
    errors.set_xlim(0, 1.1 * max(row.error for row in shown) or 1)
    errors.margins(y=0.01)
    errors.set_xlabel("relative Frobenius error of pruning")
    for axes in (sizes, errors):
        clean(axes, grid="x")
    sizes.set_yticks(places, [row.name for row in shown], fontsize=7)
    made.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    made.tight_layout()
    return write(made, path)
