"""Pictures as PNG files. Matplotlib (the `plot` extra) is imported when one is drawn, without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from louver.report.gemm import CONTENDERS, LABELS, GemmRecord, GemmRow
from louver.report.layers import LayerRow

INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLORS = {"ours": "#0f766e", "cublas": "#b0b7c0", "cusparselt": "#6b8fb5"}
MOST_BARS = 48
"""Tensors drawn in one picture; beyond that their names cannot be read."""


def plot_layers(rows: Sequence[LayerRow], path: Path, title: str) -> Path:
    """Bytes before and after, and the error of pruning, tensor by tensor. Returns `path`.

    Past `MOST_BARS` tensors only the largest are drawn, in their order, and the title says so.
    Raises ValueError without rows and ModuleNotFoundError without Matplotlib.
    """
    if not rows:
        raise ValueError("a plot of layers needs at least one row, got none: nothing was pruned")
    largest = sorted(rows, key=lambda row: -row.dense_bytes)[:MOST_BARS]
    shown = [row for row in rows if row in largest]
    if len(shown) < len(rows):
        title += f" (the {len(shown)} largest of {len(rows)} tensors)"
    figure, (sizes, errors) = _subplots(2, (11, 1.6 + 0.24 * len(shown)), width_ratios=(2, 1), sharey=True)
    places = range(len(shown))
    dense_mib = [row.dense_bytes / 2**20 for row in shown]
    sparse_mib = [row.sparse_bytes / 2**20 for row in shown]
    sizes.barh(places, dense_mib, height=0.72, color=COLORS["cublas"], label="dense")
    sizes.barh(places, sparse_mib, height=0.4, color=COLORS["ours"], label="compressed")
    sizes.invert_yaxis()
    sizes.set_xlabel("MiB")
    sizes.margins(y=0.01)
    sizes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=8)
    errors.plot([row.error for row in shown], places, "o", color=COLORS["ours"], markersize=4)
    errors.set_xlim(0, 1.1 * max(row.error for row in shown) or 1)
    errors.margins(y=0.01)
    errors.set_xlabel("relative Frobenius error of pruning")
    for axes in (sizes, errors):
        _clean(axes, grid="x")
    sizes.set_yticks(places, [row.name for row in shown], fontsize=7)
    return _finish(figure, path, title)


def plot_gemm(record: GemmRecord, path: Path, title: str = "2:4 products beside the vendor's libraries") -> Path:
    """Dense-equivalent TFLOP/s by problem, one panel for each kind of element types; our bars carry the factor over cuBLAS.

    Returns `path`. Raises ValueError without rows and ModuleNotFoundError without Matplotlib.
    """
    if not record.rows:
        raise ValueError("a plot of products needs at least one row, got none: run the benchmark first")
    kinds = list(dict.fromkeys(row.types for row in record.rows))
    widest = max(sum(row.types == types for row in record.rows) for types in kinds)
    figure, panels = _subplots(len(kinds), (1.5 + max(4.0, 1.3 * widest) * len(kinds), 4.2), sharey=True)
    for axes, types in zip(panels, kinds, strict=True):
        _gemm_panel(axes, [row for row in record.rows if row.types == types], types)
    panels[0].set_ylabel("dense-equivalent TFLOP/s")
    panels[0].legend(frameon=False, fontsize=8, loc="upper left", ncols=len(CONTENDERS))
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    figure.text(0.01, 0.005, f"{record.device}; {versions}. {record.protocol}", fontsize=6.5, color=MUTED, wrap=True)
    return _finish(figure, path, title, bottom=0.05)


def _gemm_panel(axes: Any, rows: Sequence[GemmRow], types: str) -> None:
    width = 0.8 / len(CONTENDERS)
    for index, contender in enumerate(CONTENDERS):
        places = [place + (index - 1) * width for place in range(len(rows))]
        heights = [row.tflops(contender) or 0.0 for row in rows]
        axes.bar(places, heights, width * 0.94, color=COLORS[contender], label=LABELS[contender])
        if contender == "ours":
            for place, height, row in zip(places, heights, rows, strict=True):
                dense = row.tflops("cublas")
                if dense and height:
                    axes.annotate(
                        f"{height / dense:.2f}×", (place, height), ha="center", va="bottom", fontsize=7, color=INK
                    )
    axes.set_title(types, fontsize=9, color=INK)
    axes.margins(y=0.18)
    _clean(axes, grid="y")
    axes.set_xticks(range(len(rows)), ["\n×".join(str(size) for size in row.shape) for row in rows], fontsize=7)


def _subplots(count: int, size: tuple[float, float], **options: Any) -> tuple[Any, Sequence[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ratios = options.pop("width_ratios", None)
    figure: Any = Figure(figsize=size, facecolor="white")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(1, count, squeeze=False, width_ratios=ratios, **options)
    return figure, list(axes[0])


def _clean(axes: Any, grid: str) -> None:
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0, labelsize=8)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _finish(figure: Any, path: Path, title: str, bottom: float = 0.0) -> Path:
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    figure.tight_layout(rect=(0, bottom, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
