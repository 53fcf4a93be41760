"""Rows of w that are their own number below a size, and what masks the sums of the others: every index, size and mask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

import louver

INDICES = ("wrap", "hinted", "zero", "last", "at most", "above", "least")
SIZES = ("argument", "least", "least of three", "part", "loaded")
STORED = ("store", "fewer", "fewer in all", "more", "other", "none")
CHOSEN = ("largest", "sums", "sums of fewer", "sums of more", "sums of other", "sums of all", "filled")
MASKS = (*STORED, *CHOSEN)
KEEPS = ("store", "fewer", "fewer in all", "largest", "sums", "sums of fewer", "filled")
"""Masks behind which no other row is left, for every size."""
AGAIN = ("wrap", "hinted")
"""Indices that begin again at 0. Behind every mask, they are neighbours where the size is whole tiles."""

BM, BK = 16, 64


@triton.jit
def clamped(
    x, w, y, counts, M, N, K, FEWER, OTHER, SPACE, stride_e,
    INDEX: tl.constexpr, SIZE: tl.constexpr, MASK: tl.constexpr, WIDE: tl.constexpr, STRIDE: tl.constexpr, ONE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y[e, m, n] of `SPACE` elements along n, or y[e, program, m]: x times the rows of w[e]."""
    entry = tl.program_id(1)
    begin = tl.program_id(0) * BN
    rows = begin + tl.arange(0, BN)
    size = N
    at = w + entry * stride_e
    if SIZE == "loaded":
        size = tl.load(counts + entry)
    if SIZE == "least" or SIZE == "least of three" or SIZE == "part":
        rows = tl.arange(0, BN)
        size = N - begin
        at += begin if ONE else begin * K
    if SIZE == "least":
        size = min(BN, size)
    if SIZE == "least of three":
        size = min(min(size, 2 * BN), BN)
    if WIDE:
        rows = rows.to(tl.int64)
    if INDEX == "wrap":
        inside = rows % size
    elif INDEX == "hinted":
        inside = tl.max_contiguous(tl.multiple_of(rows % size, BN), BN)
    elif INDEX == "zero":
        inside = tl.where(rows < size, rows, 0)
    elif INDEX == "last":
        inside = tl.where(rows < size, rows, size - 1)
    elif INDEX == "at most":
        inside = tl.where(rows <= size - 1, rows, 0)
    elif INDEX == "above":
        inside = tl.where(size > rows, rows, 0)
    else:
        inside = tl.minimum(rows, size - 1)
    m = tl.arange(0, BM)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        if WIDE:
            row = tl.where(m < M, m, M - 1)
            left = tl.load(x + row[:, None] * K + first + k[None, :], mask=first + k[None, :] < K, other=0.0)
        else:
            inner = (m[:, None] < M) & (first + k[None, :] < K)
            left = tl.load(x + m[:, None] * K + first + k[None, :], mask=inner, other=0.0)
        if ONE:
            right = tl.load(
                at + inside[None, :] + (first + k)[:, None] * STRIDE, mask=first + k[:, None] < K, other=0.0
            )
        else:
            right = tl.load(at + inside[None, :] * K + (first + k)[:, None], mask=first + k[:, None] < K, other=0.0)
        total = tl.dot(left, right, total)
    kept = rows < size
    if MASK == "fewer" or MASK == "sums of fewer":
        kept = rows < size - 3
    if MASK == "fewer in all":
        kept = rows < min(size, FEWER)
    if MASK == "more" or MASK == "sums of more":
        kept = rows < size + 4
    if MASK == "other" or MASK == "sums of other":
        kept = rows < OTHER
    column = begin + tl.arange(0, BN)
    out = y + (entry * M + m[:, None]) * SPACE + column[None, :]
    line = y + (entry * tl.num_programs(0) + tl.program_id(0)) * M + m
    if MASK == "largest":
        tl.store(line, tl.max(tl.where(kept[None, :], total, -float("inf")), 1), mask=m < M)
    elif MASK == "filled":
        tl.store(out, tl.where(kept[None, :], total, 7.0), mask=m[:, None] < M)
    elif MASK == "sums of all":
        tl.store(line, tl.sum(total, 1), mask=m < M)
    elif MASK == "sums" or MASK == "sums of fewer" or MASK == "sums of more" or MASK == "sums of other":
        tl.store(line, tl.sum(tl.where(kept[None, :], total, 0.0), 1), mask=m < M)
    elif MASK == "none":
        tl.store(out, total, mask=m[:, None] < M)
    else:
        tl.store(out, total, mask=(m[:, None] < M) & kept[None, :])


