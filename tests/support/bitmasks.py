"""Weights as compressed-tensors stores them, by the rules of its format in plain Python, and files of Louver's writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.bitmask import packed_pieces, written_form
from louver.formats.dtypes import element_type
from louver.formats.regular import Target
from louver.formats.writer import writing

Arrays = dict[str, NDArray[Any]]


def parts_of(stem: str, dense: NDArray[Any], mask: NDArray[np.bool_], of_groups: bool = True) -> Arrays:
    """The arrays of a weight. mask: the elements to keep. of_groups: `sparse-24-bitmask`, else `sparse-bitmask`."""
    rows, columns = dense.shape
    bits = np.zeros((rows, -(-columns // 8)), np.uint8)
    for row, column in np.argwhere(mask):
        bits[row, column // 8] |= 1 << column % 8
    values = dense[mask]
    shape = np.array(dense.shape, np.int64)
    if of_groups:
        values, shape = values.reshape(rows, columns // 2), shape.reshape(2, 1)
    parts = {f"{stem}.compressed": values, f"{stem}.bitmask": bits, f"{stem}.shape": shape}
    counts = mask.sum(axis=1)
    return parts if of_groups else parts | {f"{stem}.row_offsets": np.cumsum(counts) - counts}


def two_of_four(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """A random mask that keeps exactly two of each four consecutive elements."""
    groups = shape[0] * shape[1] // 4
    return (rng.permuted(np.tile([1, 1, 0, 0], (groups, 1)), axis=1) > 0).reshape(shape)


def write_bitmask(path: Path, weights: dict[str, NDArray[Any]], columns: int | None = None) -> int:
    """Write dense 2:4 weights by Louver, in pieces of a row or of `columns` elements. Returns the -0.0 that are lost."""
    forms = {name: written_form(name, element_type(w.dtype), w.shape) for name, w in weights.items()}
    dropped = 0
    target = Target.of(path)
    with target.replaced() as token, writing(target, token, forms, {}) as file:
        for name, dense in weights.items():
            step = columns or max(1, dense.shape[1])
            cut = [row[None, at : at + step] for row in dense for at in range(0, dense.shape[1], step)]
            pieces = [louver.compress(piece, "2:4") for piece in ([dense] if columns is None else cut)]
            dropped += sum(piece.negative_zeros_dropped for piece in pieces)
            file.write(name, packed_pieces(forms[name], pieces))
        file.seal(forms)
    return dropped
