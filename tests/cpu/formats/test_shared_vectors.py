"""V:N:M, vectors that rows share and elements of them: prune, check, compress and files, against the rules in plain Python."""

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
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError
from support.sparse import (
    SHARED_CASES,
    SPARSE_TYPES,
    bits_of,
    random_bits,
    same_bits,
    slow_prune_shared,
    slow_shared,
    slow_windows,
)


@pytest.mark.parametrize("dtype", SPARSE_TYPES)
@pytest.mark.parametrize(("shape", "axis", "text"), SHARED_CASES)
def test_prune_check_and_compress(
    shape: tuple[int, ...], axis: int, text: str, dtype: str, rng: np.random.Generator
) -> None:
    pattern = Pattern.parse(text)
    w = random_bits(rng, shape, dtype)
    for norm in ("l1", "l2"):
        pruned = louver.prune(w, pattern, axis=axis, norm=norm)
        assert same_bits(pruned, slow_prune_shared(w, pattern, axis, norm))
    s = louver.compress(pruned, pattern, axis=axis)
    s.validate()
    shared = slow_shared(pruned, pattern, axis)
    assert s.indices.tolist() == [stored(kept, rows, pattern) for kept, rows in shared]
    changed = bits_of(s.dense()) != bits_of(pruned)
    assert np.count_nonzero(changed) == s.negative_zeros_dropped
    assert not bits_of(s.dense())[changed].any()
    report = louver.check(pruned, pattern, axis=axis)
    assert report.ok and report.negative_zeros_dropped == s.negative_zeros_dropped


