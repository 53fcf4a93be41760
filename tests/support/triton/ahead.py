"""Products whose loops make pointers or offsets for later steps."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def pointers_ahead(
    x, w, y, M, N, K, stride_k, AHEAD: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """Each step makes the pointers of the step that is AHEAD of it. The loop carries those in between."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    x_first = x + (rows % M)[:, None] * K + k[None, :] * stride_k
    w_first = w + (columns % N)[None, :] * K + k[:, None] * stride_k
    x_at, w_at = x_first, w_first
    x_next, w_next = x_first + TK * stride_k, w_first + TK * stride_k
    x_last, w_last = x_first + 2 * TK * stride_k, w_first + 2 * TK * stride_k
    total = tl.zeros((TM, TN), tl.float32)
    for step in range(tl.cdiv(K, TK)):
        left = K - step * TK
        total += tl.dot(
            tl.load(x_at, mask=k[None, :] < left, other=0.0), tl.load(w_at, mask=k[:, None] < left, other=0.0)
        )
        x_new = x_first + (step + AHEAD) * TK * stride_k
        w_new = w_first + (step + AHEAD) * TK * stride_k
        if AHEAD == 1:
            x_at, w_at = x_new, w_new
        elif AHEAD == 2:
            x_at, w_at = x_next, w_next
            x_next, w_next = x_new, w_new
        else:
            x_at, w_at = x_next, w_next
            x_next, w_next = x_last, w_last
            x_last, w_last = x_new, w_new
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(y + rows[:, None] * N + columns[None, :], total, mask=inside)


@triton.jit
def offsets_ahead(x, w, y, M, N, K, PARTS, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """Each part begins at its own step, and each step makes the columns and masks of the next one."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    part = tl.program_id(2)
    steps = tl.cdiv(tl.cdiv(K, TK), PARTS)
    first = part * steps
    k = first * TK + tl.arange(0, TK)
    inside_k = k < K
    total = tl.zeros((TM, TN), tl.float32)
    for step in range(first, first + steps):
        total += tl.dot(
            tl.load(x + (rows % M)[:, None] * K + k[None, :], mask=inside_k[None, :], other=0.0),
            tl.load(w + (columns % N)[None, :] * K + k[:, None], mask=inside_k[:, None], other=0.0),
        )
        k = (step + 1) * TK + tl.arange(0, TK)
        inside_k = k < K
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(y + part * M * N + rows[:, None] * N + columns[None, :], total, mask=inside)
