"""Draws which lane and register of a warp hold each element of a sparse product and its metadata, from `louver.isa`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from louver.isa.fragments import Fragment
from louver.isa.metadata import CODE_BITS, GROUPS, MetadataMap
from louver.isa.wgmma import Wgmma
from louver.measure.report.svg import EDGE, INK, MUTED, PAPER, Drawing

QUAD = ("#cfe3f7", "#d8efcd", "#fbe3c0", "#ecd5ee")
"""Colours of the four lanes that share rows."""

STRONG = ("#2f6fae", "#3f8a3a", "#b3651b", "#8d3f96")

WARP_ROWS = 16
LANE = 5
"""The lane whose elements are framed."""

WIDTH, CELL, TOP = 1040, 19, 186

WIDTHS, SPACE, NAMES = (400, 286, 286), 20, 30
"""Of the three panels, of the space between them, and of the row numbers in each."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbours in a row that one lane holds: columns `first` to `last`. label: shown after the lane's name."""

    row: int
    first: int
    last: int
    lane: int
    label: str


def fragment_pieces(fragment: Fragment, names: str) -> list[Piece]:
    """The first warp's pieces. names: prefix of each element ("d0 d1"), or of each register with several elements
    ("r0").
    """
    rows, columns = fragment.coordinates()
    held: dict[tuple[int, int], tuple[int, str]] = {}
    for (register, part, lane), row in np.ndenumerate(rows):
        if row < WARP_ROWS:
            name = f"{names}{register}" if fragment.packed > 1 else f"{names}{register * fragment.packed + part}"
            held[int(row), int(columns[register, part, lane])] = (lane, name)
    return list(_joined(held))


def metadata_pieces(metadata: MetadataMap) -> list[Piece]:
    """The first warp's pieces. Columns are groups, labels are bits of the lane's word."""
    rows, groups = metadata.coordinates()
    held: dict[tuple[int, int], tuple[int, str]] = {}
    for (lane, place), row in np.ndenumerate(rows):
        if row < WARP_ROWS:
            held[int(row), int(groups[lane, place])] = (lane, str(place))
    return [_bits(piece) for piece in _joined(held)]


def _bits(piece: Piece) -> Piece:
    places = [int(place) for place in piece.label.split()]
    high, low = CODE_BITS * (max(places) + 1) - 1, CODE_BITS * min(places)
    return Piece(piece.row, piece.first, piece.last, piece.lane, f"{high}:{low}")


def _joined(held: Mapping[tuple[int, int], tuple[int, str]]) -> Iterator[Piece]:
    """The longest runs of neighbours in a row that one lane holds. held: lane and name by row and column."""
    for (row, lane), run in groupby(sorted(held), key=lambda place: (place[0], held[place][0])):
        places = list(run)
        names = dict.fromkeys(held[place][1] for place in places)
        yield Piece(row, places[0][1], places[-1][1], lane, " ".join(names))


def draw_fragment(product: Wgmma, codes: Sequence[int]) -> str:
    """The picture as SVG. product: sparse, with values in registers. codes: of the groups of one row, repeated.

    Raises ValueError for another product, and for illegal codes.
    """
    if not product.sparse or product.a_source != "registers":
        raise ValueError(f"the picture is of a sparse product whose values are in registers, got {product}")
    metadata, values = product.metadata_map, product.a_fragment
    sums = product.d_fragment
    title = f"{product.mnemonic}: values, metadata and sums in the lanes of a warp"
    drawing = Drawing(WIDTH, TOP + CELL * WARP_ROWS + 66, title, f"{title}. Computed from louver.isa.")
    drawing.text(16, 26, title, size=15, bold=True)
    _draw_row(drawing, product, values, codes)
    left = 16.0
    for name, pieces, columns, width in (
        (f"A: {values.columns} stored values a row", fragment_pieces(values, "r"), values.columns, WIDTHS[0]),
        (f"Metadata: {GROUPS} groups, bits of a word", metadata_pieces(metadata), GROUPS, WIDTHS[1]),
        ("D: the first 8 columns", [each for each in fragment_pieces(sums, "d") if each.last < 8], 8, WIDTHS[2]),
    ):
        _draw_panel(drawing, left, width, name, pieces, columns)
        left += width + SPACE
    _draw_selectors(drawing, 16 + WIDTHS[0] + SPACE + NAMES, WIDTHS[1] - NAMES, metadata)
    y = TOP + CELL * WARP_ROWS + 50
    drawing.text(
        16,
        y,
        f"T is the lane; r, d: its registers. Framed: all that T{LANE} holds. Warp w has rows 16w to 16w + 15.",
        fill=MUTED,
    )
    return drawing.svg()


