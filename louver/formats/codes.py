"""The natural encoding of the kept elements or vectors of a group.

A list has the indices of the rows of a window. A window of an element pattern is one row.

- 2:4 and 1:2: a 4-bit code for each group, two codes in a byte, the first in the low nibble. A 2:4 code holds both
  indices, the lower one in the low two bits. A 1:2 code is the 2:4 code of the two halves of the kept element (PTX ISA,
  sparse wgmma metadata). A list with an odd number of groups ends in a filler nibble, which is a legal code.
- Other patterns: N increasing indices for each group. Element indices have 8 bits. Vector indices have the least of 1,
  2, 4 or 8 bits that hold M - 1; the first index is in the low bits of a byte. Unused bits of the last byte are zeros.
- V:N:M: the list of the window's vectors, then the codes of each of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.pattern import Pattern
from louver.formats.rows import Block, Windows
from louver.formats.select import Mask

Indices = NDArray[np.uint8]

Place: TypeAlias = Callable[[int], str]
"""The name of the list with a given number, for errors."""

FILLER: Final = 0x4
"""The code of an unused nibble. It is legal for 2:4 and 1:2; 0 is not."""

CODE_PARTS: Final[dict[Pattern, tuple[tuple[int, ...], ...]]] = {
    Pattern(2, 4): ((0, 1, 2, 3), (0, 4, 8, 12)),
    Pattern(1, 2): ((0x4, 0xE),),
}
"""A code is a sum of parts: for each stored value of a group, the part of the element that it is."""

NIBBLE_CODES: Final[dict[Pattern, dict[int, tuple[int, ...]]]] = {
    pattern: dict(
        sorted(
            (sum(part[element] for part, element in zip(parts, kept, strict=True)), kept)
            for kept in combinations(range(pattern.m), pattern.n)
        )
    )
    for pattern, parts in CODE_PARTS.items()
}
"""The legal 4-bit codes of each pattern, and the elements that each code keeps."""


def index_bits(pattern: Pattern) -> int:
    """Bits of an index, for a pattern without codes."""
    return 8 if pattern.length == 1 else next(bits for bits in (1, 2, 4, 8) if pattern.m <= 1 << bits)


def index_bytes(pattern: Pattern, groups: int, height: int = 1) -> int:
    """Bytes of a window's indices for `groups` groups. height: rows of the window, which for V:N:M have codes."""
    of_window, *of_row = (_list_bytes(level, groups) for level in pattern.levels)
    return of_window + height * sum(of_row)


def encode(masks: Sequence[Mask], windows: Windows) -> Indices:
    """Indices uint8 [windows, index bytes]. masks: for each level [lists, groups, M], exactly N true in each group."""
    of_windows, *of_rows = (_encode(mask, level) for mask, level in zip(masks, windows.pattern.levels, strict=True))
    count, height = len(of_windows), windows.height
    return np.concatenate([of_windows, *(each.reshape(count, height * each.shape[1]) for each in of_rows)], axis=1)


def encode_into(indices: Indices, masks: Sequence[Mask], block: Block, windows: Windows) -> None:
    """Write the indices of a block to its place in those of all windows. masks: as for `encode`."""
    for into, mask, level in zip(_within(indices, block, windows), masks, windows.pattern.levels, strict=True):
        into[...] = _encode(mask, level).reshape(into.shape)


def decode_block(indices: Indices, block: Block, windows: Windows) -> list[Mask]:
    """`decode` of a block's part of the indices of all windows."""
    parts = [part.reshape(len(part), -1) for part in _within(indices, block, windows)]
    return decode(np.concatenate(parts, axis=1), block.inside, block.lists.start, block.groups)


def _within(indices: Indices, block: Block, windows: Windows) -> list[Indices]:
    """A block's part of the lists of each level, as views [windows, lists of a window, bytes]."""
    levels, found, begin = windows.pattern.levels, list[Indices](), 0
    for level, lists in zip(levels, (1, windows.height), strict=False):
        size, first = _list_bytes(level, windows.groups), _list_bytes(level, block.groups)
        whole = indices[block.lists, begin : begin + lists * size].reshape(-1, lists, size)
        found.append(whole[:, :, first : first + _list_bytes(level, block.inside.groups)])
        begin += lists * size
    return found


def decode(indices: Indices, windows: Windows, first: int = 0, group: int = 0) -> list[Mask]:
    """The inverse of `encode`: for each level a mask [lists, groups, M]. Raises ValueError for illegal indices. first,
    group: the numbers of the first window and of its first group, for errors.
    """
    levels, height = windows.pattern.levels, windows.height
    kind = "row" if windows.pattern.length == 1 else "window"

    def of_window(number: int) -> str:
        return f"{kind} {first + number}"

    def of_row(number: int) -> str:
        return f"{of_window(number // height)}, row {number % height}"

    parts, places = parts_of(indices, windows), (of_window, of_row)
    return [
        _decode(part, windows.groups, level, place, group)
        for part, level, place in zip(parts, levels, places[: len(levels)], strict=True)
    ]


def parts_of(indices: Indices, windows: Windows) -> list[Indices]:
    """The lists of each level: of the windows; for V:N:M also of their rows, [windows * height, bytes]."""
    of_window, *of_row = (_list_bytes(level, windows.groups) for level in windows.pattern.levels)
    rest = np.ascontiguousarray(indices[:, of_window:])
    return [indices[:, :of_window], *(rest.reshape(len(indices) * windows.height, size) for size in of_row)]


