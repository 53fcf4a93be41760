"""A call of `kept_and_moved` with arrays of one type, and what it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver

M, N, K = 64, 128, 128
TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


class TypedCall:
    """Arrays of the type `name`, its numbers over the whole range."""

    def __init__(self, rng: np.random.Generator, name: str) -> None:
        dtype = np.dtype(name)
        self.w = louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4")
        self.x = rng.standard_normal((M, K)).astype(np.float16)
        self.keep, self.move = _numbers(rng, dtype, M), _numbers(rng, dtype, N)
        self.keep[::3] = 0
        self.y = np.full((M, N), np.nan, np.float32)
        self.above = _numbers(rng, dtype, M * N).reshape(M, N)

    @property
    def arguments(self) -> list[Any]:
        """The arguments before the sizes, w compressed."""
        return [self.x, louver.compress(self.w, "2:4"), self.keep, self.move, self.y, self.above]

    def check(self, y: NDArray[Any], above: NDArray[Any]) -> None:
        moved = [int(np.trunc(int(each) / 3)) if abs(int(each)) < 2**50 else int(each) // 3 for each in self.move]
        product = self.x.astype(np.float64) @ self.w.T.astype(np.float64)
        expected = np.where(self.keep[:, None] != 0, product, 0) + np.array(moved, float)
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=0.02)
        np.testing.assert_array_equal(above.astype(bool), y > 1)
        assert set(np.unique(above.astype(int))) <= {0, 1}


def _numbers(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    drawn = rng.integers(0, 256, count * dtype.itemsize, np.uint8)
    return drawn < 128 if dtype.kind == "b" else drawn.view(dtype)
