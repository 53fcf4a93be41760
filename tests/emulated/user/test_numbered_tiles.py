"""Programs that number the matrices of a batch together with their tiles, and tiles whose starts wrap: what a product of
them needs of the kernel and the call.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

ENTRIES, M, N, K = 3, 96, 72, 136
TILES = {"BM": 64, "BN": 64, "BK": 64}
EACH = 4
"""Tiles of a matrix."""


@triton.jit
def numbered(
    a, b, c, M, N, K, MORE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """MORE: programs of a matrix beside those of its tiles."""
    program = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    each = tl.cdiv(M, BM) * tiles_n
    entry, tile = program // (each + MORE), program % each
    m, n = (tile // tiles_n) * BM + tl.arange(0, BM), (tile % tiles_n) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(
            a + entry * M * K + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0
        )
        right = tl.load(
            b + entry * N * K + k[:, None] + n[None, :] * K, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0
        )
        total = tl.dot(left, right, total)
    tl.store(c + entry * M * N + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def in_turn(
    a, b, c, ENTRIES, M, N, K,
    PROGRAMS: tl.constexpr, KNOWN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """KNOWN: the number of matrices as a constant; 0 for the argument."""
    tiles_n = tl.cdiv(N, BN)
    each = tl.cdiv(M, BM) * tiles_n
    for program in range(tl.program_id(0), (ENTRIES if KNOWN == 0 else KNOWN) * each, PROGRAMS):
        entry, tile = program // each, program % each
        row, column = (tile // tiles_n) * BM, (tile % tiles_n) * BN
        a_tiles = tl.make_tensor_descriptor(a + entry * M * K, [M, K], [K, 1], [BM, BK])
        b_tiles = tl.make_tensor_descriptor(b + entry * N * K, [N, K], [K, 1], [BN, BK])
        c_tiles = tl.make_tensor_descriptor(c + entry * M * N, [M, N], [N, 1], [BM, BN])
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for first in range(0, K, BK):
            total = tl.dot(a_tiles.load([row, first]), b_tiles.load([column, first]).T, total)
        c_tiles.store([row, column], total)


@triton.jit
def wrapped(
    a, b, c, M, N, K, ROWS, COLUMNS, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TIMES: tl.constexpr
):  # fmt: skip
    """Tiles start at remainders of ROWS and COLUMNS. TIMES: of the column tile, by which columns of b are read."""
    program, tiles_m = tl.program_id(0), tl.cdiv(M, BM)
    number = program // tiles_m
    row, column, read = program % tiles_m * BM % ROWS, number * BN % COLUMNS, number * (BN * TIMES) % COLUMNS
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    c_tiles = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        total = tl.dot(a_tiles.load([row, first]), b_tiles.load([read, first]).T, total)
    c_tiles.store([row, column], total)


@triton.jit
def wrapped_at_arguments(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Descriptors of the caller, whose sizes are arguments of their own."""
    program, tiles_m = tl.program_id(0), tl.cdiv(M, BM)
    row, column = program % tiles_m * BM % M, program // tiles_m * BN % N
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        total = tl.dot(a.load([row, first]), b.load([column, first]).T, total)
    c.store([row, column], total)


