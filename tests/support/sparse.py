"""Random data for sparse tensors, and their rules once more, slowly: one group at a time, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ELEMENT_TYPES, element_type
from louver.formats.pattern import Pattern

SPARSE_TYPES = tuple(t.name for t in ELEMENT_TYPES.values() if t.sparse and t.name != "tf32" and t.numbers == 1)
"""Pairs of 4-bit integers have tests of their own, `cpu/formats/test_pairs.py`."""


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Any bit patterns, NaN payloads, infinities and subnormals among them; a third zeros of both signs."""
    element = element_type(dtype)
    bits = rng.integers(0, 1 << element.width, shape, dtype=np.uint64)
    special = [0] if element.negative_zero is None else [0, element.negative_zero]
    if element.floating:
        special += [int(np.array(x, element.numpy).view(element.bits_dtype)) for x in (np.inf, np.nan, 1.0, -1.0)]
    bits = np.where(rng.random(shape) < 0.25, rng.choice(np.array(special, np.uint64), shape), bits)
    bits = np.where(rng.random(shape) < 0.25, np.uint64(0), bits)
    return bits.astype(element.bits_dtype).view(element.numpy)


def bits_of(array: NDArray[Any]) -> NDArray[Any]:
    """Raw bits, same shape."""
    return array.view(f"u{array.dtype.itemsize}")


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays agree in type, shape and every bit."""
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(bits_of(a), bits_of(b))


def magnitude(x: Any) -> float:
    """Infinity for all that is not finite."""
    value = abs(float(x))
    return value if np.isfinite(value) else np.inf


@dataclass(frozen=True)
class SlowGroup:
    """start: coordinates of the first element. where: indices into the array of the elements that exist."""

    start: tuple[int, ...]
    where: tuple[tuple[int, ...], ...]


def slow_groups(shape: tuple[int, ...], axis: int, m: int) -> list[SlowGroup]:
    """All groups in row-major order of the other axes, then along the sparse axis."""
    axis %= len(shape)
    found: list[SlowGroup] = []
    for others in np.ndindex(*shape[:axis], *shape[axis + 1 :]):
        for start in range(0, shape[axis], m):
            where = tuple((*others[:axis], k, *others[axis:]) for k in range(start, min(start + m, shape[axis])))
            found.append(SlowGroup(where[0], where))
    return found


def slow_prune(w: NDArray[Any], n: int, m: int, axis: int) -> NDArray[Any]:
    """The `n` of largest magnitude of each group, ties by lowest index."""
    out = np.zeros_like(w)
    for group in slow_groups(w.shape, axis, m):
        for at in sorted(group.where, key=lambda at: -magnitude(w[at]))[:n]:
            bits_of(out)[at] = bits_of(w)[at]
    return out


def slow_compressed(w: NDArray[Any], n: int, m: int, axis: int) -> list[tuple[list[int], list[int]]]:
    """Each group's kept indices and the raw bits stored for them, in the order of `slow_groups`."""
    sign = element_type(w.dtype).negative_zero
    kept: list[tuple[list[int], list[int]]] = []
    for group in slow_groups(w.shape, axis, m):
        bits = [int(bits_of(w)[at]) for at in group.where] + [0] * (m - len(group.where))
        rank = [0 if b not in (0, sign) else 1 if b == sign else 2 for b in bits]
        chosen = sorted(sorted(range(m), key=lambda i: rank[i])[:n])
        kept.append((chosen, [bits[i] for i in chosen]))
    return kept


Vector = list[tuple[int, ...]]
"""Indices into an array of the elements of a vector that exist."""


