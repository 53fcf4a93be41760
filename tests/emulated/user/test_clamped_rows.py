"""Sparse rows that are their own number below a size: boxes where masks exclude the others, computed addresses elsewhere."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver
from louver.emulator.errors import EmulationError

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.clamped import BK, BM, INDICES, KEEPS, MASKS, Clamped, clamped, repeated

COMPUTED = "w is read at computed addresses"

CALLS = 3
"""Random calls of a test."""


def check(case: Clamped, **hints: str) -> str:
    """Run a case; returns why its tile is read as it is."""
    known, wanted = case.call()
    known["w"] = louver.compress(known["w"], "2:4", axis=-2 if case.one else -1)
    kernel = louver.jit(clamped, **hints)
    told = str(kernel.explain[case.grid](**known))
    kernel.emulate[case.grid](**known)
    np.testing.assert_allclose(known["y"], wanted, rtol=2.0**-7, atol=2.0**-4)
    return told


@pytest.mark.parametrize("one", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("index", INDICES)
def test_every_index_that_is_its_own_number_below_a_size(index: str, one: bool) -> None:
    assert COMPUTED not in check(Clamped(index, "argument", "store", wide=True, one=one))
    assert COMPUTED not in check(Clamped(index, "least", "store", one=one, spare=7))


@pytest.mark.parametrize("mask", MASKS)
def test_masks_that_exclude_the_other_rows(mask: str) -> None:
    for case in (Clamped("last", "argument", mask), Clamped("wrap", "least of three", mask)):
        told = check(case, family="register tiles")
        assert (COMPUTED in told) == (mask not in KEEPS)


@pytest.mark.parametrize("one", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask not in KEEPS])
def test_rows_that_begin_again_are_boxes_where_the_size_is_whole_tiles(mask: str, one: bool) -> None:
    """Programs begin below the size and beyond it. Else the call computes addresses."""
    tiles = {"family": "register tiles"}
    assert COMPUTED not in check(Clamped("hinted", "argument", mask, one=one, n=64, more=2, spare=16), **tiles)
    assert COMPUTED in check(Clamped("wrap", "argument", mask, one=one, n=56, more=2), **tiles)


def test_products_of_rows_from_where_a_pointer_was_moved_to() -> None:
    told = check(Clamped("last", "least", "store", n=70, tile=64))
    assert "register tiles" not in told and COMPUTED not in told


def test_sizes_that_are_loaded_are_computed() -> None:
    assert COMPUTED in check(Clamped("wrap", "loaded", "store"))


@pytest.mark.parametrize("mask", ["store", "none", "sums"])
def test_sums_that_a_loop_without_a_count_carries(mask: str, rng: np.random.Generator) -> None:
    m, n, k, tile = 13, 41, 72, 32
    x = rng.standard_normal((m, k), np.float32).astype(np.float16)
    w = louver.prune(rng.standard_normal((n, k), np.float32).astype(np.float16), "2:4")
    wanted = x.astype(np.float64) @ w[np.arange(2 * tile) % n].astype(np.float64).T
    if mask == "store":
        wanted[:, n:] = np.nan
    elif mask == "sums":
        wanted = wanted.reshape(m, 2, tile).sum(2).T
    y = np.full(wanted.shape, np.nan, np.float32)
    kernel = louver.jit(repeated)
    known = {"w": louver.compress(w, "2:4"), "x": x, "y": y, "M": m, "N": n, "K": k}
    known |= {"MASK": mask, "BM": BM, "BN": tile, "BK": BK}
    # The size is no whole tiles.
    assert (COMPUTED in str(kernel.explain[(2,)](**known))) == (mask != "store")
    kernel.emulate[(2,)](**known)
    np.testing.assert_allclose(y, wanted, rtol=2.0**-7, atol=2.0**-4)


@pytest.mark.sampled(7, every=3)
@pytest.mark.parametrize("block", range(30))
def test_random_calls_are_right_or_refused(block: int) -> None:
    for case in map(Clamped.of, range(block * CALLS, (block + 1) * CALLS)):
        try:
            # A product has a program for each of its tiles.
            told = check(case, **({"family": "register tiles"} if case.more else {}))
        except (ValueError, EmulationError):
            assert case.mask not in KEEPS or case.size == "loaded"
        else:
            assert (COMPUTED in told) != case.boxed
