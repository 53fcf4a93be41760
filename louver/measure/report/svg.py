"""Drawings as SVG text. Equal marks give equal text. Sizes are in pixels.

The SVG loads nothing. It has a white background, so that it is readable on light and dark pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Literal

FONT = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"
MONO = "DejaVu Sans Mono, Menlo, Consolas, monospace"

LEAST_SIZE = 11
"""Size of the smallest letters."""

INK, MUTED, EDGE, PAPER = "#1f2933", "#52606d", "#cbd2d9", "#ffffff"

Anchor = Literal["start", "middle", "end"]


def text_width(text: str, size: float, *, mono: bool = False) -> float:
    """An upper estimate of a text's width, because fonts differ."""
    return len(text) * size * (0.61 if mono else 0.6)


@dataclass(slots=True)
class Drawing:
    """Marks on white paper. title, about: texts for screen readers."""

    width: int
    height: int
    title: str
    about: str
    marks: list[str] = field(default_factory=list[str])

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        *,
        edge: str = "none",
        thick: float = 1,
        radius: float = 0,
        dashes: str = "",
    ) -> None:
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.marks.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}" fill="{fill}" '
            f'stroke="{edge}" stroke-width="{_n(thick)}"{dashed}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        anchor: Anchor = "start",
        fill: str = INK,
        bold: bool = False,
        mono: bool = False,
        room: float | None = None,
    ) -> None:
        """A line of text on the base line y. room: pixels for the text.

        Raises ValueError for too small letters, and for text that does not fit its room or the paper.
        """
        if size < LEAST_SIZE:
            raise ValueError(f"letters of a drawing are {LEAST_SIZE} pixels or larger, got {size} for {text!r}")
        width = text_width(text, size, mono=mono)
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        if (room is not None and width > room) or left < 0 or left + width > self.width or y > self.height:
            raise ValueError(f"a text fits its room and the paper, got {text!r} of about {width:.0f} pixels at {x:.0f}")
        weight = ' font-weight="600"' if bold else ""
        family = f' font-family="{MONO}"' if mono else ""
        self.marks.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" text-anchor="{anchor}" fill="{fill}"{weight}{family}>'
            f"{escape(text, quote=False)}</text>"
        )

    def arrow(self, *points: tuple[float, float], color: str = MUTED, dashes: str = "") -> None:
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.marks.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.4"{dashed} marker-end="url(#head)"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str = EDGE, *, dashes: str = "") -> None:
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.marks.append(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" stroke="{color}" stroke-width="1"{dashed}/>'
        )

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="{FONT}" role="img">'
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" '
            f'markerUnits="userSpaceOnUse"><path d="M0,0.5 L8,4 L0,7.5 z" fill="{MUTED}"/></marker></defs>'
        )
        paper = (
            f'<rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8" fill="{PAPER}" '
            f'stroke="{EDGE}"/>'
        )
        names = f"<title>{escape(self.title)}</title><desc>{escape(self.about)}</desc>"
        return "\n".join([head, names, marker, paper, *self.marks, "</svg>", ""])


def _n(value: float) -> str:
    """A number in tenths of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
