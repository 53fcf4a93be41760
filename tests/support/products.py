"""Operands of 2:4 products with known answers, for every room that runs products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import louver
from louver.choose.ranges import Ranges
from louver.formats.dtypes import NARROW_FLOATS, PAIR_TYPES, element_type
from louver.formats.pattern import lifted_pattern
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import PRODUCTS
from louver.library.numerics import accumulation, compare
from louver.library.reference import exact_product

Array = NDArray[Any]

OF_NUMBERS = {pair: outs for pair, outs in PRODUCTS.items() if not {*pair} & {*PAIR_TYPES, *NARROW_FLOATS}}
"""Outputs by operands that warpgroups multiply: without pairs of 4-bit integers (test_four_bits.py) and narrow floats
(test_narrow_floats.py).
"""

LARGEST = 4
"""Greatest magnitude of integer data: sums of up to 2^20 terms, and what is added on the way, stay below 2^24, exact in f32."""

EDGES = (1, 63, 64, 65, 127, 128, 129, 255, 256, 257)
"""Sizes about the edges of tiles."""


@dataclass(frozen=True)
class Operands:
    """a [M, K]: dense with zeros in a 2:4 pattern; s: the same, compressed. b: [K, N]. bias: [M]."""

    a: Array
    s: SparseTensor
    b: Array
    bias: Array

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]


def paired(tiles: int, steps: int, granule: int = 1, ctas: int = 4) -> Ranges:
    """The last tiles cut for pairs of so many CTAs, where these are enough and K has two ranges of `granule` steps."""
    length, last = -(-steps // (2 * granule)) * granule, tiles % ctas
    if length >= steps or 2 * last > ctas:
        return Ranges(tiles, tiles, 1, steps)
    return Ranges(tiles, tiles - last, 2, length)


def operands(
    rng: np.random.Generator,
    m: int,
    n: int,
    k: int,
    dtype: str = "f16",
    data: Literal["integers", "normal"] = "integers",
    *,
    dense: str | None = None,
    bias: str | None = None,
) -> Operands:
    """Random operands of element type `dtype`, unless `dense` or `bias` name another one for theirs.

    data: small integers, whose products have exact sums, or normally distributed; integer types then take all their values.
    """

    def draw(element: str, *shape: int) -> Array:
        numpy = element_type(element).numpy
        if data == "integers":
            return rng.integers(0 if element == "u8" else -LARGEST, LARGEST + 1, shape).astype(numpy)
        if element_type(element).floating:
            return rng.standard_normal(shape, np.float32).astype(numpy)
        limits = np.iinfo(numpy)
        return rng.integers(limits.min, limits.max, shape, dtype=numpy, endpoint=True)

    pattern = lifted_pattern(dtype)
    a = louver.prune(draw(dtype, m, k), pattern)
    return Operands(a, louver.compress(a, pattern), draw(dense or dtype, k, n), draw(bias or dtype, m))


def overflowing(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Array, Array]:
    """bf16 weight [m, k] and tokens [n, k]: in half of the rows f32 sums of products pass the maximum and come back below it."""
    bf16, half = element_type("bf16").numpy, k // 8 * 4
    weight, tokens = rng.uniform(1, 2, (m, k)), rng.uniform(1, 2, (n, k)) * 2.0**62
    weight[::2] *= 2.0**62
    # Later terms take most of it back.
    weight[:, half : 2 * half], tokens[:, half : 2 * half] = -63 / 64 * weight[:, :half], tokens[:, :half]
    weight[:, 2 * half :] = 0
    kept = np.arange(k) % 4 < 2
    return np.where(kept, weight, 0).astype(bf16), tokens.astype(bf16)


def assert_exact(y: Array, given: Operands, *, bias: bool = False) -> None:
    """`y` [M, N] is the product of integer operands, rounded once to its type: equal in every element."""
    reference, _ = exact_product(given.a, given.b, given.bias if bias else None)
    np.testing.assert_array_equal(y.astype(np.float64), reference.astype(y.dtype).astype(np.float64))


def assert_close(y: Array, given: Operands, *, bias: bool = False, accumulate: str = "auto") -> None:
    """`y` [M, N] keeps the bound of `louver.library.numerics` in every element. accumulate: the mode that was asked for."""
    reference, magnitude = exact_product(given.a, given.b, given.bias if bias else None)
    how = accumulation(element_type(given.a.dtype).name, accumulate)
    agreement = compare(y, reference, magnitude, given.sizes[2], element_type(y.dtype).name, how)
    assert agreement.ok, agreement
