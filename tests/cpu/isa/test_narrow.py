"""Products of elements below 8 bits and of blocks with scales, against dense products of the same numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from louver.isa.mma import Mma
from louver.isa.narrow import Container, scale_values
from support.narrow_products import FLOATS, bits_of, make_narrow, values
from support.warp_products import every_form, run_emulated, starting

FORMS = [form for form in every_form() if (form.kind or form.a in ("s4", "u4")) and not form.satfinite]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.mnemonic} {f.selector} {f.scale_a}")
def test_every_form_equals_the_dense_product(form: Mma, rng: np.random.Generator) -> None:
    product, exact = make_narrow(form, rng)
    c = starting(rng, form)
    wanted = exact + c.astype(np.float64)
    with np.errstate(over="ignore"):
        assert np.array_equal(product.meaning(c), wanted.astype(c.dtype))


@pytest.mark.parametrize("form", FORMS[::9], ids=lambda f: f"{f.mnemonic} {f.selector} {f.scale_a}")
def test_a_kernel_on_the_emulator_computes_the_meaning(form: Mma, rng: np.random.Generator) -> None:
    product, _ = make_narrow(form, rng)
    c = starting(rng, form)
    assert np.array_equal(run_emulated(product, c), product.meaning(c))


@pytest.mark.parametrize("name", ["s4", "u4", "e2m1", "e2m3", "e3m2"])
def test_containers_hold_every_element(name: str) -> None:
    kind = "" if name in ("s4", "u4") else "f8f6f4"
    codes = np.arange(1 << bits_of(name), dtype=np.uint8)
    if kind:
        raw = (codes << 2 if name == "e2m1" else codes)[None, :]
        held = Container.of(name, kind).values(raw, 1)[0]
    else:
        raw = (codes[0::2] | codes[1::2] << 4)[None, :]
        held = Container.of(name, kind).values(raw, 1)[0]
        assert np.array_equal(Container.of(name, kind).values(raw.T.copy(), 0)[:, 0], held)
    assert np.array_equal(held.astype(np.float64), values(codes, name))


def test_scales() -> None:
    codes = np.arange(255, dtype=np.uint8)
    assert np.array_equal(scale_values(codes, "ue8m0"), 2.0 ** (codes.astype(np.float64) - 127))
    assert np.isnan(scale_values(np.array([255], np.uint8), "ue8m0")).all()
    assert np.array_equal(scale_values(codes[:127], "ue4m3"), values(codes[:127], "e4m3"))
    assert np.isnan(scale_values(np.array([127, 255], np.uint8), "ue4m3")).all()
    assert FLOATS["e4m3"] == (4, 3, 7)


def test_a_nan_scale_reaches_its_row_alone(rng: np.random.Generator) -> None:
    form = Mma("e2m1", "e2m1", "f32", 128, True, kind="mxf4", scale="ue8m0")
    product, _ = make_narrow(form, rng)
    ((_, a, b, words),) = product.steps
    words = words.copy()
    words[1, 4 * 3 + 1] |= np.uint32(0xFF)
    got = replace(product, steps=((form, a, b, words),)).meaning(np.zeros((64, 8), np.float32))
    assert np.isnan(got[11]).all() and np.isfinite(np.delete(got, 11, axis=0)).all()


def test_short_integers_saturate_or_wrap(rng: np.random.Generator) -> None:
    edge = np.full((64, 8), np.iinfo(np.int32).max, np.int32)
    form = Mma("u4", "u4", "s32", 128, True, satfinite=True)
    product, exact = make_narrow(form, rng)
    assert (exact > 0).any()
    assert np.array_equal(product.meaning(edge), edge)
    steps = tuple((replace(form, satfinite=False), *rest) for form, *rest in product.steps)
    got = replace(product, steps=steps).meaning(edge)
    assert np.array_equal(got, (exact.astype(np.int64) + edge).astype(np.uint32).view(np.int32))


def test_words_are_asked_for(rng: np.random.Generator) -> None:
    form = Mma("e2m1", "e2m1", "f32", 128, True, kind="mxf4", scale="ue8m0")
    a, b, c = (np.zeros((operand.count, 32), np.uint32) for operand in form.operands[1:4])
    with pytest.raises(ValueError, match="needs its metadata words, got None"):
        form.meaning(a, b, c)
    with pytest.raises(ValueError, match="needs the words of both operands, got None"):
        form.meaning(a, b, c, np.full(32, 0x44444444, np.uint32))
