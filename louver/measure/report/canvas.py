"""Colours, axes and files of all pictures. Needs no display. Matplotlib (the `plot` extra) is imported on first use."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

from louver.formats.regular import Target

INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLORS = {"ours": "#0f766e", "cublas": "#b0b7c0", "cusparselt": "#6b8fb5"}
"""By contender. Louver's colour is the strongest."""


def figure(width: float, height: float) -> Any:
    """An empty figure, in inches. Raises ModuleNotFoundError without Matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made: Any = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(made)
    return made


def head(part: Any, text: str, y: float = 0.5, size: float = 14) -> None:
    """The title of a figure or of its first band. y: its middle, 0 to 1."""
    part.text(0.012, y, text, fontsize=size, color=INK, weight="bold", va="center")


def foot(part: Any, text: str, columns: int, y: float = 0.9) -> None:
    """Small text below a picture, `columns` characters a line. y: its top, 0 to 1."""
    part.text(0.012, y, fill(text, columns), fontsize=6, color=MUTED, va="top", linespacing=1.35)


def titles(axes: Any, left: str, right: str = "") -> None:
    """The title of a panel, and a smaller text at its right."""
    axes.set_title(left, fontsize=10, color=INK, weight="bold", loc="left")
    axes.set_title(right, fontsize=8, color=MUTED, loc="right")


def clean(axes: Any, grid: str) -> None:
    """Remove the frame and ticks, and draw grid lines along an axis ("x", "y" or "both")."""
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0, labelsize=8)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def write(made: Any, path: Path) -> Path:
    """Save as PNG, completely or not at all, and make the folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = BytesIO()
    made.savefig(picture, format="png", dpi=150)
    Target.of(path).write(picture.getvalue())
    return path
