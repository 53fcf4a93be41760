"""Vectors N:M@L: prune, check, compress and files, against the rules in plain Python."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import louver
from louver.cli.commands.inspect import inspect_file
from louver.formats import checkpoint
from louver.formats.checkpoint import open_checkpoint
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError
from louver.formats.select import Norm
from support.containers import write_container
from support.sparse import (
    SHARED_CASES,
    SPARSE_TYPES,
    bits_of,
    random_bits,
    same_bits,
    slow_lists,
    slow_prune_vectors,
    slow_windows,
)

CASES = [
    ((32, 16), -1, "2:8@16"),
    ((7, 13), 1, "2:4@3"),
    ((13, 6), 0, "1:2@4"),
    ((3, 9, 5), 1, "3:5@2"),
    ((3, 5, 9), 2, "2:8@2"),
    ((9, 2, 5), 0, "1:3@5"),
    ((2, 3, 2, 11), -1, "4:8@2"),
    ((10,), 0, "2:4@8"),
    ((3, 1), 1, "1:4@7"),
    ((6, 300), 1, "5:256@4"),
    ((4, 40), 1, "9:17@2"),
    ((8, 12), 1, "3:4@8"),
    ((8, 12), 1, "4:4@4"),
    ((5, 7), 1, "1:1@2"),
    ((5, 12), 1, "2:4@100000000000000000"),
]
"""Shape, axis and pattern: windows and groups whole and cut off, matrices of a batch, and every number of bits an index."""


def packed(lists: list[list[list[int]]], bits: int) -> list[list[int]]:
    """Each window's indices as bytes, the first in the low bits: docs/format.md in plain Python."""
    found: list[list[int]] = []
    for groups in lists:
        kept = [index for group in groups for index in group]
        whole = sum(index << bits * place for place, index in enumerate(kept))
        found.append(list(whole.to_bytes(-(-len(kept) * bits // 8), "little")))
    return found


def stored_rows(w: np.ndarray[Any, Any], pattern: Pattern, axis: int, lists: list[list[list[int]]]) -> list[list[int]]:
    """The raw bits that each row stores, row after row."""
    rows: list[list[int]] = []
    for groups, kept in zip(slow_windows(w.shape, axis, pattern), lists, strict=True):
        height = max((len(vector) for group in groups for vector in group), default=0)
        for row in range(height):
            vectors = [group[i] for group, indices in zip(groups, kept, strict=True) for i in indices]
            rows.append([int(bits_of(w)[vector[row]]) if vector else 0 for vector in vectors])
    return rows


@pytest.mark.parametrize("dtype", SPARSE_TYPES)
@pytest.mark.parametrize(("shape", "axis", "text"), CASES)
def test_prune_check_and_compress(
    shape: tuple[int, ...], axis: int, text: str, dtype: str, rng: np.random.Generator
) -> None:
    pattern = Pattern.parse(text)
    w = random_bits(rng, shape, dtype)
    counts = [
        sum(any(float(w[at]) != 0 for at in vector) for vector in group)
        for groups in slow_windows(shape, axis, pattern)
        for group in groups
    ]
    starts = [group[0][0] for groups in slow_windows(shape, axis, pattern) for group in groups]
    report = louver.check(w, pattern, axis=axis, listed=3)
    assert report.groups == len(counts) and report.offending == sum(count > pattern.n for count in counts)
    bad = [(at, count) for at, count in zip(starts, counts, strict=True) if count > pattern.n]
    assert [(group.start, group.nonzeros) for group in report.first] == bad[:3]
    assert report.histogram == tuple(counts.count(i) for i in range(pattern.m + 1))

    for norm in ("l1", "l2"):
        pruned = louver.prune(w, pattern, axis=axis, norm=norm)
        assert same_bits(pruned, slow_prune_vectors(w, pattern, axis, norm))
    s = louver.compress(pruned, pattern, axis=axis)
    s.validate()
    lists = slow_lists(pruned, pattern, axis)
    bits = next(bits for bits in (1, 2, 4, 8) if 1 << bits >= pattern.m)
    assert s.indices.tolist() == packed(lists, bits)
    assert s.unpacked_indices().tolist() == [[i for group in groups for i in group] for groups in lists]
    assert bits_of(s.values).tolist() == stored_rows(pruned, pattern, axis, lists)
    changed = bits_of(s.dense()) != bits_of(pruned)
    assert np.count_nonzero(changed) == s.negative_zeros_dropped
    assert not bits_of(s.dense())[changed].any()
    assert louver.check(pruned, pattern, axis=axis).negative_zeros_dropped == s.negative_zeros_dropped


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_shape_axis_pattern_and_type(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=4), label="shape"))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), label="axis")
    m = data.draw(st.integers(1, 20), label="M")
    pattern = Pattern(data.draw(st.integers(1, m), label="N"), m, data.draw(st.integers(1, 14), label="L"))
    dtype = data.draw(st.sampled_from(SPARSE_TYPES), label="dtype")
    rng = np.random.default_rng(data.draw(st.integers(0, 1000), label="seed"))
    whole, norm = random_bits(rng, shape, dtype), data.draw(st.sampled_from(("l1", "l2")), label="norm")
    w = louver.prune(whole, pattern, axis=axis, norm=norm)
    assert same_bits(w, slow_prune_vectors(whole, pattern, axis, norm))
    s = louver.compress(w, pattern, axis=axis)
    s.validate()
    assert s.nbytes == s.rows * (-(-s.kept * s.dtype.bytes // 16) * 16) + s.indices.nbytes
    again = louver.compress(s.dense(), pattern, axis=axis)
    assert same_bits(again.dense(), s.dense()) and again.negative_zeros_dropped == 0
    assert np.count_nonzero(bits_of(s.dense()) != bits_of(w)) == s.negative_zeros_dropped
    back = pickle.loads(pickle.dumps(s))
    assert same_bits(back.dense(), s.dense()) and back.pattern == pattern
    # The same values and indices in another order.
    mixed = rng.permuted(np.broadcast_to(np.arange(pattern.n), (len(s.indices), s.groups, pattern.n)), axis=2)
    columns = (mixed + np.arange(s.groups)[:, None] * pattern.n).reshape(len(s.indices), s.kept)
    values = np.take_along_axis(bits_of(s.values), columns[s.windows.of_rows()], axis=1).view(s.dtype.numpy)
    found = louver.from_indices(
        values, np.take_along_axis(s.unpacked_indices(), columns, axis=1), pattern, s.shape, axis=axis
    )
    assert same_bits(found.values, s.values) and np.array_equal(found.indices, s.indices)
    if len(shape) == 2:
        assert same_bits(s.T.dense(), np.ascontiguousarray(s.dense().T))


def test_a_vector_of_one_element_is_an_element(rng: np.random.Generator) -> None:
    w = random_bits(rng, (9, 30), "f32")
    assert same_bits(louver.prune(w, "2:4@1", norm="l1"), louver.prune(w, "2:4"))
    assert louver.compress(louver.prune(w, "2:4"), "2:4@1").indices.shape == (9, 4)


def test_the_order_of_a_sum_is_that_of_the_rows() -> None:
    # 2^24 takes no single 1, but two together: only sums in the order of the rows make the second vector the larger one.
    w = np.zeros((3, 2), np.float32)
    w[:, 0] = [2.0**24, 1, 1]
    w[:, 1] = [1, 1, 2.0**24]
    assert louver.prune(w, "1:2@3", norm="l1")[:, 0].tolist() == [0, 0, 0]
    assert louver.prune(w[::-1].copy(), "1:2@3", norm="l1")[:, 1].tolist() == [0, 0, 0]


def test_norms_choose_differently_and_overflow_counts_as_infinite() -> None:
    w = np.array([[3, 2], [0, 2]], np.float32)
    assert louver.prune(w, "1:2@2", norm="l1").tolist() == [[0, 2], [0, 2]]
    assert louver.prune(w, "1:2@2").tolist() == [[3, 0], [0, 0]]
    huge = np.array([[1e30, 2e30], [0, 0]], np.float32)
    assert louver.prune(huge, "1:2@2", norm="l1").tolist() == [[0, np.float32(2e30)], [0, 0]]
    assert louver.prune(huge, "1:2@2", norm="l2").tolist() == [[np.float32(1e30), 0], [0, 0]]
    unlike = np.array([[1, np.nan, -np.inf, np.inf], [9, 0, np.nan, 0]], np.float16)
    assert np.isnan(louver.prune(unlike, "1:4@2")[0, 1]) and not louver.prune(unlike, "1:4@2")[:, [0, 2, 3]].any()


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("bits", [0x7F81, 0x7FC0, 0xFFBF])
def test_a_vector_with_any_nan_is_kept(norm: Norm, bits: int) -> None:
    """Signalling ones too, which minima of NumPy keep."""
    w = np.array([0, bits, 0x7F00, 0], np.uint16).view(element_type("bf16").numpy)
    assert np.flatnonzero(louver.prune(w, "1:4@2", axis=0, norm=norm).view(np.uint16)).tolist() == [1]


def test_many_blocks(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    w = random_bits(rng, (3, 50, 70), "f16")
    whole = louver.compress(louver.prune(w, "2:8@8"), "2:8@8")
    monkeypatch.setattr("louver.formats.rows.BLOCK", 600)
    parts = louver.compress(louver.prune(w, "2:8@8"), "2:8@8")
    assert same_bits(parts.values, whole.values) and np.array_equal(parts.indices, whole.indices)
    assert same_bits(parts.dense(), whole.dense()) and parts.negative_zeros_dropped == whole.negative_zeros_dropped
    report = louver.check(w, "2:8@8", listed=10_000)
    assert report.first == louver.check(w, "2:8@8", listed=10_000).first and report.first[-1].start[0] == 2


def test_a_bad_group_is_named(rng: np.random.Generator) -> None:
    w = louver.prune(rng.standard_normal((2, 70, 33), np.float32), "2:8@32")
    w[1, 69, 24:27] = 1
    with pytest.raises(
        ValueError,
        match=r"2:8@32 allows 2 non-zero vectors of 32 elements in each group of 8 along axis 2, got [345] in the group at \[1, 64, 24\]",
    ):
        louver.compress(w, "2:8@32")
    report = louver.check(w, "2:8@32")
    assert str(report).startswith("2:8@32 fails in 1 of 30 groups; first: [1, 64, 24] has ")


ILLEGAL = [
    ("2:4@4", [0b0100 | 0b0101 << 4], r"increase and are under 4, got \[1, 1\] in window 0, group 1"),
    ("2:4@4", [0b0100 | 0b0010 << 4], r"got \[2, 0\] in window 0, group 1"),
    ("2:5@4", [0x10, 0x52], r"under 5, got \[2, 5\] in window 0, group 1"),
    ("2:5@4", [0xF0, 0x21], r"got \[0, 15\] in window 0, group 0"),
    ("1:8@4", [0x31], None),
    ("1:8@4", [0x8F], r"under 8, got \[15\] in window 0, group 0"),
    ("1:2@4", [0b10], None),
    ("1:2@4", [0b110], r"the unused bits of a list of indices must be 0, got others in window 0"),
    ("1:200@4", [199, 200], r"under 200, got \[200\] in window 0, group 1"),
]


@pytest.mark.parametrize(("text", "indices", "message"), ILLEGAL)
def test_indices_that_are_not_legal(text: str, indices: list[int], message: str | None, tmp_path: Path) -> None:
    pattern = Pattern.parse(text)
    legal = louver.compress(np.zeros((4, 2 * pattern.m), np.float16), pattern)
    parts = (pattern, legal.dtype, legal.shape, 1, legal.values, np.array([indices], np.uint8))
    s = louver.SparseTensor(*parts)
    louver.save(tmp_path / "s.safetensors", {"w": s})
    if message is None:
        s.validate()
        assert not s.dense().any()
        return
    for read in (s.validate, s.dense, s.unpacked_indices):
        with pytest.raises(ValueError, match=message):
            read()
    with pytest.raises(FormatError, match=r"s\.safetensors: sparse tensor 'w' cannot be read: .*" + message):
        louver.load(tmp_path / "s.safetensors")


@pytest.mark.parametrize(
    ("indices", "error"),
    [
        ([[0, 3, 1, 1]], r"from 0 to 3, each once, got \[1, 1\] in window 0, group 1"),
        ([[2, 4, 0, 1]], r"got \[2, 4\] in window 0, group 0"),
        ([[-1, 0, 0, 1]], r"got \[-1, 0\] in window 0, group 0"),
        ([[0, 1, 2]], r"are integers of shape \[1, 4\], got int64 of shape \[1, 3\]"),
        ([[0.0, 1, 2, 3]], r"are integers of shape \[1, 4\], got float64"),
        ([[0, 1, 3, 2]], "only .0.0 may be stored past the end of the sparse axis"),
    ],
)
def test_indices_that_are_not_taken(indices: list[list[float]], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        louver.from_indices(np.ones((2, 4), np.float16), np.array(indices), "2:4@2", (2, 7))


def test_values_have_the_shape_of_the_indices() -> None:
    with pytest.raises(ValueError, match=r"values are of shape \[2, 4\], got \[4, 2\]"):
        louver.from_indices(np.ones((4, 2), np.float16), np.array([[0, 1, 0, 1]]), "2:4@2", (2, 8))


def test_a_bad_list_of_a_later_block_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("louver.formats.rows.BLOCK", 16)
    for pattern, kind in (("2:8@2", "window 6"), ("2:8", "row 6"), ("2:4", "row 6, group 0")):
        s = louver.compress(np.zeros((20, 8), np.float16), pattern)
        indices = s.indices.copy()
        indices[6] = 0
        with pytest.raises(ValueError, match=kind):
            louver.SparseTensor(s.pattern, s.dtype, s.shape, s.axis, s.values, indices).validate()


def test_values_behind_the_end_are_refused(rng: np.random.Generator) -> None:
    s = louver.compress(np.zeros((4, 5), np.float16), "2:4@2")
    values = np.zeros((4, 4), np.float16)
    indices = np.array([[0b0100 | 0b0100 << 4], [0b0100 | 0b1110 << 4]], np.uint8)
    values[3, 3] = 1
    with pytest.raises(ValueError, match=r"past the end of the sparse axis, got another value in row 3"):
        louver.SparseTensor(s.pattern, s.dtype, s.shape, 1, values, indices).validate()


@pytest.mark.parametrize(("shape", "axis", "text"), CASES + SHARED_CASES)
def test_files(shape: tuple[int, ...], axis: int, text: str, tmp_path: Path, rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(random_bits(rng, shape, "bf16"), text, axis=axis), text, axis=axis)
    louver.save(tmp_path / "s.safetensors", {"w": s, "bias": np.ones(3, np.float32)})
    back = louver.load(tmp_path / "s.safetensors")["w"]
    assert isinstance(back, louver.SparseTensor) and back.pattern == s.pattern
    assert same_bits(back.dense(), s.dense()) and np.array_equal(back.indices, s.indices)
    whole = bytearray((tmp_path / "s.safetensors").read_bytes())
    whole[-1] ^= 1
    (tmp_path / "s.safetensors").write_bytes(whole)
    with pytest.raises(FormatError, match="checksum"):
        louver.load(tmp_path / "s.safetensors")


@pytest.mark.parametrize("units", ["2:4", "3:8@4", "1:2@1000"])
@pytest.mark.parametrize(
    ("shape", "text"), [((7, 53), "2:4@3"), ((3, 5, 40), "2:8@2"), ((4, 8, 40), "2:8@4"), ((9,), "1:2@2")]
)
def test_pieces_are_whole_windows_of_one_matrix(
    shape: tuple[int, ...],
    text: str,
    units: str,
    tmp_path: Path,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dense = louver.prune(random_bits(rng, shape, "f16"), text)
    louver.save(tmp_path / "t", {"d": dense, "s": louver.compress(dense, text)})
    whole = {name: louver.check(dense, pattern).histogram for name, pattern in (("own", text), ("other", units))}
    monkeypatch.setattr(checkpoint, "PIECE", 64)
    for name, pattern in (("own", text), ("other", units)):
        (of_dense, of_sparse) = inspect_file(tmp_path / "t", pattern).data["tensors"]
        if len(shape) > 1:
            assert tuple(of_dense["histogram"]) == whole[name]
        assert tuple(of_sparse["histogram"]) == whole[name]
    (file,) = open_checkpoint(tmp_path / "t").files
    with file.open() as reader:
        pieces = [np.asarray(piece) for piece in reader.pieces(file.tensors["s"], Pattern.parse(units))]
    together = np.concatenate([bits_of(piece).ravel() for piece in pieces])
    np.testing.assert_array_equal(together, bits_of(louver.load(tmp_path / "t")["s"].dense()).ravel())


@pytest.mark.parametrize("text", ["2:4@4", "2:8@V4", "2:32@V8"])
def test_a_lost_description_is_noticed(text: str, tmp_path: Path) -> None:
    s = louver.compress(np.zeros((8, 64), np.float16), text)
    write_container(tmp_path / "t", {"w.values": np.ascontiguousarray(s.values), "w.indices": s.indices}, {})
    with pytest.raises(FormatError, match="has lost the metadata that describe the sparse tensor 'w'"):
        louver.load(tmp_path / "t")


@pytest.mark.parametrize("text", ["2:8@8", "2:8@V8"])
def test_values_may_change_and_pairs_have_elements(text: str, rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((16, 24), np.float32), text), text)
    new = rng.standard_normal((16, 6), np.float32)
    dense = s.update_(new).dense()
    assert np.array_equal(dense[dense != 0], new.ravel())
    with pytest.raises(ValueError, match=f"a gated pair has a pattern of elements, N:M, .* got {text}"):
        louver.gated(s, s)
