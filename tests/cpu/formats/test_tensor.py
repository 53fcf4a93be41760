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


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("axis", lambda s: 2, "from 0 to 1, got 2"),
        ("axis", lambda s: -1, "from 0 to 1, got -1"),
        ("shape", lambda s: (6, -26), "dimensions are 0 or more"),
        ("shape", lambda s: (6, 29), r"values of shape \(6, 16\), got \(6, 14\)"),
        (
            "pattern",
            lambda s: louver.Pattern(2, 4, 8),
            r"indices are uint8 of shape \(1, 4\), got uint8 of shape \(6, 4\)",
        ),
        ("pattern", lambda s: louver.Pattern(1, 2), r"values of shape \(6, 13\), got \(6, 14\)"),
        ("dtype", lambda s: louver.formats.dtypes.ELEMENT_TYPES["f16"], "values of f16 are float16, got bfloat16"),
        (
            "dtype",
            lambda s: louver.formats.dtypes.ELEMENT_TYPES["s32"],
            "an element type is one of f16, .*, u4x2 .*, got ",
        ),
        ("indices", lambda s: s.indices.astype(np.int16), "indices are uint8 .* got int16"),
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


def test_a_callers_arrays_are_copied(rng: np.random.Generator) -> None:
    s = sparse(rng, (6, 32))
    values, indices = s.values.copy(), s.indices.copy()
    view = values[:]
    frozen = values.view()
    frozen.flags.writeable = False
    for given in (values, view, frozen):
        twin = replace(s, values=given, indices=indices)
        before = twin.dense().tobytes()
        values[...], indices[...] = 0, 0x44
        assert twin.dense().tobytes() == before
        values[...], indices[...] = s.values, s.indices


def test_own_arrays_are_shared_and_stay_read_only(rng: np.random.Generator) -> None:
    s = sparse(rng)
    for twin in (replace(s), copy.copy(s), s.T):
        assert np.shares_memory(twin.values, s.values) and np.shares_memory(twin.indices, s.indices)
    for array in (s.values, s.indices, louver.gated(*[sparse(rng, (8, 26))] * 2).values):
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            array.flags.writeable = True


@pytest.mark.parametrize(
    "laid_out",
    [
        np.ascontiguousarray,
        np.asfortranarray,
        lambda v: np.repeat(v, 2, axis=1)[:, ::2],
        lambda v: v[::-1].copy()[::-1],
    ],
)
def test_values_may_lie_anyhow(laid_out: Any, rng: np.random.Generator) -> None:
    s = sparse(rng)
    twin = replace(s, values=laid_out(s.values), indices=np.asfortranarray(s.indices))
    assert twin.values.strides == s.values.strides and twin.indices.flags.c_contiguous
    assert same_bits(twin.dense(), s.dense())


def test_values_are_changed_in_place(rng: np.random.Generator) -> None:
    s = sparse(rng)
    twin = replace(s)
    before = s.values.copy()
    kept = s.dense() != 0
    new = np.negative(s.values)
    assert s.update_(new) is s
    assert same_bits(np.ascontiguousarray(s.values), new) and same_bits(np.ascontiguousarray(twin.values), before)
    assert ((s.dense() != 0) == kept).all()
    new[...] = 0
    assert s.values.any(), "the values given are copied"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            lambda s: s.values.astype(np.float32),
            "values must be of the tensor's type, bf16, got f32: convert them first",
        ),
        (lambda s: s.values[:, :-1], r"keeps values of shape \(6, 14\), got \(6, 13\)"),
        (lambda s: s.dense(), r"keeps values of shape \(6, 14\), got \(6, 25\)"),
        (lambda s: np.ones_like(s.values), "only .0.0 may be stored past the end of the sparse axis"),
        (lambda s: np.ma.masked_array(s.values), "got a masked one: call filled"),
        (lambda s: None, "an array of numbers, got NoneType"),
        (lambda s: s.values.astype(object), "an array of numbers, got ndarray"),
    ],
)
def test_values_that_do_not_fit_change_nothing(values: Any, message: str, rng: np.random.Generator) -> None:
    s = sparse(rng, (6, 25))
    before = s.values
    with pytest.raises((TypeError, ValueError), match=message):
        s.update_(values(s))
    assert s.values is before


