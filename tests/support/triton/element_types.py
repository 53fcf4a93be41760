"""A kernel whose rows are kept or dropped by an array of one type, moved by numbers of that type, and compared into it."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def kept_and_moved(x, w, keep, move, y, above, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    m = tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    total = tl.zeros((TM, TN), tl.float32)
    for first in range(0, K, TK):
        a = tl.load(x + m[:, None] * K + first + k[None, :])
        b = tl.load(w + n[:, None] * K + first + k[None, :])
        total += tl.dot(a, tl.trans(b))
    moved = tl.load(move + n)
    if moved.dtype == tl.int1:
        moved = moved.to(tl.int32)
    total = tl.where(tl.load(keep + m)[:, None] != 0, total, 0.0) + (moved // 3).to(tl.float32)[None, :]
    at = m[:, None] * N + n[None, :]
    tl.store(y + at, total)
    tl.store(above + at, (total > 1.0).to(above.dtype.element_ty))
