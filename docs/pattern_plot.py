"""Draws what the patterns N:M, N:M@L and V:N:M keep of one matrix, from what `louver.prune` and `louver.compress` do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import louver
from louver.measure.report.svg import EDGE, INK, MUTED, Drawing

ROWS, COLUMNS, CELL = 8, 8, 24
WIDTH, HEIGHT, LEFT, TOP, STEP = 1040, 390, 22, 88, 344
"""Of the picture, the first panel's corner, and the distance of panels."""

KEPT, DROPPED, VECTOR, FRAME = "#9cc5ea", "#ffffff", "#e6f0fa", "#2f6fae"


@dataclass(frozen=True, slots=True)
class Panel:
    """A pattern, its kind, and lines about it."""

    pattern: str
    kind: str
    about: tuple[str, ...]


PANELS = (
    Panel(
        "2:4",
        "N:M",
        (
            "Of each 4 neighbours in a row, 2 stay.",
            "Each row chooses for itself.",
            "Sparse tensor cores multiply this.",
        ),
    ),
    Panel(
        "2:4@4",
        "N:M@L, vectors of L rows",
        ("Of each 4 columns, 2 stay for 4 rows", "together: the L rows of a window share", "one list of columns."),
    ),
    Panel(
        "2:8@V4",
        "V:N:M (VENOM), V rows",
        ("Of each 8 columns, 4 stay for 4 rows", "together (tinted). Of these 4, each row", "keeps 2 of its own."),
    ),
)


def matrix() -> np.ndarray:
    """The matrix, f16 [ROWS, COLUMNS]: whole numbers from -9 to 9 without 0, so that every pruned element shows."""
    rng = np.random.default_rng(21)
    return (rng.integers(1, 10, (ROWS, COLUMNS)) * rng.choice((-1, 1), (ROWS, COLUMNS))).astype(np.float16)


def draw_patterns() -> str:
    """The picture as SVG."""
    drawing = Drawing(
        WIDTH,
        HEIGHT,
        "Patterns of structured sparsity on one matrix",
        "The same 8 by 8 matrix under 2:4, 2:4@4 and 2:8@V4: what stays is blue, beside it the stored values.",
    )
    drawing.text(LEFT, 30, "One weight [out, K], pruned by three patterns", size=15, bold=True)
    for number, panel in enumerate(PANELS):
        _draw_panel(drawing, LEFT + number * STEP, panel)
    return drawing.svg()


def _draw_panel(drawing: Drawing, left: float, panel: Panel) -> None:
    weight = matrix()
    sparse = louver.compress(louver.prune(weight, panel.pattern), panel.pattern)
    pattern, kept = sparse.pattern, np.asarray(sparse) != 0
    drawing.text(left, TOP - 30, panel.pattern, size=15, bold=True, mono=True)
    drawing.text(left + 70, TOP - 30, panel.kind, size=13)
    drawing.text(left, TOP - 8, "weight, K to the right", size=11, fill=MUTED)
    shared = louver.prune(weight, pattern.levels[0]) != 0
    for row, column in np.ndindex(ROWS, COLUMNS):
        fill = KEPT if kept[row, column] else VECTOR if shared[row, column] else DROPPED
        _draw_cell(drawing, left, row, column, float(weight[row, column]), fill)
    for top in range(0, ROWS, pattern.length):
        for group in range(0, COLUMNS, pattern.m):
            x, y = left + group * CELL, TOP + top * CELL
            drawing.box(x, y, pattern.m * CELL, pattern.length * CELL, "none", edge=FRAME, thick=1.6)
    right = left + COLUMNS * CELL + 24
    drawing.text(right, TOP - 8, "values", size=11, fill=MUTED)
    for (row, column), value in np.ndenumerate(sparse.values):
        _draw_cell(drawing, right, row, column, float(value), KEPT)
    stored = ["row codes"] if str(pattern.levels[-1]) == "2:4" else []
    stored = stored if pattern.length == 1 else ["window lists", *stored]
    drawing.text(left, TOP + ROWS * CELL + 24, f"indices: {', '.join(stored)}", size=12, fill=MUTED, room=STEP - 12)
    for line, text in enumerate(panel.about):
        drawing.text(left, TOP + ROWS * CELL + 48 + 18 * line, text, size=12, fill=INK, room=STEP - 12)


def _draw_cell(drawing: Drawing, left: float, row: int, column: int, value: float, fill: str) -> None:
    x, y = left + column * CELL, TOP + row * CELL
    drawing.box(x, y, CELL, CELL, fill, edge=EDGE)
    ink = INK if fill == KEPT else MUTED
    drawing.text(x + CELL / 2, y + 16, f"{value:.0f}", size=11, anchor="middle", fill=ink)
