"""Users' Triton kernels on the emulator, from the texts that Triton made: every style, with tails, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import louver
from louver.emulator import Seeded
from louver.formats.dtypes import element_type
from louver.frontend.ttir import read_ttir
from louver.kernels.emulate import emulate
from louver.kernels.numerics import accumulation, compare
from louver.passes.pipeline import CompiledProduct, compile_tile_ir
from louver.passes.schedule import Schedule
from support.triton.cases import KEPT_CASES, kept

SCHEDULE = Schedule(128, 64, 64, stages=3)


def compiled(name: str, version: str, **options: object) -> CompiledProduct:
    module = read_ttir(kept(name, version))
    wide = name in ("indexed_pointers", "eight_bit_blocks")
    return compile_tile_ir(module, replace(SCHEDULE, tile_k=128 if wide else 64, **options))


def operands(rng: np.random.Generator, element: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A pruned a [M, K] and b [K, N]."""
    numpy = element_type(element).numpy
    if element == "s8":
        a, b = (rng.integers(-128, 128, shape).astype(numpy) for shape in ((m, k), (k, n)))
    else:
        a, b = (rng.standard_normal(shape, np.float32).astype(numpy) for shape in ((m, k), (k, n)))
    return louver.prune(a, "2:4"), b


def finished(name: str, total: np.ndarray, reads: dict[str, np.ndarray]) -> np.ndarray:
    """What each kernel does with the sums [M, N]."""
    if name == "grouped_pointers":
        return np.where(total >= 0, total, total * float(np.float32(0.01)))
    if name == "indexed_pointers":
        return np.clip(total * reads["scale"][:, None] + reads["bias"][None, :], -100, 100)
    return total / (1 + np.exp(-total)) * 1.0 if name == "eight_bit_blocks" else total


def check(
    rng: np.random.Generator, name: str, product: CompiledProduct, m: int, n: int, k: int, sm_count: int = 132
) -> None:
    nest = product.nest
    a, b = operands(rng, nest.a.element, m, n, k)
    reads = {"scale": rng.standard_normal(m, np.float32) / 1000, "bias": rng.standard_normal(n, np.float32)}
    dense = np.ascontiguousarray(b.T if nest.b.k_major else b)
    y, report = emulate(product, louver.compress(a, "2:4"), dense, None, reads, sm_count=sm_count, order=Seeded(5))
    y = y.T if nest.store.transposed else y
    assert report.products > 0 and y.shape == (m, n)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    total, magnitude = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    reference = finished(name, total, reads)
    if name == "indexed_pointers":
        magnitude = magnitude * np.abs(reads["scale"])[:, None] + np.abs(reads["bias"])[None, :]
    if name == "eight_bit_blocks":
        # A sigmoid's slope is at most 1/4, and x · sigmoid(x) has slopes of at most 1.1.
        magnitude = 1.1 * magnitude + np.abs(total)
    assert np.abs(reference).max() > 0.01
    out = element_type(y.dtype).name
    agreement = compare(y, reference, magnitude, k, out, accumulation(nest.a.element, floating=True))
    assert agreement.ok, agreement


@pytest.mark.parametrize(("name", "version"), KEPT_CASES)
def test_every_style_of_kernel(rng: np.random.Generator, name: str, version: str) -> None:
    check(rng, name, compiled(name, version), 200, 90, 264)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 4), (127, 63, 60), (129, 65, 68), (256, 128, 64), (300, 200, 132)])
@pytest.mark.parametrize("name", ["made_descriptors", "block_pointers", "grouped_pointers"])
def test_tails(rng: np.random.Generator, name: str, m: int, n: int, k: int) -> None:
    check(rng, name, compiled(name, "3.6"), m, n, k, sm_count=2)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grouped_pointers", {"store": "bulk"}),
        ("made_descriptors", {"cluster": 2}),
        ("grouped_pointers", {"values": "registers"}),
        ("block_pointers", {"raster": 1}),
    ],
    ids=str,
)
def test_schedules(rng: np.random.Generator, name: str, options: dict[str, object]) -> None:
    check(rng, name, compiled(name, "3.6", **options), 400, 136, 200, sm_count=4)


def test_integer_data_is_exact(rng: np.random.Generator) -> None:
    product = compiled("grouped_pointers", "3.6")
    m, n, k = 257, 66, 196
    a = louver.prune(rng.integers(-4, 5, (m, k)).astype(np.float16), "2:4")
    b = rng.integers(-4, 5, (k, n)).astype(np.float16)
    y, _ = emulate(product, louver.compress(a, "2:4"), b)
    total = a.astype(np.float64) @ b.astype(np.float64)
    below = (total.astype(np.float32) * np.float32(0.01)).astype(np.float16)
    np.testing.assert_array_equal(y, np.where(total >= 0, total.astype(np.float16), below))


def test_nan_and_negative_zero_choose_as_triton_does(rng: np.random.Generator) -> None:
    """A sum that is NaN is not at least 0, so that it is multiplied: NaN either way; -0 is kept."""
    product = compiled("grouped_pointers", "3.6")
    a = np.zeros((8, 64), np.float16)
    a[0, 0], a[1, 1], a[2, 4] = np.nan, np.inf, -np.inf
    b = np.abs(rng.standard_normal((64, 16))).astype(np.float16) + np.float16(0.1)
    y, _ = emulate(product, louver.compress(a, "2:4"), b)
    assert np.isnan(y[0]).all() and (y[1] == np.inf).all() and (y[2] == -np.inf).all() and (y[3:] == 0).all()
