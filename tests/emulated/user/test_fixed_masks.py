"""Pointers that move while their mask stays, and masks wider than a row: every element is read, by boxes or without."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver
from louver.user.hints import REGISTER_TILES

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import fixed_masks

TILE = {"TM": 64, "TN": 64, "TK": 64}


@pytest.mark.parametrize("way", ["as it is", "register tiles", "interpreted"])
@pytest.mark.parametrize(
    ("name", "m", "k", "limit"),
    [
        ("fixed_k_mask", 64, 128, 128),
        ("fixed_k_mask", 100, 256, 256),
        ("fixed_k_mask", 100, 192, 32),
        ("fixed_k_mask", 100, 192, 64),
        ("fixed_row_mask", 128, 128, None),
        ("fixed_row_mask", 192, 72, None),
        ("fixed_row_mask", 48, 80, None),
        ("wide_mask", 128, 128, 192),
        ("wide_mask", 64, 192, 128),
        ("wide_mask", 64, 192, 250),
        ("wide_mask", 100, 128, 192),
        ("wide_mask", 100, 192, 1000),
    ],
)
def test_every_tile_is_summed(rng: np.random.Generator, way: str, name: str, m: int, k: int, limit: int | None) -> None:
    n = 128
    x = rng.integers(-3, 4, (m, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(np.float16), "2:4")
    y = np.full((m, n), np.nan, np.float32)
    given: dict[str, Any] = {"x": x, "w": louver.compress(w, "2:4"), "y": y, "M": m, "N": n, "K": k, "LIMIT": limit}
    given |= {"sxm": k, "swn": k, "sym": n, "ROWS": m % 64 != 0} | TILE
    kernel = louver.jit(getattr(fixed_masks, name), **({"family": REGISTER_TILES} if way == "register tiles" else {}))
    grid = (2,) if name == "fixed_row_mask" else (-(-m // 64), 2)
    start = (kernel if way == "interpreted" else kernel.emulate)[grid]
    start(**{each: given[each] for each in getattr(fixed_masks, name).arg_names})
    read = x.astype(np.float64)
    if limit is not None:
        read[:, (np.arange(k) % 64 if name == "fixed_k_mask" else np.arange(k)) >= limit] = 0
    np.testing.assert_array_equal(y, read @ w.T.astype(np.float64))


def test_a_wide_mask_lets_through_what_a_loop_reads(rng: np.random.Generator) -> None:
    """Two elements of the last row are missing. The loop reads all 128 of it."""
    m, n, k = 100, 128, 128
    x = rng.integers(-3, 4, m * k).astype(np.float16)[: m * k - 2]
    w = louver.compress(louver.prune(rng.integers(-3, 4, (n, k)).astype(np.float16), "2:4"), "2:4")
    given: dict[str, Any] = {"x": x, "w": w, "y": np.zeros((m, n), np.float32), "M": m, "N": n, "K": k, "LIMIT": 192}
    rule = "reaches 12800 elements of 'x', got an array of 12798"
    with pytest.raises(ValueError, match=rule):
        louver.jit(fixed_masks.wide_mask, family=REGISTER_TILES).emulate[(2, 2)](
            **given, sxm=k, swn=k, sym=n, ROWS=True, **TILE
        )


def steps(rng: np.random.Generator, m: int, n: int, k: int, *, both: bool) -> tuple[Any, dict[str, Any], Any]:
    """A kernel whose mask stays, its arguments, and what it computes. x has one row more than the kernel multiplies."""
    x = rng.integers(-3, 4, (m + 1, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(np.float16), "2:4")
    given: dict[str, Any] = {"x": x, "w": louver.compress(w, "2:4"), "y": np.full((m, n), np.nan, np.float32)}
    given |= {"M": m, "N": n, "K": k, "sxm": k, "swn": k, "sym": n, "BOTH": both} | TILE
    return louver.jit(fixed_masks.whole_steps), given, x[:m].astype(np.float64) @ w.T.astype(np.float64)


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("k", [32, 64, 192])
def test_a_mask_that_stays_is_that_of_each_step_of_whole_steps(rng: np.random.Generator, both: bool, k: int) -> None:
    kernel, given, expected = steps(rng, 100, 72, k, both=both)
    assert kernel.explain(**given).family == "product"
    kernel.emulate[(2, 2)](**given)
    np.testing.assert_array_equal(given["y"], expected)


def test_a_mask_that_stays_in_other_steps_is_not_that_of_each(rng: np.random.Generator) -> None:
    """The kernel reads what follows in memory, and multiplies it with zeros, or it is refused."""
    kernel, given, expected = steps(rng, 100, 72, 104, both=False)
    kernel.emulate[(2, 2)](**given)
    np.testing.assert_array_equal(given["y"], expected)
    kernel, given, _ = steps(rng, 100, 72, 104, both=True)
    rule = "whose mask stays, so K is at most 64 or a multiple, got 104: compare with the index"
    with pytest.raises(ValueError, match=rule):
        kernel.emulate[(2, 2)](**given)


@pytest.mark.parametrize("shift", [-64, -8, 0, 8])
def test_columns_may_begin_in_the_row_before(rng: np.random.Generator, shift: int) -> None:
    m, n, k = 80, 72, 128
    x = rng.integers(-3, 4, (m + 1, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(np.float16), "2:4")
    y = np.full((m, n), np.nan, np.float32)
    given: dict[str, Any] = {"x": x, "w": louver.compress(w, "2:4"), "y": y, "M": m, "N": n, "K": k, "SHIFT": shift}
    louver.jit(fixed_masks.shifted).emulate[(2, 2)](**given | {"sxm": k, "swn": k, "sym": n} | TILE)
    at = np.arange(k) + shift
    read = np.where(at < k, x.reshape(-1)[(1 + np.arange(m))[:, None] * k + np.minimum(at, k - 1)], 0)
    np.testing.assert_array_equal(y, read.astype(np.float64) @ w.T.astype(np.float64))


@pytest.mark.parametrize(("k", "down"), [(128, False), (128, True), (104, False), (40, False)])
def test_steps_behind_the_rows_of_a_selected_matrix_are_refused(rng: np.random.Generator, k: int, down: bool) -> None:
    """Another matrix is behind the selected one, so Triton would multiply its first row."""
    m, n, ids = 128, 128, np.array([1, 0], np.int32)
    x = rng.integers(-3, 4, (m, 128)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (3, n, k)).astype(np.float16), "2:4")
    given: dict[str, Any] = {
        "x": x,
        "w": louver.compress(w, "2:4"),
        "ids": ids,
        "y": np.full((m, n), np.nan, np.float32),
    }
    given |= {"M": m, "N": n, "K": k, "sxm": 128, "swe": n * k, "swn": k, "sym": n, "DOWN": down} | TILE
    kernel = louver.jit(fixed_masks.unmasked_experts)
    if k % 64:
        with pytest.raises(ValueError, match=f"takes K in multiples of 64, got {k}: its tiles are whole"):
            kernel.emulate[(2, 2)](**given)
        return
    kernel.emulate[(2, 2)](**given)
    expected = np.concatenate(
        [x[64 * i : 64 * i + 64].astype(np.float64) @ w[ids[i]].T.astype(np.float64) for i in (0, 1)]
    )
    np.testing.assert_array_equal(given["y"], expected)
