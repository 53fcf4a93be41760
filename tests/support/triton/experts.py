"""Kernels that move the pointer of a sparse batch to one of its matrices."""

import triton
import triton.language as tl


@triton.jit
def by_pointers(d, a, b, M, K, stride):
    entry = tl.program_id(2)
    m = tl.program_id(0) * 32 + tl.arange(0, 32)
    n = tl.arange(0, 16)
    total = tl.zeros((32, 16), dtype=tl.float32)
    of_entry = a + entry * M * stride
    for first in range(0, K, 64):
        k = first + tl.arange(0, 64)
        inside = (m[:, None] < M) & (k[None, :] < K)
        at = of_entry + m[:, None] * stride + k[None, :]
        left = tl.load(at, mask=inside, other=0.0)
        total += tl.dot(left, tl.load(b + k[:, None] * 16 + n[None, :], mask=k[:, None] < K, other=0.0))
    tl.store(d + (entry * M + m[:, None]) * 16 + n[None, :], total, mask=m[:, None] < M)


@triton.jit
def unmasked(d, a, b, M, K, stride):
    """A whole K at once, of a matrix that begins at a number of elements."""
    entry = tl.program_id(2)
    m = tl.arange(0, 32)
    n = tl.arange(0, 16)
    k = tl.arange(0, 128)
    right = tl.load(b + k[:, None] * 16 + n[None, :])
    of_entry = a + entry * 4096
    left = tl.load(of_entry + m[:, None] * stride + k[None, :])
    tl.store(d + entry * 512 + m[:, None] * 16 + n[None, :], tl.dot(left, right))
