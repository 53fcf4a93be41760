"""Kernels whose loops multiply only in some of their steps."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def by_mask(x, w, y, taken, M, N, K, steps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OTHER: tl.constexpr):
    """x times w, of which each row of blocks has the steps that a matrix of numbers says. OTHER: those that it does not."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_at, b_at = x + m[:, None] * K + k[None, :], w + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(steps):
        if OTHER:
            if tl.load(taken + tl.program_id(0) * steps + step) != 0:
                total = total
            else:
                a = tl.load(a_at, mask=m[:, None] < M, other=0.0)
                total += tl.dot(a, tl.load(b_at, mask=n[None, :] < N, other=0.0))
        else:
            if tl.load(taken + tl.program_id(0) * steps + step) != 0:
                a = tl.load(a_at, mask=m[:, None] < M, other=0.0)
                total += tl.dot(a, tl.load(b_at, mask=n[None, :] < N, other=0.0))
        a_at += BK
        b_at += BK * N
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def by_mask_in_turn(x, w, y, taken, N, K, steps, tiles, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """As `by_mask`, of several rows of blocks by each program. Sums begin anew behind steps that say 2."""
    n, k = tl.arange(0, BN), tl.arange(0, BK)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m = tile * BM + tl.arange(0, BM)
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            kind = tl.load(taken + tile * steps + step)
            if kind != 0:
                a = tl.load(x + m[:, None] * K + (step * BK + k)[None, :])
                b = tl.load(w + (step * BK + k)[:, None] * N + n[None, :])
                total = tl.dot(a, b, total)
                if kind == 2:
                    total *= 0
        tl.store(y + m[:, None] * N + n[None, :], total)


@triton.jit
def in_parts(x, w, y, taken, N, K, parts, steps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """x times w, in several parts of K, of which some steps are taken."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for part in range(parts):
        for step in range(steps):
            if tl.load(taken + part * steps + step) != 0:
                first = (part * steps + step) * BK
                a = tl.load(x + m[:, None] * K + (first + k)[None, :])
                total += tl.dot(a, tl.load(w + (first + k)[:, None] * N + n[None, :]))
    tl.store(y + m[:, None] * N + n[None, :], total)


@triton.jit
def either(x, v, w, y, which, N, K, steps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """x times the rows of v or of w, as a list of numbers says; those of w are of every second step, from the one before."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(steps):
        a = tl.load(x + m[:, None] * K + (step * BK + k)[None, :])
        if tl.load(which + step) == 0:
            total += tl.dot(a, tl.load(v + (step * BK + k)[:, None] * N + n[None, :]))
        else:
            total -= tl.dot(a, tl.load(w + (step // 2 * BK + k)[:, None] * N + n[None, :]))
    tl.store(y + m[:, None] * N + n[None, :], total)


@triton.jit
def by_number(x, w, y, lengths, M, N, K, steps, scale, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """x times w [N, K], of each row of blocks every second step up to a length; no mask holds what is behind it.

    Steps from the fourth on are multiplied with a scale.
    """
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    length = tl.load(lengths + tl.program_id(0))
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(steps):
        if step * BK < length:
            k = step * BK + tl.arange(0, BK)
            if step % 2 == 0:
                a = tl.load(x + m[:, None] * K + k[None, :])
                b = tl.load(w + n[:, None] * K + k[None, :])
                if step >= 4:
                    a = (a * scale).to(a.dtype)
                total += tl.dot(a, b.T)
    tl.store(y + m[:, None] * N + n[None, :], total)


@triton.jit
def as_it_writes(x, w, y, taken, N, K, steps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """x times w, of which each step that is taken says whether the next one is."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(steps):
        here = tl.load(taken + step)
        if here != 0:
            a = tl.load(x + m[:, None] * K + (step * BK + k)[None, :])
            total += tl.dot(a, tl.load(w + (step * BK + k)[:, None] * N + n[None, :]))
        tl.store(taken + step + 1, (here + step) % 2)
    tl.store(y + m[:, None] * N + n[None, :], total)


@triton.jit
def attention(q, k, v, y, lengths, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Attention of rows to the columns before them, of blocks up to a length; v is [D, S]."""
    m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    length = tl.load(lengths + tl.program_id(0))
    rows = tl.load(q + m[:, None] * D + d[None, :])
    most, norm = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for first in range(0, S, BN):
        if (first < (tl.program_id(0) + 1) * BM) & (first < length):
            n = first + tl.arange(0, BN)
            scores = tl.dot(rows, tl.load(k + n[None, :] * D + d[:, None])) * scale
            scores = tl.where((n[None, :] <= m[:, None]) & (n < length)[None, :], scores, -1e30)
            higher = tl.maximum(most, tl.max(scores, 1))
            weights, less = tl.exp(scores - higher[:, None]), tl.exp(most - higher)
            norm = norm * less + tl.sum(weights, 1)
            values = tl.load(v + d[:, None] * S + n[None, :])
            total = tl.dot(weights.to(values.dtype), values.T, total * less[:, None])
            most = higher
    tl.store(y + m[:, None] * D + d[None, :], total / norm[:, None])
