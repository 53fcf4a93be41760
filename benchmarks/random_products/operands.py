"""The operands of a case, as NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.isa.wgmma import INTEGER
from random_products.cases import Case

Array = NDArray[Any]

LARGEST_INTEGER = {"e4m3": 2, "e5m2": 2}
"""Of exact data, 4 for other types: sums of 8-bit floats have about 14 bits."""

WIDE, WIDE_COLUMNS = 1 << 13, 16
"""Integers that tf32, of 11 bits, cannot hold, and columns of K that have them in one operand: sums stay below 2^21."""


def weight(rng: np.random.Generator, case: Case) -> tuple[Array, SparseTensor]:
    """The weight [M, K] with its zeros, and as a sparse tensor; of a gated product the gate's rows before up's."""
    if "gated" in case.group.forms:
        (gate, gate_s), (up, up_s) = (_sparse(rng, case, (case.m // 2, case.k)) for _ in range(2))
        return np.concatenate([gate, up]), louver.gated(gate_s, up_s)
    entries = (case.weights, case.m // case.weights) if case.weights else (case.m,)
    a, s = _sparse(rng, case, (*entries, case.k))
    return a.reshape(case.m, case.k), s


def dense(rng: np.random.Generator, case: Case) -> Array:
    """The dense operand [K, N]."""
    return _numbers(rng, case, (case.n, case.k), case.group.setting.b, wide=case.wide == "dense").T


def _sparse(rng: np.random.Generator, case: Case, shape: tuple[int, ...]) -> tuple[Array, SparseTensor]:
    """A weight [..., rows, K]: pruned and compressed, or of values and indices, which `windows` places."""
    setting, (*leading, rows, k) = case.group.setting, shape
    pattern, wide = Pattern.parse(setting.pattern), case.wide == "sparse"
    if case.windows == "pruned":
        a = louver.prune(_numbers(rng, case, shape, setting.a, wide=wide), pattern)
        return a, louver.compress(a, pattern)
    entries, groups, count = math.prod(leading), pattern.groups(k), -(-rows // pattern.length)
    indices = windows(rng, case, pattern, entries * count, groups)
    window = (np.arange(entries)[:, None] * count + np.arange(rows) // pattern.length).ravel()
    if pattern.shared > pattern.n:
        own = rng.random((len(window), groups, pattern.shared), np.float32).argsort(axis=-1)[:, :, : pattern.n]
        indices = np.take_along_axis(indices[window], np.sort(own, axis=-1) if case.ordered else own, axis=-1)
        window = np.arange(len(window))
    of_rows = (indices + np.arange(groups)[:, None] * pattern.m).reshape(len(indices), -1)[window]
    values = _numbers(rng, case, of_rows.shape, setting.a, wide=wide)
    values[of_rows >= k] = 0
    a = np.zeros((len(values), groups * pattern.m), values.dtype)
    np.put_along_axis(a, of_rows, values, axis=1)
    s = louver.from_indices(values, indices.reshape(len(indices), -1), pattern, shape)
    return np.ascontiguousarray(a[:, :k]).reshape(shape), s


def windows(rng: np.random.Generator, case: Case, pattern: Pattern, count: int, groups: int) -> NDArray[np.int64]:
    """Kept indices [count, groups, N] of so many windows, of V:N:M of vectors that are kept, by `case.windows` and `case.ordered`."""
    if case.windows == "apart":
        starts = np.arange(count)[:, None, None] * pattern.shared + rng.integers(pattern.m, size=groups)[:, None]
        found = rng.permuted((starts + np.arange(pattern.shared)) % pattern.m, axis=-1)
    else:
        alike = case.windows == "alike"
        keys = rng.random((1 if alike else count, groups, pattern.m), np.float32)
        found = np.repeat(np.argsort(keys, axis=-1)[:, :, : pattern.shared], count if alike else 1, axis=0)
    return np.sort(found, axis=-1) if case.ordered else found


def _numbers(rng: np.random.Generator, case: Case, shape: tuple[int, ...], element: str, *, wide: bool) -> Array:
    """Numbers of a type, K or what is kept of it last. wide: some columns are of integers that tf32 cannot hold."""
    numpy = element_type(element).numpy
    if case.exact:
        most = LARGEST_INTEGER.get(element, 4)
        found = rng.integers(0 if element == "u8" else -most, most + 1, shape, np.int8).astype(numpy)
        if wide:
            columns = rng.permutation(shape[-1])[:WIDE_COLUMNS]
            found[..., columns] = rng.integers(-WIDE, WIDE + 1, (*shape[:-1], len(columns)))
        return found
    if element in INTEGER:
        return rng.integers(np.iinfo(numpy).min, np.iinfo(numpy).max + 1, shape).astype(numpy)
    return rng.standard_normal(shape, np.float32).astype(numpy)
