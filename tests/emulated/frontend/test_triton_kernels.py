"""Users' Triton kernels on the emulator, from the texts that Triton made: every style, with tails, against float64."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.compile.compiled import CompiledProduct
from louver.emulator import Seeded
from louver.library.emulate import emulate
from support.triton.cases import CASES
from support.triton.products import compiled, given


def check(
    rng: np.random.Generator, name: str, product: CompiledProduct, m: int, n: int, k: int, sm_count: int = 132
) -> None:
    case = given(rng, name, product, m, n, k)
    y, report = emulate(product, case.s, case.dense, None, case.reads, sm_count=sm_count, order=Seeded(5))
    assert report.products > 0
    case.assert_close(y.T if product.nest.store.transposed else y)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", CASES)
def test_every_style_of_kernel(rng: np.random.Generator, name: str) -> None:
    check(rng, name, compiled(name), 200, 90, 264)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 4), (127, 63, 60), (129, 65, 68), (256, 128, 64), (300, 200, 132)])
@pytest.mark.parametrize("name", ["made_descriptors", "block_pointers", "grouped_pointers"])
def test_tails(rng: np.random.Generator, name: str, m: int, n: int, k: int) -> None:
    check(rng, name, compiled(name), m, n, k, sm_count=2)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grouped_pointers", {"store": "bulk"}),
        ("made_descriptors", {"cluster": 2}),
        ("block_pointers", {"raster": 1}),
    ],
    ids=str,
)
def test_schedules(rng: np.random.Generator, name: str, options: dict[str, object]) -> None:
    check(rng, name, compiled(name, **options), 400, 136, 200, sm_count=4)


def test_integer_data_is_exact(rng: np.random.Generator) -> None:
    product = compiled("grouped_pointers")
    m, n, k = 257, 66, 196
    a = louver.prune(rng.integers(-4, 5, (m, k)).astype(np.float16), "2:4")
    b = rng.integers(-4, 5, (k, n)).astype(np.float16)
    y, _ = emulate(product, louver.compress(a, "2:4"), b)
    total = a.astype(np.float64) @ b.astype(np.float64)
    below = (total.astype(np.float32) * np.float32(0.01)).astype(np.float16)
    np.testing.assert_array_equal(y, np.where(total >= 0, total.astype(np.float16), below))


def test_nan_and_negative_zero_choose_as_triton_does(rng: np.random.Generator) -> None:
    """A sum that is NaN is not at least 0, so that it is multiplied: NaN either way; -0 is kept."""
    product = compiled("grouped_pointers")
    a = np.zeros((8, 64), np.float16)
    a[0, 0], a[1, 1], a[2, 4] = np.nan, np.inf, -np.inf
    b = np.abs(rng.standard_normal((64, 16))).astype(np.float16) + np.float16(0.1)
    y, _ = emulate(product, louver.compress(a, "2:4"), b)
    assert np.isnan(y[0]).all() and (y[1] == np.inf).all() and (y[2] == -np.inf).all() and (y[3:] == 0).all()