def joined_indices(parts: Sequence[Indices], of: Sequence[Windows]) -> Indices:
    """The indices of windows of which each part has some groups, in order. A part but the last has whole bytes."""
    levels = zip(*(parts_of(part, windows) for part, windows in zip(parts, of, strict=True)), strict=True)
    count = len(parts[0])
    joined = [np.concatenate([each.reshape(count, -1, each.shape[1]) for each in level], axis=2) for level in levels]
    return np.concatenate([each.reshape(count, -1) for each in joined], axis=1)


def _list_bytes(level: Pattern, groups: int) -> int:
    return -(-groups // 2) if level in NIBBLE_CODES else -(-groups * level.n * index_bits(level) // 8)


def _encode(mask: Mask, pattern: Pattern) -> Indices:
    lists, groups, _ = mask.shape
    if pattern not in NIBBLE_CODES:
        kept = np.broadcast_to(np.arange(pattern.m, dtype=np.uint8), mask.shape)[mask]
        return _packed(kept.reshape(lists, groups * pattern.n), index_bits(pattern))
    codes = np.full((lists, groups + groups % 2), FILLER, np.uint8)
    codes[:, :groups] = _code_table(pattern)[_mask_numbers(mask.reshape(-1, pattern.m))].reshape(lists, groups)
    return codes[:, 0::2] | codes[:, 1::2] * np.uint8(16)


def _decode(indices: Indices, groups: int, pattern: Pattern, place: Place, first: int) -> Mask:
    if pattern not in NIBBLE_CODES:
        return _mask_of_lists(indices, groups, pattern, place, first)
    lists = len(indices)
    codes = np.empty((lists, groups + groups % 2), np.uint8)
    np.bitwise_and(indices, 0xF, out=codes[:, 0::2])
    np.right_shift(indices, 4, out=codes[:, 1::2])
    if groups % 2 and (codes[:, -1] != FILLER).any():
        row = int(np.argmax(codes[:, -1] != FILLER))
        raise ValueError(
            f"the unused nibble of a row must be {FILLER:#x}, got {codes[row, -1]:#x} in {place(row)}: the indices are corrupt"
        )
    codes = codes[:, :groups].ravel()
    masks = _mask_table(pattern)
    found = masks[codes]
    if not found.all():
        bad = int(np.argmin(found != 0))
        legal = ", ".join(f"{code:#x}" for code in NIBBLE_CODES[pattern])
        raise ValueError(
            f"a code of {pattern} is one of {legal}, got {codes[bad]:#x} in {place(bad // groups)}, group {first + bad % groups}: the "
            "indices are corrupt"
        )
    return found.view(np.bool_).reshape(lists, groups, pattern.m)


def _packed(kept: Indices, bits: int) -> Indices:
    """Pack numbers of `bits` bits, [lists, count], into bytes. The first is in the low bits."""
    each = 8 // bits
    padded = np.pad(kept, ((0, 0), (0, -kept.shape[1] % each)))
    shifted = padded.reshape(len(kept), padded.shape[1] // each, each) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(shifted, axis=2)


def _unpacked(packed: Indices, bits: int) -> Indices:
    """The inverse of `_packed`, with the padding: [lists, bytes * 8 / bits]."""
    each = packed[:, :, None] >> np.arange(0, 8, bits, dtype=np.uint8)
    return (each & np.uint8((1 << bits) - 1)).reshape(len(packed), packed.shape[1] * (8 // bits))


def _mask_of_lists(indices: Indices, groups: int, pattern: Pattern, place: Place, first: int) -> Mask:
    unpacked = _unpacked(indices, index_bits(pattern))
    unused = unpacked[:, groups * pattern.n :].any(axis=1)
    if unused.any():
        raise ValueError(
            f"the unused bits of a list of indices must be 0, got others in {place(int(np.argmax(unused)))}: "
            "the indices are corrupt"
        )
    kept = unpacked[:, : groups * pattern.n].reshape(-1, pattern.n)
    legal = (kept < pattern.m).all(axis=1) & (kept[:, 1:] > kept[:, :-1]).all(axis=1)
    if not legal.all():
        bad = int(np.argmin(legal))
        raise ValueError(
            f"the indices of a group of {pattern} increase and are under {pattern.m}, got {kept[bad].tolist()} "
            f"in {place(bad // groups)}, group {first + bad % groups}: the indices are corrupt"
        )
    mask = np.zeros((len(kept), pattern.m), np.bool_)
    np.put_along_axis(mask, kept.astype(np.intp), True, axis=1)
    return mask.reshape(len(indices), groups, pattern.m)


def _mask_numbers(mask: Mask) -> NDArray[Any]:
    """The mask of each group as an integer: M bytes of 0 or 1, folded to M bits."""
    wide = np.ascontiguousarray(mask).view(f"<u{mask.shape[1]}").ravel()
    # 2:4: bits 0, 8, 16 and 24 move to 0, 1, 2 and 3. 1:2: bits 0 and 8 move to 0 and 1.
    folded = (wide | wide >> 7) if mask.shape[1] == 2 else (wide | wide >> 7 | wide >> 14 | wide >> 21)
    return folded & ((1 << mask.shape[1]) - 1)


def _code_table(pattern: Pattern) -> Indices:
    """The code of each mask number. Masks that do not keep N elements are not used."""
    table = np.zeros(1 << pattern.m, np.uint8)
    for code, kept in NIBBLE_CODES[pattern].items():
        table[sum(1 << i for i in kept)] = code
    return table


def _mask_table(pattern: Pattern) -> NDArray[Any]:
    """The mask of each code, as M bytes of an integer; 0 for an illegal code."""
    table = np.zeros((16, pattern.m), np.bool_)
    for code, kept in NIBBLE_CODES[pattern].items():
        table[code, list(kept)] = True
    return table.view(f"<u{pattern.m}").ravel()
