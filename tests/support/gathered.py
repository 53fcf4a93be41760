"""Operands of products with vectors N:M@L, with known answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.compile.plan.schedule import Schedule, list_rows
from louver.formats.compress import from_indices
from louver.formats.dtypes import element_type
from louver.formats.lists import PICKERS, GatheredRows, gathered_rows, picks
from louver.formats.pattern import Pattern
from louver.formats.rows import Windows
from louver.formats.tensor import SparseTensor
from support.products import LARGEST

Array = NDArray[Any]


@dataclass(frozen=True)
class Vectors:
    """values [M, kept] and windows [windows, kept] as `gathered_rows` takes them; a: the same, [M, K]."""

    pattern: Pattern
    values: Array
    windows: NDArray[np.int64]
    a: Array

    def rows(self, schedule: Schedule) -> GatheredRows:
        """The rows that a product with that schedule reads: lists, or picks."""
        if schedule.ring.metadata != "global":
            picked = picks(self.windows, self.pattern, len(self.a), schedule.tile.k)
            return GatheredRows(self.values, picked.view(np.int32), PICKERS, self.a.shape[1])
        rows = list_rows(str(self.pattern), schedule)
        return gathered_rows(self.values, self.windows, self.pattern.length, self.a.shape[1], rows)


def vectors(rng: np.random.Generator, m: int, k: int, text: str, dtype: str = "f16") -> Vectors:
    """Small integers. Windows name rows in any order; the last group is partly outside where K is not whole groups."""
    pattern = Pattern.parse(text)
    groups, windows = pattern.groups(k), -(-m // pattern.length)
    rows = np.stack([_window(rng, pattern, groups) for _ in range(windows)])
    of_rows = np.repeat(rows, pattern.length, axis=0)[:m]
    values = rng.integers(0 if dtype == "u8" else -LARGEST, LARGEST + 1, of_rows.shape)
    values[of_rows >= k] = 0
    a = np.zeros((m, groups * pattern.m), np.int64)
    np.put_along_axis(a, of_rows, values, axis=1)
    numpy = element_type(dtype).numpy
    return Vectors(pattern, values.astype(numpy), rows, a[:, :k].astype(numpy))


def _window(rng: np.random.Generator, pattern: Pattern, groups: int) -> NDArray[np.int64]:
    kept = [rng.permutation(pattern.m)[: pattern.n] + pattern.m * group for group in range(groups)]
    return np.concatenate(kept)


def shared(
    rng: np.random.Generator, shape: tuple[int, ...], text: str, dtype: str = "f16"
) -> tuple[SparseTensor, Array]:
    """V:N:M of small integers, and the same dense, [..., M, K]: windows share four vectors of a group, and each row keeps two of them."""
    pattern = Pattern.parse(text)
    windows = Windows(shape, len(shape) - 1, pattern)
    columns = rng.permuted(np.broadcast_to(np.arange(pattern.m), (windows.count, windows.groups, pattern.m)), axis=2)
    own = rng.permuted(np.broadcast_to(np.arange(4), (windows.rows, windows.groups, 4)), axis=2)[:, :, :2]
    indices = np.take_along_axis(columns[windows.of_rows(), :, :4], own, axis=2)
    kept = indices + np.arange(windows.groups)[:, None] * pattern.m
    values = np.where(kept < shape[-1], rng.integers(-LARGEST, LARGEST + 1, kept.shape), 0)
    values = values.reshape(windows.rows, -1).astype(element_type(dtype).numpy)
    s = from_indices(values, indices.reshape(values.shape), pattern, shape)
    return s, s.dense()
