from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from louver.formats.dtypes import element_type
from louver.ir.tile.metadata import METADATA_ROWS, WORD_ENTRIES
from louver.isa.fragments import accumulator, operand_a
from louver.isa.metadata import MAPS, of_warp, prepack
from louver.isa.mma import FP8, INTEGER, Mma
from louver.isa.mma_fragments import warp_accumulator, warp_operand_a, warp_operand_b
from support.warp_products import make_product, place, run_emulated, shapes, starting
from support.warpgroup import contributing, densify, integers, natural_indices, normals

FRAGMENTS = list(dict.fromkeys(f for form in shapes() for f in (form.a_fragment, form.b_fragment, form.d_fragment)))


# --- maps ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda f: f.name)
def test_fragments_are_bijections_and_move_data_both_ways(fragment, rng):
    rows, columns = fragment.coordinates()
    assert rows.shape == (fragment.registers, fragment.packed, 32)
    assert np.unique(rows * 1000 + columns).size == rows.size == fragment.rows * fragment.columns
    matrix = rng.integers(0, 1 << fragment.bits, (fragment.rows, fragment.columns)).astype(f"u{fragment.bits // 8}")
    registers = fragment.gather(matrix)
    assert registers.shape == (fragment.registers, 32)
    assert np.array_equal(fragment.scatter(registers), matrix)


def place_of(fragment, register, part, lane):
    rows, columns = fragment.coordinates()
    return int(rows[register, part, lane]), int(columns[register, part, lane])


