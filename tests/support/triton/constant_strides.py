"""Kernels whose strides are numbers, one of which divides another index's numbers."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def chosen_experts(
    x, w, y, experts, M, SE, K: tl.constexpr, N: tl.constexpr, MASKED: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """Tiles of rows of x, each times the expert's w [K, N]: its columns begin at program % TILES * TN."""
    program = tl.program_id(0)
    tiles = (N + TN - 1) // TN
    m = program // tiles * TM + tl.arange(0, TM)
    n = program % tiles * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    expert = tl.load(experts + program // tiles)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + expert * SE + k[:, None] * N + n[None, :]
    total = tl.zeros((TM, TN), tl.float32)
    for _ in range((K + TK - 1) // TK):
        a = tl.load(x_at, mask=(m < M)[:, None], other=0.0)
        b = tl.load(w_at, mask=(n < N)[None, :], other=0.0) if MASKED else tl.load(w_at)
        total += tl.dot(a, b)
        x_at += TK
        w_at += TK * N
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
