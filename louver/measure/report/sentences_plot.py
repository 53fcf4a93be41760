"""Draws similarities of sentences by pruned weights against similarities by the stored weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from louver.measure.report.canvas import COLORS, INK, MUTED, clean, figure, write
from louver.measure.report.sentences import F32, finds_paraphrase

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
