"""What an operand of few columns is computed from is copied ahead, also in a loop that stores and one that reads it again."""

from __future__ import annotations

import numpy as np
import pytest

import louver

pytest.importorskip("triton")

from support.triton import copied_sources as kernels

TILE = {"TM": 64, "TN": 16, "TK": 64}


@pytest.mark.parametrize(("m", "n", "k"), [(64, 16, 256), (80, 12, 336), (8, 16, 64)])
@pytest.mark.parametrize("stores", [True, False])
def test_sources_are_copied_ahead(rng: np.random.Generator, m: int, n: int, k: int, stores: bool) -> None:
    x = rng.standard_normal((m, k)).astype(np.float16)
    w = louver.prune(rng.standard_normal((n, k)).astype(np.float16), "2:4")
    y, squares, kept = (np.full(shape, np.nan, np.float32) for shape in ((m, n), (m,), (m, k)))
    kept = kept.astype(np.float16)
    given = (x, louver.compress(w, "2:4"), y, *([kept] if stores else []), squares, m, n, k)
    kernel, grid = louver.jit(kernels.kept_changes if stores else kernels.squares_beside), (-(-m // 64),)
    text = kernel.explain[grid](*given, **TILE).ptx
    # x comes by copies, never by loads to registers.
    assert "cp.async" in text and "ld.global.v" not in text
    kernel.emulate[grid](*given, **TILE)
    exact, weight = x.astype(np.float64), w.astype(np.float64)
    changed = np.maximum(exact, 0) if stores else exact
    np.testing.assert_allclose(y, changed @ weight.T, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(squares, (exact**2).sum(1), rtol=1e-5)
    if stores:
        np.testing.assert_array_equal(kept, changed.astype(np.float16))


def test_a_sum_of_squares_is_multiplied_and_added_at_once(rng: np.random.Generator) -> None:
    x = rng.standard_normal((64, 256)).astype(np.float16)
    w = louver.compress(louver.prune(rng.standard_normal((16, 256)).astype(np.float16), "2:4"), "2:4")
    y, squares = np.zeros((64, 16), np.float32), np.zeros(64, np.float32)
    text = louver.jit(kernels.squares_beside).explain[1,](x, w, y, squares, 64, 16, 256, **TILE).ptx
    assert text.count("fma.rn.f32") > text.count("add.rn.f32")


@pytest.mark.parametrize(("tokens", "told"), [(64, True), (16, False)])
def test_instructions_that_outnumber_products_are_a_reason(rng: np.random.Generator, tokens: int, told: bool) -> None:
    """Few tokens wait for memory, which sends fewer bytes of a sparse weight."""
    x = rng.standard_normal((tokens, 256)).astype(np.float16)
    w = louver.compress(louver.prune(rng.standard_normal((64, 256)).astype(np.float16), "2:4"), "2:4")
    given = x, w, np.zeros((tokens, 64), np.float32), x.copy(), np.zeros(tokens, np.float32), tokens, 64, 256
    found = louver.jit(kernels.kept_changes).explain[1,](*given, TM=tokens, TN=64, TK=64)
    assert ("times as long as its products take" in str(found.warning)) == told
