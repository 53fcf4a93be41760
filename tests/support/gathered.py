"""Operands of products with vectors N:M@L, with known answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.compile.plan.schedule import Schedule, list_rows
from louver.formats.dtypes import element_type
from louver.formats.lists import PICKERS, GatheredRows, gathered_rows, picks
from louver.formats.pattern import Pattern
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