def test_operands_lie_as_the_ptx_isa_says():
    """Its formulas, with group = lane / 4 and t = lane % 4, for each element of each lane."""
    for lane in range(32):
        group, t = divmod(lane, 4)
        for register in range(4):
            row = group + 8 * (register % 2)
            assert place_of(warp_accumulator("f32"), register, 0, lane) == (
                group + 8 * (register // 2),
                2 * t + register % 2,
            )
            assert place_of(warp_operand_a(32, 8), register, 0, lane) == (row, t + 4 * (register // 2))
            assert place_of(warp_operand_b(32, 16), register, 0, lane) == (t + 4 * register, group)
            for part in range(2):
                assert place_of(warp_operand_a(16, 16), register, part, lane) == (
                    row,
                    2 * t + part + 8 * (register // 2),
                )
                assert place_of(warp_operand_b(16, 32), register, part, lane) == (2 * t + part + 8 * register, group)
            for part in range(4):
                assert place_of(warp_operand_a(8, 32), register, part, lane) == (
                    row,
                    4 * t + part + 16 * (register // 2),
                )
                assert place_of(warp_operand_b(8, 64), register, part, lane) == (4 * t + part + 16 * register, group)
        for register in range(2):
            for part in range(2):
                assert place_of(warp_accumulator("f16"), register, part, lane) == (group + 8 * register, 2 * t + part)
                assert place_of(warp_operand_a(16, 8), register, part, lane) == (group + 8 * register, 2 * t + part)


def test_a_warpgroup_holds_what_four_warps_hold():
    for mine, whole in (
        *((warp_accumulator(d), accumulator(8, d)) for d in ("f32", "f16", "s32")),
        *((warp_operand_a(bits, 256 // bits), operand_a(bits)) for bits in (8, 16, 32)),
    ):
        rows, columns = whole.coordinates()
        for warp in range(4):
            lanes = slice(32 * warp, 32 * warp + 32)
            assert np.array_equal(rows[..., lanes] - 16 * warp, mine.coordinates()[0])
            assert np.array_equal(columns[..., lanes], mine.coordinates()[1])


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"])
def test_words_prepacked_for_a_warpgroup_are_those_of_its_warps(name, rng):
    """Rows of 16 and words, as tile IR's metadata has them: entry 2t + h of a row's 64 is half h of lane t's word."""
    bits = element_type(name).bits
    layout = MAPS[bits]
    rows, words = 128, 8
    codes = rng.choice(layout.legal, (rows, 16 * words)).astype(np.uint8)
    prepacked = prepack(natural_indices(codes), rows, layout.columns * words, name)
    entries = prepacked.reshape(rows // 64, words, 4, 32).transpose(0, 2, 1, 3)
    metadata = np.ascontiguousarray(entries).view(np.int16).reshape(rows // METADATA_ROWS, -1)
    selectors = {16: (2, 4), 32: (2, 4), 8: (1, 2)}[bits]
    for row in range(rows // METADATA_ROWS):
        for word in range(words):
            lanes = metadata[row, word * WORD_ENTRIES : (word + 1) * WORD_ENTRIES].view(np.uint32)
            want = codes[16 * row : 16 * row + 16, 16 * word : 16 * word + 16]
            for count in selectors:
                map_ = of_warp(bits, count)
                got = np.concatenate([map_.unpack(lanes, selector) for selector in range(count)], axis=1)
                assert np.array_equal(got, want)
                assert np.array_equal(map_.pack(want), lanes)


def test_the_selector_is_the_number_of_the_contributing_lanes():
    assert contributing(of_warp(16, 4), 3).nonzero()[0].tolist() == list(range(3, 32, 4))
    assert contributing(of_warp(16, 2), 1).nonzero()[0].tolist() == [t for t in range(32) if t % 4 in (2, 3)]
    assert contributing(of_warp(8, 1), 0).all()
    assert contributing(of_warp(8, 2), 1).nonzero()[0].tolist() == [t for t in range(32) if t % 4 in (2, 3)]


# --- meaning -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", list(shapes()), ids=lambda f: f.mnemonic)
def test_every_form_equals_the_dense_product_of_natural_data(form, rng):
    product, c = make_product(form, rng), starting(rng, form)
    assert np.array_equal(product.meaning(c), product.reference(c))


@pytest.mark.parametrize("form", list(shapes())[::3], ids=lambda f: f.mnemonic)
def test_a_kernel_on_the_emulator_computes_the_meaning(form, rng):
    product, c = make_product(form, rng, normals), starting(rng, form)
    assert np.array_equal(run_emulated(product, c), product.meaning(c))


@pytest.mark.parametrize("form", [f for f in shapes() if f.a not in INTEGER], ids=lambda f: f.mnemonic)
def test_random_data_rounds_to_the_accumulator(form, rng):
    product = make_product(form, rng, normals)
    c = np.zeros((64, 8), element_type(form.d).numpy)
    error = np.abs(product.meaning(c).astype(np.float64) - product.reference(c))
    # One rounding a step, each at most half an ulp of a partial sum.
    assert (error <= len(product.steps) * np.finfo(c.dtype).eps / 2 * product.magnitude(c)).all()
    assert error.max() > 0 or form.a in FP8


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_integers_wrap_or_saturate(sparse):
    k = 256
    values = np.full((64, k // 2 if sparse else k), 127, np.int8)
    b = np.full((k, 8), 127, np.int8)
    b[:, 4:] = -128
    codes = np.full((64, k // 4), 0x4, np.uint8) if sparse else None
    c = np.full((64, 8), 2**31 - 1, np.int32)
    c[:, 4:] = -(2**31)
    for saturate in (False, True):
        form = Mma("s8", "s8", "s32", 64 if sparse else 32, sparse, satfinite=saturate)
        product = place(form, values, b, codes)
        limit = np.iinfo(np.int32)
        exact = c.astype(np.int64) + product.dense_a().astype(np.int64) @ b.astype(np.int64)
        want = exact.clip(limit.min, limit.max) if saturate else exact.astype(np.int32)
        assert np.array_equal(product.meaning(c), want)


def test_infinity_at_a_pruned_place_leaves_no_trace(rng):
    form = Mma("f16", "f16", "f32", 32, True)
    values, b = integers(rng, "f16", (64, 128)), integers(rng, "f16", (256, 8))
    codes = np.full((64, 64), 0xE, np.uint8)  # keeps columns 2 and 3 of every group
    values[:, 0] = 0
    b[1, 3] = np.inf
    c = np.zeros((64, 8), np.float32)
    assert np.isfinite(place(form, values, b, codes).meaning(c)).all()
    b[2, 5] = np.inf
    got = place(form, values, b, codes).meaning(c)
    assert np.isnan(got[:, 5]).all() and np.isfinite(np.delete(got, 5, axis=1)).all()


def test_tf32_drops_the_low_bits():
    form = Mma("tf32", "tf32", "f32", 8)
    one = np.full((64, 128), np.float32(1 + 2**-11))
    got = place(form, one, np.ones((128, 8), np.float32), None).meaning(np.zeros((64, 8), np.float32))
    assert (got == 128).all()


def test_illegal_metadata_is_an_error_only_where_it_counts(rng):
    product = make_product(Mma("f16", "f16", "f32", 16, True), rng)
    c = np.zeros((4, 32), np.uint32)
    for form, a, b, meta in product.steps[:4]:
        for code in (0, 5, 6):
            bad = meta[:32].copy()
            bad[2] = bad[2] & ~np.uint32(0xF) | np.uint32(code)  # lane 2 serves selector 2 only
            if form.selector == 2:
                with pytest.raises(ValueError, match=rf"got {code:#x} at row 0, group 0.*never with 0"):
                    form.meaning(a[:, :32], b[:, :32], c, bad)
            else:
                form.meaning(a[:, :32], b[:, :32], c, bad)


def test_tf32_metadata_allows_two_codes(rng):
    form, a, b, meta = make_product(Mma("tf32", "tf32", "f32", 16, True), rng).steps[0]
    with pytest.raises(ValueError, match="tf32 1:2 of a warp: metadata codes are 0x4, 0xe, got 0x8"):
        form.meaning(a[:, :32], b[:, :32], np.zeros((4, 32), np.uint32), meta[:32] & ~np.uint32(0xF) | np.uint32(8))


def test_wrong_operands_are_errors(rng):
    form, a, b, meta = make_product(Mma("f16", "f16", "f32", 32, True), rng).steps[0]
    c = np.zeros((4, 32), np.uint32)
    with pytest.raises(ValueError, match="a sparse product needs its metadata words"):
        form.meaning(a[:, :32], b[:, :32], c)
    with pytest.raises(ValueError, match=r"B k32n8 16-bit has uint32 \[4, 32\] registers, got uint32 \[2, 32\]"):
        form.meaning(a[:, :32], b[:2, :32], c, meta[:32])
    with pytest.raises(ValueError, match=r"a word covers \[16, 16\] codes"):
        replace(form).metadata_map.pack(np.full((64, 16), 4, np.uint8))


def test_a_product_is_no_other_when_computed_group_by_group(rng):
    """The oracle of sparse A, against a plain loop over one product's groups."""
    product = make_product(Mma("s8", "u8", "s32", 64, True), rng)
    dense = densify(product.codes, product.values.astype(np.float64), 4)
    want = np.zeros((64, 8))
    for row in range(64):
        for column in range(8):
            want[row, column] = sum(dense[row, k] * product.b[k, column] for k in range(256))
    assert np.array_equal(product.meaning(np.zeros((64, 8), np.int32)), want)
