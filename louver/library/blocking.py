"""NM-SpMM's analysis of products A [m, k] · B [k, n] in f32 on CUDA cores, with B sparse in vectors N:M@L: sizes of
blocks, and the resource that limits them.

Names and equations are those of the paper (C. Ma et al., NM-SpMM: Accelerating Matrix Multiplication Using N:M Sparsity
with GPGPU). Its B has windows along n; Louver's weight [out, K] has them along its rows. docs/nm.md lists the
differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from louver.formats.codes import index_bits
from louver.formats.pattern import Pattern
from louver.isa.targets import Target

WARP = 32
"""Threads of a warp. ms and ns are multiples of this number, to avoid bank conflicts (section III-B1)."""

WIDEST_LOAD = 16
"""Bytes of the widest load from shared memory, LDS.128."""

F32 = 4
"""Bytes of an element."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """Block sizes of C: [ms, ns] of a CTA, [mr, nr] of a warp, [mt, nt] of a thread (section III-B).

    Raises ValueError if the blocks do not nest.
    """

    ms: int
    ns: int
    mr: int
    nr: int
    mt: int
    nt: int

    def __post_init__(self) -> None:
        if min(self.ms, self.ns, self.mr, self.nr, self.mt, self.nt) < 1:
            raise ValueError(f"sizes of a blocking are at least 1, got {self}")
        if self.ms % WARP or self.ns % WARP:
            raise ValueError(f"ms and ns are multiples of {WARP}, got {self.ms} and {self.ns}")
        if self.ms % self.mr or self.ns % self.nr or self.mr % self.mt or self.nr % self.nt:
            raise ValueError(f"a CTA has whole warps, and a warp whole threads, got {self}")
        if (self.mr // self.mt) * (self.nr // self.nt) != WARP:
            raise ValueError(
                f"a warp's tile has {WARP} threads' tiles, got {self.mr // self.mt}×{self.nr // self.nt} of them"
            )

    @property
    def registers(self) -> int:
        """Registers of a thread for sums and fragments (section III-B2): mt + nt + mt · nt."""
        return self.mt + self.nt + self.mt * self.nt

    def depth(self, pattern: Pattern, k: int, target: Target) -> int:
        """ks by equation (5), in whole groups and not above k: the most for which 8 · ks · (ms + N · ns / M) fits in an
        SM's shared memory.

        Raises ValueError if the sums do not fit in a thread's registers, if not a single group fits, and for V:N:M.
        """
        if len(pattern.levels) > 1:
            raise ValueError(f"the analysis is of vectors N:M@L, which CUDA cores multiply, got {pattern}: write N:M@L")
        if self.registers > target.registers_per_thread:
            raise ValueError(f"a thread has {target.registers_per_thread} registers, got {self.registers} of {self}")
        most = target.max_shared_bytes // (8 * (pattern.m * self.ms + pattern.n * self.ns))
        if not most:
            raise ValueError(
                f"a group of {pattern} takes {8 * (pattern.m * self.ms + pattern.n * self.ns):,} bytes of shared memory for {self}, of "
                f"{target.max_shared_bytes:,}: take smaller blocks"
            )
        return min(most, pattern.groups(k)) * pattern.m

    def cmar(self, load_bytes: int = WIDEST_LOAD) -> float:
        """Computing-to-memory-access ratio of a thread, equation (6): mt · nt / (mt + nt) / α.

        load_bytes: bytes of a load from shared memory. α is 1 for 16 bytes, 2 for 8, and 4 for 4.

        With α = 1, each element counts as one load. So there are 4 times as many FMA instructions for each LDS.128.
        """
        return self.mt * self.nt / (self.mt + self.nt) * load_bytes / WIDEST_LOAD


TABLE_I: Mapping[str, Blocking] = {
    "small": Blocking(32, 32, 16, 32, 4, 4),
    "medium": Blocking(32, 64, 32, 32, 8, 4),
    "large": Blocking(64, 128, 64, 32, 8, 8),
}
"""The paper's Table I, by the size of the matrices."""


@dataclass(frozen=True, slots=True)
class Step:
    """A K step of a CTA, of ks elements: the blocks A [ms, ks], B' [ws, ns] and D [ws, qs]."""

    blocking: Blocking
    pattern: Pattern
    ks: int

    @property
    def ws(self) -> int:
        """Kept rows of B: ks · N / M."""
        return self.ks * self.pattern.n // self.pattern.m

    @property
    def qs(self) -> int:
        """Windows of the block, ⌈ns / L⌉."""
        return ceil(self.blocking.ns / self.pattern.length)

    @property
    def shared_bytes(self) -> int:
        """Bytes of the three blocks. Equation (4) allows half of an SM's shared memory. An index has as many bits as in
        memory.
        """
        a, b = self.ks * self.blocking.ms, self.ws * self.blocking.ns
        return F32 * (a + b) + ceil(self.ws * self.qs * index_bits(self.pattern) / 8)

    @property
    def kept(self) -> float:
        """The share of A's ks columns that a block needs, see `Pattern.kept_by`. Section III-C1 uses qs · N / M, which
        is above 1 for many windows.
        """
        return self.pattern.kept_by(self.qs)

    @property
    def packing_saves(self) -> bool:
        """Whether packed columns of A, with an entry of `col_info` for each, have fewer bytes than all columns."""
        ms = self.blocking.ms
        return self.kept * (ms + 1) < ms

    def intensity(self, kept: float = 1.0, steps: int = 1) -> float:
        """FLOP for each element that moves, equation (3): 2 · ms · ns · ws / (ms · ks + ws · ns + 2 · ms · ns).

        kept: the share of A's columns that are loaded; 1 without packing.
        steps: the number of K steps for which C moves once; 1 in the paper.
        """
        a = self.blocking.ms, self.ks * kept
        return intensity(a, (self.ws, self.blocking.ns), steps)


def intensity(a: tuple[float, float], b: tuple[float, float], steps: int = 1) -> float:
    """FLOP for each element that moves, equation (3).

    a: ms, and the loaded columns of A.
    b: ws and ns, the sizes of the block of B'.
    steps: the number of K steps for which C moves once.
    """
    (ms, columns), (ws, ns) = a, b
    return 2 * ms * ns * ws / (ms * columns + ws * ns + 2 * ms * ns / steps)
