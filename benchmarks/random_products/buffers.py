"""Arrays inside buffers of poison: reads and writes outside of an array become visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType, element_type, raw_bits

MARGIN = 1024
"""Elements of poison before and behind a view."""

POISON = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "e4m3": 0x7F, "e5m2": 0x7F, "s32": -(2**31)}
"""NaN, or what no sum of products is, as raw bits."""

ODD = 77
"""Poison of 8-bit integers, all of whose values are legal."""


@dataclass(frozen=True, slots=True)
class Poisoned:
    """A view into a buffer: `bits` the same elements as raw integers, `whole` all of the buffer's, `code` the poison."""

    view: Any
    bits: Any
    whole: Any
    code: int

    def written_outside(self) -> int:
        """Elements around the view that are no longer poison. The view's own are lost."""
        self.bits.fill_(self.code)
        return int((self.whole != self.code).sum())


def bits_dtype(torch: Any, element: ElementType) -> Any:
    """PyTorch's integers of an element's size."""
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32}[element.bytes]


def poisoned(
    torch: Any, place: str, name: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> Poisoned:
    """A view of an element type, in elements: its strides, and its offset from an aligned address. place: a device."""
    element = element_type(name)
    code = POISON.get(name, ODD)
    extent = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    whole = torch.full((2 * MARGIN + offset + extent,), code, dtype=bits_dtype(torch, element), device=place)
    at = MARGIN + offset
    view = whole.view(torch_dtype(torch, element)).as_strided(shape, strides, at)
    return Poisoned(view, whole.as_strided(shape, strides, at), whole, code)


def torch_dtype(torch: Any, element: ElementType) -> Any:
    """PyTorch's dtype of an element type."""
    return getattr(torch, element.numpy.name)


def to_device(torch: Any, array: NDArray[Any], place: str) -> Any:
    """A NumPy array as a torch tensor of the same bits."""
    element = element_type(array.dtype)
    signed = raw_bits(np.ascontiguousarray(array)).view(f"i{element.bytes}" if element.bytes > 1 else "u1")
    return torch.from_numpy(signed).to(place).view(torch_dtype(torch, element))
