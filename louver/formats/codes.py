"""The natural encoding of the kept elements of a group.

2:4 and 1:2: a code of 4 bits a group, two groups a byte, the first in the low nibble. A 2:4 code holds the two indices,
the lower one in the low two bits; a 1:2 code is the 2:4 code of the kept element's two halves (PTX ISA, sparse wgmma
metadata). A row with an odd number of groups ends in a filler nibble that is a legal code.
Other patterns: N indices a group, increasing, a byte each.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.formats.pattern import Pattern
from louver.formats.select import Mask

Indices = NDArray[np.uint8]

FILLER: Final = 0x4
"""The code in an unused nibble: legal for 2:4 and 1:2, as 0 is not."""

CODE_PARTS: Final[dict[Pattern, tuple[tuple[int, ...], ...]]] = {
    Pattern(2, 4): ((0, 1, 2, 3), (0, 4, 8, 12)),
    Pattern(1, 2): ((0x4, 0xE),),
}
"""The parts that a code is the sum of: for each stored value of a group, by the element that it is."""

NIBBLE_CODES: Final[dict[Pattern, dict[int, tuple[int, ...]]]] = {
    pattern: dict(
        sorted(
            (sum(part[element] for part, element in zip(parts, kept, strict=True)), kept)
            for kept in combinations(range(pattern.m), pattern.n)
        )
    )
    for pattern, parts in CODE_PARTS.items()
}
"""The legal 4-bit codes of the patterns that have them, and the elements each keeps."""


def index_bytes(pattern: Pattern, groups: int) -> int:
    """Bytes of indices of a row of `groups` groups."""
    return -(-groups // 2) if pattern in NIBBLE_CODES else groups * pattern.n


def encode(mask: Mask, rows: int, pattern: Pattern) -> Indices:
    """Indices uint8 [rows, index bytes] of the elements kept: mask [rows * groups, M], exactly N true in each group."""
    groups = len(mask) // rows
    if pattern not in NIBBLE_CODES:
        kept = np.broadcast_to(np.arange(pattern.m, dtype=np.uint8), mask.shape)[mask]
        return kept.reshape(rows, groups * pattern.n)
    codes = np.full((rows, groups + groups % 2), FILLER, np.uint8)
    codes[:, :groups] = _code_table(pattern)[_mask_numbers(mask)].reshape(rows, groups)
    return codes[:, 0::2] | codes[:, 1::2] * np.uint8(16)


def decode(indices: Indices, groups: int, pattern: Pattern) -> Mask:
    """The inverse of `encode`: mask [rows * groups, M]. Raises ValueError for indices that are not legal."""
    rows = len(indices)
    if pattern not in NIBBLE_CODES:
        return _mask_of_bytes(indices.reshape(rows * groups, pattern.n), groups, pattern)
    codes = np.empty((rows, groups + groups % 2), np.uint8)
    np.bitwise_and(indices, 0xF, out=codes[:, 0::2])
    np.right_shift(indices, 4, out=codes[:, 1::2])
    if groups % 2 and (codes[:, -1] != FILLER).any():
        row = int(np.argmax(codes[:, -1] != FILLER))
        raise ValueError(f"the unused nibble of a row must be {FILLER:#x}, got {codes[row, -1]:#x} in row {row}")
    codes = codes[:, :groups].ravel()
    masks = _mask_table(pattern)
    found = masks[codes]
    if not found.all():
        bad = int(np.argmin(found != 0))
        legal = ", ".join(f"{code:#x}" for code in NIBBLE_CODES[pattern])
        raise ValueError(
            f"a code of {pattern} is one of {legal}, got {codes[bad]:#x} in row {bad // groups}, group {bad % groups}: "
            "the indices are corrupt"
        )
    return found.view(np.bool_).reshape(rows * groups, pattern.m)


def _mask_of_bytes(kept: Indices, groups: int, pattern: Pattern) -> Mask:
    legal = (kept < pattern.m).all(axis=1) & (kept[:, 1:] > kept[:, :-1]).all(axis=1)
    if not legal.all():
        bad = int(np.argmin(legal))
        raise ValueError(
            f"the indices of a group of {pattern} increase and are under {pattern.m}, got {kept[bad].tolist()} "
            f"in row {bad // groups}, group {bad % groups}: the indices are corrupt"
        )
    mask = np.zeros((len(kept), pattern.m), np.bool_)
    np.put_along_axis(mask, kept.astype(np.intp), True, axis=1)
    return mask


def _mask_numbers(mask: Mask) -> NDArray[Any]:
    """Each group's mask read as one number: M bytes of 0 or 1, folded to M bits."""
    wide = np.ascontiguousarray(mask).view(f"<u{mask.shape[1]}").ravel()
    # 2:4: bits 0, 8, 16, 24 move to 0, 1, 2, 3; 1:2: bits 0 and 8.
    folded = (wide | wide >> 7) if mask.shape[1] == 2 else (wide | wide >> 7 | wide >> 14 | wide >> 21)
    return folded & ((1 << mask.shape[1]) - 1)


def _code_table(pattern: Pattern) -> Indices:
    """Code by mask number; masks that keep another count than N are not in use."""
    table = np.zeros(1 << pattern.m, np.uint8)
    for code, kept in NIBBLE_CODES[pattern].items():
        table[sum(1 << i for i in kept)] = code
    return table


def _mask_table(pattern: Pattern) -> NDArray[Any]:
    """Mask, as M bytes in one integer, by code; 0 where the code is not legal."""
    table = np.zeros((16, pattern.m), np.bool_)
    for code, kept in NIBBLE_CODES[pattern].items():
        table[code, list(kept)] = True
    return table.view(f"<u{pattern.m}").ravel()
