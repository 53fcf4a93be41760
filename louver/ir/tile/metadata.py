"""Metadata as a tensor: its shape for a sparse tile, and for a whole sparse matrix.

Metadata of a sparse [M, K] is i16 [M/16, C]: row i has what the rows 16i … 16i+15 keep, and each `word_columns` columns of K
have 64 neighbouring entries there, so that C is K, or 2K for 1:2. An entry is half a metadata word of one thread of a warp:
with `words` from `isa/prepack.py`, uint32 [M/64, K/columns, 128, 4], entry [4b + w, 64(4l + x) + 2t + h] is half h (0: the low
one) of words[b, l, 32w + t, x]. A block whose first row is a multiple of 16 and whose first column is one of `word_columns` is
therefore a rectangle of it. Four neighbouring threads share a word's columns (but for 8-bit types): a block that begins at another
one's share is a rectangle that begins at this thread's entries, `QUAD_ENTRIES` for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from louver.formats.dtypes import element_type
from louver.ir.tile.elements import element_name
from louver.isa.metadata import MAPS
from louver.isa.mma import legal_k

METADATA_ROWS = 16
"""Rows of the sparse tensor that a row of metadata is for: those of one warp."""

WORD_ENTRIES = 64
"""Entries of a metadata row for the columns of one word: two halves for each of 32 threads."""


QUAD = 4
"""Neighbouring threads that share the columns of a word, but for 8-bit types."""

QUAD_ENTRIES = 2
"""Entries of a metadata row for the share of a word's columns that one of these threads has."""


def word_columns(element: Attribute) -> int:
    """Dense columns that a metadata word covers: 64, or 32 of f32. Raises ValueError for elements without a name."""
    return MAPS[element_type(element_name(element)).bits].columns


def metadata_shape(rows: int, columns: int, element: Attribute) -> tuple[int, int]:
    """Shape of the metadata, i16, of a sparse [rows, columns]; what is left of a row or word counts as a whole one."""
    return -(-rows // METADATA_ROWS), -(-columns // word_columns(element)) * WORD_ENTRIES


def divides(shape: Sequence[int], element: Attribute) -> bool:
    """Whether metadata of a sparse [rows, columns] is whole rows and words, or the part of a word that a product reads."""
    rows, columns = shape
    per_word = word_columns(element)
    whole = columns % per_word == 0 or (columns >= least_columns(element) and per_word % columns == 0)
    return rows % METADATA_ROWS == 0 and whole


def least_columns(element: Attribute) -> int:
    """Columns of the smallest product of one warp, whose metadata is part of a word: a word, or a thread's share of one."""
    return legal_k(element_name(element), sparse=True)[0]
