"""Pairs of 4-bit integers: two neighbours along an axis in a byte, the first in the low bits.

A pair is one element, `s4x2` or `u4x2`. So 2:4 of pairs is what the PTX ISA calls 4:8 in pairs: of eight neighbouring
numbers, two aligned pairs stay. NumPy has no such type: the dtype has one field, of the name of the element type.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from louver.formats.dtypes import ELEMENT_TYPES, PAIR_TYPES, ElementType, element_type
from louver.formats.dynamo import opaque

PairType = Literal["s4x2", "u4x2"]

_RANGES: Final[dict[str, tuple[int, int]]] = {"s4x2": (-8, 7), "u4x2": (0, 15)}


@opaque
def pack_pairs(numbers: ArrayLike, dtype: PairType = "s4x2", *, axis: int = -1) -> NDArray[Any]:
    """Integers as pairs of neighbours along `axis`, which is then half as long.

    numbers: integers from -8 to 7 for "s4x2", from 0 to 15 for "u4x2"; also of ml_dtypes' int4 and uint4.
    Raises ValueError for another dtype, an odd size, a number out of range, or an array without integers.
    """
    if dtype not in PAIR_TYPES:
        raise ValueError(f"pairs are of {' or '.join(PAIR_TYPES)}, got {dtype!r}")
    array = np.asarray(numbers)
    if array.dtype.kind not in "iu" and array.dtype.name not in ("int4", "uint4"):
        raise ValueError(f"pairs are made of integers, got {array.dtype}: round and convert first")
    if array.ndim == 0 or array.shape[axis] % 2:
        raise ValueError(
            f"pairs are two neighbours along the axis, got shape {list(array.shape)} and axis {axis}: append a zero"
        )
    whole, (least, most) = array.astype(np.int64), _RANGES[dtype]
    if whole.size and not least <= whole.min() <= whole.max() <= most:
        raise ValueError(
            f"numbers of {dtype} are from {least} to {most}, got {whole.min()} to {whole.max()}: scale and round first"
        )
    bits = np.moveaxis(whole & 15, axis, -1)
    packed = (bits[..., ::2] | bits[..., 1::2] << 4).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(ELEMENT_TYPES[dtype].numpy)


@opaque
def unpack_pairs(array: NDArray[Any], *, axis: int = -1) -> NDArray[np.int8]:
    """The numbers of pairs, which are neighbours along `axis`. Raises ValueError for an array of another type."""
    element = element_type(array.dtype, PAIR_TYPES)
    both = numbers_of(np.ascontiguousarray(array).view(element.bits_dtype), element)
    axis = axis % array.ndim
    shape = tuple(size * (element.numbers if at == axis else 1) for at, size in enumerate(array.shape))
    return np.ascontiguousarray(np.moveaxis(both, -1, axis + 1)).reshape(shape)


def numbers_of(bits: NDArray[Any], element: ElementType) -> NDArray[Any]:
    """The numbers of raw bits [...]: [...] of the element type, or int8 [..., 2] of pairs."""
    if element.numbers == 1:
        return bits.view(element.numpy)
    both = np.stack([bits & 15, bits >> 4], -1).astype(np.int8)
    return (both ^ 8) - np.int8(8) if element.name == "s4x2" else both
