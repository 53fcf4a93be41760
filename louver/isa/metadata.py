"""Sparsity metadata of wgmma.mma_async.sp and mma.sp: the bits in each thread that place a row's stored values.

A code is 4 bits. 2:4 types: two increasing 2-bit indices into the group of four columns, the first in the low bits: 0x4
0x8 0x9 0xC 0xD 0xE. tf32 (1:2): 0x4 for the first column of the pair, 0xE for the second. All other codes are
undefined, also 0.

A word of 32 bits in each of 128 threads covers 64 rows of 16 groups. The tables show rows 0, 8 and 1 of one warp; warp
w has rows 16w … 16w+15. T is a lane, g are groups, [hi:lo] are bits. The first group is in the lowest four bits.

16-bit types and tf32. Selector 0 takes groups 0 … 7 from threads T%4 = 0, 1. Selector 1 takes groups 8 … 15 from T%4 =
2, 3, as groups 0 … 7 of its product:

    row    g 0 … 3       g 4 … 7       g 8 … 11      g 12 … 15
     0     T0 [15:0]     T1 [15:0]     T2 [15:0]     T3 [15:0]
     8     T0 [31:16]    T1 [31:16]    T2 [31:16]    T3 [31:16]
     1     T4 [15:0]     T5 [15:0]     T6 [15:0]     T7 [15:0]

8-bit types. All threads contribute to one product of 16 groups, selector 0:

    row    g 0 … 3       g 4 … 7       g 8 … 11      g 12 … 15
     0     T0 [15:0]     T0 [31:16]    T2 [15:0]     T2 [31:16]
     8     T1 [15:0]     T1 [31:16]    T3 [15:0]     T3 [31:16]
     1     T4 [15:0]     T4 [31:16]    T6 [15:0]     T6 [31:16]

mma.sp takes the same words of one warp, so data prepacked for wgmma serves both (`of_warp`). It also has products of
half as many columns, but not of 8-bit floats. For 16-bit types and tf32, their selector s, 0 … 3, is the thread of four
that supplies groups 4s … 4s+3. For 8-bit integers, selector 0 takes groups 0 … 7 from T%4 = 0, 1, selector 1 the others
from T%4 = 2, 3.

Source: PTX ISA, Matrix Fragments for sparse wgmma.mma_async.m64nNk32, m64nNk16 and m64nNk64; Sparse matrix storage and
Matrix Fragments for sparse mma.m16n8k16, k32, k8 and k64.

Prepacked metadata is in the order in which a warpgroup loads it.

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

import functools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from louver.formats.codes import FILLER, NIBBLE_CODES
from louver.formats.dtypes import ElementType, element_type
from louver.formats.pattern import Pattern
from louver.isa.fragments import ROWS, IndexArray, Step, walk
from louver.isa.rule import RuleError
from louver.isa.targets import WARPGROUP_THREADS

PAIR_CODES = tuple(NIBBLE_CODES[Pattern(2, 4)])
"""Legal codes of 2:4 groups."""

SINGLE_CODES = tuple(NIBBLE_CODES[Pattern(1, 2)])
"""Legal codes of 1:2 groups."""

PADDING_CODE = FILLER
"""The code of padding groups, legal for every type."""

CODE_BITS = 4
"""Bits of a code: two indices, the first in the low bits."""

INDEX_BITS = 2

CODES = 8
"""Codes of one word."""

ENTRY_CODES = 4
"""Codes of an entry (half a word), all of one row."""

GROUPS = 16
"""Groups of a row that one word in every thread covers."""


@dataclass(frozen=True, slots=True)
class MetadataMap:
    """Places of a product's codes in the words of the threads.

    group: columns of a group: 4, or 2 for tf32. legal: its codes. selectors: products of consecutive K that one word
    serves. thread, code: steps (rows, groups) for the bits of the thread index and of the place in the word. rows:
    those of a warpgroup by default.
    """

    name: str
    group: int
    legal: tuple[int, ...]
    selectors: int
    thread: tuple[Step, ...]
    code: tuple[Step, ...]
    rows: int = ROWS

    def __post_init__(self) -> None:
        rows, groups = self.coordinates()
        inside = (rows >= 0) & (rows < self.rows) & (groups >= 0) & (groups < GROUPS)
        if not inside.all() or np.unique(rows * GROUPS + groups).size != self.rows * GROUPS:
            raise RuleError(f"{self.name}: the steps do not visit each of {self.rows} x {GROUPS} groups once")

    @property
    def threads(self) -> int:
        return self.rows * GROUPS // CODES

    @property
    def groups(self) -> int:
        """Groups of a row in one product."""
        return GROUPS // self.selectors

    @property
    def columns(self) -> int:
        """Dense columns of a word."""
        return GROUPS * self.group

    def coordinates(self) -> tuple[IndexArray, IndexArray]:
        """Row and group of (thread, place in the word), each int64 [threads, 8]. Groups count over all selectors."""
        thread_rows, thread_groups = walk(self.thread, self.threads)
        code_rows, code_groups = walk(self.code, CODES)
        return thread_rows[:, None] + code_rows[None, :], thread_groups[:, None] + code_groups[None, :]

    def entry(self, row: int, group: int) -> tuple[int, int]:
        """(half word, code in it) for a row and group of one warp. The halves of its words are numbered in order."""
        halves = codes = 0
        for steps, weights in ((self.thread[:5], (2, 4, 8, 16, 32)), (self.code[2:], (1,))):
            halves += sum(by for (rows, groups), by in zip(steps, weights, strict=True) if row & rows or group & groups)
        for by, (rows, groups) in enumerate(self.code[:2], 1):
            codes += by if row & rows or group & groups else 0
        return halves, codes

    def unpack(self, words: NDArray[np.uint32], selector: int) -> NDArray[np.uint8]:
        """Codes of the product, uint8 [rows, groups], from words, uint32 [threads]. Raises ValueError if illegal."""
        self._check_selector(selector)
        codes = np.empty((self.rows, GROUPS), dtype=np.uint8)
        codes[_places(self)] = words[:, None] >> (4 * np.arange(CODES, dtype=np.uint32)) & np.uint32(15)
        mine = codes[:, selector * self.groups : (selector + 1) * self.groups]
        self._check_legal(mine)
        return mine

    def pack(self, codes: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Words, uint32 [threads], from the codes of all selectors, uint8 [rows, 16]."""
        if codes.shape != (self.rows, GROUPS):
            raise RuleError(f"a word covers [{self.rows}, {GROUPS}] codes, got {list(codes.shape)}")
        self._check_legal(codes)
        shifted = codes[_places(self)].astype(np.uint32) << (4 * np.arange(CODES, dtype=np.uint32))
        return np.bitwise_or.reduce(shifted, axis=1)

    def columns_of(self, codes: NDArray[np.uint8]) -> IndexArray:
        """Dense columns of the stored values, int64 [rows, stored], from legal codes, uint8 [rows, groups]."""
        first = np.arange(codes.shape[1], dtype=np.int64) * self.group
        if self.group == 2:
            return first + (codes == SINGLE_CODES[1])
        both = np.stack([first + (codes & 3), first + (codes >> 2)], axis=-1)
        return both.reshape(codes.shape[0], -1)

    def _check_selector(self, selector: int) -> None:
        if not 0 <= selector < self.selectors:
            raise RuleError(f"{self.name} has {self.selectors} selectors, counted from 0, got {selector}")

    def _check_legal(self, codes: NDArray[np.uint8]) -> None:
        legal = np.zeros(16, dtype=np.bool_)
        legal[list(self.legal)] = True
        bad = np.argwhere(~legal[codes])
        if bad.size:
            row, group = (int(i) for i in bad[0])
            raise RuleError(
                f"{self.name}: metadata codes are {', '.join(f'{code:#x}' for code in self.legal)}, got "
                f"{int(codes[row, group]):#x} at row {row}, group {group} ({len(bad)} illegal in all): "
                f"pad with {PADDING_CODE:#x}, never with 0"
            )


