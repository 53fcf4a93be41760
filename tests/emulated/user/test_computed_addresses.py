"""Sparse tiles at computed addresses: what their rule lets through is right, and each violation is NaN in its row and an error."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import louver
from louver.compile.pipeline import compile_tiles
from louver.compile.plan.encode import stores
from louver.frontend.triton import triton_to_tile_ir
from louver.ir.refusal import UnsupportedKernelError
from louver.user import binding

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

from support.triton.forms.addresses import columns_by, vectors

Array = NDArray[Any]


@triton.jit
def gathered(
    y, x, w, rows, columns, bounds, N, K, stride,
    FILL: tl.constexpr, SUM: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """y [TM, N] = x [TM, K] by rows of w at columns, both from lists. bounds: the columns that the mask lets through."""
    m, n, k = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN), tl.arange(0, TK)
    row = tl.load(rows + n, mask=n < N, other=0)
    first, last = tl.load(bounds), tl.load(bounds + 1)
    total = tl.zeros((TM, TN), SUM)
    for start in range(0, K, TK):
        column = tl.load(columns + start + k, mask=start + k < K, other=0)
        inside = (start + k >= first) & (start + k < last)
        one = tl.load(x + m[:, None] * K + (start + k)[None, :], mask=inside[None, :], other=0.0)
        two = tl.load(w + row[:, None] * stride + column[None, :], mask=(n < N)[:, None] & inside[None, :], other=FILL)
        total = tl.dot(one, two.T, total, out_dtype=SUM)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(n < N)[None, :])


M, N, HELD, K = 16, 40, 56, 96
KERNEL = louver.jit(gathered)
"""Kept, because it keeps what it has compiled."""


class Case:
    """Operands of `gathered`, and what it gives."""

    def __init__(self, rng: np.random.Generator, element: str = "float16", k: int = K) -> None:
        wide = np.float32 if element == "float32" else np.float16
        draw: Any = rng.integers(-3, 4, (HELD, k)) if element == "int8" else rng.standard_normal((HELD, k))
        self.k, self.dense = k, louver.prune(draw.astype(element), "1:2" if element == "float32" else "2:4")
        self.x = (rng.integers(-3, 4, (M, k)) if element == "int8" else rng.standard_normal((M, k))).astype(
            "int8" if element == "int8" else wide
        )
        self.rows, self.columns = rng.integers(0, HELD, N).astype(np.int32), np.arange(k, dtype=np.int32)
        self.bounds, self.fill = np.array([0, k], np.int32), 0.0

    def run(self) -> Array:
        y = np.full(
            (M, N), -77 if self.x.dtype == np.int8 else np.nan, np.int32 if self.x.dtype == np.int8 else np.float32
        )
        s = louver.compress(self.dense, "1:2" if self.dense.dtype == np.float32 else "2:4")
        self.y = y
        given = y, self.x, s, self.rows, self.columns, self.bounds, N, self.k, self.k
        kind = tl.int32 if y.dtype == np.int32 else tl.float32
        KERNEL.emulate[(-(-N // 16),)](*given, FILL=self.fill, SUM=kind, TM=16, TN=16, TK=64)
        return y

    def right(self, rows: Array | None = None) -> Array:
        first, last = self.bounds
        w = self.dense.astype(np.float64)[self.rows if rows is None else rows][:, self.columns]
        return self.x.astype(np.float64)[:, first:last] @ w[:, first:last].T

    def violates(self, rows: Array) -> None:
        """The error, NaN in these rows of the sparse operand, and other rows right."""
        with pytest.raises(
            ValueError, match="gathered read a sparse tensor at a computed address against this rule"
        ) as caught:
            self.run()
        assert "mask rows and columns outside" in str(caught.value)
        assert np.isnan(self.y[:, rows]).all()
        kept = np.delete(np.arange(N), rows)
        np.testing.assert_allclose(
            self.y[:, kept], self.right(np.where(self.rows < HELD, self.rows, 0))[:, kept], atol=0.05
        )


@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize("k", [96, 104, 100])
def test_rows_from_a_list(rng: np.random.Generator, element: str, k: int) -> None:
    """Rows of K need not be whole words of codes, nor begin at one."""
    case = Case(rng, element, k)
    np.testing.assert_allclose(case.run(), case.right(), atol=0.05)


@pytest.mark.parametrize(("first", "last"), [(0, 52), (16, 96), (4, 60), (8, 12), (40, 40)])
def test_masks_of_whole_groups(rng: np.random.Generator, first: int, last: int) -> None:
    case = Case(rng)
    case.bounds[:] = first, last
    np.testing.assert_allclose(case.run(), case.right(), atol=0.05)


def test_columns_in_pieces_of_four_groups(rng: np.random.Generator) -> None:
    case = Case(rng)
    case.columns = (rng.permutation(K // 16)[:, None] * 16 + np.arange(16)).astype(np.int32).ravel()
    np.testing.assert_allclose(case.run(), case.right(), atol=0.05)


def test_columns_that_begin_at_a_group(rng: np.random.Generator) -> None:
    """An entry of codes may begin inside of a word."""
    case = Case(rng)
    case.columns = np.concatenate([np.arange(16) + begin for begin in (4, 40, 60, 72, 8, 24)]).astype(np.int32)
    np.testing.assert_allclose(case.run(), case.right(), atol=0.05)


@pytest.mark.parametrize("outside", [HELD, 1 << 20, -1])
def test_a_row_outside_of_the_tensor(rng: np.random.Generator, outside: int) -> None:
    case = Case(rng)
    case.rows[[3, 21]] = outside
    case.violates(np.array([3, 21]))


def test_a_group_that_is_masked_in_part(rng: np.random.Generator) -> None:
    case = Case(rng)
    case.bounds[1] = 50
    case.violates(np.arange(N))


@pytest.mark.parametrize("begin", [1, 2, 3])
def test_a_piece_that_begins_inside_of_a_group(rng: np.random.Generator, begin: int) -> None:
    case = Case(rng)
    case.columns = np.minimum(case.columns + begin, K - 1).astype(np.int32)
    case.rows[:] = np.arange(N)
    case.violates(np.arange(N))


@pytest.mark.parametrize("swapped", [(5, 6), (4, 8), (16, 33)])
def test_columns_that_are_no_neighbours(rng: np.random.Generator, swapped: tuple[int, int]) -> None:
    case = Case(rng)
    case.columns[list(swapped)] = case.columns[list(reversed(swapped))]
    case.violates(np.arange(N))


def test_a_violation_refuses_no_config(rng: np.random.Generator) -> None:
    """The kernel ran: other configs are not tried, and NaN stays."""
    case = Case(rng)
    case.rows[3] = HELD
    y, s = np.full((M, N), -7, np.float32), louver.compress(case.dense, "2:4")
    tile = {"FILL": 0.0, "SUM": tl.float32, "TM": 16, "TN": 16}
    configs = [triton.Config({**tile, "TK": width}) for width in (64, 32)]
    kernel = louver.jit(triton.autotune(configs, key=["N"])(gathered))
    with pytest.raises(ValueError, match="against this rule") as caught:
        kernel.emulate[(-(-N // 16),)](y, case.x, s, case.rows, case.columns, case.bounds, N, K, K)
    assert not getattr(caught.value, "__notes__", ())
    assert np.isnan(y[:, 3]).all() and (y != -7).all()


def test_what_is_computed_is_explained(rng: np.random.Generator) -> None:
    case = Case(rng)
    s = louver.compress(case.dense, "2:4")
    given = np.zeros((M, N), np.float32), case.x, s, case.rows, case.columns, case.bounds, N, K, K
    told = str(KERNEL.explain(*given, FILL=0.0, SUM=tl.float32, TM=16, TN=16, TK=64))
    assert (
        "w is read at computed addresses, in pieces of 4 bytes of values: row or column numbers that are loaded" in told
    )
    assert "w is read at computed addresses, a group at a time" in told and "Pass the tensor [N, K]" in told
    assert "may be as fast" not in told
    told = str(KERNEL.explain(*given, FILL=0.0, SUM=tl.float32, TM=64, TN=64, TK=64))
    assert "addresses in w are computed in each step, and its pieces are copied one by one" in told


def test_integers_whose_pieces_are_not_proven_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(UnsupportedKernelError) as caught:
        Case(rng, "int8").run()
    told = "\n".join([str(caught.value), *caught.value.__notes__])
    assert "pieces of integers at a computed address must be proven" in told
    assert "write row * stride + column, with columns that are start + tl.arange" in told


@triton.jit
def listed_integers(y, x, w, rows, N, K, stride, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [TM, N] = x [TM, K] by rows of w from a list, of s8 to s32."""
    m, n = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN)
    row = tl.load(rows + n, mask=n < N, other=0)
    total = tl.zeros((TM, TN), tl.int32)
    for start in range(0, K, TK):
        k = start + tl.arange(0, TK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0)
        two = tl.load(w + row[:, None] * stride + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0)
        total = tl.dot(one, two.T, total, out_dtype=tl.int32)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(n < N)[None, :])


