"""Streaming kernels as records: the work of each, its elements, and its access to memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from louver.formats.codes import CODE_PARTS
from louver.formats.dtypes import SPARSE_TYPES, ElementType, element_type
from louver.formats.pattern import Pattern
from louver.isa.fragments import ROWS
from louver.isa.metadata import GROUPS, MAPS, MetadataMap
from louver.isa.prepack import WORDS
from louver.isa.targets import WARPGROUP_THREADS

Kind = Literal["prune", "check", "compress", "dense", "prepack"]

Layout = Literal[1, 2, 4, "rows"]
"""Of metadata: words of a load (`louver.isa.prepack.split`), or "rows" for `metadata_rows`."""

MAX_GROUP: Final = 16
"""Largest M of a pattern whose groups a thread holds in registers."""


def fits_thread(pattern: Pattern) -> bool:
    """Whether a thread holds groups of a pattern in registers: of few elements, some of which it drops. Others are worked on by window."""
    return pattern.length == 1 and pattern.n < pattern.m <= MAX_GROUP


VECTOR_BYTES: Final = 16
"""Bytes that a thread loads or stores at once, at most."""

SPAN_BYTES: Final = 32
"""Bytes of a row that a thread takes at once, at least: the columns of half a word of metadata, for 8-bit types of a word."""

TILE_STEPS: Final = WORDS
"""Steps along a row that a tile has, each as wide as a word of metadata."""

COUNTERS: Final = ("broken", "lost", "listed")
"""Numbers of 64 bits that kernels leave, from 0. broken: threads that saw a group with more than N non-zeros, or an illegal index.
lost: -0.0 without a slot. listed: `NO_GROUP` less 2^`KEY_BITS` times the least number of a group to list and its non-zeros. Behind
them a checking kernel has the counts of groups with 1, 2, … M non-zeros."""

COPYING_CTAS: Final = 4
BUSY_CTAS: Final = 16
"""Measured at 28672×4096 in f16 (perf log, section 29)."""

KEY_BITS: Final = 9
"""Bits of a listed group's non-zeros, 256 at most."""

NO_GROUP: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Access:
    """The access of a kernel to a dense array.

    width: bytes at once, a power of two. Addresses and steps between rows are multiples of it. At the width of an element,
    neighbours of a row may be any distance apart. columns: neighbours along a column are neighbours in memory, so that tiles are
    turned in shared memory; the width is at least 4 then.
    """

    width: int
    columns: bool = False

    def __post_init__(self) -> None:
        if self.width not in (1, 2, 4, 8, VECTOR_BYTES):
            raise ValueError(f"an access is 1, 2, 4, 8 or {VECTOR_BYTES} bytes wide, got {self.width}")
        if self.columns and self.width < 4:
            raise ValueError(f"tiles are turned by accesses of at least 4 bytes, got {self.width}")


def check_arrays(kind: str, source: Access | None, out: Access | None) -> None:
    """Raises ValueError for other dense arrays than those of a kind."""
    arrays = {"prune": (True, True), "check": (True, False), "compress": (True, False), "dense": (False, True)}
    if arrays.get(kind, (False, False)) != (source is not None, out is not None):
        raise ValueError(f"a kernel of kind {kind} has other dense arrays, got {source} and {out}")


