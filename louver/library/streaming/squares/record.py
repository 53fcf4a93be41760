"""Records of kernels on squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from louver.formats.dtypes import SPARSE_TYPES, ElementType, element_type
from louver.formats.pattern import Pattern
from louver.formats.select import PATTERN as TRANSPOSABLE
from louver.isa.targets import WARPGROUP_THREADS
from louver.library.streaming.record import VECTOR_BYTES, Access, check_arrays


@dataclass(frozen=True, slots=True)
class Squared:
    """A kernel of transposable masks, on squares of 8 × 8 elements.

    kind: "prune": dense to dense. "compress": dense to values and indices along rows, and along columns. "turn": values and
        indices along rows to values along columns.
    source, out: the accesses to the dense arrays, along rows; None for an array that the kind does not have.
    indices: bytes of an access of the indices along columns. Address and pitch of these indices are multiples of it.
    """

    element: str
    kind: Literal["prune", "compress", "turn"]
    source: Access | None = None
    out: Access | None = None
    indices: int = 1
    pattern: ClassVar[Pattern] = TRANSPOSABLE
    counts: ClassVar[bool] = False
    threads: ClassVar[int] = WARPGROUP_THREADS
    tile: ClassVar[tuple[int, int]] = (256, 64)
    # A tile is much work, so each tile can have its own CTA.
    ctas_per_sm: ClassVar[int] = 64

    def __post_init__(self) -> None:
        size = element_type(self.element, SPARSE_TYPES).bytes
        check_arrays(self.kind, self.source, self.out)
        for access in (self.source, self.out):
            if access is not None and (access.columns or not size <= access.width <= min(8 * size, VECTOR_BYTES)):
                raise ValueError(
                    f"squares of {self.element} are reached along rows, at most 8 elements at once, got {access}"
                )
        if self.indices not in (1, 2, 4):
            raise ValueError(f"indices are moved by 1, 2 or 4 bytes, got {self.indices}")

    @property
    def type(self) -> ElementType:
        """The element type."""
        return element_type(self.element)

    @property
    def min_ctas(self) -> int:
        """Least number of CTAs for which an SM must have registers. Squares of 32 bits, and accesses of single
        elements, need more registers.
        """
        apart = self.source is not None and self.source.width == self.type.bytes
        return 3 if self.type.bits == 32 or apart else 4

    @property
    def turns(self) -> bool:
        """Whether the kernel writes compressed columns."""
        return self.kind != "prune"

    @property
    def column_bytes(self) -> int:
        """Bytes of the stored values of a column in a tile."""
        return self.tile[0] // 2 * self.type.bytes

    @property
    def list_bytes(self) -> int:
        """Bytes of the indices of a column in a tile: a code of 4 bits for each four rows."""
        return self.tile[0] // 8