def _draw_row(drawing: Drawing, product: Wgmma, values: Fragment, codes: Sequence[int]) -> None:
    """A dense row of A, with its stored columns in their lanes' colours, and its codes."""
    metadata = product.metadata_map
    count, row = metadata.groups, LANE // 4
    own = np.array([[codes[group % len(codes)] for group in range(GROUPS)]] * metadata.rows, dtype=np.uint8)
    metadata.pack(own)
    kept = metadata.columns_of(own[:1, :count])[0]
    holders = {
        column: piece.lane
        for piece in fragment_pieces(values, "r")
        if piece.row == row
        for column in range(piece.first, piece.last + 1)
    }
    drawing.text(
        16,
        52,
        f"Row {row}, {product.k} dense columns of K. A group of {metadata.group} keeps two; its code names them.",
        fill=MUTED,
    )
    left, cell = 16.0, (WIDTH - 32 - 6 * (count - 1)) / product.k
    for column in range(product.k):
        x = left + column * cell + 6 * (column // metadata.group)
        (stored,) = np.nonzero(kept == column)
        lane = holders[int(stored[0])] if stored.size else None
        drawing.box(
            x,
            64,
            cell - 1,
            26,
            PAPER if lane is None else QUAD[lane % 4],
            edge=EDGE if lane is None else STRONG[lane % 4],
        )
        if lane is not None:
            drawing.text(x + cell / 2, 81, f"T{lane}", size=11, anchor="middle", room=cell)
    for group in range(count):
        x = left + group * (metadata.group * cell + 6)
        code = codes[group % len(codes)]
        text = f"0x{code:X} = columns {code & 3}, {code >> 2}"
        drawing.text(x + metadata.group * cell / 2, 108, text, size=11, anchor="middle", room=metadata.group * cell + 6)
    drawing.line(16, 124, WIDTH - 16, 124)


def _draw_panel(drawing: Drawing, left: float, width: float, name: str, pieces: Sequence[Piece], columns: int) -> None:
    drawing.text(left, TOP - 42, name, bold=True, room=width)
    room = width - NAMES
    ends = sorted({piece.first for piece in pieces})
    for first in ends:
        piece = next(each for each in pieces if each.first == first)
        span = f"{first}" if piece.last == first else f"{first}–{piece.last}"
        middle = left + NAMES + room * (first + piece.last + 1) / 2 / columns
        drawing.text(middle, TOP - 7, span, size=11, anchor="middle", fill=MUTED)
    for row in range(WARP_ROWS):
        drawing.text(left + NAMES - 8, TOP + CELL * row + 14, str(row), size=11, anchor="end", fill=MUTED)
    for piece in sorted(pieces, key=lambda each: each.lane == LANE):
        x, cell = left + NAMES + room * piece.first / columns, room * (piece.last + 1 - piece.first) / columns
        own = piece.lane == LANE
        edge = INK if own else PAPER
        drawing.box(x, TOP + CELL * piece.row, cell, CELL, QUAD[piece.lane % 4], edge=edge, thick=2 if own else 1)
        text = f"T{piece.lane} {piece.label}"
        drawing.text(x + cell / 2, TOP + CELL * piece.row + 14, text, size=11, anchor="middle", bold=own, room=cell)


def _draw_selectors(drawing: Drawing, left: float, width: float, metadata: MetadataMap) -> None:
    y = TOP + CELL * WARP_ROWS
    for selector in range(metadata.selectors):
        begin, share = left + width * selector / metadata.selectors, width / metadata.selectors
        drawing.line(begin + 3, y + 8, begin + share - 3, y + 8, INK)
        drawing.text(begin + share / 2, y + 24, f"selector {selector}", size=11, anchor="middle", room=share)
