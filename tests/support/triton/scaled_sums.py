"""Products whose sums are scaled by numbers that are computed of loaded numbers and arguments, and have zero points."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def both(total, a, b, s, rows, columns):
    return a * b * total


@triton.jit
def product_of_both(total, a, b, s, rows, columns):
    return total * (a * b)


@triton.jit
def in_turn(total, a, b, s, rows, columns):
    return total.to(tl.float32) * a * b


@triton.jit
def reciprocal(total, a, b, s, rows, columns):
    return total * (1.0 / a)


@triton.jit
def quotient(total, a, b, s, rows, columns):
    return total / a


@triton.jit
def argument(total, a, b, s, rows, columns):
    return total * (a / (b + s) - 2.0 * s)


@triton.jit
def narrow(total, a, b, s, rows, columns):
    return total * (a.to(tl.bfloat16) * b.to(tl.bfloat16)).to(tl.float32)


@triton.jit
def root(total, a, b, s, rows, columns):
    return total * tl.sqrt(tl.maximum(a * b, 0.5))


@triton.jit
def chosen(total, a, b, s, rows, columns):
    return total * tl.where(a > 8 * b, b, a)


@triton.jit
def of_row(total, a, b, s, rows, columns):
    return total * (rows * a)[:, None] * b


@triton.jit
def zero_points(total, a, b, s, rows, columns):
    return (total - rows[:, None] * columns[None, :]) * a


@triton.jit
def fixed_zero_point(total, a, b, s, rows, columns):
    return (total - (3 * columns)[None, :] + 5) * b


@triton.jit
def scaled_zero_points(total, a, b, s, rows, columns):
    return total * (a * b) - (rows * a)[:, None] * (columns.to(tl.float32) * s)[None, :]


@triton.jit
def scaled_sums(
    x, w, y, a_scale, b_scale, of_rows, of_columns, s, M, N, K,
    SCALE: tl.constexpr, SUM: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """y [M, N] = SCALE of (x [M, K] · w [N, K], summed in SUM), and a number of each column."""
    m, n = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    a, b = tl.load(a_scale), tl.load(b_scale)
    rows, columns = tl.load(of_rows + m, mask=m < M, other=0), tl.load(of_columns + n, mask=n < N, other=0)
    total = tl.zeros((TM, TN), dtype=SUM)
    for first in range(0, K, TK):
        left = tl.load(
            x + m[:, None] * K + (first + k)[None, :], mask=(m < M)[:, None] & (first + k < K)[None, :], other=0.0
        )
        right = tl.load(
            w + n[None, :] * K + (first + k)[:, None], mask=(first + k < K)[:, None] & (n < N)[None, :], other=0.0
        )
        total = tl.dot(left, right, total, out_dtype=SUM)
    out = SCALE(total, a, b, s, rows, columns) + columns[None, :]
    tl.store(y + m[:, None] * N + n[None, :], out.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])
