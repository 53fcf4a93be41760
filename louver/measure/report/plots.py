"""The pictures of the demo: tensors before and after pruning, and similarities of sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from louver.measure.report.canvas import COLORS, INK, MUTED, clean, figure, write
from louver.measure.report.sentences import F32, finds_paraphrase
from louver.models.steps import LayerRow

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


COLUMNS = 3
MARGIN = 0.07

LOST = "#c2410c"
"""Colour of paraphrases that are not found."""


def plot_sentences(embeddings: Mapping[str, F32], path: Path, title: str) -> Path:
    """A panel for each set of weights, a dot for each pair of sentences: its similarity over that by the stored
    weights.

    embeddings: [2·n, width] by the weights' names, the stored weights first; see `louver.measure.report.sentences`.
    Returns `path`. Raises ValueError without panels and ModuleNotFoundError without Matplotlib.
    """
    stored, *others = embeddings
    if not others:
        raise ValueError(f"a plot of sentences needs other weights beside the stored ones, got {list(embeddings)}")
    rows = -(-len(others) // COLUMNS)
    made = figure(11, 1.2 + 3.85 * rows)
    panels = made.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(others) :]:
        axes.set_visible(False)
    for axes, weights in zip(panels.flat, others, strict=False):
        _panel(axes, embeddings[stored], embeddings[weights], weights)
    # One range for both axes keeps the panels square, so that their titles fit.
    least = min(float((each @ each.T).min()) for each in embeddings.values())
    panels[0, 0].set(xlim=(least - MARGIN, 1 + MARGIN), ylim=(least - MARGIN, 1 + MARGIN))
    made.supylabel("cosine similarity of two sentences, weights as named", fontsize=9, color=INK)
    made.supxlabel("cosine similarity of the same two sentences, weights as stored", y=0.012, fontsize=9, color=INK)
    made.suptitle(title, x=0.01, ha="left", fontsize=13, color=INK, weight="bold")
    _legend(made)
    made.tight_layout(rect=(0, 0.01, 1, 0.955), h_pad=2)
    return write(made, path)


def _panel(axes: Any, stored: F32, embeddings: F32, weights: str) -> None:
    found = finds_paraphrase(embeddings)
    count = len(found) // 2
    before, after = stored @ stored.T, embeddings @ embeddings.T
    pairs = np.triu(np.ones_like(before, np.bool_), 1)
    left, right = np.arange(count), np.arange(count) + count
    pairs[left, right] = False
    axes.axline((0, 0), (1, 1), color=MUTED, linewidth=0.8)
    axes.scatter(before[pairs], after[pairs], s=3, color=COLORS["cublas"], alpha=0.35, linewidths=0)
    both = found[:count] & found[count:]
    for chosen, color in ((both, COLORS["ours"]), (~both, LOST)):
        places = left[chosen], right[chosen]
        axes.scatter(before[places], after[places], s=16, color=color, linewidths=0.4, edgecolors="white")
    axes.set_aspect("equal")
    axes.set_title(weights, fontsize=11, color=INK, weight="bold", loc="left")
    axes.set_title(f"{found.sum()} of {len(found)} find their paraphrase", fontsize=8.5, color=INK, loc="right")
    clean(axes, grid="both")
    # The numbers of both axes meet in the corner.
    axes.tick_params(axis="x", pad=7)


def _legend(made: Any) -> None:
    from matplotlib.lines import Line2D

    marks = (
        (COLORS["ours"], 5, "paraphrases, nearest to each other"),
        (LOST, 5, "paraphrases, one of them nearer to another sentence"),
        (COLORS["cublas"], 3, "any other two sentences"),
    )
    handles = [Line2D([], [], marker="o", linestyle="none", color=c, markersize=s, label=text) for c, s, text in marks]
    handles.append(Line2D([], [], color=MUTED, linewidth=0.8, label="no change"))
    made.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.005, 0.95), ncols=4, frameon=False, fontsize=8.5)
