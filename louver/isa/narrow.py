"""How registers hold the elements and scales of narrow products: elements below 8 bits, and blocks with scales.

A register has four containers of 8 bits, in the places of 8-bit elements (`mma_fragments.py`). Bits of one container:

    type            kind                 7  6  5  4  3  2  1  0
    e2m1            f8f6f4, mxf8f6f4     –  –  s  e  e  m  –  –
    e2m3, e3m2      f8f6f4, mxf8f6f4     –  –  s  e  e  m  m  m      (e3m2: s e e e m m)
    s4, u4, e2m1    none, mxf4, mxf4nvf4 second     | first          two neighbours in K

A sparse A of two elements a container is 4:8 in pairs: of four neighbouring pairs, two are stored whole. Its metadata
are those of 8-bit types, with a pair in place of an element.

Scales divide K into blocks: `blocks` of each row of A, and of each column of B. Lane 4·(row % 8) + 2t + row / 8 supplies
those of a row, lane 4·column + t those of a column. Its byte `b`, and the ones above, are those of the blocks in order.
{b, t} is the operand's selector.

Source: PTX ISA, mma.sp, Sparse matrix storage, Matrix Fragments for sparse mma.m16n8k128, Block Scaling for mma.sync.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.isa.instruction import Requirement
from louver.isa.targets import FP8_FP6_FP4

SHORT = ("s4", "u4")
"""Integers of 4 bits."""

SHIFTS = {"e2m1": 2}
"""Unused bits below an element, in the kinds with one element a container. Memory has none (`ElementType`)."""

_NUMPY: dict[str, Any] = {
    "s4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
}


@dataclass(frozen=True, slots=True)
class Container:
    """The unit of a register. numpy: dtype of an element. bits: of the unit. count: elements in it, neighbours in K, the
    first in the lowest bits. width, shift: bits of an element, and unused bits below the first.
    """

    numpy: np.dtype[Any]
    bits: int
    count: int = 1
    width: int = 8
    shift: int = 0

    @classmethod
    def of(cls, name: str, kind: str) -> Container:
        """That of an element type in products of a kind, "" for none."""
        if name in SHORT:
            return cls(np.dtype(_NUMPY[name]), 8, 2, 4)
        element = element_type(name)
        if kind in ("mxf4", "mxf4nvf4"):
            return cls(element.numpy, 8, 2, 4)
        return cls(element.numpy, element.bits, width=element.width, shift=SHIFTS.get(name, 0))

    def values(self, raw: NDArray[Any], axis: int) -> NDArray[Any]:
        """The elements of raw containers, unsigned [m, n]. axis: that of K, along which the result is `count` times longer."""
        if self.width == self.bits:
            return raw.view(self.numpy)
        mask = np.uint8((1 << self.width) - 1)
        parts = [raw >> np.uint8(self.shift + self.width * part) & mask for part in range(self.count)]
        shape = [size * (self.count if at == axis else 1) for at, size in enumerate(raw.shape)]
        return np.ascontiguousarray(np.stack(parts, axis + 1).reshape(shape)).view(self.numpy)


@dataclass(frozen=True, slots=True)
class Kind:
    """A `kind::` of sparse products. types: of A and B, any pair. sums: of C and D. scales: blocks of K by the type of the
    scales; empty for products without scales.
    """

    types: tuple[str, ...]
    sums: tuple[str, ...]
    needs: Requirement
    scales: tuple[tuple[str, int], ...] = ()

    def blocks(self, scale: str) -> int | None:
        """Blocks of K with scales of a type; None if it has no such scales."""
        return dict(self.scales).get(scale)


_FAMILY, _ALONE = Requirement((8, 7), "sm_120f"), Requirement((8, 7), "sm_120a")

KINDS: dict[str, Kind] = {
    "f8f6f4": Kind(FP8_FP6_FP4, ("f32", "f16"), _FAMILY),
    "mxf8f6f4": Kind(FP8_FP6_FP4, ("f32",), _FAMILY, (("ue8m0", 1),)),
    "mxf4": Kind(("e2m1",), ("f32",), _ALONE, (("ue8m0", 2),)),
    "mxf4nvf4": Kind(("e2m1",), ("f32",), _ALONE, (("ue8m0", 2), ("ue4m3", 4))),
}
"""Kinds of sparse products of one warp. ptxas takes those of sm_120a for sm_121a too, not for the targets with f."""


SCALED, SCALE = "mxf8f6f4", "ue8m0"
"""The kind of products with scales that tensors have, and the type of the scales. One is for the columns of a product."""


def scale_values(raw: NDArray[np.uint8], scale: str) -> NDArray[np.float64]:
    """Scales as numbers: "ue8m0" is 2^(x - 127), "ue4m3" an e4m3 without a sign. 255 and 127 are NaN."""
    if scale == "ue8m0":
        return raw.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    return (raw & np.uint8(0x7F)).view(ml_dtypes.float8_e4m3fn).astype(np.float64)


def row_scales(words: NDArray[np.uint32], selector: tuple[int, int], blocks: int, scale: str) -> NDArray[np.float64]:
    """Scales of A, [16, blocks], from each lane's word, uint32 [32]. selector: byte and thread."""
    row = np.arange(16)
    return _scales(words[4 * (row % 8) + 2 * selector[1] + row // 8], selector[0], blocks, scale)


def column_scales(words: NDArray[np.uint32], selector: tuple[int, int], blocks: int, scale: str) -> NDArray[np.float64]:
    """Scales of B, [blocks, 8], from each lane's word, uint32 [32]. selector: byte and thread."""
    return _scales(words[4 * np.arange(8) + selector[1]], selector[0], blocks, scale).T


def _scales(words: NDArray[np.uint32], first: int, blocks: int, scale: str) -> NDArray[np.float64]:
    raw = np.ascontiguousarray(words)[:, None].view(np.uint8)[:, first : first + blocks]
    return scale_values(np.ascontiguousarray(raw), scale)
