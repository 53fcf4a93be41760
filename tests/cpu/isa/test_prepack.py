from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import louver
from louver.formats.dtypes import element_type
from louver.isa.metadata import MAPS, columns_per_load, prepack, prepacked_shape, unpack
from support.warpgroup import natural_indices
from support.work import calls

TYPES = ("f16", "bf16", "e4m3", "e5m2", "s8", "u8", "tf32")


def random_indices(rng: np.random.Generator, rows: int, k: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    layout = MAPS[element_type(dtype).bits]
    codes = rng.choice(layout.legal, (rows, -(-k // layout.group))).astype(np.uint8)
    return codes, natural_indices(codes)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "k"), [(64, 256), (1, 4), (130, 1028), (63, 516), (65, 12)])
def test_each_word_is_what_the_map_says(dtype, rows, k, rng):
    layout = MAPS[element_type(dtype).bits]
    codes, indices = random_indices(rng, rows, k, dtype)
    words = prepack(indices, rows, k, dtype)
    blocks, count, threads = words.shape
    assert words.shape == prepacked_shape(rows, k, dtype)
    assert (blocks, count, threads) == (-(-rows // 64), -(-k // columns_per_load(dtype)) * 4, 128)
    assert words.dtype == np.uint32 and words.flags.c_contiguous
    padded = np.full((blocks * 64, count * 16), 0x4, np.uint8)
    padded[:rows, : codes.shape[1]] = codes
    for block, word in np.ndindex(blocks, count):
        part = padded[64 * block : 64 * (block + 1), 16 * word : 16 * (word + 1)]
        assert np.array_equal(words[block, word], layout.pack(part))


@given(
    rows=st.integers(1, 200), groups=st.integers(1, 300), dtype=st.sampled_from(TYPES), seed=st.integers(0, 2**32 - 1)
)
def test_prepack_is_a_bijection(rows, groups, dtype, seed):
    rng = np.random.default_rng(seed)
    k = groups * MAPS[element_type(dtype).bits].group
    codes, indices = random_indices(rng, rows, k, dtype)
    back = unpack(prepack(indices, rows, k, dtype), rows, k, dtype)
    padded = np.concatenate([codes, np.full((rows, groups % 2), 0x4, np.uint8)], axis=1)
    assert np.array_equal(back, padded[:, ::2] | padded[:, 1::2] << 4)
    # Back again: distinct words stay distinct.
    assert np.array_equal(prepack(back, rows, k, dtype), prepack(indices, rows, k, dtype))


def test_padding_is_a_legal_code_everywhere(rng):
    _, indices = random_indices(rng, 3, 20, "f16")
    words = prepack(indices, 3, 20, "f16")
    nibbles = words[..., None] >> (4 * np.arange(8, dtype=np.uint32)) & np.uint32(15)
    assert set(np.unique(nibbles).tolist()) <= {0x4, 0x8, 0x9, 0xC, 0xD, 0xE}


def test_a_pitch_and_strided_indices_are_accepted(rng):
    _, indices = random_indices(rng, 70, 512, "e4m3")
    pitched = rng.integers(0, 256, (140, 80), dtype=np.uint8)
    pitched[::2, :64] = indices
    assert np.array_equal(prepack(pitched[::2], 70, 512, "e4m3"), prepack(indices, 70, 512, "e4m3"))


@pytest.mark.parametrize("nibble", [0x0, 0x1, 0x5, 0x6, 0xA, 0xF])
def test_illegal_codes_are_errors_that_name_the_place(nibble, rng):
    _, indices = random_indices(rng, 100, 256, "f16")
    for group in (10, 11):
        bad = indices.copy()
        keep = 0x0F if group % 2 else 0xF0
        bad[77, 5] = bad[77, 5] & keep | nibble << (4 * (group % 2))
        with pytest.raises(ValueError, match=rf"got {nibble:#x} at row 77, group {group}: compress"):
            prepack(bad, 100, 256, "f16")


def test_other_errors(rng):
    _, indices = random_indices(rng, 64, 256, "f16")
    with pytest.raises(ValueError, match=r"\[64, 33 or more\], got uint8 \[64, 32\]"):
        prepack(indices, 64, 260, "f16")
    with pytest.raises(ValueError, match="got int8"):
        prepack(indices.view(np.int8), 64, 256, "f16")
    with pytest.raises(ValueError, match=r"got uint8 \[64, 32\]"):
        prepack(indices, 65, 256, "f16")
    with pytest.raises(ValueError, match="codes of tf32 1:2 are 0x4, 0xe"):
        prepack(np.full((64, 32), 0x49, np.uint8), 64, 128, "tf32")
    with pytest.raises(ValueError, match="at least one row and one column, got 0 x 4"):
        prepacked_shape(0, 4, "f16")
    assert columns_per_load("f32") == columns_per_load("tf32")
    with pytest.raises(ValueError, match="got s32"):
        columns_per_load("s32")
    with pytest.raises(ValueError, match="prepacks to uint32"):
        unpack(np.zeros((1, 2, 128), np.uint32), 64, 256, "f16")


def test_no_call_is_for_a_row_or_an_element(rng):
    small, large = (random_indices(rng, rows, 512, "f16")[1] for rows in (64, 4096))
    assert calls(lambda: prepack(large, 4096, 512, "f16")) == calls(lambda: prepack(small, 64, 512, "f16")) < 200


@pytest.mark.parametrize(("pattern", "dtype"), [("2:4", "f16"), ("2:4", "e4m3"), ("2:4", "s8"), ("1:2", "f32")])
def test_what_compress_makes_is_what_the_product_reads(pattern, dtype, rng):
    """A compressed tensor's values and prepacked indices name the columns of the dense weight."""
    rows, k = 70, 132
    dense = louver.prune(rng.integers(-3, 4, (rows, k)).astype(np.float32).astype(element_type(dtype).numpy), pattern)
    sparse = louver.compress(dense, pattern)
    name = "tf32" if dtype == "f32" else dtype
    layout = MAPS[element_type(dtype).bits]
    words = prepack(sparse.indices, rows, k, name)
    codes = unpack(words, rows, k, name)
    groups = k // layout.group
    natural = np.stack([codes & 15, codes >> 4], axis=-1).reshape(rows, -1)[:, :groups]
    back = np.zeros_like(dense)
    np.put_along_axis(back, layout.columns_of(natural), sparse.values[:, : k // 2], axis=1)
    assert np.array_equal(back, dense)
