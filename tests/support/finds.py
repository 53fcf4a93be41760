"""Calls of kernels with `find`: a product y [M, N] = x [M, K] · w, whose w [K, N] is stored either way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.user.finding import FindingKernel
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from louver.user.source import TritonSource

Array = NDArray[Any]

TILE = {"BM": 64, "BN": 128, "BK": 64}


class LouversOwn(TritonSource):
    """A kernel whose dense calls Triton cannot launch, as those of arrays that are not PyTorch's."""

    @property
    def native(self) -> Any:
        return None


def finding(kernel: Any, find: Sequence[str] = ("w",), frozen: Sequence[str] = ()) -> FindingKernel:
    """The kernel, with Louver's own dense kernel."""
    return FindingKernel(JitKernel(LouversOwn(kernel), Hints()), find, frozen)


@dataclass(frozen=True)
class Matrices:
    """The arrays of a call on the host. stored: as the weight lies in memory, [N, K] or [K, N]; w: as [K, N]."""

    x: Array
    stored: Array
    w: Array

    @classmethod
    def of(
        cls,
        rng: np.random.Generator,
        m: int = 70,
        n: int = 136,
        k: int = 128,
        *,
        across: bool = False,
        dtype: Any = np.float16,
        holds: bool = True,
    ) -> Matrices:
        """across: stored as [K, N]. holds: whether the weight holds its pattern along K."""
        x, rows = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (n, k)))
        if holds:
            rows = louver.prune(rows, "1:2" if dtype is np.float32 else "2:4")
        stored = np.ascontiguousarray(rows.T) if across else rows
        return cls(x, stored, stored if across else stored.T)

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.x.shape[0] // TILE["BM"]), -(-self.w.shape[1] // TILE["BN"])

    def output(self) -> Array:
        return np.full((self.x.shape[0], self.w.shape[1]), np.nan, self.x.dtype)

    def assert_right(self, y: Any, w: Any = None) -> None:
        """Whether y is the product with the present contents of the weight."""
        w = self.w if w is None else w
        expected = self.x.astype(np.float64) @ np.asarray(w, np.float64)
        size = np.abs(self.x).astype(np.float64) @ np.abs(np.asarray(w, np.float64))
        bound = 2**-10 * np.abs(expected) + 2**-18 * size + 1e-6
        assert (np.abs(np.asarray(y, np.float64) - expected) <= bound).all()


def arguments(x: Any, w: Any, y: Any) -> tuple[Any, ...]:
    """The arguments of `matmul` for arrays of NumPy or PyTorch, by their own strides."""

    def steps(array: Any) -> list[int]:
        if isinstance(array, np.ndarray):
            return [stride // array.itemsize for stride in array.strides]
        return list(array.stride())

    (m, k), n = x.shape, w.shape[1]
    return (x, w, y, m, n, k, *steps(x), *steps(w), steps(y)[0])


def call(run: Any, grid: Any, x: Any, w: Any, y: Any) -> Any:
    """A call of the kernel, of its `emulate` or its `prepare`."""
    return run[grid](*arguments(x, w, y), **TILE)
