"""Selects a checkpoint's weights and prunes them, whole or in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.formats.checkpoint import open_checkpoint
from louver.formats.compress import compress
from louver.formats.container import DTYPES
from louver.formats.dtypes import ElementType, element_type
from louver.formats.file import load
from louver.formats.pattern import Pattern
from louver.formats.prune import prune
from louver.formats.schema import BitmaskForm, DenseForm, Form, Tensor, form_of
from louver.formats.select import Norm
from louver.formats.tensor import SparseTensor
from louver.models.layer_row import LayerRow
from louver.models.selection import Selection

COMPRESSED: Final[Mapping[str, str]] = {"f32": "f16"}
"""Element types without products on a GPU, and the types of compressed weights instead."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's tensors by name, in memory, and its metadata without Louver's entries."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PrunedPiece:
    """Rows of a pruned weight. squares: sums of squares of all finite elements, and of the pruned ones."""

    dense: NDArray[Any]
    squares: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PrunedWeight:
    """A pruned weight [rows, columns], dense and compressed, and the effect of pruning."""

    dense: NDArray[Any]
    sparse: SparseTensor
    row: LayerRow


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a whole checkpoint, from Louver or another program. Raises OSError and FormatError."""
    return Checkpoint(load(path), open_checkpoint(path).metadata)


def selected(tensors: Mapping[str, Form], selection: Selection) -> list[str]:
    """Names of the dense, 2-D, floating-point tensors that the selection takes. Raises ValueError if there are none."""
    names = [name for name, form in tensors.items() if _is_weight(form) and selection.takes(name)]
    if not names:
        raise ValueError(
            f"no dense 2-D floating-point tensor of {len(tensors)} is selected by include {list(selection.include)} and "
            f"exclude {list(selection.exclude)}: see `louver inspect` for the names"
        )
    return names


def prune_weights(
    tensors: Mapping[str, Tensor], names: Sequence[str], pattern: Pattern, dtype: str | None
) -> Iterator[tuple[str, PrunedWeight]]:
    """Prune and compress the named dense tensors along their last axis, one after the other.

    dtype: element type to convert to first, None to keep. Raises ValueError for finite values that it cannot represent.
    """
    for name in names:
        weight = np.asarray(tensors[name])
        element = element_type(weight.dtype if dtype is None else dtype)
        piece = prune_piece(name, weight, pattern, element)
        sparse = compress(piece.dense, pattern)
        stored = form_of(name, sparse).nbytes
        row = layer_row(name, weight.shape, element, stored, piece.squares)
        yield name, PrunedWeight(piece.dense, sparse, row)


def prune_piece(
    name: str, weight: NDArray[Any], pattern: Pattern, element: ElementType, norm: Norm = "l2"
) -> PrunedPiece:
    """Convert rows [r, c] of a weight to an element type, and prune them along their last axis."""
    converted = convert(name, weight, element)
    dense = prune(converted, pattern, norm=norm)
    wide = np.where(np.isfinite(converted), converted, 0).astype(np.float64).ravel()
    dropped = np.where(dense.ravel() == 0, wide, 0)
    return PrunedPiece(dense, (float(wide @ wide), float(dropped @ dropped)))


def layer_row(
    name: str, shape: Sequence[int], element: ElementType, stored: int, squares: tuple[float, float]
) -> LayerRow:
    """The effect of pruning on a weight [rows, columns]. stored: bytes in the file. squares: sums over the pieces.

    The error is ‖weight − pruned‖ / ‖weight‖ (Frobenius) over finite elements; 0 for a zero weight.
    """
    rows, columns = shape
    error = (squares[1] / squares[0]) ** 0.5 if squares[0] else 0.0
    return LayerRow(name, (rows, columns), element.name, rows * columns * element.bytes, stored, error)


def convert(name: str, weight: NDArray[Any], element: ElementType) -> NDArray[Any]:
    """The weight in another element type. Raises ValueError if infinities or NaNs appear or vanish."""
    with np.errstate(over="ignore", invalid="ignore"):
        converted = weight.astype(element.numpy, copy=False)
    changed = (np.isinf(converted) != np.isinf(weight)) | (np.isnan(converted) != np.isnan(weight))
    if changed.any():
        wider = "f32" if element.name == "bf16" else "bf16"
        raise ValueError(
            f"{name!r} holds {weight[changed][0]}, which {element} cannot: use --dtype {wider}, or --exclude the tensor"
        )
    return converted


def written_element(form: DenseForm, dtype: str | None, compressed: bool) -> ElementType:
    """The element type of a pruned weight. dtype: the wanted type, or None for the own type (see `COMPRESSED`)."""
    own = element_type(DTYPES[form.dtype])
    return element_type(dtype or (COMPRESSED.get(own.name, own.name) if compressed else own.name))


def known_element(form: DenseForm | BitmaskForm) -> ElementType | None:
    """The element type; None if sparse tensors cannot have it."""
    try:
        element = element_type(DTYPES[form.dtype])
    except ValueError:
        return None
    return element if element.sparse else None


def _is_weight(form: Form) -> bool:
    if not isinstance(form, DenseForm) or len(form.shape) != 2 or 0 in form.shape:
        return False
    element = known_element(form)
    return element is not None and element.floating