class Integers:
    """Operands of `listed_integers`."""

    def __init__(self, rng: np.random.Generator, k: int) -> None:
        self.x, w = (rng.integers(-100, 100, (rows, k)).astype(np.int8) for rows in (M, HELD))
        self.w, self.k = louver.prune(w, "2:4"), k
        self.rows, self.y = rng.integers(0, HELD, N).astype(np.int32), np.full((M, N), -77, np.int32)

    def run(self, k: int | None = None, stride: int | None = None) -> None:
        s = louver.compress(self.w, "2:4")
        given = self.y, self.x, s, self.rows, N, k or self.k, stride or self.k
        louver.jit(listed_integers).emulate[(-(-N // 16),)](*given, TM=16, TN=16, TK=64)


@pytest.mark.parametrize("k", [128, 136, 140])
def test_integers_by_rows_from_a_list(rng: np.random.Generator, k: int) -> None:
    """Rows of K need not be multiples of 16: the launch checks that they are whole groups."""
    case = Integers(rng, k)
    case.run()
    np.testing.assert_array_equal(case.y, case.x.astype(np.int64) @ case.w[case.rows].astype(np.int64).T)


@pytest.mark.parametrize(("name", "given"), [("K", {"k": 126}), ("stride", {"stride": 126})])
def test_a_launch_checks_the_pieces_of_integers(rng: np.random.Generator, name: str, given: dict[str, int]) -> None:
    case = Integers(rng, 136)
    with pytest.raises(ValueError, match=f"listed_integers takes {name} in multiples of 4, got 126"):
        case.run(**given)
    assert (case.y == -77).all()


def test_an_integer_row_outside_of_the_tensor_is_an_error(rng: np.random.Generator) -> None:
    case = Integers(rng, 128)
    case.rows[5] = HELD
    with pytest.raises(ValueError, match="listed_integers read a sparse tensor .*; integers there have all bits set"):
        case.run()
    right = case.x.astype(np.int64) @ case.w[np.minimum(case.rows, HELD - 1)].astype(np.int64).T
    np.testing.assert_array_equal(np.delete(case.y, 5, 1), np.delete(right, 5, 1))


def test_masked_elements_are_zeros(rng: np.random.Generator) -> None:
    case = Case(rng)
    case.fill = 1.0
    with pytest.raises(UnsupportedKernelError) as caught:
        case.run()
    assert "masked elements of a sparse tile are zeros" in "\n".join([str(caught.value), *caught.value.__notes__])


def test_a_stride_that_is_no_whole_row_is_refused(rng: np.random.Generator) -> None:
    """Where the launch can compare the stride, no kernel runs."""

    @triton.jit
    def plain(y, x, w, N, K, stride, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
        m, n, k = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN), tl.arange(0, TK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
        two = tl.load(w + n[:, None] * stride + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        tl.store(y + m[:, None] * N + n[None, :], tl.dot(one, two.T), mask=(n < N)[None, :])

    x, w = rng.standard_normal((16, 64)).astype(np.float16), rng.standard_normal((96, 64)).astype(np.float16)
    w, y = louver.prune(w, "2:4"), np.empty((16, 48), np.float32)
    kernel, tile = louver.jit(plain), {"TM": 16, "TN": 16, "TK": 64}
    with pytest.raises(ValueError, match="rows are 64 elements apart, got a stride of 72"):
        kernel.emulate[(3,)](y, x, louver.compress(w[:48], "2:4"), 48, 64, 72, **tile)
    kernel.emulate[(3,)](y, x, louver.compress(w, "2:4"), 48, 64, 128, **tile)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w[::2].astype(np.float64).T, atol=0.05)


@triton.jit
def widened(y, x, w, rows, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [TM, N] = x [TM, K] by rows of an 8-bit w, multiplied in 16 bits."""
    m, n, k = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN), tl.arange(0, TK)
    row = tl.load(rows + n, mask=n < N, other=0)
    one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
    two = tl.load(w + row[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
    tl.store(y + m[:, None] * N + n[None, :], tl.dot(one, two.to(tl.float16).T), mask=(n < N)[None, :])


def test_elements_that_are_widened(rng: np.random.Generator) -> None:
    """Codes of 8-bit elements are no codes of a 16-bit product."""
    x, w = (
        rng.standard_normal((16, 128)).astype(np.float16),
        rng.standard_normal((48, 128)).astype(ml_dtypes.float8_e4m3fn),
    )
    w, rows = louver.prune(w, "2:4"), rng.integers(0, 48, 40).astype(np.int32)
    y = np.empty((16, 40), np.float32)
    louver.jit(widened).emulate[(3,)](y, x, louver.compress(w, "2:4"), rows, 40, 128, TM=16, TN=16, TK=128)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w[rows].astype(np.float64).T, atol=0.05)


@triton.jit
def shared(y, x, w, N, K, S: tl.constexpr, SUM: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [S, TM, N] = x [TM, K] by rows of w, in f32 and over a share of K each. SUM: without a dot, and all rows of x alike."""
    m, n, length = tl.arange(0, TM), tl.arange(0, TN), K // S
    total = tl.zeros((TM, TN), tl.float32)
    for first in range(tl.program_id(0) * length, (tl.program_id(0) + 1) * length, TK):
        k = first + tl.arange(0, TK)
        two = tl.load(w + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        two = two.to(tl.float32)
        if SUM:
            one = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
            total += tl.sum(one[:, None] * two, 0)[None, :]
        else:
            one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0).to(tl.float32)
            total = tl.dot(one, two, total)
    tl.store(y + (tl.program_id(0) * TM + m[:, None]) * N + n[None, :], total, mask=(n < N)[None, :])


@pytest.mark.parametrize("summed", [False, True])
def test_the_sparse_axis_is_the_one_of_the_sum(rng: np.random.Generator, summed: bool) -> None:
    """Also of a tile that is cast before, where a third of K begins at no known place."""
    x, w = (rng.standard_normal((rows, 192)).astype(np.float16) for rows in (16, 24))
    w, y = louver.prune(w, "2:4"), np.full((3, 16, 24), np.nan, np.float32)
    x[:] = x[0] if summed else x
    tile = {"TM": 16, "TN": 32, "TK": 32}
    louver.jit(shared).emulate[(3,)](y, x, louver.compress(w, "2:4"), 24, 192, S=3, SUM=summed, **tile)
    expected = np.einsum("msk,nsk->smn", x.reshape(16, 3, 64), w.reshape(24, 3, 64), dtype=float)
    np.testing.assert_allclose(y, expected, atol=0.05)


@triton.jit
def fixed(y, x, w, rows, N, K: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [TM, N] = x [TM, K] by rows of w of a length that is compiled in."""
    m, n, k = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN), tl.arange(0, TK)
    row = tl.load(rows + n, mask=n < N, other=0)
    one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
    two = tl.load(w + row[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
    tl.store(y + m[:, None] * N + n[None, :], tl.dot(one, two.T), mask=(n < N)[None, :])


@pytest.mark.parametrize("k", [128, 96])
def test_pieces_that_are_longer_than_an_entry_of_codes(rng: np.random.Generator, k: int) -> None:
    """16 bytes of 8-bit values are those of 32 columns. The last entry of the tensor is the second half of a piece."""
    x = rng.integers(-3, 4, (16, k)).astype(ml_dtypes.float8_e4m3fn)
    w = louver.prune(rng.integers(-3, 4, (48, k)).astype(ml_dtypes.float8_e4m3fn), "2:4")
    rows, y = np.arange(47, 7, -1).astype(np.int32), np.empty((16, 40), np.float32)
    louver.jit(fixed).emulate[(3,)](y, x, louver.compress(w, "2:4"), rows, 40, k, TM=16, TN=16, TK=128)
    np.testing.assert_array_equal(y, x.astype(np.float64) @ w[rows].astype(np.float64).T)


@triton.jit
def masked_once(y, x, w, rows, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [TM, N] = x [TM, K] by rows of w, whose columns beyond K are read as well."""
    m, n, k = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN), tl.arange(0, TK)
    row = tl.load(rows + n, mask=n < N, other=0)
    total = tl.zeros((TM, TN), tl.float32)
    for start in range(0, K, TK):
        one = tl.load(x + m[:, None] * K + (start + k)[None, :], mask=(start + k < K)[None, :], other=0.0)
        two = tl.load(w + row[:, None] * K + (start + k)[None, :])
        total = tl.dot(one, two.T, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(n < N)[None, :])


def test_columns_that_the_other_operand_masks(rng: np.random.Generator) -> None:
    """Columns beyond the last row are those of no row, but meet zeros."""
    x, w = rng.standard_normal((16, 80)).astype(np.float16), rng.standard_normal((48, 80)).astype(np.float16)
    w, rows = louver.prune(w, "2:4"), np.arange(8, 48).astype(np.int32)[::-1].copy()
    y = np.empty((16, 40), np.float32)
    louver.jit(masked_once).emulate[(3,)](y, x, louver.compress(w, "2:4"), rows, 40, 80, TM=16, TN=16, TK=64)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w[rows].astype(np.float64).T, atol=0.05)


@triton.jit
def passed(y, x, w, rows, flags, N, K, HELD, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [TM, N] = x [TM, K] by rows of w, twice. A branch and two loops pass the pointers on."""
    m, n, k = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN), tl.arange(0, TK)
    row = tl.load(rows + n, mask=n < N, other=0)
    if tl.load(flags + tl.program_id(0)) > 0:
        at = w + row[:, None] * K + k[None, :]
    else:
        at = w + (HELD - 1 - row)[:, None] * K + k[None, :]
    total = tl.zeros((TM, TN), tl.float32)
    for _ in range(2):
        for start in range(0, K, TK):
            inside = start + k < K
            one = tl.load(x + m[:, None] * K + (start + k)[None, :], mask=inside[None, :], other=0.0)
            total = tl.dot(one, tl.load(at, mask=inside[None, :], other=0.0).T, total)
            at += TK
        at -= tl.cdiv(K, TK) * TK
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(n < N)[None, :])


def test_branches_and_loops_pass_pointers(rng: np.random.Generator) -> None:
    x = rng.integers(-3, 4, (16, 72)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (48, 72)).astype(np.float16), "2:4")
    rows, flags = rng.integers(0, 48, 40).astype(np.int32), np.array([1, 0, 1], np.int32)
    y = np.empty((16, 40), np.float32)
    s, tile = louver.compress(w, "2:4"), {"TM": 16, "TN": 16, "TK": 32}
    louver.jit(passed).emulate[(3,)](y, x, s, rows, flags, 40, 72, 48, **tile)
    read = np.where(flags[np.arange(40) // 16] > 0, rows, 47 - rows)
    np.testing.assert_array_equal(y, 2 * x.astype(np.float64) @ w[read].astype(np.float64).T)


class Columns:
    """Operands of `columns_by` for columns of w [K, N] from a list, and what it gives."""

    def __init__(self, rng: np.random.Generator) -> None:
        x, stored = rng.standard_normal((M, K)).astype(np.float16), rng.standard_normal((HELD, K)).astype(np.float16)
        self.x, self.w = x, np.ascontiguousarray(louver.prune(stored, "2:4").T)
        self.table, self.y = rng.integers(0, HELD, HELD).astype(np.int32), np.full((M, HELD), np.nan, np.float32)

    def run(self) -> None:
        s = louver.compress(self.w, "2:4", axis=0)
        tile = {"AT": "listed", "BM": 16, "BN": 16, "BK": 64}
        louver.jit(columns_by).emulate[(1, -(-HELD // 16))](self.y, self.x, s, self.table, M, HELD, K, **tile)

    @property
    def right(self) -> Array:
        return self.x.astype(np.float64) @ self.w.astype(np.float64)[:, np.minimum(self.table, HELD - 1)]


@pytest.mark.parametrize("outside", [HELD, -1, 1 << 20])
def test_a_column_outside_of_a_tensor_that_is_sparse_along_rows(rng: np.random.Generator, outside: int) -> None:
    case = Columns(rng)
    case.table[9] = outside
    with pytest.raises(ValueError, match="against this rule"):
        case.run()
    assert np.isnan(case.y[:, 9]).all()
    np.testing.assert_allclose(np.delete(case.y, 9, 1), np.delete(case.right, 9, 1), atol=0.05)


def test_a_tensor_that_is_sparse_along_rows_has_32_bits(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "MOST_ACROSS", HELD * K - 1)
    with pytest.raises(ValueError, match=r"sparse along axis 0, in 32 bits, for 5,375 elements at most, got 5,376"):
        Columns(rng).run()


@triton.jit
def begun_rows(y, x, w, table, begin, N, K, stride, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y [TM, N] = x [TM, TK] by rows of w [K, N] from a number that was loaded, at columns from a list."""
    m, n, j = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN), tl.arange(0, TK)
    column, k = tl.load(table + n, mask=n < N, other=0), tl.load(begin) + j
    one = tl.load(x + m[:, None] * TK + j[None, :], mask=(k < K)[None, :], other=0.0)
    two = tl.load(w + k[:, None] * stride + column[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
    tl.store(y + m[:, None] * N + n[None, :], tl.dot(one, two), mask=(n < N)[None, :])


class Begun:
    """Operands of `begun_rows`: rows of the sparse axis from `begin` on."""

    def __init__(self, rng: np.random.Generator, begin: int) -> None:
        self.x, stored = (
            rng.standard_normal((M, 64)).astype(np.float16),
            rng.standard_normal((HELD, K)).astype(np.float16),
        )
        self.w, self.begin = np.ascontiguousarray(louver.prune(stored, "2:4").T), begin
        self.table, self.y = rng.integers(0, HELD, HELD).astype(np.int32), np.full((M, HELD), np.nan, np.float32)

    def run(self, stride: int = HELD) -> None:
        s = louver.compress(self.w, "2:4", axis=0)
        given = self.y, self.x, s, self.table, np.array([self.begin], np.int32), HELD, K, stride
        louver.jit(begun_rows).emulate[(-(-HELD // 16),)](*given, TM=16, TN=16, TK=64)


@pytest.mark.parametrize("begin", [0, 4, 20, 32, 52, 88])
def test_rows_of_the_sparse_axis_begin_at_any_group(rng: np.random.Generator, begin: int) -> None:
    """A line of rows may begin inside of a word of codes, and end inside of one at the last row."""
    case, end = Begun(rng, begin), min(K, begin + 64)
    case.run()
    w = case.w.astype(np.float64)[begin:end, case.table]
    np.testing.assert_allclose(case.y, case.x[:, : end - begin].astype(np.float64) @ w, atol=0.05)


@pytest.mark.parametrize("begin", [1, 2, 30])
def test_rows_that_begin_inside_of_a_group_are_nan(rng: np.random.Generator, begin: int) -> None:
    case = Begun(rng, begin)
    with pytest.raises(ValueError, match="begun_rows read a sparse tensor at a computed address against this rule"):
        case.run()
    assert np.isnan(case.y).all()


def test_the_distance_of_rows_is_a_condition_of_the_launch(rng: np.random.Generator) -> None:
    case = Begun(rng, 0)
    with pytest.raises(ValueError, match=r"the strides of the dense tensor for 'w', .*: \[56, 1\], got 64 and 1"):
        case.run(64)
    assert np.isnan(case.y).all()


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        (
            -1,
            [
                "a sparse vector has a multiple of 256 elements, ",
                "not 64",
                "choose a block of 256, or load 16 rows at once",
            ],
        ),
        (
            0,
            [
                "a tile of a tensor that is sparse along its last axis but one is a matrix",
                "load .rows, columns., and reshape",
            ],
        ),
    ],
)
def test_vectors_that_are_no_matrix_are_refused(rng: np.random.Generator, axis: int, told: list[str]) -> None:
    w = louver.prune(rng.standard_normal((64, 64)).astype(np.float16), "2:4", axis=axis)
    x, y = rng.standard_normal(64).astype(np.float16), np.full(64, np.nan, np.float32)
    with pytest.raises(UnsupportedKernelError) as caught:
        louver.jit(vectors).emulate[(64,)](y, x, louver.compress(w, "2:4", axis=axis), 1, 64, 64, BK=64)
    for each in told:
        assert re.search(each, "\n".join([str(caught.value), *caught.value.__notes__]))


def test_integers_along_another_axis_from_a_loaded_row_are_refused(rng: np.random.Generator) -> None:
    case = Begun(rng, 0)
    case.x, case.w = (each.astype(np.int8) for each in (case.x, case.w))
    with pytest.raises(UnsupportedKernelError) as caught:
        case.run()
    told = "\n".join([str(caught.value), *caught.value.__notes__])
    assert "write row * stride + column, with rows that are start + tl.arange" in told


def test_a_violation_is_noticed_where_its_address_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag is set by the threads that load the codes, so that no address is computed for it alone."""
    lengths = list[int]()
    signature = {"y": "*fp32", "x": "*fp16", "w": "*fp16", "rows": "*i32", "N": "i32", "K": "i32"}
    module = triton_to_tile_ir(masked_once, signature, {"TM": 16, "TN": 32, "TK": 64}, sparse={"w": "2:4"})
    for choose in (stores.choose_flags, lambda *_: False):
        monkeypatch.setattr(stores, "choose_flags", choose)
        lengths.append(compile_tiles(module.clone()).ptx.count("\n"))
    assert lengths[0] < lengths[1]