@triton.jit
def repeated(x, w, y, M, N, K, MASK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y[program, m] or y[m, n]: sums that a loop without a count carries."""
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.arange(0, BM)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    going = True
    while going:
        for first in range(0, K, BK):
            left = tl.load(
                x + m[:, None] * K + first + k[None, :], mask=(m[:, None] < M) & (first + k[None, :] < K), other=0.0
            )
            right = tl.load(w + (rows % N)[None, :] * K + (first + k)[:, None], mask=first + k[:, None] < K, other=0.0)
            total = tl.dot(left, right, total)
        going = tl.load(x) > 1e30
    if MASK == "store":
        tl.store(
            y + m[:, None] * tl.num_programs(0) * BN + rows[None, :], total, mask=(m[:, None] < M) & (rows[None, :] < N)
        )
    elif MASK == "none":
        tl.store(y + m[:, None] * tl.num_programs(0) * BN + rows[None, :], total, mask=m[:, None] < M)
    else:
        tl.store(y + tl.program_id(0) * M + m, tl.sum(total, 1), mask=m < M)


@dataclass(frozen=True)
class Clamped:
    """A call. Rows of w from the size on are infinite or NaN, where the tensor has them.

    wide: whether rows are i64, and those of x are limited too. one: whether neighbouring rows of w are neighbours in memory. spare: rows of w from N on. tile: rows of w in a tile. more:
    programs that begin beyond N.
    """

    index: str
    size: str
    mask: str
    wide: bool = False
    one: bool = False
    entries: int = 2
    m: int = 13
    n: int = 41
    k: int = 72
    spare: int = 0
    seed: int = 0
    tile: int = 32
    more: int = 0

    @classmethod
    def of(cls, seed: int) -> Clamped:
        """A random call."""
        rng = np.random.default_rng(seed)

        def pick(*options: Any) -> Any:
            return options[int(rng.integers(len(options)))]

        made = cls(
            pick(*INDICES), pick(*SIZES), pick(*MASKS), pick(False, True), pick(False, True), pick(1, 2, 3),
            int(rng.integers(1, BM + 1)), int(rng.integers(3, 130)), 16 * int(rng.integers(1, 12)),
            pick(0, 0, int(rng.integers(1, 20))), seed, pick(16, 32, 64),
        )  # fmt: skip
        if made.size != "argument":
            return made
        n = pick(made.n, made.tile * int(rng.integers(1, 4)))
        return replace(made, n=n, more=int(rng.integers(3)))

    @property
    def programs(self) -> int:
        return -(-self.n // self.tile) + self.more

    @property
    def boxed(self) -> bool:
        """Whether Louver describes the tiles of w. Rows that begin again are whole tiles then."""
        again = self.size == "argument" and self.index in AGAIN and self.n % self.tile == 0
        return (self.mask in KEEPS and self.size != "loaded") or again

    @property
    def grid(self) -> tuple[int, int]:
        return self.programs, self.entries

    def sizes(self) -> NDArray[np.int32]:
        """The size of each entry, counted from its first row."""
        rng = np.random.default_rng(self.seed + 1)
        if self.size == "loaded":
            return rng.integers(1, self.n + 1, self.entries).astype(np.int32)
        return np.full(self.entries, self.n, np.int32)

    def call(self) -> tuple[dict[str, Any], NDArray[np.float64]]:
        """The arguments, w dense, and what y holds afterwards. What is not written is NaN."""
        rng = np.random.default_rng(self.seed)
        stored, space = self.n + self.spare, self.programs * self.tile
        x = rng.standard_normal((self.m, self.k), np.float32).astype(np.float16)
        w = louver.prune(rng.standard_normal((self.entries, stored, self.k), np.float32).astype(np.float16), "2:4")
        for each, size in zip(w, self.sizes(), strict=True):
            poison = rng.choice(np.array([np.nan, np.inf, -np.inf], np.float16), each[size:].shape)
            each[size:] = np.where(each[size:] != 0, poison, 0)
        lines = self.mask in CHOSEN and self.mask != "filled"
        shape = (self.entries, self.programs, self.m) if lines else (self.entries, self.m, space)
        numbers = {"FEWER": self.n // 2, "OTHER": self.n + 2}
        known: dict[str, Any] = dict(
            x=x, w=np.ascontiguousarray(w.swapaxes(1, 2)) if self.one else w, y=np.full(shape, np.nan, np.float32),
            counts=self.sizes(), M=self.m, N=self.n, K=self.k, SPACE=space, stride_e=stored * self.k, **numbers,
            INDEX=self.index, SIZE=self.size, MASK=self.mask, WIDE=self.wide, STRIDE=stored, ONE=self.one, BM=BM, BN=self.tile, BK=BK,
        )  # fmt: skip
        return known, self._wanted(x, w, shape, numbers)

    def _wanted(
        self, x: NDArray[Any], w: NDArray[Any], shape: tuple[int, ...], numbers: dict[str, int]
    ) -> NDArray[np.float64]:
        wanted = np.full(shape, np.nan)
        for entry, program in np.ndindex(self.entries, self.programs):
            begin, size = program * self.tile, int(self.sizes()[entry])
            rows = begin + np.arange(self.tile)
            start = begin if self.size in ("least", "least of three", "part") else 0
            rows, size = rows - start, size - start
            if self.size.startswith("least"):
                size = min(size, self.tile)
            inside = np.where(rows < size, rows, 0)
            if self.index in ("wrap", "hinted"):
                inside = rows % size
            elif self.index in ("last", "least"):
                inside = np.minimum(rows, size - 1)
            total = x.astype(np.float64) @ w[entry, start + inside].astype(np.float64).T
            limits = {
                "fewer": size - 3, "sums of fewer": size - 3, "fewer in all": min(size, numbers["FEWER"]),
                "more": size + 4, "sums of more": size + 4, "other": numbers["OTHER"], "sums of other": numbers["OTHER"],
                "none": self.tile + begin, "sums of all": self.tile + begin,
            }  # fmt: skip
            kept = rows < limits.get(self.mask, size)
            if self.mask == "largest":
                wanted[entry, program] = np.where(kept, total, -np.inf).max(1)
            elif self.mask.startswith("sums"):
                wanted[entry, program] = np.where(kept, total, 0).sum(1)
            else:
                out = wanted[entry, :, begin : begin + self.tile]
                out[:] = np.where(kept, total, 7.0 if self.mask == "filled" else out)
        return wanted
