"""Draws a model's advice: µs of all its weights over tokens, by format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from louver.measure.report.canvas import INK, clean, figure, foot, head, write

WIDTH, HEIGHT = 9.0, 5.4
HUES: Final = ("#0f766e", "#b45309", "#6b8fb5", "#9d4edd")
"""Of the element types, in the order of their first formats."""

DASHES: Final = ("-", "--", ":", "-.")
"""Of the patterns, in the order of their first formats."""


def plot_advice(record: Path, picture: Path) -> Path:
    """Draw the JSON document of `louver advise --model`. Returns `picture`.

    Raises ValueError for advice for one product, or without times, and ModuleNotFoundError without Matplotlib.
    """
    data = cast("dict[str, Any]", json.loads(record.read_text(encoding="utf-8")))
    lines: Mapping[str, Any] | None = data.get("lines")
    if not lines or not lines["tokens"]:
        raise ValueError(f"advice for a model, with times, is drawn over tokens: got {record.name} without lines")
    made = figure(WIDTH, HEIGHT)
    axes = made.add_axes((0.09, 0.17, 0.66, 0.7))
    elements, patterns = (list(dict.fromkeys(part)) for part in zip(*map(_parts, lines["us"]), strict=True))
    for name, times in lines["us"].items():
        points = [(n, us) for n, us in zip(lines["tokens"], times, strict=True) if us is not None]
        if points:
            element, pattern = _parts(name)
            color, dash = HUES[elements.index(element) % len(HUES)], DASHES[patterns.index(pattern) % len(DASHES)]
            axes.plot(*zip(*points, strict=True), color=color, linestyle=dash, linewidth=1.3, label=name)
    at = {n: index for index, n in enumerate(lines["tokens"])}
    for each in data["crossings"]:
        height = lines["us"][each["ahead"]][at[each["tokens"]]]
        axes.plot(each["tokens"], height, "o", color=INK, markersize=3, zorder=3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter("{x:,.0f}")
    axes.tick_params(axis="y", which="minor", labelsize=6)
    axes.set_xlabel("tokens", fontsize=8, color=INK)
    axes.set_ylabel("µs of all weights", fontsize=8, color=INK)
    clean(axes, grid="both")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    head(made, f"Formats of {Path(data['source']).name}, {data['device']}", 0.965, 11)
    foot(
        made,
        "Dots: from here on the lower line is clearly faster than one that was clearly faster before. "
        + "; ".join(data["notes"]),
        170,
        0.08,
    )
    return write(made, picture)


def _parts(name: str) -> tuple[str, str]:
    """Element type and pattern of a format's text."""
    element, _, pattern = name.partition(" ")
    return element, pattern
