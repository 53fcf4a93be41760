"""Products whose operands lie in parts: the step along K, and the column of the result, say which arrays are read."""

# The kernel's arguments and names are those of a user.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def parts_of_k(
    x1, x2, x3, w11, w12, w21, w22, w31, w32, y, M, N1, N2, K1, K2, K3, stride_x1, stride_x2, stride_x3, stride_w1, stride_w2, stride_w3,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """y [M, N1 + N2] = x1 by w11 | w12, plus x2 by w21 | w22, plus x3 by w31 | w32, where SPLIT programs take steps by turns."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    block, blocks = tl.program_id(1), tl.cdiv(N1, BN)
    w1 = tl.where(block < blocks, w11, w12)
    w2 = tl.where(block < blocks, w21, w22)
    w3 = tl.where(block < blocks, w31, w32)
    N = tl.where(block < blocks, N1, N2)
    first = tl.where(block < blocks, 0, N1)
    n = tl.where(block < blocks, block, block - blocks) * BN + tl.arange(0, BN)
    steps1, steps2, steps3 = tl.cdiv(K1, BK), tl.cdiv(K2, BK), tl.cdiv(K3, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.program_id(2), steps1 + steps2 + steps3, SPLIT):
        x = tl.where(step < steps1, x1, tl.where(step < steps1 + steps2, x2, x3))
        w = tl.where(step < steps1, w1, tl.where(step < steps1 + steps2, w2, w3))
        K = tl.where(step < steps1, K1, tl.where(step < steps1 + steps2, K2, K3))
        stride_x = tl.where(step < steps1, stride_x1, tl.where(step < steps1 + steps2, stride_x2, stride_x3))
        stride_w = tl.where(step < steps1, stride_w1, tl.where(step < steps1 + steps2, stride_w2, stride_w3))
        own = tl.where(step < steps1, step, tl.where(step < steps1 + steps2, step - steps1, step - steps1 - steps2))
        k = own * BK + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * stride_x + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        two = tl.load(w + n[None, :] * stride_w + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        total += tl.dot(one, two)
    to = y + m[:, None] * (N1 + N2) + first + n[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    if SPLIT == 1:
        tl.store(to, total, mask=inside)
    else:
        tl.atomic_add(to, total, mask=inside)
