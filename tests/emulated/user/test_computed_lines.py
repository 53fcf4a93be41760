"""Weights [K, N] that are sparse along K, at computed addresses: pieces of whole lines, exact divisions, and violations."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

Array = NDArray[Any]

M = 16
TILE = {"TM": 16, "TN": 16, "TK": 64}


@triton.jit
def lines(
    y, x, w, columns, entries, begin, N, K, stride_e, stride_k,
    SUM: tl.constexpr, CARRIED: tl.constexpr, MASKED: tl.constexpr, BEGUN: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """y [E, TM, N] = x [TM, K] by columns from a list, of matrices from a list, of w [E, K, N]. begin: added to each address."""
    e, m = tl.program_id(1), tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    column = tl.load(columns + n, mask=n < N, other=0)
    base = w + tl.load(entries + e) * stride_e
    if BEGUN:
        base += begin
    total = tl.zeros((TM, TN), SUM)
    at = base + tl.arange(0, TK)[:, None] * stride_k + column[None, :]
    for start in range(0, K, TK):
        k = start + tl.arange(0, TK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
        pointers = at if CARRIED else base + k[:, None] * stride_k + column[None, :]
        if MASKED:
            two = tl.load(pointers, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        else:
            two = tl.load(pointers)
        total = tl.dot(one, two, total, out_dtype=SUM)
        at += TK * stride_k
    tl.store(y + e * TM * N + m[:, None] * N + n[None, :], total, mask=(n < N)[None, :])


KERNEL = louver.jit(lines)
"""Kept, because it keeps what it has compiled."""


class Case:
    """Operands of `lines`, and what it gives."""

    def __init__(self, rng: np.random.Generator, k: int, n: int, held: int = 1, element: Any = np.float16) -> None:
        whole = element == np.int8
        draw: Any = (lambda *s: rng.integers(-50, 50, s)) if whole else (lambda *s: rng.standard_normal(s))
        pattern = "1:2" if element == np.float32 else "2:4"
        stored = louver.prune(draw(held, n, k).astype(element), pattern)
        self.w = np.ascontiguousarray(np.swapaxes(stored, 1, 2))
        self.x = draw(M, k).astype(element)
        self.pattern, self.k, self.n, self.begin = pattern, k, n, 0
        self.columns = rng.permutation(n).astype(np.int32)
        self.entries = rng.integers(0, held, 2 if held > 1 else 1).astype(np.int32)
        self.y = np.full((len(self.entries), M, n), -77 if whole else np.nan, np.int32 if whole else np.float32)
        self.flags = {"CARRIED": False, "MASKED": True, "BEGUN": False}

    @property
    def arguments(self) -> tuple[Any, ...]:
        w = self.w if len(self.w) > 1 else self.w[0]
        s = louver.compress(w, self.pattern, axis=-2)
        return self.y, self.x, s, self.columns, self.entries, self.begin, self.n, self.k, self.k * self.n, self.n

    @property
    def keywords(self) -> dict[str, Any]:
        return {"SUM": tl.int32 if self.y.dtype == np.int32 else tl.float32, **self.flags, **TILE}

    def run(self) -> None:
        KERNEL.emulate[(-(-self.n // TILE["TN"]), len(self.entries))](*self.arguments, **self.keywords)

    def told(self) -> str:
        """What `explain` says of w."""
        return str(KERNEL.explain(*self.arguments, **self.keywords))

    @property
    def right(self) -> Array:
        """In float64. Columns beyond the last one are those of later rows, as in memory."""
        flat = self.w.astype(np.float64).ravel()
        k = np.arange(self.k)[:, None] * self.n + np.clip(self.columns, 0, None)[None, :]
        at = self.entries[:, None, None] * (self.k * self.n) + self.begin + k
        return self.x.astype(np.float64) @ flat[np.minimum(at, flat.size - 1)]

    def check(self, columns: Any = slice(None)) -> None:
        tolerance = 0.0 if self.y.dtype == np.int32 else 0.05
        np.testing.assert_allclose(self.y[:, :, columns], self.right[:, :, columns], atol=tolerance)


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize(("k", "n"), [(128, 48), (144, 37), (80, 16), (132, 37), (4104, 7), (4, 5), (16, 3)])
def test_any_sizes(rng: np.random.Generator, k: int, n: int, carried: bool) -> None:
    """Steps that end inside of a tile, rows of an odd length, lines that are no multiple of 16."""
    case = Case(rng, k, n)
    case.flags["CARRIED"] = carried
    case.run()
    case.check()


@pytest.mark.parametrize("element", [np.float16, ml_dtypes.bfloat16, np.float32, ml_dtypes.float8_e4m3fn, np.int8])
@pytest.mark.parametrize("k", [144, 136])
def test_elements(rng: np.random.Generator, element: Any, k: int) -> None:
    case = Case(rng, k, 21, element=element)
    case.run()
    case.check()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("k", "n"), [(128, 33), (192, 48)])
def test_batches(rng: np.random.Generator, k: int, n: int, masked: bool) -> None:
    """Matrices that a list selects."""
    case = Case(rng, k, n, held=5)
    case.flags["MASKED"] = masked
    case.entries = np.array([4, 1], np.int32)
    case.run()
    case.check()


@pytest.mark.parametrize(("k", "begun", "told"), [(128, False, 16), (136, False, 4), (128, True, 4)])
def test_pieces_are_as_long_as_a_launch_proves(rng: np.random.Generator, k: int, begun: bool, told: int) -> None:
    """A line of 136 has no whole words of codes. A number of elements that is passed may be of any row."""
    case = Case(rng, k, 40)
    case.flags["BEGUN"] = begun
    assert f"w is read at computed addresses, in pieces of {told} bytes of values" in case.told()


@pytest.mark.parametrize("rows", [4, 20, 16])
def test_a_number_that_is_passed_may_be_of_any_group(rng: np.random.Generator, rows: int) -> None:
    case = Case(rng, 128, 40)
    case.flags["BEGUN"], case.begin = True, rows * 40
    # The kernel goes through 96 rows of 128.
    case.k, case.x = 96, np.ascontiguousarray(case.x[:, :96])
    case.run()
    case.check()


@pytest.mark.parametrize("outside", [-1, 40 * 128, 1 << 20])
@pytest.mark.parametrize("k", [128, 136])
def test_a_column_outside_of_the_tensor(rng: np.random.Generator, k: int, outside: int) -> None:
    case = Case(rng, k, 40)
    case.columns[[3, 21]] = outside if outside != 40 * 128 else 40 * k
    with pytest.raises(ValueError, match="lines read a sparse tensor at a computed address against this rule"):
        case.run()
    assert np.isnan(case.y[:, :, [3, 21]]).all()
    case.check(np.delete(np.arange(40), [3, 21]))


@pytest.mark.parametrize("column", [40, 79, 4 * 40 + 1])
def test_a_column_of_another_row(rng: np.random.Generator, column: int) -> None:
    """Pieces begin at a multiple of 16 of a line, so columns may be those of rows that are a multiple of 16 further."""
    case = Case(rng, 128, 40)
    case.columns[5] = column
    with pytest.raises(ValueError, match="against this rule"):
        case.run()
    assert np.isnan(case.y[:, :, 5]).all()
    case.check(np.delete(np.arange(40), 5))


def test_a_column_of_a_later_piece(rng: np.random.Generator) -> None:
    case = Case(rng, 128, 40)
    case.columns[5], case.x[:, 112:] = 16 * 40 + 3, 0
    with pytest.raises(ValueError, match="against this rule"):
        case.run()
    case.check(np.delete(np.arange(40), 5))


def test_integers_report_a_column_outside_of_the_tensor(rng: np.random.Generator) -> None:
    case = Case(rng, 128, 40, element=np.int8)
    case.columns[5] = 128 * 40
    with pytest.raises(ValueError, match="lines read a sparse tensor .*; integers there have all bits set"):
        case.run()
    case.check(np.delete(np.arange(40), 5))


@triton.jit
def strided(y, x, w, N, K, stride, LAST: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [TM, N] = x [TM, K] by w [K, N]: whole steps without a mask, whose columns wrap, and the rest with one."""
    m, n = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN)
    column, whole = n % N, K // TK * TK
    total = tl.zeros((TM, TN), tl.float32)
    for start in range(0, whole, TK):
        k = (start + tl.arange(0, TK)).to(tl.int64)
        one = tl.load(x + m[:, None] * K + k[None, :])
        total = tl.dot(one, tl.load(w + k[:, None] * stride + column[None, :]), total)
    if LAST:
        k = (whole + tl.arange(0, TK)).to(tl.int64)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
        two = tl.load(w + k[:, None] * stride + column[None, :], mask=(k < K)[:, None], other=0.0)
        total = tl.dot(one, two, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(n < N)[None, :])


