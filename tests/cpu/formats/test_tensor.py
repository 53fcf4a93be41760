from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import aligned_rows
from support.sparse import SPARSE_TYPES, random_bits, same_bits


def sparse(rng: np.random.Generator, shape: tuple[int, ...] = (6, 26), pattern: str = "2:4") -> louver.SparseTensor:
    return louver.compress(louver.prune(random_bits(rng, shape, "bf16"), pattern), pattern)


@pytest.mark.parametrize("dtype", SPARSE_TYPES)
@pytest.mark.parametrize("columns", [1, 4, 13, 64, 65])
def test_rows_of_values_start_16_bytes_apart(dtype: str, columns: int, rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(random_bits(rng, (3, columns), dtype), "2:4"), "2:4")
    assert s.values.strides[0] % 16 == 0
    assert s.values.strides[0] - 16 < s.kept * s.dtype.bytes <= s.values.strides[0]
    assert s.values.shape == (s.rows, s.kept) == (3, 2 * -(-columns // 4))
    assert s.indices.shape == (3, -(-s.groups // 2))
    assert s.nbytes == s.values.strides[0] * 3 + s.indices.nbytes


def test_sizes_of_a_tensor_with_the_axis_in_the_middle(rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(random_bits(rng, (4, 10, 3), "s8"), "2:4", axis=-2), "2:4", axis=-2)
    assert (s.shape, s.axis, s.size, s.rows, s.groups, s.kept) == ((4, 10, 3), 1, 10, 12, 3, 6)
    assert repr(s) == f"SparseTensor(2:4 s8 [4, 10, 3], axis 1, {s.nbytes} bytes)"


def test_identity_is_what_counts(rng: np.random.Generator) -> None:
    s = sparse(rng)
    twin = replace(s)
    assert s == s and s != twin and {s: 1, twin: 2}[s] == 1
    ref = weakref.ref(twin)
    del twin
    gc.collect()
    assert ref() is None


def test_nothing_can_be_changed(rng: np.random.Generator) -> None:
    s = sparse(rng)
    with pytest.raises(FrozenInstanceError):
        s.axis = 0  # type: ignore[misc]
    for array in (s.values, s.indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_keep_pitch_and_bits(copied: Any, rng: np.random.Generator) -> None:
    s = sparse(rng, (5, 13))
    twin = copied(s)
    assert twin is not s and same_bits(twin.dense(), s.dense())
    assert twin.negative_zeros_dropped == s.negative_zeros_dropped


def test_aligned_rows_copies_only_what_is_not_aligned(rng: np.random.Generator) -> None:
    tight = random_bits(rng, (5, 14), "f16")
    padded = aligned_rows(tight)
    assert padded.strides == (32, 2) and same_bits(np.ascontiguousarray(padded), tight)
    assert aligned_rows(padded) is padded
    wide = random_bits(rng, (5, 16), "f16")
    assert aligned_rows(wide) is wide


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("axis", lambda s: 2, "from 0 to 1, got 2"),
        ("axis", lambda s: -1, "from 0 to 1, got -1"),
        ("shape", lambda s: (6, -26), "dimensions are 0 or more"),
        ("shape", lambda s: (6, 29), r"values of shape \(6, 16\), got \(6, 14\)"),
        ("pattern", lambda s: louver.Pattern(2, 4, 8), "vector pattern 2:4@8"),
        ("pattern", lambda s: louver.Pattern(1, 2), r"values of shape \(6, 13\), got \(6, 14\)"),
        ("dtype", lambda s: louver.formats.dtypes.ELEMENT_TYPES["f16"], "values of f16 are float16, got bfloat16"),
        ("dtype", lambda s: louver.formats.dtypes.ELEMENT_TYPES["s32"], "s32 is a type of results"),
        ("values", lambda s: np.ascontiguousarray(s.values), r"16 bytes apart, .* \(32, 2\), got \(28, 2\): use al"),
        ("values", lambda s: np.asfortranarray(s.values), "rows of values are contiguous"),
        ("values", lambda s: np.broadcast_to(s.values[0], s.values.shape), r"got \(0, 2\): use aligned_rows"),
        ("indices", lambda s: s.indices[:, ::-1], "contiguous uint8"),
        ("indices", lambda s: s.indices.astype(np.int16), "contiguous uint8 .* got int16"),
        ("indices", lambda s: s.indices[:, :3].copy(), r"uint8 of shape \(6, 4\), got uint8 of shape \(6, 3\)"),
        ("negative_zeros_dropped", lambda s: -1, "is a count, got -1"),
    ],
)
def test_parts_that_do_not_fit(part: str, change: Any, message: str, rng: np.random.Generator) -> None:
    s = sparse(rng)
    with pytest.raises(ValueError, match=message):
        replace(s, **{part: change(s)})


@pytest.mark.parametrize("code", [c for c in range(16) if c not in (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)])
@pytest.mark.parametrize("high", [False, True])
def test_illegal_codes_of_2_4(code: int, high: bool, rng: np.random.Generator) -> None:
    s = sparse(rng)
    indices = s.indices.copy()
    indices[4, 2] = code << 4 | indices[4, 2] & 0xF if high else indices[4, 2] & 0xF0 | code
    bad = replace(s, indices=indices)
    for look in (bad.validate, bad.dense):
        with pytest.raises(ValueError, match=f"one of 0x4, .* got {code:#x} in row 4, group {5 if high else 4}:"):
            look()


@pytest.mark.parametrize("code", [c for c in range(16) if c not in (0x4, 0xE)])
def test_illegal_codes_of_1_2(code: int, rng: np.random.Generator) -> None:
    s = sparse(rng, pattern="1:2")
    indices = s.indices.copy()
    indices[0, 0] = indices[0, 0] & 0xF0 | code
    with pytest.raises(ValueError, match=f"1:2 is one of 0x4, 0xe, got {code:#x} in row 0, group 0"):
        replace(s, indices=indices).validate()


@pytest.mark.parametrize("kept", [[1, 1, 4], [2, 1, 4], [0, 1, 5], [0, 255, 4]])
def test_illegal_indices_of_other_patterns(kept: list[int], rng: np.random.Generator) -> None:
    s = sparse(rng, pattern="3:5")
    indices = s.indices.copy()
    indices[2, 3:6] = kept
    with pytest.raises(ValueError, match=r"increase and are under 5, got \[.*\] in row 2, group 1"):
        replace(s, indices=indices).validate()


def test_the_unused_nibble_is_a_legal_filler(rng: np.random.Generator) -> None:
    s = sparse(rng, (3, 12))
    assert (s.indices[:, -1] >> 4 == 0x4).all()
    indices = s.indices.copy()
    indices[1, -1] &= 0xF
    with pytest.raises(ValueError, match="unused nibble of a row must be 0x4, got 0x0 in row 1"):
        replace(s, indices=indices).validate()


@pytest.mark.parametrize("pattern", ["2:4", "3:5"])
def test_nothing_is_stored_past_the_end(pattern: str, rng: np.random.Generator) -> None:
    s = louver.compress(np.ones((300, 1), np.float16), pattern)
    values = np.zeros((300, 8), np.float16)[:, : s.kept]
    values[:, 0] = 1
    values[211, 1] = -0.0
    with pytest.raises(ValueError, match="past the end of the sparse axis, got another value in row 211"):
        replace(s, values=values).validate()
    s.validate()
