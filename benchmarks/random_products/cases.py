"""The sweep's cases: random products of every kind, in groups that share their kernels, biased towards the edges of tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from louver.choose.choose_tiles import multiplies
from louver.formats.dtypes import NARROW_FLOATS, PAIR_TYPES, element_type
from louver.formats.pattern import MAX_GROUP, Pattern, has_kernels, lifted_pattern
from louver.frontend import problem
from louver.ir.product import unit_of
from louver.isa.targets import TARGETS
from random_products.options import Rng, Setting, draw_options, entries, is_rounding

PRODUCTS = {each: outs for each, outs in problem.PRODUCTS.items() if not {*each} & {*PAIR_TYPES, *NARROW_FLOATS}}
"""Outputs by operands, as the library's. PyTorch has no type for pairs of 4-bit integers, and for floats below 8 bits."""

EDGES = (1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1024, 1025)
LARGE = ((4096, 4096, 4096), (8192, 1000, 4096), (1000, 8192, 8192), (14336, 513, 2048), (300, 300, 65536))
"""(M, N, K) of some cases, one in `LARGE_EVERY`."""

LARGE_EVERY = 60
DEEP = 1 / 4
"""The share of cases with 512 to 6,144 rows and a long K, whose tiles are cut into ranges or pairs. Few have many rows: those take the host a second each."""

LARGEST_SIZE = 4096
WIDTHS = ((1, 64), (65, 128), (129, LARGEST_SIZE))
"""Ranges of N, of which a group has one: others have other kernels."""

GROUP = 12
"""Cases of a group."""

GATED_ROWS = 8
"""Rows of which a gated product's halves are multiples."""

LAYOUTS = ("k_major", "n_major", "strided")

LENGTHS = (1, 2, 7, 16, 32, 64, 96, 128, 256)
"""Of vectors."""

GROUPS_OF_VECTORS = (1, 2, 4, 5, 8, 16, 32, 64, 255, 256)
"""M of half of their patterns."""

VECTORS = 1 / 3
"""The share of groups with vectors, unless it is said."""

SHARED = 1 / 4
"""The share of these with V:N:M; the others have N:M@L."""

WINDOWS = ("pruned", "random", "alike", "apart")
"""Which rows of K windows keep: those of the largest norm; any; all windows the same; neighbours as different ones as can be."""


@dataclass(frozen=True, slots=True)
class Group:
    """The properties that decide a kernel. forms: options with their forms. layout: of the dense operand: K or N contiguous, or neither.

    narrowest, widest: the range of N.
    """

    setting: Setting
    layout: str
    narrowest: int
    widest: int
    forms: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Case:
    """One product of a group.

    m, n, k: sizes. batch: of the n tokens, as a leading axis of its own; weights: of the m rows; 0 for none. dense_offset,
    dense_gap, out_offset, out_gap: elements from an aligned address, and unused ones at the end of each row. windows: of
    `WINDOWS`; all but "pruned" go through `louver.from_indices`, in increasing order if `ordered`. exact: small integers, held
    to the bit; else normal data, held to the bound. wide: the operand, "sparse" or "dense", that also has integers which
    tf32 cannot hold, or "". seed: of the data.
    """

    group: Group
    m: int
    n: int
    k: int
    batch: int
    weights: int
    dense_offset: int
    dense_gap: int
    out_offset: int
    out_gap: int
    windows: str
    ordered: bool
    exact: bool
    wide: str
    seed: int


