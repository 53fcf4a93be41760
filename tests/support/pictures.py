"""Faults of a picture that a reader would see: cut off text and markers, and text over other text, a marker or a bar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 1.0
"""Pixels that boxes may share: a text's box is a little larger than its ink."""


@dataclass
class Picture:
    """The parts of a written figure, boxes in pixels from its lower left corner."""

    page: Bbox
    texts: dict[Text, Bbox] = field(default_factory=dict[Text, Bbox])
    marks: list[tuple[str, Bbox]] = field(default_factory=list[tuple[str, Bbox]])
    cut_marks: list[str] = field(default_factory=list[str])

    def faults(self) -> list[str]:
        """A line for each fault."""
        return [*self._cut_off(), *self._covered()]

    def _cut_off(self) -> Iterator[str]:
        for text, box in self.texts.items():
            if not _within(box, self.page):
                yield f"{text.get_text()!r} is cut off"
        yield from self.cut_marks

    def _covered(self) -> Iterator[str]:
        texts = [(repr(text.get_text()), box) for text, box in self.texts.items()]
        for index, (name, box) in enumerate(texts):
            for other, there in [*texts[index + 1 :], *self.marks]:
                if _overlap(box, there):
                    yield f"{name} lies over {other}"


def _within(box: Bbox, page: Bbox) -> bool:
    lower, upper = (box.min >= page.min - SLACK).all(), (box.max <= page.max + SLACK).all()
    return bool(lower and upper)


def _overlap(a: Bbox, b: Bbox) -> bool:
    return min(a.x1, b.x1) - max(a.x0, b.x0) > SLACK and min(a.y1, b.y1) - max(a.y0, b.y0) > SLACK


def record_pictures(monkeypatch: pytest.MonkeyPatch) -> list[Picture]:
    """Pictures of the figures that are written from now on, in a list that grows."""
    written: list[Picture] = []
    shown: dict[Text, Bbox] = {}
    save, draw = Figure.savefig, Text.draw

    def drawn(self: Text, renderer: Any, *args: Any, **keywords: Any) -> None:
        # Matplotlib skips the tick labels beyond an axis, so that only what is drawn counts.
        if self.get_visible() and self.get_text().strip():
            shown[self] = self.get_window_extent(renderer)
        draw(self, renderer, *args, **keywords)

    def saved(self: Figure, *args: Any, **keywords: Any) -> None:
        shown.clear()
        own = self.dpi
        save(self, *args, **keywords)
        try:
            self.dpi = keywords.get("dpi", own)
            markers = list(_markers(self))
            cut = ["a marker is cut off by its axes" for line, box in markers if _cut(line, box)]
            marks = [*(("a marker", box) for _, box in markers), *(("a bar", box) for box in _bars(self))]
            written.append(Picture(Bbox(self.bbox.get_points()), dict(shown), marks, cut))
        finally:
            self.dpi = own

    monkeypatch.setattr(Text, "draw", drawn)
    monkeypatch.setattr(Figure, "savefig", saved)
    return written


def _markers(figure: Figure) -> Iterator[tuple[Line2D, Bbox]]:
    """Markers with the line that they belong to, those of legends too."""
    for line in figure.findobj(Line2D):
        assert isinstance(line, Line2D)
        # Those of ticks are numbers.
        marker = line.get_marker()
        if not line.get_visible() or not isinstance(marker, str) or marker in ("", "None"):
            continue
        half = line.get_markersize() * figure.dpi / 72 / 2
        for x, y in line.get_transform().transform(line.get_xydata()):
            yield line, Bbox([[x - half, y - half], [x + half, y + half]])


def _cut(line: Line2D, box: Bbox) -> bool:
    return line.get_clip_on() and line.axes is not None and not _within(box, line.axes.bbox)


def _bars(figure: Figure) -> Iterator[Bbox]:
    for axes in figure.findobj(Axes):
        assert isinstance(axes, Axes)
        yield from (patch.get_window_extent() for patch in axes.patches if isinstance(patch, Rectangle))
