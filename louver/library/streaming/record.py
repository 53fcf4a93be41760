"""Records of streaming kernels: the kind of work, the elements, and the access to memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from louver.formats.codes import CODE_PARTS
from louver.formats.dtypes import SPARSE_TYPES, ElementType, element_type
from louver.formats.pattern import Pattern
from louver.isa.fragments import ROWS
from louver.isa.instruction import LANES
from louver.isa.metadata import GROUPS, MAPS, WORDS, MetadataMap
from louver.isa.targets import WARPGROUP_THREADS

Kind = Literal["prune", "check", "compress", "dense", "take", "prepack"]

Layout = Literal["words", "rows"]
"""Layout of metadata: "words" of products (`louver.isa.metadata`), or "rows" for `metadata_rows`."""

MAX_GROUP: Final = 16
"""Largest M of a pattern whose groups a thread holds in registers."""


def fits_thread(pattern: Pattern) -> bool:
    """Whether a thread holds groups of this pattern in registers: small groups of elements with N < M. Kernels on
    windows handle all other patterns.
    """
    return pattern.length == 1 and pattern.n < pattern.m <= MAX_GROUP


Activation = Literal["relu2"]
"""Activations of `louver.sparsify`. "relu2": max(x, 0)², NaN for NaN."""

Scaling = Literal["number", "array", "rows"]
"""The scale of converted values: a number of the launch, an f32 on the device, or one for each row, which the kernel
computes and writes.
"""

LEAST_SCALE: Final = 2.0**-126
"""The least scale of a row: the least normal f32, so that its reciprocal is finite."""

VECTOR_BYTES: Final = 16
"""Most bytes of one load or store of a thread."""

SPAN_BYTES: Final = 32
"""Least bytes of a span, in the type of the stored values: the columns of half a word of metadata; for 8-bit types,
those of a word.
"""

TILE_STEPS: Final = WORDS
"""Steps of a tile along a row. A step is as wide as a word of metadata."""

WHOLE_INDICES: Final = TILE_STEPS * GROUPS // 2
"""Bytes of the indices of a row of a tile, for patterns whose groups have codes of 4 bits: a sector of memory."""

COUNTERS: Final = ("broken", "lost", "listed")
"""Counters of kernels, 64 bits each. They start at 0. In a checking kernel, the counts of groups with 1, 2, … M
non-zeros follow.

broken: number of threads that found a group with more than N non-zeros, or an illegal index.
lost: number of -0.0 without a slot.
listed: `NO_GROUP` - (g · 2^`KEY_BITS` + c), for the listed group with the least number g, and its c non-zeros.
"""

COPYING_CTAS: Final = 4
CONVERTING_CTAS: Final = 6
BUSY_CTAS: Final = 16
"""CTAs for each SM: of kernels that mostly copy, of those that convert too, and of kernels that compute more than they
move. Measured at 28672×4096 in f16 (`docs/perf-log/29-streaming.md`), those that convert at 4096×14336.
"""

ROW_CTAS: Final = 64
"""The same of kernels on whole rows: a CTA has a row, unless there are very many. Up to 16 CTAs that share the rows
were slower, the fewer the more.
"""

MOST_ROW_THREADS: Final = 256
"""Most threads of a CTA that converts a row: several such CTAs share an SM, so that others copy while one waits."""

KEY_BITS: Final = 9
"""Bits for the number of non-zeros of a listed group, which is at most 256."""

NO_GROUP: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Access:
    """The access of a kernel to a dense array.

    width: bytes of an access, a power of two. Addresses and steps between rows are multiples of the width. If the width
        is one element, the elements of a row may be any distance apart.
    columns: columns are contiguous in memory, so tiles are transposed in shared memory. The width is then at least 4.
    """

    width: int
    columns: bool = False

    def __post_init__(self) -> None:
        if self.width not in (1, 2, 4, 8, VECTOR_BYTES):
            raise ValueError(f"an access is 1, 2, 4, 8 or {VECTOR_BYTES} bytes wide, got {self.width}")
        if self.columns and self.width < 4:
            raise ValueError(f"tiles are turned by accesses of at least 4 bytes, got {self.width}")


def check_arrays(kind: str, source: Access | None, out: Access | None) -> None:
    """Raises ValueError unless the dense arrays are those that this kind of kernel has."""
    arrays = {
        "prune": (True, True),
        "check": (True, False),
        "compress": (True, False),
        "dense": (False, True),
        "take": (True, False),
    }
    if arrays.get(kind, (False, False)) != (source is not None, out is not None):
        raise ValueError(f"a kernel of kind {kind} has other dense arrays, got {source} and {out}")


@dataclass(frozen=True, slots=True)
class Tiling:
    """The division of matrices into tiles, and of tiles into spans of threads.

    A unit is M registers, and has a group for each element of a register. A span is one or more consecutive units of a
    row.

    element: the type of the dense array.
    stored: the type of the stored values; by default the same.
    """

    element: str
    pattern: Pattern
    stored: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for each in {self.element, self.stored or self.element}:
            element_type(each, SPARSE_TYPES)
        if not fits_thread(self.pattern):
            raise ValueError(
                f"streaming kernels take patterns N:M of elements, N below M and M at most {MAX_GROUP}, got {self.pattern}"
            )

    @property
    def type(self) -> ElementType:
        """The element type of the dense array."""
        return element_type(self.element)

    @property
    def stored_type(self) -> ElementType:
        """The element type of the stored values."""
        return element_type(self.stored or self.element)

    @property
    def map(self) -> MetadataMap:
        """The places of codes in products of elements of this size. It assigns rows and columns to threads, for every
        pattern.
        """
        return MAPS[self.stored_type.bits]

    @property
    def multiplied(self) -> bool:
        """Whether tensor cores multiply such tensors. Only these tensors have metadata."""
        return self.pattern in CODE_PARTS and self.pattern.m == self.map.group

    @property
    def lanes(self) -> int:
        """Elements of a register."""
        return 32 // self.type.bits

    @property
    def units(self) -> int:
        """Units of a span."""
        return max(1, SPAN_BYTES // (4 * self.pattern.m) * self.type.bytes // self.stored_type.bytes)

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
        return self.units * self.pattern.n * self.stored_type.bytes // self.type.bytes

    @property
    def index_bytes(self) -> int:
        """Bytes of a span's indices."""
        return self.span_groups // 2 if self.pattern in CODE_PARTS else self.span_groups * self.pattern.n

    @property
    def row_offsets(self) -> tuple[int, ...]:
        """The rows of a thread, relative to the first: two if a word of metadata has codes of two rows, else one."""
        return tuple(sorted({0, self.map.code[-1][0]}))

    @property
    def spans(self) -> int:
        """Spans of a row in a step of a tile: one for each thread side by side."""
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
        """Most bytes of a column in one access. 0 if tiles cannot be transposed, because their rows are not multiples
        of 128 bytes, the width of all banks.
        """
        return 0 if self.row_bytes % (8 * VECTOR_BYTES) else VECTOR_BYTES


