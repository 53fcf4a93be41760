"""Products whose sparse weight comes as a descriptor that the host makes."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def rows_of_experts(x, w, y, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    expert = tl.program_id(1)
    m = tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    total = tl.zeros((TM, TN), tl.float32)
    for first in range(0, K, TK):
        a = tl.load(x + m[:, None] * K + first + k[None, :])
        b = w.load([expert * N + tl.program_id(0) * TN, first])
        total += tl.dot(a, tl.trans(b))
    tl.store(y + (expert * TM + m[:, None]) * N + n[None, :], total)


@triton.jit
def rows_by_pointers(x, w, y, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    m = tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    total = tl.zeros((TM, TN), tl.float32)
    for first in range(0, K, TK):
        a = tl.load(x + m[:, None] * K + first + k[None, :])
        b = tl.load(w + n[:, None] * K + first + k[None, :])
        total += tl.dot(a, tl.trans(b))
    tl.store(y + m[:, None] * N + n[None, :], total)
