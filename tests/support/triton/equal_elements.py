"""8-bit products with a scale for each block of the weight, which a tile of its columns has in common."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def shared_scales(
    x, w, y, x_scale, w_scale, M, N, K, GROUP: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, MASKED: tl.constexpr, MOVED: tl.constexpr,
):  # fmt: skip
    """x [M, K] · w [N, K] with scales [M, steps] and [N / GROUP, steps]. MOVED: the loop moves the scales' pointers."""
    m, n = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN)
    rows, columns, k = m % M, n % N, tl.arange(0, TK)
    steps = tl.cdiv(K, TK)
    x_at = x + rows[:, None] * K + k[None, :]
    w_at = w + columns[None, :] * K + k[:, None]
    x_scales = x_scale + rows * steps
    w_scales = w_scale + columns // GROUP * steps
    total = tl.zeros((TM, TN), tl.float32)
    for step in range(steps):
        a = tl.load(x_at, mask=k[None, :] < K - step * TK, other=0.0)
        b = tl.load(w_at, mask=k[:, None] < K - step * TK, other=0.0)
        if MOVED:
            one, two = tl.load(x_scales), tl.load(w_scales)
        else:
            one, two = tl.load(x_scales + step), tl.load(w_scales + step)
        total += tl.dot(a, b) * one[:, None] * two[None, :]
        x_at += TK
        w_at += TK
        if MOVED:
            x_scales += 1
            w_scales += 1
    if MASKED:
        tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
    else:
        tl.store(y + rows[:, None] * N + columns[None, :], total)


@triton.jit
def block_scales(
    x, w, y, x_scale, w_scale, M, N, K, group_n, group_k,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """x [M, K] · w [N, K] with scales [M, K / group_k] and [N / group_n, K / group_k]; the groups' sizes are arguments."""
    m, n = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN)
    rows, columns, k = m % M, n % N, tl.arange(0, TK)
    groups = tl.cdiv(K, group_k)
    x_at = x + rows[:, None] * K + k[None, :]
    w_at = w + columns[None, :] * K + k[:, None]
    x_scales = x_scale + rows * groups
    w_scales = w_scale + columns // group_n * groups
    total = tl.zeros((TM, TN), tl.float32)
    for step in range(tl.cdiv(K, TK)):
        a = tl.load(x_at, mask=k[None, :] < K - step * TK, other=0.0)
        b = tl.load(w_at, mask=k[:, None] < K - step * TK, other=0.0)
        group = step * TK // group_k
        total += tl.dot(a, b) * tl.load(x_scales + group)[:, None] * tl.load(w_scales + group)[None, :]
        x_at += TK
        w_at += TK
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
