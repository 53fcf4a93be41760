"""Metadata as a tensor of its own: the shape that it has for a sparse tile, and for a whole sparse matrix.

Metadata of a sparse [M, K] is i16 [M/16, C]: row i has what the rows 16i … 16i+15 keep, and each `word_columns` columns of K
have 64 neighbouring entries there, so that C is K, or 2K for 1:2. An entry is half a metadata word of one thread of a warp:
with `words` from `isa/prepack.py`, uint32 [M/64, K/columns, 128, 4], entry [4b + w, 64(4l + x) + 2t + h] is half h (0: the low
one) of words[b, l, 32w + t, x]. A block whose first row is a multiple of 16 and whose first column is one of `word_columns` is
therefore a rectangle of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from louver.formats.dtypes import element_type
from louver.ir.tile.elements import element_name
from louver.isa.metadata import MAPS

METADATA_ROWS = 16
"""Rows of the sparse tensor that a row of metadata is for: those of one warp."""

WORD_ENTRIES = 64
"""Entries of a metadata row for the columns of one word: two halves for each of 32 threads."""


def word_columns(element: Attribute) -> int:
    """Dense columns that a metadata word covers: 64, or 32 of f32. Raises ValueError for elements without a name."""
    return MAPS[element_type(element_name(element)).bits].columns


def metadata_shape(rows: int, columns: int, element: Attribute) -> tuple[int, int]:
    """Shape of the metadata, i16, of a sparse [rows, columns]; what is left of a row or word counts as a whole one."""
    return -(-rows // METADATA_ROWS), -(-columns // word_columns(element)) * WORD_ENTRIES


def divides(shape: Sequence[int], element: Attribute) -> bool:
    """Whether metadata of a sparse [rows, columns] is whole rows and words."""
    rows, columns = shape
    return rows % METADATA_ROWS == 0 and columns % word_columns(element) == 0
