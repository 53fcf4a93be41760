"""Kernels that take 32 columns of K in a step, in ways that people write such a loop."""

import triton
import triton.language as tl


@triton.jit
def narrow_steps(
    x, w, y, rows, M, N, K, FORM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """x [M, K] times w, [N, K], or [K, N] for `columns of w`. Rows of x are gathered for `gathered`."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    read = m
    if FORM == "gathered":
        read = tl.load(rows + m, mask=m < M, other=0)
    own, by = 1, K
    if FORM == "columns of w":
        own, by = N, 1
    xs = x + read[:, None] * K + k[None, :]
    ws = w + n[None, :] * by + k[:, None] * own
    total = tl.zeros((BM, BN), dtype=tl.float32)
    inside_m, inside_n = m[:, None] < M, n[None, :] < N
    if FORM == "elements":
        for first in range(0, K, BK):
            at = first + k
            left = tl.load(x + m[:, None] * K + at[None, :], mask=inside_m & (at[None, :] < K), other=0.0)
            right = tl.load(w + n[:, None] * K + at[None, :], mask=(n[:, None] < N) & (at[None, :] < K), other=0.0)
            total = tl.dot(left, right.T, total)
    elif FORM == "left counts down":
        left_over = K
        for _ in range(tl.cdiv(K, BK)):
            left = tl.load(xs, mask=inside_m & (k[None, :] < left_over), other=0.0)
            right = tl.load(ws, mask=inside_n & (k[:, None] < left_over), other=0.0)
            total += tl.dot(left, right)
            xs += BK
            ws += BK
            left_over -= BK
    elif FORM == "eight bits":
        whole = tl.zeros((BM, BN), dtype=tl.int32)
        for first in range(tl.cdiv(K, BK)):
            left = tl.load(xs, mask=inside_m & (k[None, :] < K - first * BK), other=0)
            right = tl.load(ws, mask=inside_n & (k[:, None] < K - first * BK), other=0)
            whole += tl.dot(left, right)
            xs += BK
            ws += BK
        total += whole
    elif FORM == "converted":
        for first in range(tl.cdiv(K, BK)):
            left = tl.load(xs, mask=inside_m & (k[None, :] < K - first * BK), other=0.0)
            right = tl.load(ws, mask=inside_n & (k[:, None] < K - first * BK), other=0)
            total += tl.dot(left, right.to(left.dtype))
            xs += BK
            ws += BK
    elif FORM == "one mask":
        for first in range(tl.cdiv(K, BK)):
            left = tl.load(xs, mask=inside_m, other=0.0)
            right = tl.load(ws, mask=inside_n & (k[:, None] < K - first * BK), other=0.0)
            total += tl.dot(left, right)
            xs += BK
            ws += BK
    elif FORM == "no mask of K":
        for _ in range(tl.cdiv(K, BK)):
            total += tl.dot(tl.load(xs, mask=inside_m, other=0.0), tl.load(ws, mask=inside_n, other=0.0))
            xs += BK
            ws += BK
    elif FORM == "every other step":
        for first in range(0, K, 2 * BK):
            left = tl.load(xs, mask=inside_m & (k[None, :] < K - first), other=0.0)
            right = tl.load(ws, mask=inside_n & (k[:, None] < K - first), other=0.0)
            total += tl.dot(left, right)
            xs += 2 * BK
            ws += 2 * BK
    elif FORM == "halved sums":
        for first in range(tl.cdiv(K, BK)):
            left = tl.load(xs, mask=inside_m & (k[None, :] < K - first * BK), other=0.0)
            right = tl.load(ws, mask=inside_n & (k[:, None] < K - first * BK), other=0.0)
            total = total * 0.5 + tl.dot(left, right)
            xs += BK
            ws += BK
    elif FORM == "scaled steps":
        for first in range(tl.cdiv(K, BK)):
            left = tl.load(xs, mask=inside_m & (k[None, :] < K - first * BK), other=0.0)
            right = tl.load(ws, mask=inside_n & (k[:, None] < K - first * BK), other=0.0)
            total += tl.dot((left * (1 + first % 2)).to(tl.float16), right)
            xs += BK
            ws += BK
    else:
        for first in range(tl.cdiv(K, BK)):
            left = tl.load(xs, mask=inside_m & (k[None, :] < K - first * BK), other=0.0)
            right = tl.load(ws, mask=inside_n & (k[:, None] < K - first * BK), other=0.0)
            total += tl.dot(left, right)
            xs += BK
            ws += BK * own
    tl.store(y + m[:, None] * N + n[None, :], total, mask=inside_m & inside_n)
