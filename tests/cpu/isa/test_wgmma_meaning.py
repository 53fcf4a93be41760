from __future__ import annotations

import itertools

import numpy as np
import pytest

from louver.formats.dtypes import element_type
from louver.isa.product_meaning import read_tf32
from louver.isa.swizzle import Swizzle, SwizzledTile, describe
from louver.isa.wgmma import ACCUMULATORS, FP8, INTEGER, Wgmma
from support.warpgroup import integers, make_product, normals, shared_image, starting, tiny_operand

TYPES = [(a, b, d) for (a, b), accumulators in ACCUMULATORS.items() for d in accumulators]

FLAGS = list(itertools.product([False, True], repeat=2))


@pytest.mark.parametrize("source", ["shared", "registers"])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize(("a", "b", "d"), TYPES)
def test_every_type_equals_the_dense_product_of_natural_data(a, b, d, sparse, source, rng):
    form = Wgmma(24, a, b, d, sparse, source)
    product, old = make_product(form, rng), starting(rng, form)
    assert np.array_equal(product.meaning(old), product.reference(old))
    assert np.array_equal(product.meaning(None), product.reference(None))


@pytest.mark.parametrize("n", [8, 64, 72, 256])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), FLAGS)
@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_transposes_and_swizzles(n, transpose_a, transpose_b, span, rng):
    for sparse, name in ((True, "f16"), (False, "bf16")):
        # A K-major B of a sparse product has 64 bytes of K, which a 32-byte span cannot hold.
        span_b = 64 if span == 32 and sparse and not transpose_b else span
        form = Wgmma(n, name, name, "f32", sparse, transpose_a=transpose_a, transpose_b=transpose_b)
        product, old = make_product(form, rng, swizzle_a=span, swizzle_b=span_b), starting(rng, form)
        assert np.array_equal(product.meaning(old), product.reference(old))


@pytest.mark.parametrize("name", ["e4m3", "tf32", "s8"])
@pytest.mark.parametrize("span", [0, 64, 128])
def test_swizzles_of_other_sizes(name, span, rng):
    form = Wgmma(48, name, name, "s32" if name == "s8" else "f32", True)
    product = make_product(form, rng, swizzle_a=span, swizzle_b=span)
    assert np.array_equal(product.meaning(None), product.reference(None))


@pytest.mark.parametrize(("negate_a", "negate_b"), FLAGS)
@pytest.mark.parametrize(("source", "transpose_b"), [("shared", False), ("registers", True)])
def test_negation(negate_a, negate_b, source, transpose_b, rng):
    form = Wgmma(40, "f16", "f16", "f16", True, source, negate_a, negate_b, transpose_b=transpose_b)
    product, old = make_product(form, rng), starting(rng, form)
    assert np.array_equal(product.meaning(old), product.reference(old))


@pytest.mark.parametrize(("a", "b", "d"), [t for t in TYPES if t[0] not in INTEGER])
def test_random_data_rounds_to_the_accumulator(a, b, d, rng):
    form = Wgmma(16, a, b, d, True)
    product = make_product(form, rng, values_of=normals)
    dtype = element_type(d).numpy
    error = np.abs(product.meaning(None).astype(np.float64) - product.reference(None))
    # One rounding a step, each at most half an ulp of a partial sum.
    assert (error <= len(product.steps) * np.finfo(dtype).eps / 2 * product.magnitude(None)).all()
    assert error.max() > 0 or (a in FP8 and d == "f32"), "8-bit products happen to sum exactly in float32; no others do"


