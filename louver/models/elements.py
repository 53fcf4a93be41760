"""Element types of weights in checkpoints: those that sparse tensors can have, and conversion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.formats.container import DTYPES
from louver.formats.dtypes import ElementType, element_type
from louver.formats.schema import BitmaskForm, DenseForm, SparseForm

COMPRESSED: Final[Mapping[str, str]] = {"f32": "f16", "float64": "f16"}
"""Element types without products on a GPU, and the types of compressed weights instead."""


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


def known_element(form: DenseForm | BitmaskForm | SparseForm) -> ElementType | None:
    """The element type; None if sparse tensors cannot have it."""
    if isinstance(form, SparseForm):
        return form.dtype
    try:
        element = element_type(DTYPES[form.dtype])
    except ValueError:
        return None
    return element if element.sparse else None


def written_element(form: DenseForm, dtype: str | None, compressed: bool) -> ElementType | None:
    """The element type of a pruned weight; None for a dense one of a type that sparse tensors cannot have.

    dtype: the wanted type, or None for the own type (see `COMPRESSED`).
    """
    if dtype is not None:
        return element_type(dtype)
    known = known_element(form)
    if not compressed:
        return known
    own = DTYPES[form.dtype].name if known is None else known.name
    return element_type(COMPRESSED.get(own, own))
