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
from support.triton.side_by_side import side_by_side

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


@pytest.mark.parametrize(("m", "first", "second", "k"), [(40, 72, 200, 128), (16, 32, 32, 192)])
def test_tiles_behind_those_of_another_output_keep_bulk_copies(
    rng: np.random.Generator, m: int, first: int, second: int, k: int
) -> None:
    """The branch proves that no tile of the second weight begins below 0."""
    x = rng.standard_normal((m, k), np.float32).astype(np.float16)
    weights = [louver.prune(rng.standard_normal((n, k), np.float32).astype(np.float16), "2:4") for n in (first, second)]
    outputs = [np.full((m, n), np.nan, np.float32) for n in (first, second)]
    one, other = (louver.compress(each, "2:4") for each in weights)
    tiles = sum(-(-n // 32) for n in (first, second)), -(-m // 32)
    given = x, one, other, *outputs, m, first, second, k
    report = louver.jit(side_by_side).emulate[tiles](*given, TM=32, TN=32, TK=64)
    for weight, output in zip(weights, outputs, strict=True):
        expected = x.astype(np.float64) @ weight.astype(np.float64).T
        np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3)
    # Values and rows of x in each step.
    assert report.bulk_loads >= 2 * -(-k // 64) * tiles[0] * tiles[1]
