"""Narrow steps of K are taken two at a time, where the next one is the same further on and zeros lie behind the last one."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.narrow_steps import narrow_steps

M, N = 40, 72

WIDENED = ["pointers", "elements", "columns of w", "gathered", "left counts down"]

KEPT = ["one mask", "every other step", "halved sums", "scaled steps"]
"""Loops whose steps are not the same further on, or that do not read zeros behind the last one."""


def _expected(x: np.ndarray, w: np.ndarray, form: str) -> np.ndarray:
    total = np.zeros((len(x), len(w)))
    for step, first in enumerate(range(0, x.shape[1], 32)):
        part = x[:, first : first + 32].astype(np.float64) @ w[:, first : first + 32].astype(np.float64).T
        match form:
            case "every other step":
                total += part * (step % 2 == 0)
            case "halved sums":
                total = total / 2 + part
            case "scaled steps":
                total += part * (1 + step % 2)
            case _:
                total += part
    return total


def _columns(rng: np.random.Generator, form: str, k: int) -> str:
    """The columns that a step of the compiled kernel multiplies. Its result is checked."""
    w = louver.prune(rng.integers(-3, 4, (N, k)).astype(np.float16), "2:4")
    x = rng.integers(-3, 4, (M, k)).astype(np.float16)
    rows = rng.permutation(M).astype(np.int32)
    y = np.full((M, N), np.nan, np.float32)
    across = form == "columns of w"
    s = louver.compress(w.T, "2:4", axis=0) if across else louver.compress(w, "2:4")
    given = x, s, y, rows, M, N, k, form, 32, 64, 32
    kernel = louver.jit(narrow_steps, family="register tiles")
    kernel.emulate[(2, 2)](*given)
    np.testing.assert_array_equal(y, _expected(x[rows] if form == "gathered" else x, w, form))
    text = str(kernel.explain[(2, 2)](*given))
    return text.partition("wgmma.sp of 32×64×")[2].partition(",")[0]


@pytest.mark.parametrize("k", [200, 160, 96, 20])
@pytest.mark.parametrize("form", WIDENED)
def test_steps_are_taken_two_at_a_time(rng: np.random.Generator, form: str, k: int) -> None:
    assert _columns(rng, form, k) == "64"


@pytest.mark.parametrize("k", [200, 96, 20])
@pytest.mark.parametrize("form", ["eight bits", "converted"])
def test_steps_of_32_columns_of_8_bits(rng: np.random.Generator, form: str, k: int) -> None:
    """Sparse tensor cores take 64 of these columns, so that a step by itself is refused."""
    w = louver.prune(rng.integers(-9, 10, (N, k)).astype(np.int8), "2:4")
    x = rng.integers(-9, 10, (M, k)).astype(np.int8 if form == "eight bits" else np.float16)
    y = np.full((M, N), np.nan, np.float32)
    given = x, louver.compress(w, "2:4"), y, np.zeros(M, np.int32), M, N, k, form, 32, 64, 32
    kernel = louver.jit(narrow_steps, family="register tiles")
    kernel.emulate[(2, 2)](*given)
    np.testing.assert_array_equal(y, x.astype(np.float64) @ w.astype(np.float64).T)
    assert "wgmma.sp of 32×64×64" in str(kernel.explain[(2, 2)](*given))


@pytest.mark.parametrize(("k", "columns"), [(192, "64"), (128, "64"), (160, "32"), (96, "32")])
def test_a_kernel_without_masks_is_told_that_steps_are_even(rng: np.random.Generator, k: int, columns: str) -> None:
    assert _columns(rng, "no mask of K", k) == columns


@pytest.mark.parametrize("form", KEPT)
def test_other_steps_stay(rng: np.random.Generator, form: str) -> None:
    assert _columns(rng, form, 160) == "32"
