"""Kernels that mask K in the last step alone: their weights are read as tiles, and every element is summed once."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver
from louver.user.hints import REGISTER_TILES

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import last_steps

TILE = {"TM": 32, "TN": 32, "TK": 64}
FORMS = [
    *((last_steps.branch_in_loop, how) for how in ("below", "equal", "columns", "even")),
    *((last_steps.nested_branches, how) for how in ("loads", "store")),
    *((last_steps.step_behind, how) for how in ("columns", "pointers")),
]
IDS = [f"{kernel.__name__} {how}" for kernel, how in FORMS]
M, N = 40, 56


def call(rng: np.random.Generator, how: str, k: int, layout: str) -> tuple[dict[str, Any], Any]:
    """The arguments of a kernel, and what it computes."""
    x = rng.integers(-3, 4, (M, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (N, k)).astype(np.float16), "2:4")
    given: dict[str, Any] = {"x": x, "y": np.full((M, N), np.nan, np.float32), "M": M, "N": N, "K": k, "HOW": how}
    if layout == "kn":
        given |= {"w": louver.compress(np.ascontiguousarray(w.T), "2:4", axis=-2), "swk": N, "swn": 1}
    else:
        given |= {"w": louver.compress(w, "2:4"), "swk": 1, "swn": k}
    return given | {"sxm": k, "sym": N} | TILE, x.astype(np.float64) @ w.T.astype(np.float64)


@pytest.mark.parametrize("family", [None, REGISTER_TILES])
@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize(("kernel", "how"), FORMS, ids=IDS)
def test_every_step_is_summed(rng: np.random.Generator, kernel: Any, how: str, layout: str, family: str | None) -> None:
    """K is less than a step, whole steps, and between them."""
    started = louver.jit(kernel, **({} if family is None else {"family": family}))
    for k in (8, 128, 200):
        given, expected = call(rng, how, k, layout)
        started.emulate[(2, 2)](**given)
        np.testing.assert_array_equal(given["y"], expected, err_msg=str(k))


@pytest.mark.parametrize(("kernel", "how"), FORMS, ids=IDS)
def test_weights_are_read_as_tiles(rng: np.random.Generator, kernel: Any, how: str) -> None:
    """As a product, where it is one. A mask that the condition does not imply is kept, and the tile's addresses computed."""
    given, _ = call(rng, how, 200, "nk")
    text = str(louver.jit(kernel).explain(**given))
    assert text.startswith("register tiles" if how in ("even", "store") else "product")
    tiles = str(louver.jit(kernel, family=REGISTER_TILES).explain(**given))
    assert ("w is read at computed addresses" in tiles) == (how in ("even", "pointers"))
