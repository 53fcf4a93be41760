"""Notices a sparse tensor of Louver whose description another program has dropped from the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from louver.formats.bitmask import Start
from louver.formats.codes import NIBBLE_CODES
from louver.formats.container import Entry, type_name
from louver.formats.dtypes import ELEMENT_TYPES
from louver.formats.pattern import LIFTED
from louver.formats.schema import stored_names

_SPARSE_NAMES: Final = {
    type_name(element.numpy) for element in ELEMENT_TYPES.values() if element.sparse and element.numbers == 1
}


def check_undescribed(entries: Mapping[str, Entry], start: Start) -> None:
    """Raises ValueError for arrays that look like a stored sparse tensor, in a file without a schema."""
    for name, values in entries.items():
        stem = name.removesuffix(".values")
        indices = entries.get(stored_names(stem)[1])
        if stem == name or indices is None or values.dtype not in _SPARSE_NAMES or indices.dtype != "U8":
            continue
        if (len(values.shape), len(indices.shape)) == (2, 2) and _are_indices(values.shape, indices, start):
            raise ValueError(
                f"the file has lost the metadata that describe the sparse tensor {stem!r}: use the file as it was saved, "
                f"or rename {name!r} if another program made it"
            )


def _are_indices(values: tuple[int, ...], indices: Entry, start: Start) -> bool:
    """Whether indices [windows, size] can belong to values [rows, kept]. See `louver.formats.codes`."""
    (rows, kept), (windows, size) = values, indices.shape
    if windows == rows:
        # Patterns of elements: a byte for each value, or codes.
        return size == kept or _are_codes(kept, size, start(indices))
    if not 0 < windows < rows:
        return False
    # Patterns of vectors: 1, 2, 4 or 8 bits for each value, or the form of V:N:M.
    if size in {-(-kept * bits // 8) for bits in (1, 2, 4, 8)}:
        return True
    groups = kept // LIFTED[0]
    codes = -(-groups // 2)
    heights = (divmod(size - -(-groups * LIFTED[1] * bits // 8), codes) for bits in (4, 8)) if codes else ()
    return any(not rest and 1 < height <= rows <= height * windows for height, rest in heights)


def _are_codes(kept: int, size: int, start: bytes) -> bool:
    """Whether rows of `size` bytes that begin with `start` can be codes of `kept` values, of 2:4 or 1:2."""
    found = {code for byte in set(start) for code in (byte & 0xF, byte >> 4)}
    return any(size == -(-kept // (2 * pattern.n)) and found <= codes.keys() for pattern, codes in NIBBLE_CODES.items())
