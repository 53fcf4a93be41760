"""The hardware against `Wgmma.meaning` and float64: bit for bit on exact data, within the bound on random data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from louver.isa.wgmma import FP8, INTEGER, Wgmma
from support import warpgroup_cases as cases
from support.warpgroup import Product, contributing, make_product, normals, starting, tiny_operand
from support.warpgroup_kernel import run_on_gpu

pytestmark = pytest.mark.usefixtures("hopper")


@pytest.fixture(scope="module")
def hopper() -> None:
    """Skip where the GPU at hand is not sm_90a."""
    from louver.runtime.device import require_device

    device = require_device()
    if device.target != "sm_90a":
        pytest.skip(f"wgmma needs sm_90a, got {device.target}")


def check_exact(products: list[Product], rng: np.random.Generator) -> None:
    """Both with the old accumulators and without them."""
    starts = [starting(rng, product.form) for product in products]
    runs = zip(products * 2, starts + [None] * len(products), strict=True)
    results = run_on_gpu(products, starts) + run_on_gpu(products, [None] * len(products))
    for (product, old), got in zip(runs, results, strict=True):
        wrong = np.argwhere(got != product.meaning(old))
        assert not wrong.size, f"{product.form}: {len(wrong)} of {got.size} differ, first at {wrong[0]}"
        assert np.array_equal(got, product.reference(old)), f"{product.form} and its meaning agree, float64 does not"


@pytest.mark.parametrize(("a", "b", "d", "sparse", "source"), cases.KINDS)
def test_every_kind_exactly(a, b, d, sparse, source, rng):
    check_exact([make(rng) for make in cases.of_kind(a, b, d, sparse, source)], rng)


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_majors_and_swizzles_exactly(name, sparse, rng):
    check_exact([make(rng) for make in cases.of_layouts(name, sparse)], rng)


def test_swizzles_of_other_sizes_exactly(rng):
    check_exact([make(rng) for make in cases.of_narrow_types()], rng)


def test_negation_exactly(rng):
    check_exact([make(rng) for make in cases.of_signs()], rng)


def test_integers_wrap_and_saturate(rng):
    products = [make(rng) for make in cases.of_saturation()]
    limit = np.iinfo(np.int32)
    edge = rng.choice([limit.min, limit.max], (64, 32)).astype(np.int32)
    for product, got in zip(products, run_on_gpu(products, [edge] * len(products)), strict=True):
        assert np.array_equal(got, product.meaning(edge)), product.form


@pytest.mark.parametrize(("a", "b", "d", "sparse", "source"), [k for k in cases.KINDS if k[0] not in INTEGER])
def test_random_data_within_the_bound(a, b, d, sparse, source, rng, record_property):
    """|y - ref| <= u_out |ref| + c u_acc sum |a||b|, with c and u_acc by accumulator; the worst ratio is recorded."""
    products = [make_product(Wgmma(n, a, b, d, sparse, source), rng, values_of=normals) for n in (64, 256)]
    k = products[0].b.shape[0]
    # Each addition may be off by u_acc of the sum so far. 8-bit floats and f16 accumulators keep few bits, but add
    # whole chunks of K at once, so fewer additions count.
    unit, count = (2.0**-24, k) if d == "f32" and a not in FP8 else (2.0**-13 if d == "f32" else 2.0**-11, k / 16)
    worst = 0.0
    for product, got in zip(products, run_on_gpu(products, [None] * 2), strict=True):
        reference, scale = product.reference(None), product.magnitude(None)
        error = np.abs(got.astype(np.float64) - reference)
        out = 2.0**-11 if d == "f16" else 2.0**-24
        assert (error <= out * np.abs(reference) + count * unit * scale).all()
        worst = max(worst, float((error / scale).max()))
    record_property("worst error over sum |a||b|", worst)
    print(f"{a} {b} {d} sparse={sparse} {source}: worst error / sum|a||b| = 2^{np.log2(max(worst, 2.0**-60)):.1f}")


@pytest.mark.parametrize("name", ["f16", "tf32"])
def test_threads_that_do_not_contribute_may_hold_anything(name, rng):
    product = make_product(Wgmma(64, name, name, "f32", True), rng)
    steps = []
    for step, a, b_desc, meta in product.steps:
        garbage = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
        mine = contributing(step.metadata_map, step.selector)
        steps.append((step, a, b_desc, np.where(mine, meta, garbage)))
    product = replace(product, steps=tuple(steps))
    check_exact([product], rng)


def test_infinity_at_pruned_places_leaves_no_trace(rng):
    """Column 0 of B is infinite in rows 0 and 1 of each group, and all codes keep columns 2 and 3."""
    form = Wgmma(16, "f16", "f16", "f32", True, "registers")
    plain = make_product(form, rng, swizzle_b=0)
    steps = tuple((s, a, b, np.full(128, 0xEEEEEEEE, np.uint32)) for s, a, b, _ in plain.steps)
    codes = np.full_like(plain.codes, 0xE)
    b = plain.b.copy()
    b[0::4, 0] = b[1::4, 0] = np.inf
    window = plain.window.copy()
    # Unswizzled: every 8 rows of K of column 0 stand 16 bytes wide, 16 columns (256 bytes) apart.
    base = window.size - form.n * b.shape[0] * 2
    for k in range(b.shape[0]):
        at = base + k // 8 * (form.n * 16) + k % 8 * 2
        window[at : at + 2] = b[k : k + 1, 0].view(np.uint8)
    product = replace(plain, steps=steps, codes=codes, b=b, window=window)
    (got,) = run_on_gpu([product], [None])
    assert np.isfinite(got).all()
    assert np.array_equal(got, product.meaning(None))


def test_tf32_truncates_and_f16_keeps_subnormals(rng):
    """Data whose dropped bits would show, and f16 values below the normal range."""

    def ragged(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.integers(-3, 4, shape).astype(np.float32)
        if name == "f16":
            return (values * 2.0**-24).astype(np.float16)
        return (values.view(np.uint32) | rng.integers(0, 1 << 13, shape).astype(np.uint32)).view(np.float32)

    products = [
        make_product(Wgmma(32, name, name, "f32", sparse), rng, values_of=ragged)
        for name in ("tf32", "f16")
        for sparse in (True, False)
    ]
    for product, got in zip(products, run_on_gpu(products, [None] * len(products)), strict=True):
        assert np.array_equal(got, product.meaning(None)), product.form


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_tf32_keeps_subnormals(rng, sparse, which):
    product = make_product(Wgmma(32, "tf32", "tf32", "f32", sparse), rng, values_of=tiny_operand(which))
    (got,) = run_on_gpu([product], [None])
    assert np.array_equal(got, product.meaning(None)) and got.any()


def test_tf32_reads_the_upper_bits_of_nan(rng):
    """A NaN whose payload is in the dropped bits reads as an infinity."""

    def nan(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
        values = np.ones(shape, np.float32)
        values[0, 0] = np.uint32(0x7F800001).view(np.float32)
        return values

    product = make_product(Wgmma(32, "tf32", "tf32", "f32", False), rng, values_of=nan)
    (got,) = run_on_gpu([product], [None])
    np.testing.assert_array_equal(got, product.meaning(None))
