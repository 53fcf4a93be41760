"""Products that address their operands at random, on the emulator: what Triton's meaning gives, in float64, or refused."""

from __future__ import annotations

import importlib.util
from collections import Counter

import numpy as np
import pytest

import louver
from louver.user.hints import REGISTER_TILES

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.addressed import addressed
from support.triton.kernels import grouped_pointers

KERNELS = 10
"""Kernels of a test."""

LAUNCHES = 2


def fates(seed: int) -> list[str]:
    """What becomes of the launches of a kernel, as it is and by register tiles: the family that computes it, or "refused"."""
    drawn, found = addressed(seed), list[str]()
    for hints in ({}, {"family": REGISTER_TILES}):
        kernel = louver.jit(drawn.kernel, **hints)
        for launch in filter(None, map(drawn.launch, range(LAUNCHES))):
            given = {name: each.copy() if name == "y" else each for name, each in launch.arguments.items()}
            given["w"] = louver.compress(given["w"], "2:4")
            try:
                kernel.emulate[launch.grid](**given)
            except ValueError:
                found.append("refused")
                continue
            numbers = {name: each for name, each in launch.arguments.items() if isinstance(each, int)}
            np.testing.assert_array_equal(
                given["y"], launch.right, err_msg=f"{seed} {hints} {numbers}\n{drawn.source()}"
            )
            found.append("right")
    return found


@pytest.mark.sampled(7, every=3)
@pytest.mark.parametrize("block", range(30))
def test_addresses_are_followed_or_refused(block: int) -> None:
    found = Counter(fate for seed in range(block * KERNELS, (block + 1) * KERNELS) for fate in fates(seed))
    assert found["right"] >= 0.4 * found.total()


@pytest.mark.parametrize("group", [2, 8])
@pytest.mark.parametrize(("m", "n"), [(32, 32), (100, 208), (330, 80)])
def test_tiles_numbered_in_groups_keep_bulk_copies(rng: np.random.Generator, m: int, n: int, group: int) -> None:
    """Rows are in the array for each program of a grid as large as the tiles."""
    k, tiles = 128, -(-m // 32) * -(-n // 32)
    a, b = rng.integers(-3, 4, (m, k)).astype(np.float16), rng.integers(-3, 4, (k, n)).astype(np.float16)
    a, d = louver.prune(a, "2:4"), np.full((m, n), np.nan, np.float16)
    given = {"stride_am": k, "stride_ak": 1, "stride_bk": n, "stride_bn": 1, "stride_dm": n, "stride_dn": 1}
    given |= {"M": m, "N": n, "K": k, "BM": 32, "BN": 32, "BK": 64, "GROUP": group, "ACTIVATION": ""}
    kernel = louver.jit(grouped_pointers, family=REGISTER_TILES)
    report = kernel.emulate[(tiles,)](a=louver.compress(a, "2:4"), b=b, d=d, **given)
    np.testing.assert_array_equal(d, a.astype(np.float64) @ b.astype(np.float64))
    # Values and rows of b in each of two steps.
    assert report.bulk_loads >= 2 * 2 * tiles