@dataclass(frozen=True, slots=True)
class Streaming(Tiling):
    """A kernel on groups in registers.

    kind: "prune": dense to dense. "check": dense to counts. "compress": dense to values, indices and metadata. "dense":
        values and indices to dense. "take": dense and indices to values. "prepack": indices to metadata.
    method: the method of `prune`, for a kernel that prunes. A compressing kernel without a method needs arrays that
        keep the pattern.
    source, out: the accesses to the dense arrays; None for an array that the kind does not have.
    indices: bytes of an access of indices. `WHOLE_INDICES`: the threads of a row exchange their indices, and write them
        all together. They have these indices as metadata.
    words: layout of the metadata; None without metadata.
    activation, scaling: of a kernel that converts what it keeps (`louver.sparsify`). Kept are the elements whose
        activations have the largest magnitudes before they are scaled and rounded.
    exact: whether a checking kernel also lists groups with fewer than N non-zeros.
    trusted: whether all indices that a prepacking kernel reads are legal.
    """

    kind: Kind
    method: Literal["magnitude"] | None = None
    source: Access | None = None
    out: Access | None = None
    indices: int = 1
    words: Layout | None = None
    exact: bool = False
    trusted: bool = False
    activation: Activation | None = None
    scaling: Scaling | None = None
    min_ctas: ClassVar[int] = 1

    def __post_init__(self) -> None:
        Tiling.__post_init__(self)
        check_arrays(self.kind, self.source, self.out)
        accesses = [access for access in (self.source, self.out) if access is not None]
        for access in accesses:
            whole = self.turned_bytes if access.columns else 4 * self.span_words % access.width == 0
            if access.width < self.type.bytes or not whole:
                raise ValueError(f"tiles of {self.pattern} in {self.element} are not reached by {access}")
        together = self.indices == WHOLE_INDICES and self.kind == "compress" and self.words is not None
        if not together and (self.indices not in (1, 2, 4) or self.index_bytes % self.indices):
            raise ValueError(f"indices of {self.index_bytes} bytes a span are not moved by {self.indices}")
        if self.words is not None and not self.multiplied:
            raise ValueError(f"products of {self.stored_type} take no {self.pattern}, so it has no metadata")
        if self.converts and (self.kind, self.method) != ("compress", "magnitude"):
            raise ValueError(f"only a compressing kernel that prunes converts elements, got {self}")
        if (self.scaling is not None) != (self.stored_type.bits < self.type.bits):
            raise ValueError(
                f"values have a scale if they are narrower than the elements, got {self.element} as {self.stored_type} by {self.scaling}"
            )

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return WARPGROUP_THREADS

    @property
    def converts(self) -> bool:
        """Whether stored values are other numbers than the elements."""
        return self.activation is not None or self.stored_type != self.type

    @property
    def ctas_per_sm(self) -> int:
        """CTAs that share the tiles of an SM. Kernels with much computation for each byte run faster with more CTAs."""
        if self.kind in ("check", "prepack"):
            return BUSY_CTAS
        return CONVERTING_CTAS if self.converts else COPYING_CTAS

    @property
    def counts(self) -> bool:
        """Whether the kernel has counters."""
        unknown = self.method is None if self.kind == "compress" else not self.trusted
        return self.kind in ("check", "dense", "prepack", "compress") and unknown

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return ROWS, self.columns


@dataclass(frozen=True, slots=True)
class ScaledRows(Streaming):
    """A kernel that converts with a scale for each row. A CTA reads a row twice: first the largest magnitude, then
    everything again, from the L1 cache if the row is still there.

    row_threads: threads of a CTA. Each has a span of the row at a time.
    """

    row_threads: int = WARPGROUP_THREADS

    @classmethod
    def threads_for(cls, spans: int) -> int:
        """Threads for rows of this many spans: whole warps, as few idle ones in the last turn as possible."""
        turns = -(-spans // MOST_ROW_THREADS)
        return -(-spans // (turns * LANES)) * LANES

    @property
    def threads(self) -> int:
        return self.row_threads

    @property
    def ctas_per_sm(self) -> int:
        return ROW_CTAS

    @property
    def tile(self) -> tuple[int, int]:
        """A row, of any length."""
        return 1, self.row_threads * self.span