@dataclass(frozen=True, slots=True)
class Tiling:
    """The division of matrices of a pattern into tiles, and of these into what a thread takes.

    A unit is M registers: a group for each element of a register. A span is some units that follow each other in a row.
    """

    element: str
    pattern: Pattern

    def __post_init__(self) -> None:
        element_type(self.element, SPARSE_TYPES)
        if not fits_thread(self.pattern):
            raise ValueError(
                f"streaming kernels take patterns N:M of elements, N below M and M at most {MAX_GROUP}, got {self.pattern}"
            )

    @property
    def type(self) -> ElementType:
        """The element type."""
        return element_type(self.element)

    @property
    def map(self) -> MetadataMap:
        """The places of codes in products of elements of this size: threads take rows and columns as the map says, whatever the pattern."""
        return MAPS[self.type.bits]

    @property
    def multiplied(self) -> bool:
        """Whether tensor cores multiply such tensors, so that they have metadata."""
        return self.pattern in CODE_PARTS and self.pattern.m == self.map.group

    @property
    def lanes(self) -> int:
        """Elements of a register."""
        return 32 // self.type.bits

    @property
    def units(self) -> int:
        """Units of a span."""
        return max(1, SPAN_BYTES // (4 * self.pattern.m))

    @property
    def span_words(self) -> int:
        """Registers of a span."""
        return self.units * self.pattern.m

    @property
    def span_groups(self) -> int:
        """Groups of a span."""
        return self.units * self.lanes

    @property
    def span(self) -> int:
        """Elements of a span."""
        return self.span_groups * self.pattern.m

    @property
    def value_words(self) -> int:
        """Registers of a span's stored values."""
        return self.units * self.pattern.n

    @property
    def index_bytes(self) -> int:
        """Bytes of a span's indices."""
        return self.span_groups // 2 if self.pattern in CODE_PARTS else self.span_groups * self.pattern.n

    @property
    def row_offsets(self) -> tuple[int, ...]:
        """The rows that a thread takes at a time, from its first: two where a word of metadata is of two."""
        return tuple(sorted({0, self.map.code[-1][0]}))

    @property
    def spans(self) -> int:
        """Spans of a row in a step of a tile: those of its threads side by side."""
        return GROUPS * len(self.row_offsets) // 8

    @property
    def columns(self) -> int:
        """Elements of a row of a tile."""
        return TILE_STEPS * self.spans * self.span

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of a tile."""
        return self.columns * self.type.bytes

    @property
    def turned_bytes(self) -> int:
        """Bytes of a column that an access moves at most, 0 where tiles cannot be turned: their rows are not whole lines of all banks."""
        return 0 if self.row_bytes % (8 * VECTOR_BYTES) else VECTOR_BYTES


@dataclass(frozen=True, slots=True)
class Streaming(Tiling):
    """One kernel.

    kind: prune (dense to dense), check (dense to counts), compress (dense to values, indices and metadata), dense (values and indices
    to dense), prepack (indices to metadata).
    method: of `prune`, for a kernel that prunes; a compressing kernel without one takes arrays that keep the pattern.
    source, out: the dense arrays that the kind has. indices: bytes of an access of indices. words: the metadata's layout, if any.
    exact: a checking kernel lists groups with fewer than N non-zeros too.
    """

    kind: Kind
    method: Literal["magnitude"] | None = None
    source: Access | None = None
    out: Access | None = None
    indices: int = 1
    words: Layout | None = None
    exact: bool = False
    threads: ClassVar[int] = WARPGROUP_THREADS
    min_ctas: ClassVar[int] = 1

    def __post_init__(self) -> None:
        Tiling.__post_init__(self)
        check_arrays(self.kind, self.source, self.out)
        accesses = [access for access in (self.source, self.out) if access is not None]
        for access in accesses:
            whole = self.turned_bytes if access.columns else 4 * self.span_words % access.width == 0
            if access.width < self.type.bytes or not whole:
                raise ValueError(f"tiles of {self.pattern} in {self.element} are not reached by {access}")
        if self.indices not in (1, 2, 4) or self.index_bytes % self.indices:
            raise ValueError(f"indices of {self.index_bytes} bytes a span are not moved by {self.indices}")
        if self.words is not None and not self.multiplied:
            raise ValueError(f"products of {self.element} take no {self.pattern}, so it has no metadata")

    @property
    def ctas_per_sm(self) -> int:
        """CTAs that share the tiles of an SM. Those that compute much for each byte wait less with more of them."""
        return BUSY_CTAS if self.kind in ("check", "prepack") else COPYING_CTAS

    @property
    def counts(self) -> bool:
        """Whether the kernel leaves numbers."""
        return self.kind in ("check", "dense", "prepack") or (self.kind == "compress" and self.method is None)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return ROWS, self.columns
