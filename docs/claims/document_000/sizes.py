"""Document 000's arithmetic of bytes: overhead of metadata, bandwidth, footprint; with its 2 bits a block and the real 4."""

from __future__ import annotations

from dataclasses import dataclass

DOCUMENT_BITS, REAL_BITS = 2, 4
"""Bits of metadata of a group of four: the document's, and what `mma.sp` and `wgmma.sp` read."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a matrix, dense and as 2:4. elements: of the dense matrix. width: bytes of an element."""

    elements: int
    width: int
    bits: int = DOCUMENT_BITS

    @property
    def dense(self) -> float:
        return self.elements * self.width

    @property
    def values(self) -> float:
        return self.elements / 2 * self.width

    @property
    def metadata(self) -> float:
        return self.elements / 4 * self.bits / 8

    @property
    def net(self) -> float:
        return self.values + self.metadata

    @property
    def reduction(self) -> float:
        """Share of the dense bytes that is saved."""
        return 1 - self.net / self.dense


BANDWIDTH = (
    (1024, 4, 4 * 2**20, 2 * 2**20, 64 * 2**10, 2.064 * 2**20, 48.4),
    (1024, 2, 2 * 2**20, 1 * 2**20, 64 * 2**10, 1.064 * 2**20, 46.8),
    (1024, 1, 1 * 2**20, 512 * 2**10, 64 * 2**10, 576 * 2**10, 42.4),
    (4096, 4, 64 * 2**20, 32 * 2**20, 1 * 2**20, 33 * 2**20, 48.4),
)
"""Its table (L1685-1695): side, bytes of an element; bytes dense, of values, of metadata, net; per cent saved."""
