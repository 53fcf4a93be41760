"""Data for windows, and layouts of dense arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from louver.formats.dtypes import element_type
from support.sparse import bits_of, random_bits

Array = np.ndarray[Any, np.dtype[Any]]

LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": lambda w: w,
    "columns": lambda w: np.ascontiguousarray(np.swapaxes(w, -1, -2)).swapaxes(-1, -2),
    "apart": lambda w: np.repeat(w, 2, axis=-1)[..., ::2],
    "pitched": lambda w: np.pad(w, [(0, 0)] * (w.ndim - 1) + [(16, 16)])[..., 16:-16],
}
"""Rows or columns without gaps, elements with gaps, rows with gaps of whole 16 bytes."""


def adversarial(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Any bits, or few different numbers so that norms tie, with whole columns of zeros of one sign or the other."""
    element = element_type(dtype)
    if rng.random() < 0.5:
        w = random_bits(rng, shape, dtype)
    else:
        few = np.array([0, 1, 2, 3, -1, -2] if element.name != "u8" else [0, 1, 2, 3], np.float32)
        w = rng.choice(few, shape).astype(element.numpy)
    zero = rng.random(shape[-1]) < 0.4
    bits_of(w)[..., zero] = 0
    if element.negative_zero is not None:
        bits_of(w)[..., zero & (rng.random(shape[-1]) < 0.5)] = element.negative_zero
    return w


def close_sums(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> Array:
    """The same positive numbers in each column, in another order: sums that another order, or a fused product, would round otherwise."""
    numbers = 2.0 ** rng.integers(-8, 6, shape[0]) * (1 + rng.random(shape[0]))
    columns = rng.permuted(np.broadcast_to(numbers[:, None], shape), axis=0)
    return np.ascontiguousarray(np.clip(columns, None, 127).astype(element_type(dtype).numpy))
