"""N:M@L and V:N:M weights as gathering products read them: values, and a list of rows of K for each block of rows. A
block of rows can span several windows. Its list then has the union of their rows of K (V:N:M: the groups of four of all
windows, in sequence), and values that a window does not keep are zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.codes import FILLER, decode, parts_of
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor

LIST_COLUMNS = 128
"""A list in memory has a multiple of this many entries: those of the longest K step of a product."""

PICKERS = 16
"""Rows of the left operand that share picks: the rows of a warp. A window has a multiple of this many rows."""

PICK_BYTES = 4


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """Values with the lists that their rows share.

    values: [M, kept]. list_rows: rows of `values` that share a list. k: rows of the dense operand.
    lists: int32 [lists, pitch], for each column the row of K that it is multiplied with; K where there is none.
    codes: for V:N:M the 2:4 codes that place a row's values among the entries of its list, uint8 [M, ⌈groups / 2⌉].
    """

    values: NDArray[Any]
    lists: NDArray[np.int32]
    list_rows: int
    k: int
    codes: NDArray[np.uint8] | None = None

    @property
    def kept(self) -> int:
        return self.values.shape[-1]


def gathered_rows(
    values: NDArray[Any],
    windows: NDArray[np.integer],
    length: int,
    k: int,
    list_rows: int,
    codes: NDArray[np.uint8] | None = None,
) -> GatheredRows:
    """Values and lists for blocks of `list_rows` rows.

    values: [M, kept]. codes: of V:N:M; `windows` then has two rows of K for each stored column.
    windows: [windows, kept], for each window of `length` rows the row of K of each stored column (none: K or more).
    Raises ValueError for sizes that do not match, and for rows of K that are negative or repeated in a window.
    """
    m, kept = values.shape
    expected = (-(-m // length), kept if codes is None else 2 * kept)
    if windows.shape != expected:
        raise ValueError(
            f"{m} rows in windows of {length} have rows of K of shape {list(expected)}, got {list(windows.shape)}"
        )
    rows = np.minimum(windows, k).astype(np.int32)
    ordered = np.sort(rows, axis=1)
    if (ordered < 0).any() or ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < k)).any():
        raise ValueError("a window names rows from 0 on, each once")
    begins = range(0, m, list_rows)
    covered = [rows[begin // length : -(-min(begin + list_rows, m) // length)] for begin in begins]
    if all(len(each) == 1 for each in covered):
        return GatheredRows(values, _padded([each[0] for each in covered], k), list_rows, k, codes)
    if codes is not None:
        lists, most = _padded([each.ravel() for each in covered], k), max(map(len, covered))
        each_row: NDArray[np.int64] = np.arange(m, dtype=np.int64)
        part = each_row // length - each_row // list_rows * list_rows // length
        spread = np.zeros((m, most, kept), values.dtype)
        spread[each_row, part] = values
        return GatheredRows(spread.reshape(m, -1), lists, list_rows, k, _placed_codes(codes, part, most, kept // 2))
    unions = [np.unique(each[each < k]) for each in covered]
    # If all windows keep only rows past K, the product still multiplies one column.
    spread = np.zeros((m, max(1, *map(len, unions))), values.dtype)
    for begin, union in zip(begins, unions, strict=True):
        for row in range(begin, min(begin + list_rows, m)):
            own = rows[row // length]
            spread[row, np.searchsorted(union, own[own < k])] = values[row, own < k]
    return GatheredRows(spread, _padded(unions, k), list_rows, k)


def picks(windows: NDArray[np.integer], pattern: Pattern, m: int, step: int) -> NDArray[np.uint32]:
    """The rows of K that 16 rows of the left operand pick, by step of columns: uint32 [⌈M / 64⌉, steps, 4, step].

    windows: as for `gathered_rows`, each row of K in the group of its column. A pick counts rows from the first group
        of the step. A column past the last one picks a row past K, which reads as zeros.
    Raises ValueError for rows of K outside their groups, and for windows of other than a multiple of 16 rows.
    """
    if pattern.length % PICKERS:
        raise ValueError(f"{PICKERS} rows pick together, got windows of {pattern.length}: use a multiple of {PICKERS}")
    kept = windows.shape[1]
    columns: NDArray[np.int64] = np.arange(-(-kept // step) * step, dtype=np.int64)
    own = columns // pattern.n * pattern.m
    rows = np.repeat(own[np.newaxis], len(windows), axis=0)
    rows[:, :kept] = windows
    outside = (rows < own) | (rows >= own + pattern.m)
    if outside.any():
        window, column = np.argwhere(outside)[0].tolist()
        raise ValueError(
            f"a column of {pattern} names a row of its own group, {own[column]} to {own[column] + pattern.m - 1} for column {column}, got "
            f"{rows[window, column]} in window {window}: give rows in the order of their groups"
        )
    picked = rows - columns // step * step // pattern.n * pattern.m
    units = np.minimum(np.arange(-(-m // 64) * 64 // PICKERS) * PICKERS // pattern.length, len(windows) - 1)
    steps = picked[units].reshape(-1, 64 // PICKERS, len(columns) // step, step)
    return np.ascontiguousarray(steps.transpose(0, 2, 1, 3)).astype(np.uint32)


def picked(s: SparseTensor, step: int) -> NDArray[np.uint32]:
    """`picks` of each matrix of `s` [..., M, K], concatenated."""
    entries = np.split(windows_of(s), prod(s.shape[:-2]))
    return np.concatenate([picks(each, s.pattern, s.shape[-2], step) for each in entries])


def windows_of(s: SparseTensor) -> NDArray[np.int64]:
    """For each window of `s`, sparse along its last axis, the row of K of each stored column (V:N:M: of each kept
    vector): int64 [windows, vectors].
    """
    masks = decode(s.indices, s.windows)
    vectors = s.groups * s.pattern.shared
    kept = np.nonzero(masks[0])[-1].reshape(len(s.indices), vectors)
    return kept + np.arange(vectors) // s.pattern.shared * s.pattern.m


def codes_of(s: SparseTensor) -> NDArray[np.uint8] | None:
    """The codes that place each row's values among its window's vectors, uint8 [rows, ⌈groups / 2⌉]. None for N:M@L."""
    _, *of_rows = parts_of(s.indices, s.windows)
    return of_rows[0][s.windows.places()] if of_rows else None


def _placed_codes(codes: NDArray[np.uint8], part: NDArray[np.int64], parts: int, groups: int) -> NDArray[np.uint8]:
    """Codes of rows with `parts` parts: a row's own codes in its part, filler codes in the others. Packed as before."""
    count = parts * groups
    whole = np.full((len(codes), count + count % 2), FILLER, np.uint8)
    own = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)[:, :groups]
    whole[:, :count].reshape(len(codes), parts, groups)[np.arange(len(codes)), part] = own
    return whole[:, 0::2] | whole[:, 1::2] << np.uint8(4)