@triton.jit
def wrapped_at_the_sizes(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    wrapped(a, b, c, M, N, K, M, N, BM, BN, BK, 1)


@triton.jit
def wrapped_columns_read_apart(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    wrapped(a, b, c, M, N, K, M, N, BM, BN, BK, 2)


@pytest.fixture
def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((ENTRIES, rows, K)).astype(np.float16) for rows in (M, N))
    return {"a": louver.prune(a, "2:4"), "b": b, "c": np.full((ENTRIES, M, N), np.nan, np.float32)}


def call(arrays: dict[str, Any], **more: Any) -> dict[str, Any]:
    sparse = {"a": louver.compress(arrays["a"], "2:4")}
    return {**arrays, **sparse, "M": M, "N": N, "K": K, **TILES, **more}


def product(arrays: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64).swapaxes(1, 2)


def test_as_many_matrices_as_the_grid_has(arrays: dict[str, Any]) -> None:
    kernel, known = louver.jit(numbered), call(arrays, MORE=0)
    grid = (ENTRIES * EACH,)
    assert kernel.explain[grid](**known).family == "product"
    kernel.emulate[grid](**known)
    np.testing.assert_allclose(arrays["c"], product(arrays), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("programs", [ENTRIES * EACH + 1, (ENTRIES + 1) * EACH])
def test_a_grid_of_other_programs_is_refused(programs: int, arrays: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"numbered must be given the sizes|numbered has a program for each of its tiles"
    ):
        louver.jit(numbered).emulate[(programs,)](**call(arrays, MORE=0))
    assert np.isnan(arrays["c"]).all()


def test_a_numbering_that_leaves_tiles_out_is_no_product(arrays: dict[str, Any]) -> None:
    """Program 4 computes tile 0 of matrix 0 once more, and so on: tiles of later matrices are left out."""
    kernel, known = louver.jit(numbered), call(arrays, MORE=1)
    grid = (ENTRIES * EACH,)
    told = kernel.explain[grid](**known)
    assert told.family == "register tiles"
    assert "every tile of the output must be computed by exactly one program" in str(told)
    kernel.emulate[grid](**known)
    wanted = product(arrays)
    np.testing.assert_allclose(arrays["c"][0], wanted[0], rtol=1e-3, atol=1e-3)
    assert np.isnan(arrays["c"][2]).any()


def test_an_unknown_number_of_matrices_is_no_product(arrays: dict[str, Any]) -> None:
    """A persistent loop over the tiles of a constant number of matrices, which no descriptor tells."""
    kernel, known = louver.jit(in_turn), call(arrays, ENTRIES=0, KNOWN=ENTRIES, PROGRAMS=5)
    told = kernel.explain[(5,)](**known)
    assert told.family == "register tiles"
    assert "the number of matrices of a batch must be an argument" in str(told)
    kernel.emulate[(5,)](**known)
    np.testing.assert_allclose(arrays["c"], product(arrays), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("programs", [5, ENTRIES * EACH])
def test_programs_in_turn(programs: int, arrays: dict[str, Any]) -> None:
    """As many programs as the kernel steps by, or one for each tile."""
    kernel, known = louver.jit(in_turn), call(arrays, ENTRIES=ENTRIES, KNOWN=0, PROGRAMS=5)
    assert kernel.explain[(programs,)](**known).family == "product"
    kernel.emulate[(programs,)](**known)
    np.testing.assert_allclose(arrays["c"], product(arrays), rtol=1e-3, atol=1e-3)


def test_programs_in_turn_of_each_matrix_are_refused(arrays: dict[str, Any]) -> None:
    known = call(arrays, ENTRIES=ENTRIES, KNOWN=0, PROGRAMS=5)
    with pytest.raises(ValueError, match="or 5 that go from tile to tile, got a grid of 15"):
        louver.jit(in_turn).emulate[(5, 1, ENTRIES)](**known)
    assert np.isnan(arrays["c"]).all()


def matrix(arrays: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The first matrix of each batch."""
    return call({name: each[0] for name, each in arrays.items()}, **more)


def test_starts_that_wrap_at_the_sizes(arrays: dict[str, Any]) -> None:
    kernel, known = louver.jit(wrapped_at_the_sizes), matrix(arrays)
    assert kernel.explain[(EACH,)](**known).family == "product"
    kernel.emulate[(EACH,)](**known)
    np.testing.assert_allclose(arrays["c"][0], product(arrays)[0], rtol=1e-3, atol=1e-3)


def test_starts_that_wrap_in_descriptors_of_the_caller(arrays: dict[str, Any]) -> None:
    """The launch compares the sizes by which they wrap with those of the descriptors."""
    known = matrix(arrays)
    for name, shape in {"a": (M, K), "b": (N, K), "c": (M, N)}.items():
        known[name] = louver.TensorDescriptor(known[name], shape, (shape[1], 1), (64, 64))
    kernel = louver.jit(wrapped_at_arguments)
    assert kernel.explain[(EACH,)](**known).family == "product"
    kernel.emulate[(EACH,)](**known)
    np.testing.assert_allclose(arrays["c"][0], product(arrays)[0], rtol=1e-3, atol=1e-3)


def test_starts_that_wrap_elsewhere_are_no_product(arrays: dict[str, Any]) -> None:
    """At 64 rows, the second tile of rows starts at 0."""
    kernel, known = louver.jit(wrapped), matrix(arrays, ROWS=64, COLUMNS=N, TIMES=1)
    told = kernel.explain[(EACH,)](**known)
    assert told.family == "register tiles" and "a tile may start at a remainder only of the output's size" in str(told)
    kernel.emulate[(EACH,)](**known)
    np.testing.assert_allclose(arrays["c"][0][:64], product(arrays)[0][:64], rtol=1e-3, atol=1e-3)
    assert np.isnan(arrays["c"][0][64:]).all()


def test_another_start_that_wraps_is_kept(arrays: dict[str, Any]) -> None:
    """The second tile of columns reads those of b at 128 % 72 = 56."""
    kernel, known = louver.jit(wrapped_columns_read_apart), matrix(arrays)
    assert kernel.explain[(EACH,)](**known).family == "register tiles"
    kernel.emulate[(EACH,)](**known)
    wanted = product(arrays)[0]
    wanted[:, 64:] = wanted[:, 56:64]
    np.testing.assert_allclose(arrays["c"][0], wanted, rtol=1e-3, atol=1e-3)
