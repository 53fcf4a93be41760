"""Metadata as a tensor: its shape for a sparse tile, and for a whole sparse matrix.

Metadata of a sparse [M, K] is i16 [M/16, C]. Row i describes rows 16i to 16i+15. Each `word_columns` columns of K have
64 neighbouring entries in it, so C is K, or 2K for 1:2. An entry is half a metadata word of one thread of a warp. With
`words` from `isa/metadata.py`, uint32 [M/64, words of K, 128], entry [4b + w, 64x + 2t + h] is half h (0: the low one)
of words[b, x, 32w + t].

So a block is a rectangle of metadata if its first row is a multiple of 16, and its first column a multiple of
`word_columns`. For types other than 8-bit types, four neighbouring threads share the columns of a word. A block that
begins at the share of one of these threads is a rectangle that begins at the entries of this thread. Each thread has
`QUAD_ENTRIES` entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from louver.formats.dtypes import element_type
from louver.ir.tile.elements import element_name
from louver.isa.metadata import MAPS

METADATA_ROWS = 16
"""Rows of the sparse tensor for a row of metadata: the rows of one warp."""

WORD_ENTRIES = 64
"""Entries of a metadata row for the columns of one word: two halves for each of 32 threads."""


QUAD = 4
"""Neighbouring threads that share the columns of a word, except for 8-bit types."""

QUAD_ENTRIES = 2
"""Entries of a metadata row for one thread's share of the columns of a word."""


def word_columns(element: Attribute) -> int:
    """Dense columns that a metadata word covers: 64, or 32 of f32. Raises ValueError for elements without a name."""
    return MAPS[element_type(element_name(element)).bits].columns


def metadata_shape(rows: int, columns: int, element: Attribute) -> tuple[int, int]:
    """The shape of the metadata, i16, of a sparse [rows, columns]. A partial row or word counts as a whole one."""
    return -(-rows // METADATA_ROWS), -(-columns // word_columns(element)) * WORD_ENTRIES


def divides(shape: Sequence[int], element: Attribute) -> bool:
    """Whether the metadata of a sparse [rows, columns] has whole rows and words, or the part of a word that a product
    reads.
    """
    rows, columns = shape
    per_word = word_columns(element)
    whole = columns % per_word == 0 or (columns >= least_columns(element) and per_word % columns == 0)
    return rows % METADATA_ROWS == 0 and whole


def least_columns(element: Attribute) -> int:
    """Columns of the smallest tile: those of a thread's share of a metadata word, or of a whole word of 8-bit types."""
    whole = word_columns(element)
    return whole if element_type(element_name(element)).bits == 8 else whole // QUAD
