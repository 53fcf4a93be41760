"""Document 000's codecs of 2:4: pattern ids in 2 and 3 bits, its encoders, and the hardware's codes beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

INVALID = 0xFF

POSITIONS: tuple[tuple[int, int], ...] = tuple(combinations(range(4), 2))
"""Non-zero positions by pattern id: [0, 1] is 0, [2, 3] is 5 (L221-239, the table of `decode_pattern`)."""

PATTERN_TABLE = ((0b1100, 0), (0b1010, 1), (0b1001, 2), (0b0110, 3), (0b0101, 4), (0b0011, 5))
"""(binary mask, id). The table reads the mask from left to right: 1100 keeps [0, 1]."""

Group = Sequence[float]


def binary(positions: Sequence[int]) -> int:
    """The mask as the table writes it: the leftmost of four bits is element 0."""
    return sum(8 >> position for position in positions)


def nonzero_mask(group: Group) -> int:
    """The mask as the code builds it: bit i is element i. -0.0 is a zero, NaN is none."""
    return sum(1 << index for index, value in enumerate(group) if value != 0.0)


def encode_sparse_pattern(group: Group) -> int:
    """`encode_sparse_pattern` (L749-781), `encode_nonzero_mask` (L2669-2691): the code's mask looked up in the table's."""
    return dict(PATTERN_TABLE).get(nonzero_mask(group), INVALID)


def encode_pattern(first: int, second: int) -> int:
    """`encode_pattern` (L2065-2089): by positions."""
    return POSITIONS.index((first, second)) if (first, second) in POSITIONS else INVALID


def decode_pattern(pattern: int) -> tuple[int, int]:
    """`decode_pattern` (L2535-2569); (-1, -1) for another id."""
    return POSITIONS[pattern] if 0 <= pattern < len(POSITIONS) else (-1, -1)


@dataclass(frozen=True, slots=True)
class SparseMetadata:
    """Packed ids of 2 bits, four blocks a byte, the first in the low bits (L2459-2489)."""

    data: bytes
    num_blocks: int

    @property
    def num_bytes(self) -> int:
        return len(self.data)

    def block_pattern(self, block: int) -> int:
        """`get_block_pattern` (L2503-2512)."""
        return self.data[block * 2 // 8] >> (block * 2 % 8) & 0x3

    def block_pattern_fast(self, block: int) -> int:
        """`get_block_pattern_fast` (L2516-2529)."""
        return self.data[block >> 2] >> ((block & 3) << 1) & 0x3


def pack(ids: Sequence[int]) -> SparseMetadata:
    """Ids or-ed in at two bits each, as `detect_2_4_sparsity` and `generate_metadata` do: more bits spill or fall off."""
    data = bytearray((len(ids) * 2 + 7) // 8)
    for block, pattern in enumerate(ids):
        data[block * 2 // 8] |= pattern << (block * 2 % 8) & 0xFF
    return SparseMetadata(bytes(data), len(ids))


def pack_wide(ids: Sequence[int]) -> bytes:
    """Ids of 3 bits, the first in the low bits, over byte borders: the "extended encoding", whose layout it does not give."""
    word = sum(pattern << 3 * block for block, pattern in enumerate(ids))
    return word.to_bytes((len(ids) * 3 + 7) // 8, "little")


def unpack_wide(data: bytes, count: int) -> list[int]:
    """The ids of `pack_wide`."""
    word = int.from_bytes(data, "little")
    return [word >> 3 * block & 0x7 for block in range(count)]


def get_pattern(metadata: int, block: int) -> int:
    """`get_pattern` of eight blocks in 16 bits (L293-299)."""
    return metadata >> 2 * block & 0x3


def groups(values: Sequence[float]) -> list[Group]:
    """Blocks of four elements of the flattened matrix; a tail of less than four is left out, as its loops do."""
    return [values[4 * block : 4 * block + 4] for block in range(len(values) // 4)]


def generate_metadata(values: Sequence[float]) -> SparseMetadata:
    """`generate_metadata` (L2595-2663): an invalid block's 0xFF is or-ed in like an id."""
    return pack([encode_sparse_pattern(group) for group in groups(values)])


def hardware_code(first: int, second: int) -> int:
    """The 4 bits that `mma.sp` and `wgmma.sp` read for a group: two increasing positions, the first in the low bits."""
    return first | second << 2
