"""A checkpoint's tensors: read with their metadata, and the selected weights pruned one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.commands.selection import Selection
from louver.formats.compress import compress
from louver.formats.container import read_header
from louver.formats.dtypes import ElementType, element_type
from louver.formats.file import KEY, Tensor, load
from louver.formats.pattern import Pattern
from louver.formats.prune import prune
from louver.formats.tensor import SparseTensor
from louver.report.layers import LayerRow


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file's tensors by name, and its metadata without Louver's own."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PrunedWeight:
    """A pruned weight [rows, columns] in both forms, and what pruning did to it."""

    dense: NDArray[Any]
    sparse: SparseTensor
    row: LayerRow


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a safetensors file, Louver's or any other. Raises OSError and FormatError."""
    metadata = {key: text for key, text in read_header(path).metadata.items() if key != KEY}
    return Checkpoint(load(path), metadata)


def selected(tensors: Mapping[str, Tensor], selection: Selection) -> list[str]:
    """Names of the dense, 2-D, floating-point tensors that the selection takes.

    Raises ValueError when there are none.
    """
    names = [name for name, tensor in tensors.items() if selection.takes(name) and _is_weight(tensor)]
    if not names:
        raise ValueError(
            f"no dense 2-D floating-point tensor of {len(tensors)} is selected by include {list(selection.include)} and "
            f"exclude {list(selection.exclude)}: see `louver inspect` for the names"
        )
    return names


def prune_weights(
    tensors: Mapping[str, Tensor], names: Sequence[str], pattern: Pattern, dtype: str | None
) -> Iterator[tuple[str, PrunedWeight]]:
    """Prune and compress the named dense tensors along their last axis, in turn.

    dtype: element type to convert to first, None to keep. Raises ValueError for finite values that it cannot hold.
    """
    for name in names:
        weight = np.asarray(tensors[name])
        element = element_type(weight.dtype if dtype is None else dtype)
        converted = convert(name, weight, element)
        dense = prune(converted, pattern)
        sparse = compress(dense, pattern)
        rows, columns = weight.shape
        row = LayerRow(
            name, (rows, columns), element.name, converted.nbytes, stored_bytes(sparse), pruning_error(converted, dense)
        )
        yield name, PrunedWeight(dense, sparse, row)


def convert(name: str, weight: NDArray[Any], element: ElementType) -> NDArray[Any]:
    """The weight in another element type; refuses to make infinities of finite values."""
    with np.errstate(over="ignore"):
        converted = weight.astype(element.numpy, copy=False)
    if np.isinf(converted).sum() != np.isinf(weight).sum():
        raise ValueError(f"{name} holds finite values that {element} cannot: convert to bf16, or exclude the tensor")
    return converted


def pruning_error(weight: NDArray[Any], pruned: NDArray[Any]) -> float:
    """‖weight − pruned‖ / ‖weight‖ (Frobenius) over finite elements; 0 for a zero weight."""
    wide = np.where(np.isfinite(weight), weight, 0).astype(np.float64)
    dropped = np.where(pruned == 0, wide, 0)
    norm = float(np.linalg.norm(wide))
    return float(np.linalg.norm(dropped)) / norm if norm else 0.0


def stored_bytes(tensor: Tensor) -> int:
    """Bytes that a tensor's payload takes in a file."""
    if isinstance(tensor, SparseTensor):
        return tensor.values.nbytes + tensor.indices.nbytes
    return tensor.nbytes


def _is_weight(tensor: Tensor) -> bool:
    if isinstance(tensor, SparseTensor) or tensor.ndim != 2 or tensor.size == 0:
        return False
    element = known_element(tensor)
    return element is not None and element.floating


def known_element(array: NDArray[Any]) -> ElementType | None:
    """The array's element type if sparse tensors can have it, else None."""
    try:
        element = element_type(array.dtype)
    except ValueError:
        return None
    return element if element.sparse else None