def slow_windows(shape: tuple[int, ...], axis: int, pattern: Pattern) -> list[list[list[Vector]]]:
    """The windows of N:M@L in order, each with its groups of M vectors, along the last axis but the sparse one."""
    axis %= len(shape)
    others = (*shape[:axis], *shape[axis + 1 :]) or (1,)
    found: list[list[list[Vector]]] = []

    def vector(lead: tuple[int, ...], start: int, k: int) -> Vector:
        stop = min(start + pattern.length, others[-1])
        rows = [(*lead, row) if len(shape) > 1 else () for row in range(start, stop)]
        return [(*row[:axis], k, *row[axis:]) for row in rows] if k < shape[axis] else []

    for lead in np.ndindex(*others[:-1]):
        for start in range(0, others[-1], pattern.length):
            vectors = [vector(lead, start, k) for k in range(-(-shape[axis] // pattern.m) * pattern.m)]
            found.append([vectors[k : k + pattern.m] for k in range(0, len(vectors), pattern.m)])
    return found


def slow_norm(w: NDArray[Any], vector: Vector, norm: str) -> float:
    """In f32, element by element; infinity where an element is not finite or the sum overflows."""
    total = np.float32(0)
    for at in vector:
        value = np.float32(magnitude(w[at]))
        with np.errstate(over="ignore"):
            total = np.float32(total + (value if norm == "l1" else np.float32(value * value)))
    return float(total)


def slow_prune_vectors(w: NDArray[Any], pattern: Pattern, axis: int, norm: str) -> NDArray[Any]:
    """The N of largest norm of each group, ties by lowest index; of one element by its magnitude."""
    out = np.zeros_like(w)
    for groups in slow_windows(w.shape, axis, pattern):
        for group in groups:
            keys = [
                max((magnitude(w[at]) for at in v), default=0.0) if pattern.length == 1 else slow_norm(w, v, norm)
                for v in group
            ]
            for i in sorted(range(pattern.m), key=lambda i: -keys[i])[: pattern.n]:
                for at in group[i]:
                    bits_of(out)[at] = bits_of(w)[at]
    return out


def slow_lists(w: NDArray[Any], pattern: Pattern, axis: int) -> list[list[list[int]]]:
    """The indices kept in each group of each window: non-zero vectors first, then those with a -0.0, lowest index first."""
    sign = element_type(w.dtype).negative_zero

    def rank(vector: Vector) -> int:
        bits = [int(bits_of(w)[at]) for at in vector]
        return 0 if any(b not in (0, sign) for b in bits) else 1 if sign is not None and sign in bits else 2

    return [
        [sorted(sorted(range(pattern.m), key=lambda i: rank(group[i]))[: pattern.n]) for group in groups]
        for groups in slow_windows(w.shape, axis, pattern)
    ]


def slow_prune_shared(w: NDArray[Any], pattern: Pattern, axis: int, norm: str) -> NDArray[Any]:
    """V:N:M: of the 4 vectors of largest norm of each group, in each row the 2 elements of largest magnitude; ties by lowest index."""
    out = np.zeros_like(w)
    for groups in slow_windows(w.shape, axis, pattern):
        for group in groups:
            keys = [slow_norm(w, vector, norm) for vector in group]
            kept = sorted(sorted(range(pattern.m), key=lambda i: -keys[i])[:4])
            for row in zip(*(group[i] for i in kept if group[i]), strict=True):
                for at in sorted(row, key=lambda at: -magnitude(w[at]))[:2]:
                    bits_of(out)[at] = bits_of(w)[at]
    return out


def slow_shared(w: NDArray[Any], pattern: Pattern, axis: int) -> list[tuple[list[list[int]], list[list[list[int]]]]]:
    """By window of V:N:M the 4 vectors kept in each group, and by row which 2 of these it keeps in each group, 0 … 3: non-zeros first, then
    -0.0, lowest index first. Rows past the end of a matrix are zeros.
    """
    sign = element_type(w.dtype).negative_zero

    def rank(bits: list[int]) -> int:
        return 0 if any(b not in (0, sign) for b in bits) else 1 if sign is not None and sign in bits else 2

    axis %= w.ndim
    across = ((*w.shape[:axis], *w.shape[axis + 1 :]) or (1,))[-1]
    found: list[tuple[list[list[int]], list[list[list[int]]]]] = []
    for groups in slow_windows(w.shape, axis, pattern):
        bits = [[[int(bits_of(w)[at]) for at in vector] for vector in group] for group in groups]
        kept = [sorted(sorted(range(pattern.m), key=lambda i: rank(group[i]))[:4]) for group in bits]
        rows: list[list[list[int]]] = []
        for row in range(min(pattern.length, across)):
            rows.append([])
            for group, vectors in zip(bits, kept, strict=True):
                own = [[group[i][row]] if row < len(group[i]) else [0] for i in vectors]
                rows[-1].append(sorted(sorted(range(4), key=lambda i: rank(own[i]))[:2]))
        found.append((kept, rows))
    return found


SHARED_CASES = [
    ((64, 16), -1, "2:8@V64"),
    ((130, 21), 1, "2:5@V64"),
    ((13, 6), 0, "2:6@V4"),
    ((3, 9, 19), 2, "2:16@V2"),
    ((3, 19, 9), 1, "2:17@V2"),
    ((10,), 0, "2:8@V8"),
    ((6, 300), 1, "2:256@V3"),
    ((2, 3, 2, 11), -1, "2:8@V100000000000000000"),
]
"""Of V:N:M: shape, axis and pattern: windows and groups whole and cut off, matrices of a batch, indices of 4 and 8 bits."""
