"""The hardware against `Mma.meaning` and float64: bit for bit on exact data, within the bound on random data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from louver.formats.dtypes import element_type
from louver.isa.mma import FP8, INTEGER, Mma
from louver.isa.narrow import KINDS, SHORT
from louver.isa.targets import target
from louver.runtime.device import require_device
from support.narrow_products import make_narrow
from support.warp_products import TYPES, WarpProduct, every_form, make_product, place, run_on_gpu, shapes, starting
from support.warpgroup import contributing, integers, normals, tiny_operand

pytestmark = pytest.mark.usefixtures("lovelace")


@pytest.fixture(scope="module")
def lovelace() -> None:
    """Skip where the GPU at hand lacks 8-bit floats."""
    device = require_device()
    if not target(device.target).provides("sm_89"):
        pytest.skip(f"products of 8-bit floats need sm_89, got {device.target}")


def check_exact(products: list[WarpProduct], starts: list[np.ndarray]) -> None:
    for product, c, got in zip(products, starts, run_on_gpu(products, starts), strict=True):
        wrong = np.argwhere(got != product.meaning(c))
        assert not wrong.size, f"{product.form}: {len(wrong)} of {got.size} differ, first at {wrong[0]}"
        assert np.array_equal(got, product.reference(c)), f"{product.form} and its meaning agree, float64 does not"


def of_type(a: str, b: str, d: str) -> list[Mma]:
    """Every shape of a type; steps take the selectors in turn."""
    return [form for form in shapes() if (form.a, form.b, form.d) == (a, b, d)]


@pytest.mark.parametrize(("a", "b", "d"), TYPES)
def test_every_type_and_shape_exactly(a, b, d, rng):
    products = [make_product(form, rng) for form in of_type(a, b, d)]
    check_exact(products, [starting(rng, product.form) for product in products])


def test_short_integers_exactly(rng):
    forms = [form for form in every_form() if form.a in SHORT]
    made, starts = [make_narrow(form, rng) for form in forms], [starting(rng, form) for form in forms]
    for (product, exact), c, got in zip(made, starts, run_on_gpu([p for p, _ in made], starts), strict=True):
        assert np.array_equal(got, product.meaning(c)) and np.array_equal(got, exact + c), product.form


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_narrow_floats(kind, rng):
    """Sums of f32 within 13 bits, which other 8-bit products keep at least; sums of f16 within theirs."""
    forms = [form for form in every_form() if form.kind == kind]
    device = require_device()
    if not target(device.target).provides(forms[0].requires.target):
        pytest.skip(f"kind::{kind} needs {forms[0].requires.target}, got {device.target}")
    made = [make_narrow(form, rng) for form in forms]
    starts = [np.zeros((64, 8), element_type(form.d).numpy) for form in forms]
    for (product, exact), got in zip(made, run_on_gpu([p for p, _ in made], starts), strict=True):
        error = np.abs(got.astype(np.float64) - exact)
        bits = 9 if product.form.d == "f16" else 13
        assert (error <= 2.0**-bits * np.maximum(np.abs(exact), np.abs(exact).max()) / 2).all(), product.form


def test_integers_wrap_and_saturate(rng):
    limit = np.iinfo(np.int32)
    forms = [f for f in shapes() if f.a in INTEGER]
    products = [make_product(replace(form, satfinite=saturate), rng) for form in forms for saturate in (False, True)]
    edge = rng.choice([limit.min, limit.max], (64, 8)).astype(np.int32)
    # Saturation happens at each step, so the reference of the whole does not hold; the meaning does.
    for product, got in zip(products, run_on_gpu(products, [edge] * len(products)), strict=True):
        assert np.array_equal(got, product.meaning(edge)), product.form


@pytest.mark.parametrize(("a", "b", "d"), [types for types in TYPES if types[0] not in INTEGER])
def test_random_data_within_the_bound(a, b, d, rng, record_property):
    """|y - ref| <= u_out |ref| + c u_acc sum |a||b|; the worst ratio is recorded. 8-bit floats multiply as f16 on sm_90a."""
    products = [make_product(form, rng, normals) for form in of_type(a, b, d)]
    zero = np.zeros((64, 8), element_type(d).numpy)
    k = products[0].b.shape[0]
    # Each addition may be off by u_acc of the sum so far; f16 sums are rounded once a step.
    unit, count = (2.0**-24, k) if d == "f32" else (2.0**-11, k / 8)
    worst = 0.0
    for product, got in zip(products, run_on_gpu(products, [zero] * len(products)), strict=True):
        reference, scale = product.reference(zero), product.magnitude(zero)
        error = np.abs(got.astype(np.float64) - reference)
        out = 2.0**-11 if d == "f16" else 2.0**-24
        ratio = float((error / scale).max())
        print(f"{product.form.mnemonic}: worst error / sum|a||b| = 2^{np.log2(max(ratio, 2.0**-60)):.1f}")
        assert (error <= out * np.abs(reference) + count * unit * scale).all()
        worst = max(worst, ratio)
    record_property("worst error over sum |a||b|", worst)


@pytest.mark.parametrize("form", [f for f in shapes() if f.sparse and f.selectors > 1], ids=lambda f: f.mnemonic)
def test_lanes_that_do_not_contribute_may_hold_anything(form, rng):
    product = make_product(form, rng)
    steps = []
    for step, a, b, meta in product.steps:
        garbage = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
        mine = np.tile(contributing(step.metadata_map, step.selector), 4)
        steps.append((step, a, b, np.where(mine, meta, garbage)))
    product = replace(product, steps=tuple(steps))
    check_exact([product], [starting(rng, form)])


@pytest.mark.parametrize("name", ["f16", "e5m2"])
def test_infinity_at_pruned_places_leaves_no_trace(name, rng):
    """Column 0 of B is infinite in rows 0 and 1 of each group, and all codes keep columns 2 and 3."""
    form = Mma(name, name, "f32", 64 if name in FP8 else 32, True)
    b = integers(rng, name, (256, 8))
    b[0::4, 0] = b[1::4, 0] = np.inf
    product = place(form, integers(rng, name, (64, 128)), b, np.full((64, 64), 0xE, np.uint8))
    zero = np.zeros((64, 8), np.float32)
    (got,) = run_on_gpu([product], [zero])
    assert np.isfinite(got).all()
    assert np.array_equal(got, product.meaning(zero))


def test_tf32_truncates_and_f16_keeps_subnormals(rng):
    """Data whose dropped bits would show, and f16 values below the normal range."""

    def ragged(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.integers(-3, 4, shape).astype(np.float32)
        if name == "f16":
            return (values * 2.0**-24).astype(np.float16)
        return (values.view(np.uint32) | rng.integers(0, 1 << 13, shape).astype(np.uint32)).view(np.float32)

    forms = [f for f in shapes() if f.a in ("f16", "tf32") and f.d == "f32"]
    products = [make_product(form, rng, values_of=ragged) for form in forms]
    zero = np.zeros((64, 8), np.float32)
    for product, got in zip(products, run_on_gpu(products, [zero] * len(products)), strict=True):
        assert np.array_equal(got, product.meaning(zero)), product.form


@pytest.mark.parametrize("which", [0, 1])
def test_tf32_keeps_subnormals(rng, which):
    products = [make_product(form, rng, values_of=tiny_operand(which)) for form in shapes() if form.a == "tf32"]
    zero = np.zeros((64, 8), np.float32)
    for product, got in zip(products, run_on_gpu(products, [zero] * len(products)), strict=True):
        assert np.array_equal(got, product.meaning(zero)) and got.any(), product.form
