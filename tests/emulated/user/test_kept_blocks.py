"""Matrices of a batch that a loop goes through: steps within one by a remainder, the next one by the quotient."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.kept_blocks import kept_blocks

M, SIZE, HELD = 40, 64, 5


@pytest.mark.parametrize("step", [64, 32, 16])
def test_steps_within_blocks_are_described(rng: np.random.Generator, step: int) -> None:
    begins, places = np.array([0, 2, 2, 5], np.int32), np.array([3, 0, 1, 2, 0], np.int32)
    x = rng.integers(-3, 4, (M, 4 * SIZE)).astype(np.float16)
    blocks = louver.prune(rng.integers(-3, 4, (HELD, SIZE, SIZE)).astype(np.float16), "2:4")
    y = np.full((M, 3 * SIZE), np.nan, np.float32)
    given = x, louver.compress(blocks, "2:4"), y, begins, places, M, 4 * SIZE, 4 * SIZE, SIZE, SIZE
    kernel, tile = louver.jit(kept_blocks), {"TM": 32, "TK": step}
    assert "computed" not in str(kernel.explain[2, 3](*given, **tile))
    kernel.emulate[2, 3](*given, **tile)
    dense = np.zeros((4 * SIZE, 3 * SIZE))
    for number, place in enumerate(places):
        column = np.searchsorted(begins, number, "right") - 1
        dense[place * SIZE :, column * SIZE :][:SIZE, :SIZE] = blocks[number].T
    np.testing.assert_array_equal(y, x.astype(np.float64) @ dense)
