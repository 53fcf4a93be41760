"""Document 000's detection of 2:4: `detect_2_4_sparsity`, `is_2_4_sparse`, and Example 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from claims.document_000 import codecs
from claims.document_000.codecs import SparseMetadata


class SparsityType(Enum):
    """As the document numbers it (L1909-1915)."""

    NONE = 0
    SPARSITY_2_4 = 1
    INVALID = 2


@dataclass(frozen=True, slots=True)
class SparsityAnalysis:
    """`SparsityAnalysisResult` (L1917-1931)."""

    type: SparsityType
    metadata: SparseMetadata | None

    @property
    def valid(self) -> bool:
        return self.metadata is not None


def detect_2_4_sparsity(values: Sequence[float], rows: int, cols: int, layout: str = "ROW_MAJOR") -> SparsityAnalysis:
    """`detect_2_4_sparsity` (L1935-2059). It never reads `layout`, and nothing of rows · cols beyond whole blocks."""
    ids: list[int] = []
    for group in codecs.groups(values[: rows * cols]):
        positions = [index for index, value in enumerate(group) if value != 0.0]
        if len(positions) != 2:
            return SparsityAnalysis(SparsityType.INVALID, None)
        ids.append(codecs.encode_pattern(*positions))
    return SparsityAnalysis(SparsityType.SPARSITY_2_4, codecs.pack(ids))


def is_2_4_sparse(values: Sequence[float]) -> bool:
    """`is_2_4_sparse` (L2103-2149): exactly two non-zeros in each block of four."""
    return all(sum(value != 0.0 for value in group) == 2 for group in codecs.groups(values))


def detect_and_apply_dynamic(values: Sequence[float]) -> bytes | None:
    """`detect_and_apply_sparsity_dynamic` (L831-879): one byte a block; None where it falls back to dense."""
    ids = [codecs.encode_sparse_pattern(group) for group in codecs.groups(values)]
    return None if codecs.INVALID in ids else bytes(ids)


EXAMPLE_1 = (3.14, 2.71, 0.0, 0.0, 0.0, 1.41, 0.0, 9.81)
"""The matrix of Example 1: [0, 1], then [1, 3]."""


def example_1() -> str:
    """What the program of Example 1 prints (L3167-3379)."""
    ids = [codecs.encode_sparse_pattern(group) for group in codecs.groups(EXAMPLE_1)]
    if codecs.INVALID in ids:
        return "Matrix is NOT 2:4 sparse.\n"
    data = codecs.pack(ids).data
    return "Matrix is 2:4 sparse!\nMetadata: " + "".join(f"0x{byte:02X} " for byte in data) + "\n"