def single(form: Wgmma, rng: np.random.Generator, values, b, codes=None, d=None):
    """One product of the given stored values [64, k_stored] and B [k, n], A from registers and B unswizzled."""
    raw = np.ascontiguousarray(b.T).view(np.uint8)
    tile = SwizzledTile("k", *raw.shape, Swizzle(0))
    a = form.a_fragment.gather(np.ascontiguousarray(values).view(element_type(form.a).bits_dtype))
    meta = None
    if form.sparse:
        full = np.full((64, 16), 0x4, dtype=np.uint8)
        full[:, : codes.shape[1]] = codes
        meta = form.metadata_map.pack(full)
    dtype = element_type(form.d)
    old = np.zeros((64, form.n), dtype.numpy) if d is None else d
    registers = form.d_fragment.gather(old.view(dtype.bits_dtype))
    new = form.meaning(registers, a, describe(tile, 0).encode(), meta, d is not None, shared_image(tile, raw))
    return form.d_fragment.scatter(new).view(dtype.numpy)


def test_integers_wrap_or_saturate(rng):
    k = 32
    values, b = np.full((64, k), 127, np.int8), np.full((k, 8), 127, np.int8)
    b[:, 4:] = -128
    old = np.full((64, 8), 2**31 - 1, np.int32)
    old[:, 4:] = -(2**31)
    exact = old.astype(np.int64) + values.astype(np.int64) @ b.astype(np.int64)
    for saturate in (False, True):
        form = Wgmma(8, "s8", "s8", "s32", False, "registers", satfinite=saturate)
        got = single(form, rng, values, b, d=old)
        limit = np.iinfo(np.int32)
        want = exact.clip(limit.min, limit.max) if saturate else exact.astype(np.int32)
        assert np.array_equal(got, want)


def test_infinity_at_a_pruned_place_leaves_no_trace_and_at_a_kept_place_gives_nan_with_zero(rng):
    form = Wgmma(8, "f16", "f16", "f32", True, "registers")
    codes = np.full((64, 8), 0xE, np.uint8)  # keeps columns 2 and 3 of every group
    values, b = integers(rng, "f16", (64, 16)), integers(rng, "f16", (32, 8))
    values[:, 0] = 0
    b[1, 3] = np.inf
    assert np.isfinite(single(form, rng, values, b, codes)).all()
    b[2, 5] = np.inf
    got = single(form, rng, values, b, codes)
    assert np.isnan(got[:, 5]).all()
    assert np.isfinite(np.delete(got, 5, axis=1)).all()


def test_tf32_drops_the_low_bits_and_f16_accumulators_overflow_to_infinity(rng):
    form = Wgmma(8, "tf32", "tf32", "f32", False, "registers")
    one = np.full((64, 8), np.float32(1 + 2**-11))
    assert (single(form, rng, one, np.ones((8, 8), np.float32)) == 8).all()
    form = Wgmma(8, "f16", "f16", "f16", False, "registers")
    assert np.isposinf(single(form, rng, np.full((64, 16), 255, np.float16), np.full((16, 8), 255, np.float16))).all()


def test_illegal_metadata_is_an_error_only_where_it_counts(rng):
    for code in sorted(set(range(16)) - {0x4, 0x8, 0x9, 0xC, 0xD, 0xE}):
        form = Wgmma(8, "f16", "f16", "f32", True, "shared")
        step, a, b_desc, meta = make_product(form, rng).steps[0]
        bad = meta.copy()
        bad[3] = bad[3] & ~np.uint32(0xF) | np.uint32(code)  # thread 3 serves selector 1 only
        zeros = np.zeros((4, 128), np.uint32)
        window = rng.integers(0, 64, 1 << 17, dtype=np.uint8)
        step.meaning(zeros, a, b_desc, bad, True, window)
        other = Wgmma(8, "f16", "f16", "f32", True, "shared", selector=1)
        with pytest.raises(ValueError, match=rf"got {code:#x} at row 0, group 4.*never with 0"):
            other.meaning(zeros, a, b_desc, bad, True, window)


def test_tf32_metadata_allows_two_codes(rng):
    form = Wgmma(8, "tf32", "tf32", "f32", True, "shared")
    step, a, b_desc, meta = make_product(form, rng).steps[0]
    with pytest.raises(ValueError, match="codes are 0x4, 0xe, got 0x8"):
        bad = meta & ~np.uint32(0xF) | np.uint32(0x8)
        step.meaning(np.zeros((4, 128), np.uint32), a, b_desc, bad, True, np.zeros(1 << 17, np.uint8))


