"""Weights of a checkpoint in memory: conversion, pruning and compression of whole tensors."""

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
from louver.formats.schema import BitmaskForm, DenseForm, Tensor, form_of
from louver.formats.tensor import SparseTensor
from louver.models.layer_row import LayerRow
from louver.models.roles import TensorFacts
from louver.models.steps import Tally

COMPRESSED: Final[Mapping[str, str]] = {"f32": "f16", "float64": "f16"}
"""Element types without products on a GPU, and the types of compressed weights instead."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's tensors by name, in memory, and its metadata without Louver's entries."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PrunedWeight:
    """A pruned weight [rows, columns], dense and compressed, and the effect of pruning."""

    dense: NDArray[Any]
    sparse: SparseTensor
    row: LayerRow


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a whole checkpoint, from Louver or another program. Raises OSError and FormatError."""
    return Checkpoint(load(path), open_checkpoint(path).metadata)


def prune_weights(
    tensors: Mapping[str, Tensor], weights: Sequence[TensorFacts], pattern: Pattern, dtype: str
) -> Iterator[tuple[str, PrunedWeight]]:
    """Convert, prune and compress dense tensors along their contracted axes, one after the other.

    Raises ValueError for finite values that the type cannot represent.
    """
    for facts in weights:
        weight, element, tally = np.asarray(tensors[facts.name]), element_type(dtype), Tally()
        assert facts.axis is not None
        dense = prune(convert(facts.name, weight, element), pattern, axis=facts.axis)
        sparse = compress(dense, pattern, axis=facts.axis)
        tally.add(weight, dense)
        sizes = dense.nbytes, form_of(facts.name, sparse).nbytes
        yield facts.name, PrunedWeight(dense, sparse, tally.row(facts.name, weight.shape, element.name, sizes))


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


def known_element(form: DenseForm | BitmaskForm) -> ElementType | None:
    """The element type; None if sparse tensors cannot have it."""
    try:
        element = element_type(DTYPES[form.dtype])
    except ValueError:
        return None
    return element if element.sparse else None
