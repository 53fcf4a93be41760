"""Packed indices: the metadata words of products (`louver.isa.prepack`) in place of the natural codes of a weight.

Words are a permutation of the codes, so a weight on a GPU needs only one of the two. The element type says which form a
tensor of indices has, so no reader takes one for the other:

    natural                   uint8 [rows, groups / 2]
    packed, 16-bit elements   int16 [rows / 64, words of K, 128 threads, 2], rounded up
    packed, 8-bit elements    int32 [rows / 64, words of K, 128 threads], rounded up
"""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import weakref
from typing import Any, Final

import torch
from torch import Tensor

from louver.formats.dtypes import element_type
from louver.isa.fragments import ROWS
from louver.isa.metadata import PADDING_CODE
from louver.isa.prepack import prepack, prepacked_shape

PATTERN: Final = "2:4"

_WORDS: Final = {2: torch.int16, 1: torch.int32}
"""The element type of words, by the bytes of an element of the weight."""

# The axes of words, those of 16-bit elements first: block, word, warp, row in 8, thread bit 1, thread bit 0, half. Natural
# codes: block, warp, half, row in 8, word, thread bits. For 8 bits, thread bit 0 is the half, and there is no other.
_AXES: Final = {
    torch.int16: ((4, 2, 8, 2, 2), (0, 4, 1, 3, 5, 6, 2), (0, 2, 6, 3, 1, 4, 5)),
    torch.int32: ((4, 2, 8, 2), (0, 4, 1, 3, 5, 2), (0, 2, 5, 3, 1, 4)),
}


def is_packed(indices: Tensor) -> bool:
    """Whether indices are words."""
    return indices.dtype != torch.uint8


def are_words_of(indices: Tensor, dtype: torch.dtype) -> bool:
    """Whether indices are the words of a weight of this element type. Words of another width have another order."""
    return _WORDS.get(dtype.itemsize) == indices.dtype


def can_pack(rows: int, size: int, pattern: str, dtype: torch.dtype) -> bool:
    """Whether a weight [rows, size] has packed indices. A row of them is whole bytes."""
    return pattern == PATTERN and dtype.itemsize in _WORDS and size % 8 == 0 and rows > 0 and size > 0


def packed_form(rows: int, size: int, dtype: torch.dtype) -> tuple[torch.dtype, list[int]]:
    """Element type and shape of the packed indices of a weight of 8 or 16 bits."""
    kind = _WORDS[dtype.itemsize]
    shape = prepacked_shape(rows, size, element_type(dtype))
    return kind, [*shape, *([2] if kind == torch.int16 else [])]


def packed(indices: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """The words of natural codes. size, dtype: columns and element type of the weight. On the device of the codes.

    Raises ValueError for illegal codes. Asking a GPU for them waits for it.
    """
    rows = len(indices)
    kind, shape = packed_form(rows, size, dtype)
    low, high = indices & 15, indices >> 4
    legal = ((low & 3) < (low >> 2)) & ((high & 3) < (high >> 2))
    if not (indices.is_meta or bool(legal.all())):
        # Its error names the first of them.
        prepack(indices.cpu().numpy(), rows, size, element_type(dtype))
    whole = indices
    if (rows, indices.shape[1]) != (shape[0] * ROWS, shape[1] * 8):
        whole = indices.new_full((shape[0] * ROWS, shape[1] * 8), PADDING_CODE * 0x11)
        whole[:rows, : indices.shape[1]] = indices
    sizes, order, _ = _AXES[kind]
    pieces = whole.contiguous().view(kind)
    split = pieces.reshape(shape[0], *sizes[:3], shape[1], *sizes[3:])
    return split.permute(order).contiguous().reshape(shape)


def natural(indices: Tensor, rows: int, size: int) -> Tensor:
    """The natural codes [rows, size / 8] of words, as a new tensor; natural codes as they are."""
    if not is_packed(indices):
        return indices
    blocks, words = indices.shape[:2]
    sizes, _, back = _AXES[indices.dtype]
    pieces = indices.reshape(blocks, words, *sizes[:1], *sizes[2:], *sizes[1:2]).permute(back).contiguous()
    return pieces.view(torch.uint8).reshape(blocks * ROWS, words * 8)[:rows, : size // 8].contiguous()


class RebuiltIndices:
    """The natural codes of packed indices on a GPU, made anew for each reader. It does not keep the words' memory alive."""

    __slots__ = ("_place", "_storage", "rows", "size")

    def __init__(self, words: Tensor, rows: int, size: int) -> None:
        self._storage = weakref.ref(words.untyped_storage())
        self._place: Any = (words.storage_offset(), words.shape, words.stride(), words.dtype)
        self.rows, self.size = rows, size

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._codes().__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        return self._codes().__dlpack__(**options)

    def _codes(self) -> Tensor:
        storage, (offset, shape, stride, dtype) = self._storage(), self._place
        if storage is None:
            raise RuntimeError(
                "the packed indices of a weight were freed: call the product with the weight that is alive"
            )
        words = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, stride)
        return natural(words, self.rows, self.size)
