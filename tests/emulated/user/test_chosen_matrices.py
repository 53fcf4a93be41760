"""Programs that choose a matrix of a sparse weight, or none, on the emulator: no addresses are computed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver
from louver.measure.forms import wide

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.chosen_matrices import experts_if_any, pages_of_columns, routed_or_shared, unless_unused

M, N, K, E = 40, 80, 144, 3
SIZES = {"M": M, "N": N, "K": K}
TILE = {"BM": 32, "BN": 32, "BK": 64}
GRID = (-(-M // 32), -(-N // 32))


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float16)


def pruned(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return louver.prune(drawn(rng, *shape), "2:4")


def check(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2.0**-8 * np.abs(expected).max())


@pytest.mark.parametrize(("spare", "family"), [(0, "product"), (2, "register tiles")])
def test_programs_beyond_the_last_matrix_do_nothing(rng: np.random.Generator, spare: int, family: str) -> None:
    x, w, y = drawn(rng, M, K), pruned(rng, E, N, K), np.full((E, M, N), np.nan, np.float16)
    kernel, grid, given = louver.jit(experts_if_any), (*GRID, E + spare), {"E": E, **SIZES, **TILE}
    explained = kernel.explain[grid](x, louver.compress(w, "2:4"), y, **given)
    assert explained.family == family and "computed" not in str(explained)
    kernel.emulate[grid](x, louver.compress(w, "2:4"), y, **given)
    check(y, np.einsum("mk,enk->emn", wide(x), wide(w)))


@pytest.mark.parametrize("programs", [1, 2])
def test_programs_along_an_axis_that_numbers_nothing(rng: np.random.Generator, programs: int) -> None:
    x, w, y = drawn(rng, M, K), pruned(rng, N, K), np.full((M, N), np.nan, np.float16)
    louver.jit(unless_unused).emulate[(*GRID, programs)](x, louver.compress(w, "2:4"), y, **SIZES, **TILE)
    check(y, wide(x) @ wide(w).T)


def test_a_branch_leaves_the_last_matrix_to_another_tensor(rng: np.random.Generator) -> None:
    x, y = drawn(rng, M, K), np.full((E + 1, M, N), np.nan, np.float16)
    w, shared = pruned(rng, E, N, K), pruned(rng, N, K)
    kernel, grid = louver.jit(routed_or_shared), (*GRID, E + 1)
    given = (x, louver.compress(w, "2:4"), louver.compress(shared, "2:4"), y)
    assert "computed" not in str(kernel.explain[grid](*given, E=E, **SIZES, **TILE))
    kernel.emulate[grid](*given, E=E, **SIZES, **TILE)
    check(y, np.einsum("mk,enk->emn", wide(x), wide(np.concatenate([w, shared[None]]))))


@pytest.mark.parametrize("n", [64, 80, 96])
def test_parts_of_columns_in_any_order(rng: np.random.Generator, n: int) -> None:
    pages = 5
    x, w, y = drawn(rng, M, K), pruned(rng, pages, n, 64), np.full((M, n), np.nan, np.float16)
    table = rng.permutation(pages)[: -(-K // 64)].astype(np.int32)
    kernel, grid = louver.jit(pages_of_columns), (GRID[0], -(-n // 32))
    given = {**SIZES, "N": n, "PAGE": 64, "BM": 32, "BN": 32}
    assert "computed" not in str(kernel.explain[grid](x, louver.compress(w, "2:4"), y, table, **given))
    kernel.emulate[grid](x, louver.compress(w, "2:4"), y, table, **given)
    check(y, wide(x) @ np.concatenate([wide(w[page]) for page in table], axis=1)[:, :K].T)