def gathered(s: SparseTensor, list_rows: int) -> GatheredRows:
    """`gathered_rows` of each matrix of `s` [..., M, K], concatenated. All have the same number of columns."""
    entries = prod(s.shape[:-2])
    length, k, m = s.pattern.length, s.shape[-1], s.shape[-2]
    windows, codes = np.split(windows_of(s), entries), codes_of(s)
    parts = [
        gathered_rows(values, rows, length, k, list_rows, own)
        for values, rows, own in zip(
            np.split(s.values, entries),
            windows,
            [None] * entries if codes is None else np.split(codes, entries),
            strict=True,
        )
    ]
    if entries == 1:
        return parts[0]
    together = [each.codes for each in parts if each.codes is not None]
    kept, pitch = max(each.kept for each in parts), max(each.lists.shape[1] for each in parts)
    values = np.zeros((entries, m, kept), s.values.dtype)
    lists = np.full((entries, len(parts[0].lists), pitch), k, np.int32)
    for number, each in enumerate(parts):
        values[number, :, : each.kept] = each.values
        lists[number, :, : each.lists.shape[1]] = each.lists
    joined = np.concatenate(together) if together else None
    return GatheredRows(values.reshape(-1, kept), lists.reshape(-1, pitch), list_rows, k, joined)


def describe_lists(s: SparseTensor, list_rows: int) -> str | None:
    """How much longer lists for `list_rows` rows are than the list of a window. None where they are not longer."""
    kept = gathered(s, list_rows).kept
    if kept <= s.kept:
        return None
    return (
        f"{list_rows} rows of a weight of {s.pattern} share a list of {kept} rows of K, where each keeps {s.kept}: the product takes "
        f"{kept / s.kept:.2f} times as long. Vectors of a multiple of {list_rows} rows share one list"
    )


def list_pitch(kept: int) -> int:
    """Entries in memory of a list of `kept` rows of K."""
    return -(-max(1, kept) // LIST_COLUMNS) * LIST_COLUMNS


def _padded(lists: list[NDArray[np.int32]], k: int) -> NDArray[np.int32]:
    whole = np.full((len(lists), list_pitch(max(map(len, lists)))), k, np.int32)
    for number, each in enumerate(lists):
        whole[number, : len(each)] = each
    return whole