@pytest.mark.parametrize("n", [37, 48])
@pytest.mark.parametrize("k", [144, 136, 128])
def test_whole_steps_and_wrapped_columns(rng: np.random.Generator, k: int, n: int) -> None:
    x, stored = rng.standard_normal((M, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    w, y = np.ascontiguousarray(louver.prune(stored, "2:4").T), np.full((M, n), np.nan, np.float32)
    s = louver.compress(w, "2:4", axis=0)
    louver.jit(strided).emulate[(-(-n // 16),)](y, x, s, n, k, n, LAST=k % 64 != 0, **TILE)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.astype(np.float64), atol=0.05)


@pytest.mark.parametrize(("k", "n"), [(80, 37), (64, 16)])
def test_matrices_below_one_another(rng: np.random.Generator, k: int, n: int) -> None:
    """The matrices of a batch, read as one that is as long as all of them."""
    case = Case(rng, k, n, held=3)
    case.entries, case.y, case.k = np.zeros(1, np.int32), case.y[:1], 3 * k
    case.x = rng.standard_normal((M, 3 * k)).astype(np.float16)
    case.run()
    case.check()


@triton.jit
def passed(y, x, w, flags, N, K, stride, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [TM, N] = x [TM, K] by w [K, N], forwards and backwards. Branches and loops pass the pointers on."""
    m, j, n = tl.arange(0, TM), tl.arange(0, TK), tl.program_id(0) * TN + tl.arange(0, TN)
    column, last = n % N, (tl.cdiv(K, TK) - 1) * TK
    if tl.load(flags + tl.program_id(0)) > 0:
        at = w + j[:, None] * stride + column[None, :]
    else:
        at = w + j[:, None] * stride + (N - 1 - column)[None, :]
    total = tl.zeros((TM, TN), tl.float32)
    for start in range(0, K, TK):
        k = start + j
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
        total = tl.dot(one, tl.load(at, mask=(k < K)[:, None], other=0.0), total)
        at += TK * stride
    for step in range(0, K, TK):
        at -= TK * stride
        k = last - step + j
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
        total = tl.dot(one, tl.load(at, mask=(k < K)[:, None], other=0.0), total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(n < N)[None, :])


@pytest.mark.parametrize(("k", "n"), [(144, 37), (128, 48), (136, 40)])
def test_branches_and_loops_pass_pointers(rng: np.random.Generator, k: int, n: int) -> None:
    x, stored = rng.integers(-3, 4, (M, k)).astype(np.float16), rng.integers(-3, 4, (n, k)).astype(np.float16)
    w, y = np.ascontiguousarray(louver.prune(stored, "2:4").T), np.full((M, n), np.nan, np.float32)
    flags = np.array([1, 0, 1], np.int32)
    louver.jit(passed).emulate[(-(-n // 16),)](y, x, louver.compress(w, "2:4", axis=0), flags, n, k, n, **TILE)
    column = np.arange(n)
    read = np.where(flags[column // 16] > 0, column, n - 1 - column)
    np.testing.assert_array_equal(y, 2 * x.astype(np.float64) @ w[:, read].astype(np.float64))


def test_the_distance_of_rows_is_checked_at_the_launch(rng: np.random.Generator) -> None:
    w = np.ascontiguousarray(louver.prune(rng.standard_normal((37, 128)).astype(np.float16), "2:4").T)
    x, y = rng.standard_normal((M, 128)).astype(np.float16), np.full((M, 37), np.nan, np.float32)
    told = re.escape("the strides of the dense tensor for 'w', [128, 37], sparse along axis 0: [37, 1], got 38 and 1")
    with pytest.raises(ValueError, match=told):
        louver.jit(strided).emulate[(3,)](y, x, louver.compress(w, "2:4", axis=0), 37, 128, 38, LAST=False, **TILE)
    assert np.isnan(y).all()