def cases(count: int, seed: int, vectors: float = VECTORS, target: str | None = None) -> Iterator[Case]:
    """`count` cases, group by group, always the same for a seed, the same options and share of vectors.

    target: the operands are only those that its `mma.sp` multiplies; None for all.
    """
    rng = np.random.default_rng(seed)
    operands = [pair for pair in _OPERANDS if target is None or multiplies(TARGETS[target], *pair)]
    for first in range(0, count, GROUP):
        group = _group(rng, first // GROUP, vectors, operands)
        for index in range(first, min(first + GROUP, count)):
            yield _case(rng, group, index)


def _group(rng: Rng, index: int, vectors: float, pairs: Sequence[tuple[str, str]]) -> Group:
    operands = pairs[index % len(pairs)]
    kind = ("linear", "matmul")[index // len(pairs) % 2]
    pattern = lifted_pattern(operands[0])
    if rng.random() < vectors:
        pattern = _vectors(rng)
        # Each way of gathering as often as the others: 8-bit types have many pairs.
        ways = [pairs for pairs in _PAIRS.values() if has_kernels("products", pattern, pairs[0][0])]
        pairs = ways[int(rng.integers(len(ways)))]
        operands = pairs[int(rng.integers(len(pairs)))]
    setting = Setting(kind, *operands, str(rng.choice(PRODUCTS[operands])), pattern)
    layout = str(rng.choice(LAYOUTS, p=[0.45, 0.45, 0.1]))
    narrowest, widest = WIDTHS[int(rng.integers(len(WIDTHS)))]
    return Group(setting, layout, narrowest, widest, draw_options(rng, setting))


_OPERANDS = [("f16", "f16"), ("bf16", "bf16"), ("e4m3", "e4m3"), ("s8", "s8"), ("f16", "f16"), ("bf16", "bf16")] + [
    pair for pair in PRODUCTS if element_type(pair[0]).bits != 16
]
"""Sparse and dense operand of one group after the other: every pair, the common ones more often."""


_PAIRS = {
    bits: [pair for pair in PRODUCTS if element_type(pair[0]).bits == bits]
    for bits in sorted({element_type(a).bits for a, _ in PRODUCTS})
}
"""Sparse and dense operand by bits of an element."""


def _vectors(rng: Rng) -> str:
    """A pattern N:M@L or 2:M@VL."""
    some = round(math.exp(rng.uniform(0, math.log(MAX_GROUP))))
    m = int(rng.choice(GROUPS_OF_VECTORS)) if rng.random() < 0.5 else some
    if rng.random() < SHARED:
        return str(Pattern(2, max(m, 5), int(rng.choice(LENGTHS[1:])), shared=4))
    n = int(rng.integers(1, m + 1)) if rng.random() < 0.7 else int(rng.choice((1, m)))
    return str(Pattern(n, m, int(rng.choice(LENGTHS))))


def _case(rng: Rng, group: Group, index: int) -> Case:
    wide = group.widest == LARGEST_SIZE
    if index % LARGE_EVERY == LARGE_EVERY - 1 and wide:
        m, n, k = LARGE[index // LARGE_EVERY % len(LARGE)]
    else:
        m, n, k = _size(rng), int(np.clip(_size(rng), group.narrowest, group.widest)), _size(rng)
        if rng.random() < DEEP:
            rows = int(2 ** rng.uniform(3, 6.6))
            m, k = (64 * blocks + int(rng.integers(-1, 2)) for blocks in (rows, int(rng.integers(32, 65))))
    if "gated" in group.forms:
        m = -(-m // (2 * GATED_ROWS)) * 2 * GATED_ROWS
    viewed, padded = rng.random() < 0.4, rng.random() < 0.5
    exact = bool(index % 2) and not is_rounding(group.forms)
    # The product of a gated pair's sums would need more bits than f32 has.
    widens = exact and unit_of(group.setting.pattern, group.setting.a) == "fma" and "gated" not in group.forms
    return Case(
        group=group,
        m=m,
        n=n,
        k=k,
        batch=_divisor(rng, n) if group.setting.kind == "linear" and rng.random() < 0.25 else 0,
        weights=entries(rng, m) if "weights" in group.forms else 0,
        dense_offset=int(rng.integers(0, 17)) if viewed else 0,
        dense_gap=int(rng.integers(0, 33)) if viewed else 0,
        out_offset=int(rng.choice([0, 0, 1, 8])) if padded else 0,
        out_gap=int(rng.integers(0, 17)) if padded else 0,
        windows=str(rng.choice(WINDOWS)),
        ordered=bool(rng.random() < 0.5),
        exact=exact,
        wide=str(rng.choice(("", "sparse", "dense"))) if widens else "",
        seed=int(rng.integers(1 << 31)),
    )


def _size(rng: Rng) -> int:
    """Log-uniform, or an edge of a tile, or next to a multiple of 64."""
    how = rng.random()
    if how < 0.3:
        return int(rng.choice(EDGES))
    if how < 0.45:
        return int(64 * rng.integers(1, 33) + rng.integers(-1, 2))
    return round(math.exp(rng.uniform(0, math.log(LARGEST_SIZE))))


def _divisor(rng: Rng, n: int) -> int:
    divisors = [d for d in range(1, min(n, 64) + 1) if n % d == 0]
    return divisors[int(rng.integers(len(divisors)))]