def stored(kept: list[list[int]], rows: list[list[list[int]]], pattern: Pattern) -> list[int]:
    """A window's indices as bytes, the first in the low bits, then each row's codes: docs/format.md in plain Python."""
    bits = 4 if pattern.m <= 16 else 8
    indices = [index for group in kept for index in group]
    whole = sum(index << bits * place for place, index in enumerate(indices))
    found = list(whole.to_bytes(-(-len(indices) * bits // 8), "little"))
    for row in rows:
        codes = [i | j << 2 for i, j in row] + [4] * (len(row) % 2)
        found += [low | high << 4 for low, high in zip(codes[::2], codes[1::2], strict=True)]
    return found


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_any_shape_axis_pattern_and_type(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=4), label="shape"))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), label="axis")
    pattern = Pattern(2, data.draw(st.integers(5, 20), label="M"), data.draw(st.integers(2, 14), label="V"), shared=4)
    dtype = data.draw(st.sampled_from(SPARSE_TYPES), label="dtype")
    rng = np.random.default_rng(data.draw(st.integers(0, 1000), label="seed"))
    whole = random_bits(rng, shape, dtype)
    w = louver.prune(whole, pattern, axis=axis)
    assert same_bits(w, slow_prune_shared(whole, pattern, axis, "l2"))
    s = louver.compress(w, str(pattern), axis=axis)
    s.validate()
    assert s.nbytes == s.rows * (-(-s.kept * s.dtype.bytes // 16) * 16) + s.indices.nbytes
    assert np.count_nonzero(bits_of(s.dense()) != bits_of(w)) == s.negative_zeros_dropped
    back = pickle.loads(pickle.dumps(s))
    assert same_bits(back.dense(), s.dense()) and back.pattern == pattern
    # The same values and indices in another order.
    mixed = rng.permuted(np.broadcast_to(np.arange(2), (s.rows, s.groups, 2)), axis=2)
    columns = (mixed + np.arange(s.groups)[:, None] * 2).reshape(s.rows, s.kept)
    values = np.take_along_axis(bits_of(s.values), columns, axis=1).view(s.dtype.numpy)
    found = louver.from_indices(
        values, np.take_along_axis(s.unpacked_indices(), columns, axis=1), pattern, s.shape, axis=axis
    )
    assert same_bits(found.values, s.values) and same_bits(found.dense(), s.dense())
    if len(shape) == 2:
        assert same_bits(s.T.dense(), np.ascontiguousarray(s.dense().T))


@pytest.mark.parametrize("exact", [False, True])
def test_both_rules_are_checked(exact: bool, rng: np.random.Generator) -> None:
    pattern = Pattern.parse("2:6@V4")
    w = random_bits(rng, (3, 7, 20), "f16")
    w[rng.random(w.shape) < 0.6] = 0
    found: list[tuple[tuple[int, ...], int, bool]] = []
    histogram = [0] * 7
    for groups in slow_windows(w.shape, 2, pattern):
        for group in groups:
            counts = [any(float(w[at]) != 0 for at in vector) for vector in group]
            histogram[sum(counts)] += 1
            rows = [(at, sum(float(w[*at[:2], vector[0][2]]) != 0 for vector in group if vector)) for at in group[0]]
            if sum(counts) > 4 or (exact and sum(counts) != 4):
                found.append((group[0][0], sum(counts), False))
            elif broken := [row for row in rows if row[1] > 2 or (exact and row[1] != 2)]:
                found.append((*broken[0], True))
    report = louver.check(w, pattern, exact=exact, listed=100)
    assert [(each.start, each.nonzeros, each.in_row) for each in report.first] == found
    assert {in_row for *_, in_row in found} == {False, True}
    assert (report.offending, report.histogram) == (len(found), tuple(histogram))
    assert report.groups == sum(histogram)


def test_a_row_and_a_group_that_break_the_rule_are_named() -> None:
    w = np.zeros((70, 16), np.float32)
    w[66, [8, 9, 10]] = 1
    rule = r"2:8@V32 allows 2 non-zeros of a row in each group of 8 along axis 1, got 3 in the group at \[66, 8\]"
    with pytest.raises(ValueError, match=rule):
        louver.compress(w, "2:8@V32")
    assert str(louver.check(w, "2:8@V32")) == "2:8@V32 fails in 1 of 6 groups; first: [66, 8] has 3 in a row"
    w[[64, 65], [11, 12]] = 1
    with pytest.raises(
        ValueError, match=r"allows 4 non-zero vectors of 32 elements .*, got 5 in the group at \[64, 8\]"
    ):
        louver.compress(w, "2:8@V32")
    assert str(louver.check(w, "2:8@V32")).endswith("[64, 8] has 5")


def test_ties_go_to_the_lowest_index_and_nan_is_the_largest() -> None:
    w = np.ones((2, 6), np.float16)
    assert louver.prune(w, "2:6@V2").tolist() == [[1, 1, 0, 0, 0, 0]] * 2
    w[1, 5] = np.nan
    assert np.flatnonzero(louver.prune(w, "2:6@V2")[1]).tolist() == [0, 5]
    # -0.0 is zero: it takes a slot that is left, else it is lost, and counted.
    w = np.array([[-0.0, -0.0, -0.0, -0.0, -0.0, 1], [0, 0, 0, 0, 0, 0]], np.float32)
    s = louver.compress(w, "2:6@V2")
    assert np.signbit(s.dense()).tolist() == [[True, False, False, False, False, False], [False] * 6]
    assert s.negative_zeros_dropped == louver.check(w, "2:6@V2").negative_zeros_dropped == 4


def test_many_blocks(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    w = random_bits(rng, (3, 50, 70), "f16")
    whole = louver.compress(louver.prune(w, "2:8@V8"), "2:8@V8")
    monkeypatch.setattr("louver.formats.rows.BLOCK", 600)
    parts = louver.compress(louver.prune(w, "2:8@V8"), "2:8@V8")
    assert same_bits(parts.values, whole.values) and np.array_equal(parts.indices, whole.indices)
    assert same_bits(parts.dense(), whole.dense()) and parts.negative_zeros_dropped == whole.negative_zeros_dropped
    assert louver.check(w, "2:8@V8", listed=10_000).first[-1].start[0] == 2
    bad = w.copy()
    bad[:] = 0
    bad[2, 49, 64:67] = 1
    with pytest.raises(ValueError, match=r"got 3 in the group at \[2, 49, 64\]"):
        louver.compress(bad, "2:8@V8")


ILLEGAL = [
    (0, 0x11, r"increase and are under 8, got \[1, 1, 2, 3\] in window 0, group 0"),
    (3, 0xF2, r"under 8, got \[0, 1, 2, 15\] in window 0, group 1"),
    (4, 0x40, r"one of 0x4, .*, got 0x0 in window 0, row 0, group 0"),
    (7, 0x54, r"got 0x5 in window 0, row 3, group 1"),
]


@pytest.mark.parametrize(("byte", "value", "message"), ILLEGAL)
def test_indices_that_are_not_legal(byte: int, value: int, message: str, tmp_path: Path) -> None:
    legal = louver.compress(np.zeros((4, 16), np.float16), "2:8@V4")
    indices = legal.indices.copy()
    assert indices.shape == (1, 8)
    indices[0, byte] = value
    s = louver.SparseTensor(legal.pattern, legal.dtype, legal.shape, 1, legal.values, indices)
    louver.save(tmp_path / "s.safetensors", {"w": s})
    for read in (s.validate, s.dense, s.unpacked_indices):
        with pytest.raises(ValueError, match=message):
            read()
    with pytest.raises(FormatError, match=r"s\.safetensors: sparse tensor 'w' cannot be read: .*" + message):
        louver.load(tmp_path / "s.safetensors")


@pytest.mark.parametrize(
    ("indices", "error"),
    [
        ([[0, 3, 1, 1], [0, 1, 0, 1]], r"from 0 to 4, each once, got \[1, 1\] in row 0, group 1"),
        ([[0, 1, 0, 1], [2, 5, 0, 1]], r"got \[2, 5\] in row 1, group 0"),
        ([[0, 1, 0, 1], [2, -1, 0, 1]], r"got \[2, -1\] in row 1, group 0"),
        ([[0, 1, 0, 1]], r"are integers of shape \[3, 4\], got int64 of shape \[1, 4\]"),
    ],
)
def test_indices_that_are_not_taken(indices: list[list[int]], error: str) -> None:
    given = np.array(indices if len(indices) == 1 else [*indices, [3, 2, 1, 0]])
    with pytest.raises(ValueError, match=error):
        louver.from_indices(np.ones((3, 4), np.float16), given, "2:5@V3", (3, 10))


def test_rows_share_four_vectors() -> None:
    indices = np.array([[0, 1], [2, 3], [3, 4], [0, 4]])
    values = np.arange(1, 9, dtype=np.float16).reshape(4, 2)
    rule = r"a window of 2:5@V4 keep elements of 4 vectors of each group, got 5 in window 0, group 0: give all rows of a window indices among the same 4"
    with pytest.raises(ValueError, match=rule):
        louver.from_indices(values, indices, "2:5@V4", (4, 5))
    s = louver.from_indices(values, indices, "2:5@V2", (4, 5))
    assert s.dense().tolist() == [[1, 2, 0, 0, 0], [0, 0, 3, 4, 0], [0, 0, 0, 5, 6], [7, 0, 0, 0, 8]]
    with pytest.raises(ValueError, match="only .0.0 may be stored past the end of the sparse axis"):
        louver.from_indices(values, indices, "2:5@V2", (4, 4))


@pytest.mark.parametrize(
    ("shape", "text"), [((7, 53), "2:8@V3"), ((3, 5, 40), "2:6@V2"), ((4, 8, 40), "2:8@V4"), ((9, 40), "2:8@V4")]
)
def test_pieces_are_whole_windows(
    shape: tuple[int, ...], text: str, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = louver.prune(random_bits(rng, shape, "f16"), text)
    s = louver.compress(dense, text)
    louver.save(tmp_path / "t", {"d": dense, "s": s})
    whole = louver.check(dense, text)
    monkeypatch.setattr(checkpoint, "PIECE", 64)
    for each in inspect_file(tmp_path / "t", text).data["tensors"]:
        assert (tuple(each["histogram"]), each["holds"]) == (whole.histogram, True)
    (file,) = open_checkpoint(tmp_path / "t").files
    with file.open() as reader:
        pieces = [
            piece for piece in reader.pieces(file.tensors["s"], s.pattern) if isinstance(piece, louver.SparseTensor)
        ]
    assert len(pieces) > 1
    together: np.ndarray[Any, Any] = np.concatenate([bits_of(np.asarray(piece)).ravel() for piece in pieces])
    np.testing.assert_array_equal(together, bits_of(s.dense()).ravel())
    np.testing.assert_array_equal(np.concatenate([piece.indices for piece in pieces]), s.indices)
