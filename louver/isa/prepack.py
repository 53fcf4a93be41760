"""Metadata in the order in which a warpgroup loads it, and the inverse.

A prepacked array is uint32 [rows/64, words of K, 128 threads], C-contiguous: one order for all kernels. A word of each
thread covers `columns` columns of K in a block of 64 rows, 512 contiguous bytes. So the words of any K step are
contiguous, and a warp loads 128 contiguous bytes.

    type     group  columns a word  products a word       columns a load
    16-bit   4      64              2 (selectors 0, 1)    256
    8-bit    4      64              1                     256
    tf32     2      32              2 (selectors 0, 1)    128

A load is `WORDS` words of K. Rows are padded to a multiple of 64, and K to whole loads, with the legal code 0x4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType, element_type
from louver.isa.fragments import ROWS
from louver.isa.metadata import GROUPS, MAPS, PADDING_CODE, MetadataMap
from louver.isa.targets import WARPGROUP_THREADS

WORDS = 4
"""Words of K that a thread loads at a time from global memory."""

WORD_BYTES = WARPGROUP_THREADS * 4
"""Bytes of one word of each thread of a warpgroup: from one word of K to the next."""

_PADDING_BYTE = PADDING_CODE << 4 | PADDING_CODE


LOAD_BYTES = WORDS * WORD_BYTES
"""Bytes of one load of a warpgroup: 64 rows by `columns_per_load` columns."""


def columns_per_load(dtype: ElementType | str) -> int:
    """Dense columns of K in one load of `WORDS` words: 256, or 128 for tf32."""
    return WORDS * _layout(dtype).columns


def prepacked_shape(rows: int, k: int, dtype: ElementType | str) -> tuple[int, int, int]:
    """Shape of the prepacked array for a sparse matrix of `rows` rows and `k` dense columns."""
    if rows < 1 or k < 1:
        raise ValueError(f"a sparse matrix has at least one row and one column, got {rows} x {k}")
    return -(-rows // ROWS), -(-k // columns_per_load(dtype)) * WORDS, WARPGROUP_THREADS


def prepack(indices: NDArray[np.uint8], rows: int, k: int, dtype: ElementType | str) -> NDArray[np.uint32]:
    """The words of each thread, uint32 [rows/64, words of K, 128], with rows and K padded.

    indices: natural codes, uint8 [rows, at least ceil(groups / 2)], two groups in a byte, the first in the low nibble;
    bytes beyond the groups are ignored. k: dense columns. dtype: element type of the stored values. Raises ValueError
    for indices of another shape or dtype, and for codes that are illegal for the type.
    """
    layout = _layout(dtype)
    shape = prepacked_shape(rows, k, dtype)
    blocks, words, _ = shape
    groups = -(-k // layout.group)
    natural = _natural(indices, rows, groups)
    _check(natural, layout)
    codes = np.full((blocks * ROWS, words * GROUPS // 2), _PADDING_BYTE, dtype=np.uint8)
    codes[:rows, : natural.shape[1]] = natural
    # A thread's word has 16 bits of each of two rows (one selector for a pair of threads), or 32 bits of one row.
    if layout.selectors == 2:
        pieces = codes.view("<u2").reshape(blocks, 4, 2, 8, words, 2, 2)
        order = (0, 4, 1, 3, 5, 6, 2)  # block, word, warp, row in 8, thread bits 1 and 0, half
        return np.ascontiguousarray(pieces.transpose(order)).view("<u4").reshape(shape)
    whole = codes.view("<u4").reshape(blocks, 4, 2, 8, words, 2)
    order = (0, 4, 1, 3, 5, 2)  # block, word, warp, row in 8, thread bit 1, bit 0 (row + 8)
    return np.ascontiguousarray(whole.transpose(order)).reshape(shape)


def unpack(words: NDArray[np.uint32], rows: int, k: int, dtype: ElementType | str) -> NDArray[np.uint8]:
    """Natural codes, uint8 [rows, ceil(groups / 2)], from a prepacked array: the inverse of `prepack`.

    For an odd number of groups, the high nibble of the last byte is the padding code.
    """
    layout = _layout(dtype)
    shape = prepacked_shape(rows, k, dtype)
    if words.shape != shape or words.dtype != np.uint32:
        raise ValueError(
            f"{rows} x {k} of {dtype} prepacks to uint32 {list(shape)}, got {words.dtype} {list(words.shape)}"
        )
    blocks, count, _ = shape
    words = np.ascontiguousarray(words)
    if layout.selectors == 2:
        pieces = words.view("<u2").reshape(blocks, count, 4, 8, 2, 2, 2)
        natural = np.ascontiguousarray(pieces.transpose(0, 2, 6, 3, 1, 4, 5))
    else:
        natural = np.ascontiguousarray(words.reshape(blocks, count, 4, 8, 2, 2).transpose(0, 2, 5, 3, 1, 4))
    groups = -(-k // layout.group)
    return natural.view(np.uint8).reshape(blocks * ROWS, -1)[:rows, : -(-groups // 2)].copy()


def _layout(dtype: ElementType | str) -> MetadataMap:
    element = element_type(dtype)
    if not element.sparse:
        raise ValueError(
            f"sparse products take f16, bf16, e4m3, e5m2, s8, u8 and f32, read as tf32, got {element.name}"
        )
    return MAPS[element.bits]


def _natural(indices: NDArray[np.uint8], rows: int, groups: int) -> NDArray[np.uint8]:
    """The bytes with the codes of all groups. The nibble after an odd last group becomes the padding code."""
    count = -(-groups // 2)
    if indices.dtype != np.uint8 or indices.ndim != 2 or indices.shape[0] != rows or indices.shape[1] < count:
        raise ValueError(
            f"{rows} rows of {groups} groups have uint8 indices [{rows}, {count} or more], got {indices.dtype} "
            f"{list(indices.shape)}"
        )
    natural = indices[:, :count]
    if groups % 2:
        natural = natural.copy()
        natural[:, -1] = natural[:, -1] & 0x0F | PADDING_CODE << 4
    return natural


def _check(natural: NDArray[np.uint8], layout: MetadataMap) -> None:
    legal = np.zeros(16, dtype=np.bool_)
    legal[list(layout.legal)] = True
    bad_byte = ~(legal[:, None] & legal[None, :]).reshape(-1)
    bad = np.argwhere(bad_byte[natural])
    if not bad.size:
        return
    row, byte = (int(i) for i in bad[0])
    value = int(natural[row, byte])
    group = 2 * byte if not legal[value & 15] else 2 * byte + 1
    code = value & 15 if group % 2 == 0 else value >> 4
    raise ValueError(
        f"the codes of {layout.name} are {', '.join(f'{c:#x}' for c in layout.legal)}, got {code:#x} at row {row}, group "
        f"{group}: compress the matrix again"
    )


def metadata_rows_shape(rows: int, k: int, dtype: ElementType | str) -> tuple[int, int]:
    """The shape of `metadata_rows`."""
    return -(-rows // 16), -(-k // _layout(dtype).columns) * 64


def metadata_rows(indices: NDArray[np.uint8], rows: int, k: int, dtype: ElementType | str) -> NDArray[np.uint16]:
    """Metadata as a tensor for loads tile by tile: uint16 [rows/16, C], rounded up. A row covers the 16 rows of a warp.

    C is K rounded up to whole words, 64 entries for each. Entry x · 64 + 2t + h is half h (0: the low one) of lane t's
    word x along K. `louver.ir.tile.metadata` describes this layout. indices, k, dtype, errors: see `prepack`; f32 is
    read as tf32.
    """
    words = prepack(indices, rows, k, dtype)
    blocks, count, _ = words.shape
    lanes = words.reshape(blocks, count, 4, 32).transpose(0, 2, 1, 3)
    whole = np.ascontiguousarray(lanes).reshape(blocks * 4, -1).view(np.uint16)
    shape = metadata_rows_shape(rows, k, dtype)
    return np.ascontiguousarray(whole[: shape[0], : shape[1]])
