"""Sparse rows that are their own number below a size: boxes where masks exclude the others, computed addresses elsewhere."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.clamped import INDICES, KEEPS, MASKS, Clamped, clamped

COMPUTED = "w is read at computed addresses"


def check(case: Clamped) -> str:
    """Run a case; returns why its tile is read as it is."""
    known, wanted = case.call()
    known["w"] = louver.compress(known["w"], "2:4", axis=-2 if case.one else -1)
    kernel = louver.jit(clamped, family="register tiles")
    told = str(kernel.explain(**known))
    kernel.emulate[case.grid](**known)
    np.testing.assert_allclose(known["y"], wanted, rtol=2.0**-7, atol=2.0**-4)
    return told


@pytest.mark.parametrize("one", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("index", INDICES)
def test_every_index_that_is_its_own_number_below_a_size(index: str, one: bool) -> None:
    for size in ("argument", "least"):
        assert COMPUTED not in check(Clamped(index, size, "store", one=one))
    assert COMPUTED not in check(Clamped(index, "argument", "store", wide=True, one=one))


@pytest.mark.parametrize("mask", MASKS)
def test_masks_that_exclude_the_other_rows(mask: str) -> None:
    for size in ("argument", "least of three"):
        told = check(Clamped("wrap", size, mask))
        assert (COMPUTED in told) == (mask not in KEEPS)
