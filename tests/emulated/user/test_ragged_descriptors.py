"""Ragged descriptors (triton.tools.ragged_tma): rows of groups one after another, whose 64-bit addresses wrap."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

ragged_tma = pytest.importorskip("triton.tools.ragged_tma")
load_ragged, store_ragged = ragged_tma.load_ragged, ragged_tma.store_ragged


@triton.jit
def groups(x, w, y, starts, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y = x w^T for each group of rows with its own w."""
    row, group, column = tl.program_id(0) * BM, tl.program_id(1), tl.program_id(2) * BN
    start = tl.load(starts + group)
    size = tl.load(starts + group + 1) - start
    if row < size:
        n, k = column + tl.arange(0, BN), tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for first in range(0, K, BK):
            a = load_ragged(x, start, size, [row, first])
            total = tl.dot(a, tl.load(w + (group * N + n)[None, :] * K + (first + k)[:, None]), total)
        store_ragged(y, start, size, [row, column], total.to(tl.float16))


def ragged(array: np.ndarray[Any, Any], block: tuple[int, int]) -> louver.TensorDescriptor:
    """What `create_ragged_descriptor` makes of a matrix of rows without gaps."""
    pitch = array.shape[1]
    sizes, strides = (0x7FFF0000, 0x7FFF0000, 1 << 30, pitch), (2**34 - pitch, pitch, pitch, 1)
    return louver.TensorDescriptor(array, sizes, strides, (1, 1, *block))


def test_groups_of_rows(rng: np.random.Generator) -> None:
    starts, n, k = np.cumsum([0, 70, 0, 33, 64]).astype(np.int32), 128, 256
    x = rng.integers(-2, 3, (starts[-1], k)).astype(np.float16)
    w = louver.prune(rng.integers(-2, 3, (4 * n, k)).astype(np.float16), "2:4")
    y = np.full((starts[-1], n), np.nan, np.float16)
    given = ragged(x, (64, 64)), louver.compress(w, "2:4"), ragged(y, (64, 64)), starts, n, k, 64, 64, 64
    louver.jit(groups).emulate[(2, 4, 2)](*given)
    for group, (first, last) in enumerate(zip(starts, starts[1:], strict=False)):
        part = w[group * n :][:n].astype(np.float64)
        np.testing.assert_array_equal(y[first:last], x[first:last].astype(np.float64) @ part.T)
