"""Quantized weights as numbers: stored elements times their scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from louver.formats.container import DTYPES
from louver.models.roles import Scale

_EXPONENTS: Final = DTYPES["F8_E8M0"]
"""Powers of two. MX formats store them as bytes too: b is 2^(b - 127), and 255 is NaN."""

_NUMBERS: Final = {DTYPES[name] for name in ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0")}


@dataclass(frozen=True, slots=True)
class Factors:
    """The scales of a quantized weight: a stored element q is the number q · scale.

    scales: as stored, with one axis for each of the weight's. block: elements that share a scale, along each axis; a last
    block may be cut. shape: of the weight. A weight is addressed as a matrix [product of the other axes, last axis].
    """

    scales: NDArray[Any]
    block: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, scales: NDArray[Any], scale: Scale, shape: tuple[int, ...]) -> Self:
        """The factors of a weight of two axes or more. scales: the tensor that `scale` names; bytes are exponents.

        Scales may lack axes along which there is only one, or have more such. Raises ValueError for scales that are not
        numbers, or not one for each block.
        """
        if scales.dtype == np.uint8:
            scales = scales.view(_EXPONENTS)
        if scales.dtype not in _NUMBERS:
            raise ValueError(
                f"{scale.name}: scales are floating-point numbers, or bytes of exponents, got {scales.dtype}"
            )
        counts = tuple(-(-size // block) for size, block in zip(shape, scale.block, strict=True))
        if [count for count in scales.shape if count != 1] != [count for count in counts if count != 1]:
            raise ValueError(
                f"{scale.name}: a weight of shape {list(shape)} in blocks of {list(scale.block)} has scales of shape "
                f"{list(counts)}, got {list(scales.shape)}"
            )
        return cls(scales.reshape(counts), scale.block, shape)

    def at(self, rows: range, columns: range) -> NDArray[np.float32]:
        """The factor of each element of some rows and columns, [rows, columns]."""
        coordinates = np.unravel_index(np.array(rows, np.intp), self.shape[:-1])
        places = tuple(each // block for each, block in zip(coordinates, self.block[:-1], strict=True))
        return self.scales[places].astype(np.float32)[:, np.array(columns, np.intp) // self.block[-1]]


def numbers(stored: NDArray[Any], factor: NDArray[np.float32] | None) -> NDArray[Any]:
    """The numbers that stored elements are: products in float32, or the elements themselves without a factor."""
    if factor is None:
        return stored
    with np.errstate(over="ignore", invalid="ignore"):
        return stored.astype(np.float32) * factor
