"""What `louver.jit` refuses is told in full, in the kernel's own lines."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver
from louver.ir.refusal import UnsupportedKernelError

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl


@triton.jit
def two_obstacles(y, w, v, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Columns of w by squares of a range, columns of v by halves of one."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    right = tl.load(x + k[:, None] * N + n[None, :])
    inside = (m[:, None] < M) & (k[None, :] < K)
    one = tl.load(w + m[:, None] * K + (k * k)[None, :], mask=inside, other=0.0)
    two = tl.load(v + m[:, None] * K + (k // 2)[None, :], mask=inside, other=0.0)
    tl.store(y + m[:, None] * N + n[None, :], tl.dot(one, right) + tl.dot(two, right))


def test_every_sparse_load_that_is_no_tile_is_told() -> None:
    """Integers, since other elements could be read at any address."""
    s = louver.compress(louver.prune(np.ones((64, 64), np.int8), "2:4"), "2:4")
    x, y = np.ones((64, 32), np.int8), np.zeros((64, 32), np.int32)
    with pytest.raises(UnsupportedKernelError) as caught:
        louver.jit(two_obstacles).emulate[(1,)](y, s, s, x, 64, 32, 64, BM=64, BN=32, BK=64)
    obstacle = str(caught.value)
    assert (
        obstacle.startswith("pieces of integers at a computed address must be proven")
        and "test_refusals.py:26:" in obstacle
    )
    described, product = caught.value.__notes__
    first, second = described.splitlines()
    assert first.startswith("Its tiles are not described because: offsets ") and "test_refusals.py:26:" in first
    assert second.startswith("Also: offsets are ranges and scalars") and "test_refusals.py:27:" in second
    assert "give rows and columns a range each, as in rows[:, None] * stride + columns[None, :]" in second
    assert product.startswith("As a warpgroup product it is refused too: ")
