"""Vectors that scale the sums of a loop: few elements in a thread, exchanged where the sums need them."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import numpy as np
import pytest

import louver
from louver.user.hints import REGISTER_TILES

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.vectors import carried_ratio

STEP = 64


def call(rng: np.random.Generator, rows: int, depth: int, tile: tuple[int, int]) -> tuple[dict[str, Any], Any]:
    """The arguments of the kernel, and what it computes. Scales are powers of two, so that every sum is exact."""
    columns, steps = tile[1] + 8, -(-depth // STEP)
    x = rng.integers(-3, 4, (rows, depth)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (columns, depth)).astype(np.float16), "2:4")
    scales = (2.0 ** rng.integers(-2, 3, (rows, steps))).astype(np.float32)
    wide = x.astype(np.float64) * np.repeat(scales.astype(np.float64), STEP, axis=1)[:, :depth]
    given = {"y": np.full((rows, columns), np.nan, np.float32), "x": x, "xs": scales, "w": louver.compress(w, "2:4")}
    sizes = {"M": rows, "N": columns, "K": depth, "BM": tile[0], "BN": tile[1], "BK": STEP}
    return given | sizes, wide @ w.T.astype(np.float64)


@pytest.mark.parametrize("depth", [40, 64, 200])
@pytest.mark.parametrize(
    ("tile", "warps"), [((128, 128), 8), ((128, 64), 4), ((256, 64), 8), ((64, 128), 4), ((32, 32), 4), ((128, 32), 2)]
)
def test_sums_are_scaled(rng: np.random.Generator, tile: tuple[int, int], warps: int, depth: int) -> None:
    given, expected = call(rng, tile[0] + 5, depth, tile)
    louver.jit(carried_ratio, family=REGISTER_TILES).emulate[(2, 2)](**given, num_warps=warps)
    np.testing.assert_array_equal(given["y"], expected)


@pytest.mark.parametrize(("tile", "warps", "divisions"), [((128, 128), 8, 1), ((128, 64), 4, 1), ((32, 128), 4, 8)])
def test_few_elements_in_a_thread(rng: np.random.Generator, tile: tuple[int, int], warps: int, divisions: int) -> None:
    """The rows of a wide tile are exchanged. A thread of a narrow tile has few elements, and computes them itself."""
    given, _ = call(rng, tile[0], 256, tile)
    ptx = louver.jit(carried_ratio, family=REGISTER_TILES).explain[(1, 2)](**given, num_warps=warps).ptx
    loop = max(re.findall(r"\n\s*(loop_\d+):(.*?)bra\.uni \1;", ptx, re.DOTALL), key=lambda found: len(found[1]))[1]
    assert len(re.findall(r"rcp\.|div\.(full|rn)", loop)) == divisions