def test_an_array_is_what_numpy_sees(rng: np.random.Generator) -> None:
    w = louver.prune(rng.standard_normal((6, 26)).astype(np.float16), "2:4")
    s = louver.compress(w, "2:4")
    assert (s.ndim, len(s), np.shape(s), np.ndim(s)) == (2, 6, (6, 26), 2)
    for found in (np.asarray(s), np.array(s), np.array(s, copy=True), np.asarray(s, np.float16)):
        assert same_bits(found, w)
    wide = np.asarray(s, np.float32)
    assert wide.dtype == np.float32 and np.array_equal(wide, w) and np.array_equal(s, w)
    with pytest.raises(ValueError, match="got copy=False: leave it out"):
        np.asarray(s, copy=False)
    assert same_bits(louver.compress(s, "2:4").dense(), w)


def test_what_a_tensor_is_not(rng: np.random.Generator) -> None:
    s = sparse(rng)
    with pytest.raises(TypeError, match=r"cannot be iterated over: use s.dense\(\)"):
        list(s)
    with pytest.raises(TypeError, match=r"cannot be indexed, got s\[0\]: use s.dense\(\)"):
        s[0]
    with pytest.raises(ValueError, match="no truth value: use s is None, len"):
        bool(s)
    with pytest.raises(TypeError, match="does not support ufuncs"):
        np.add(s.dense(), s)
    with pytest.raises(TypeError, match="unsupported operand"):
        s + 1  # type: ignore[operator]
    assert (s == s.dense()) is False and s != None  # noqa: E711


@pytest.mark.parametrize("shape", [(6, 26), (3, 6, 26), (2, 3, 6, 26)])
def test_transposed_views(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    w = louver.prune(random_bits(rng, shape, "bf16"), "2:4")
    s = louver.compress(w, "2:4")
    turned = s.mT
    assert (turned.shape, turned.axis) == ((*shape[:-2], 26, 6), len(shape) - 2)
    assert same_bits(turned.dense(), np.ascontiguousarray(s.dense().swapaxes(-1, -2)))
    assert (turned.mT.shape, turned.mT.axis) == (s.shape, s.axis) and same_bits(turned.mT.dense(), s.dense())
    if len(shape) == 2:
        assert same_bits(s.T.dense(), np.ascontiguousarray(s.dense().T))
    else:
        with pytest.raises(ValueError, match=r"T is the transpose of a matrix, got shape .* mT transposes"):
            s.T  # noqa: B018


def test_tensors_without_a_transposed_view(rng: np.random.Generator) -> None:
    w = louver.prune(rng.standard_normal((8, 3, 5)).astype(np.float16), "2:4", axis=0)
    with pytest.raises(ValueError, match=r"one of which is the sparse one, got shape \[8, 3, 5\], axis 0: compress"):
        louver.compress(w, "2:4", axis=0).mT  # noqa: B018
    vector = louver.compress(w[:, 0, 0].copy(), "2:4")
    assert vector.T is vector
    with pytest.raises(ValueError, match="mT exchanges the last two axes"):
        vector.mT  # noqa: B018


def test_parts_of_other_types_are_refused(rng: np.random.Generator) -> None:
    s = sparse(rng)
    for changes, message in (
        ({"pattern": None}, 'a pattern is a text such as "2:4", or a louver.Pattern, got NoneType'),
        ({"dtype": "bf16"}, "dtype is an ElementType, got 'bf16': use louver.formats.dtypes.element_type"),
        ({"values": [[1.0]]}, "values are a NumPy array or an array on a GPU, got list"),
        ({"values": np.ma.masked_array(s.values)}, "got MaskedArray"),
        ({"indices": None}, "indices are a NumPy array or an array on a GPU, got NoneType"),
        ({"shape": [6, 26]}, r"shape is a tuple of integers, got \[6, 26\]"),
        ({"shape": (6, 26.0)}, "are Python integers, got 26.0"),
        ({"axis": None}, "are Python integers, got None"),
        ({"negative_zeros_dropped": True}, "are Python integers, got True"),
    ):
        with pytest.raises(TypeError, match=message):
            replace(s, **changes)
    assert str(replace(s, pattern="2:4").pattern) == "2:4"