@pytest.mark.parametrize(("transpose_a", "transpose_b"), FLAGS)
@pytest.mark.parametrize("span", [0, 64, 128])
def test_the_bytes_read_are_exactly_those_that_matter(transpose_a, transpose_b, span, rng):
    form = Wgmma(24, "f16", "f16", "f32", True, transpose_a=transpose_a, transpose_b=transpose_b)
    product = make_product(form, rng, swizzle_a=span, swizzle_b=span)
    for step, a, b_desc, meta in product.steps[1:3]:
        read = np.concatenate([each.reshape(-1) for each in step.shared_bytes(a, b_desc)])
        assert np.unique(read).size == read.size == 64 * 32 + 24 * 64
        old = np.zeros((12, 128), np.uint32)
        want = step.meaning(old, a, b_desc, meta, False, product.window)
        mask = np.ones(product.window.size, np.bool_)
        mask[read] = False
        garbage = product.window.copy()
        garbage[mask] ^= 0x55
        assert np.array_equal(step.meaning(old, a, b_desc, meta, False, garbage), want)
        asked: list[np.ndarray] = []

        def reader(addresses, asked=asked):
            asked.append(addresses.reshape(-1))
            return product.window[addresses]

        assert np.array_equal(step.meaning(old, a, b_desc, meta, False, reader), want)
        assert set(np.concatenate(asked).tolist()) == set(read.tolist())


def test_a_from_registers_reads_only_b(rng):
    form = Wgmma(8, "e4m3", "e5m2", "f32", True, "registers")
    step, _, b_desc, _ = make_product(form, rng).steps[0]
    a, b = step.shared_bytes(None, b_desc)
    assert (a.size, b.shape) == (0, (8, 64))


def test_wrong_operands_are_errors(rng):
    form = Wgmma(8, "f16", "f16", "f32", True)
    step, a, b_desc, meta = make_product(form, rng).steps[0]
    old = np.zeros((4, 128), np.uint32)
    window = np.zeros(1 << 17, np.uint8)
    with pytest.raises(ValueError, match="needs its metadata words"):
        step.meaning(old, a, b_desc, None, True, window)
    with pytest.raises(ValueError, match="through a descriptor"):
        step.meaning(old, np.zeros((4, 128), np.uint32), b_desc, meta, True, window)
    with pytest.raises(ValueError, match="comes from registers"):
        Wgmma(8, "f16", "f16", "f32", True, "registers").meaning(old, a, b_desc, meta, True, window)
    with pytest.raises(ValueError, match="got a window of 100 bytes"):
        step.meaning(old, a, b_desc, meta, True, window[:100])
    with pytest.raises(ValueError, match=r"uint32 \[4, 128\] registers"):
        step.meaning(old[:2], a, b_desc, meta, True, window)


def test_a_product_cannot_leave_its_swizzle_span(rng):
    form = Wgmma(8, "f16", "f16", "f32", True)
    with pytest.raises(ValueError, match="inside one span of 32 bytes"):
        make = make_product(form, rng, swizzle_b=32)
        step, a, b_desc, meta = make.steps[0]
        step.meaning(np.zeros((4, 128), np.uint32), a, b_desc, meta, True, make.window)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_tf32_keeps_subnormals(rng, sparse, which):
    product = make_product(Wgmma(8, "tf32", "tf32", "f32", sparse), rng, values_of=tiny_operand(which))
    got = product.meaning(None)
    assert np.array_equal(got, product.reference(None)) and got.any()


def test_tf32_keeps_what_is_not_a_number(rng):
    given = np.array([np.inf, -np.inf, np.nan, -0.0, -(2.0**-130), 2.0**-126, 1 + 2.0**-11], np.float32)
    read = read_tf32(given)
    np.testing.assert_array_equal(read, np.array([np.inf, -np.inf, np.nan, 0, -(2.0**-130), 2.0**-126, 1], np.float32))
    assert np.signbit(read[3:5]).all()