@functools.lru_cache(maxsize=16)
def _places(layout: MetadataMap) -> tuple[IndexArray, IndexArray]:
    return layout.coordinates()


_ROW_STEPS: tuple[Step, ...] = ((1, 0), (2, 0), (4, 0), (16, 0), (32, 0))

PAIRED_16 = MetadataMap("16-bit 2:4", 4, PAIR_CODES, 2, ((0, 4), (0, 8), *_ROW_STEPS), ((0, 1), (0, 2), (8, 0)))
PAIRED_8 = MetadataMap("8-bit 2:4", 4, PAIR_CODES, 1, ((8, 0), (0, 8), *_ROW_STEPS), ((0, 1), (0, 2), (0, 4)))
SINGLE_32 = MetadataMap("tf32 1:2", 2, SINGLE_CODES, 2, ((0, 4), (0, 8), *_ROW_STEPS), ((0, 1), (0, 2), (8, 0)))

MAPS: dict[int, MetadataMap] = {8: PAIRED_8, 16: PAIRED_16, 32: SINGLE_32}
"""The map for each element size of A in bits."""

WARP_ROWS = 16
"""Rows that one warp's words cover."""


@functools.lru_cache(maxsize=8)
def of_warp(bits: int, selectors: int) -> MetadataMap:
    """One warp's part of the map, rows 0 … 15. bits: of A's elements. selectors: products that one word serves."""
    whole = MAPS[bits]
    name = f"{whole.name} of a warp"
    return replace(whole, name=name, selectors=selectors, thread=whole.thread[:5], rows=WARP_ROWS)


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
        raise RuleError(f"a sparse matrix has at least one row and one column, got {rows} x {k}")
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
        raise RuleError(
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
        raise RuleError(f"sparse products take f16, bf16, e4m3, e5m2, s8, u8 and f32, read as tf32, got {element.name}")
    return MAPS[element.bits]


def _natural(indices: NDArray[np.uint8], rows: int, groups: int) -> NDArray[np.uint8]:
    """The bytes with the codes of all groups. The nibble after an odd last group becomes the padding code."""
    count = -(-groups // 2)
    if indices.dtype != np.uint8 or indices.ndim != 2 or indices.shape[0] != rows or indices.shape[1] < count:
        raise RuleError(
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
    raise RuleError(
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
