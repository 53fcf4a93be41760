"""Sparse tiles whose columns are counted: by programs that share the steps of K, and beside the steps of a loop."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import parts_of_steps

M, N = 40, 72
TILE = {"TM": 32, "TN": 64, "TK": 64}


def _operands(rng: np.random.Generator, k: int) -> tuple[np.ndarray, np.ndarray]:
    w = rng.integers(-3, 4, (N, k)).astype(np.float16)
    return rng.integers(-3, 4, (M, k)).astype(np.float16), louver.prune(w, "2:4")


@pytest.mark.parametrize(("k", "parts"), [(256, 1), (256, 2), (320, 2), (64, 3), (448, 4)])
def test_programs_that_share_steps_read_described_tiles(rng: np.random.Generator, k: int, parts: int) -> None:
    """The last part may have fewer steps than the others, or none."""
    x, w = _operands(rng, k)
    y = np.full((parts, M, N), np.nan, np.float32)
    kernel, grid = louver.jit(parts_of_steps.shared_steps), (2, 2, parts)
    given = x, louver.compress(w, "2:4"), y, M, N, k, parts
    assert "computed" not in str(kernel.explain[grid](*given, **TILE))
    kernel.emulate[grid](*given, **TILE)
    np.testing.assert_array_equal(y.sum(0), x.astype(np.float64) @ w.T.astype(np.float64))


@pytest.mark.parametrize("k", [128, 512, 1024])
def test_programs_that_take_steps_by_remainder_read_described_tiles(rng: np.random.Generator, k: int) -> None:
    x, w = _operands(rng, k)
    y = np.full((2, M, N), np.nan, np.float32)
    kernel, grid = louver.jit(parts_of_steps.steps_by_remainder), (4, 2)
    given = x, louver.compress(w, "2:4"), y, M, N, k, 2
    assert "computed" not in str(kernel.explain[grid](*given, **TILE))
    kernel.emulate[grid](*given, **TILE)
    np.testing.assert_array_equal(y.sum(0), x.astype(np.float64) @ w.T.astype(np.float64))


@pytest.mark.parametrize(
    ("k", "parts", "steps", "computed"), [(384, 3, 2, False), (256, 1, 4, False), (384, 4, 2, True)]
)
def test_parts_that_count_the_steps_of_all_read_described_tiles(
    rng: np.random.Generator, k: int, parts: int, steps: int, computed: bool
) -> None:
    x, w = _operands(rng, k)
    y = np.zeros((M, N), np.float32)
    kernel, grid = louver.jit(parts_of_steps.counted_parts), (2 * parts, 2)
    given = x, louver.compress(w, "2:4"), y, M, N, k, parts, steps
    assert ("computed" in str(kernel.explain[grid](*given, **TILE))) == computed
    kernel.emulate[grid](*given, **TILE)
    np.testing.assert_array_equal(y, x.astype(np.float64) @ w.T.astype(np.float64))


@pytest.mark.parametrize(("k", "size"), [(320, 128), (384, 128), (64, 64), (192, 256)])
def test_parts_that_end_at_k_read_described_tiles(rng: np.random.Generator, k: int, size: int) -> None:
    """The last part may have fewer steps than the others, and the last program none."""
    x, w = _operands(rng, k)
    y = np.zeros((3, M, N), np.float32)
    kernel, grid = louver.jit(parts_of_steps.parts_to_an_end), (12,)
    given = x, louver.compress(w, "2:4"), y, M, N, k, 3, size, 12
    assert "computed" not in str(kernel.explain[grid](*given, **TILE))
    kernel.emulate[grid](*given, **TILE)
    np.testing.assert_array_equal(y.sum(0), x.astype(np.float64) @ w.T.astype(np.float64))


def test_parts_that_end_within_a_step_are_computed(rng: np.random.Generator) -> None:
    """Parts of one and a half steps overlap, and the last one goes beyond its rows."""
    k = 192
    x, w = _operands(rng, k)
    given = x, louver.compress(w, "2:4"), np.zeros((3, M, N), np.float32), M, N, k, 3, 96, 12
    assert "computed" in str(louver.jit(parts_of_steps.parts_to_an_end).explain[(12,)](*given, **TILE))


def test_a_remainder_beyond_the_rows_is_refused(rng: np.random.Generator) -> None:
    x, w = _operands(rng, 192)
    y = np.full((2, M, N), np.nan, np.float32)
    with pytest.raises(ValueError, match="reads 256 elements of each row of 'w', which has 192"):
        louver.jit(parts_of_steps.steps_by_remainder).emulate[(4, 2)](
            x, louver.compress(w, "2:4"), y, M, N, 192, 2, **TILE
        )
    assert np.isnan(y).all()


@pytest.mark.parametrize(("most", "computed"), [(3, False), (4, False), (100, True)])
def test_a_loaded_number_of_steps_may_end_before_the_most(rng: np.random.Generator, most: int, computed: bool) -> None:
    """Where the most steps go beyond the rows, addresses are computed: the loaded number may end before."""
    x, w = _operands(rng, 256)
    y, steps = np.full((M, N), np.nan, np.float32), min(4, most)
    kernel, grid = louver.jit(parts_of_steps.loaded_steps), (2, 2)
    given = x, louver.compress(w, "2:4"), np.array([4], np.int32), y, M, N, 256, most
    assert ("computed" in str(kernel.explain[grid](*given, **TILE))) == computed
    kernel.emulate[grid](*given, **TILE)
    x, w = x[:, : steps * 64].astype(np.float64), w[:, : steps * 64].astype(np.float64)
    np.testing.assert_array_equal(y, x @ w.T)


def test_steps_beyond_the_rows_are_refused(rng: np.random.Generator) -> None:
    x, w = _operands(rng, 200)
    y = np.full((2, M, N), np.nan, np.float32)
    with pytest.raises(ValueError, match="reads 256 elements of each row of 'w', which has 200"):
        louver.jit(parts_of_steps.shared_steps).emulate[(2, 2, 2)](
            x, louver.compress(w, "2:4"), y, M, N, 200, 2, **TILE
        )
    assert np.isnan(y).all()


@pytest.mark.parametrize("k", [64, 200, 512])
def test_columns_that_are_counted_are_copied_in_bulk(rng: np.random.Generator, k: int) -> None:
    x, w = _operands(rng, k)
    scale = rng.integers(1, 4, -(-k // 64)).astype(np.float32)
    y = np.full((M, N), np.nan, np.float32)
    given = [
        louver.TensorDescriptor(x, x.shape, (k, 1), (32, 64)),
        louver.TensorDescriptor(louver.compress(w, "2:4"), w.shape, (k, 1), (64, 64)),
        scale, y, M, N, k,
    ]  # fmt: skip
    kernel, grid = louver.jit(parts_of_steps.counted_columns), (2, 2)
    assert "cp.async.bulk.tensor" in kernel.explain[grid](*given, **TILE).ptx
    kernel.emulate[grid](*given, **TILE)
    scaled = x.astype(np.float64) * np.repeat(scale, 64)[:k]
    np.testing.assert_array_equal(y, scaled @ w.T.astype(np.float64))


@pytest.mark.parametrize(
    ("k", "parts", "wraps"),
    [(256, 2, False), (512, 4, False), (128, 1, False), (256, 2, True), (512, 4, True), (128, 3, True), (192, 4, True)],
)
def test_parts_that_take_steps_by_turns_read_described_tiles(
    rng: np.random.Generator, k: int, parts: int, wraps: bool
) -> None:
    """The weight is [K, N], and what it is read at begins again at K and N: a part behind the last step reads the first one."""
    m, n = 64, 128
    x = rng.integers(-3, 4, (m, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (k, n)).astype(np.float16), "2:4", axis=0)
    y = np.full((parts, m, n), np.nan, np.float32)
    kernel, grid = louver.jit(parts_of_steps.steps_by_turns), (2 * parts, 2)
    given = x, louver.compress(w, "2:4", axis=0), y, m, n, k, parts, parts * 64, n, wraps
    assert "computed" not in str(kernel.explain[grid](*given, **TILE))
    kernel.emulate[grid](*given, **TILE)
    for part in range(parts):
        read = (np.arange(0, max(k, parts * 64), parts * 64)[:, None] + (part * 64 + np.arange(64)) % k).ravel()
        np.testing.assert_array_equal(y[part], x[:, read].astype(np.float64) @ w[read].astype(np.float64))
