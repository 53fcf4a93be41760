"""The kept elements of a sparse tensor by PyTorch's operations, on any device and under any tracer.

Packed indices: the metadata words of products (`louver.isa.metadata`) in place of the natural codes of a weight.

Words are a permutation of the codes, so a weight on a GPU needs only one of the two. The element type says which form a
tensor of indices has, so no reader takes one for the other:

    natural                   uint8 [rows, groups / 2]
    packed, 16-bit elements   int16 [rows / 64, words of K, 128 threads, 2], rounded up
    packed, 8-bit elements    int32 [rows / 64, words of K, 128 threads], rounded up

The kept elements of a dense product, for gradients of a sparse weight's values.

The product itself is dense: a GPU multiplies 2:4 along the tokens only, which are no axis of the mask. Blocks of rows
bound the memory of the dense product, and a kernel writes the kept elements of each block where they belong. The
product's own epilogue could not store them in the order of a sparse tensor without exchanging lanes: the elements of a
group lie in two of them (PTX ISA, `wgmma` fragments of D).
"""

# pyright: reportUnknownVariableType=false

from __future__ import annotations

import itertools
import weakref
from math import lcm
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from louver.formats.codes import NIBBLE_CODES, index_bits, index_bytes
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.rows import Windows
from louver.formats.tensor import ROW_ALIGNMENT
from louver.isa.fragments import ROWS
from louver.isa.metadata import PADDING_CODE, prepack, prepacked_shape
from louver.library.streaming.launches import COUNTER_BYTES, Stored, dense_into, take_into
from louver.runtime.arrays import view

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


def check_arrays(values: Tensor, indices: Tensor, pattern: Pattern, size: int) -> None:
    """Raises ValueError unless `values` and `indices`, natural or packed, are those of a matrix [rows, size] that keeps
    `pattern`.
    """
    if values.dim() != 2:
        raise ValueError(f"values are [rows, kept], got shape {list(values.shape)}")
    groups, rows = pattern.groups(size), values.shape[0]
    if values.shape[1] != groups * pattern.n:
        raise ValueError(
            f"{pattern} of {size} columns keeps {groups * pattern.n} values of a row, got values of shape {list(values.shape)}"
        )
    check_indices(indices, pattern, rows, size, values.dtype)


def check_indices(indices: Tensor, pattern: Pattern, rows: int, size: int, dtype: torch.dtype) -> None:
    """Raises ValueError unless `indices`, natural or packed, are those of a matrix [rows, size] of `dtype` that keeps
    `pattern`.
    """
    windows = windows_of(rows, size, pattern)
    forms = [(torch.uint8, [windows.count, index_bytes(pattern, windows.groups, windows.height)])]
    if is_packed(indices) and can_pack(rows, size, str(pattern), dtype):
        forms.append(packed_form(rows, size, dtype))
    if (indices.dtype, list(indices.shape)) not in forms:
        texts = [f"{str(kind).removeprefix('torch.')} of shape {shape}" for kind, shape in forms]
        raise ValueError(
            f"indices of {pattern} for a weight [{rows}, {size}] are {', or packed '.join(texts)}, got {indices.dtype} of "
            f"shape {list(indices.shape)}"
        )


def windows_of(rows: int, size: int, pattern: Pattern) -> Windows:
    """The windows of a matrix that is sparse along its last axis."""
    return Windows((rows, size), 1, pattern)


def columns(indices: Tensor, pattern: Pattern, rows: int, size: int) -> Tensor:
    """The column of each stored value: int64 [rows, kept]. Columns from `size` on belong to the filled last group."""
    indices = natural(indices, rows, size)
    windows = windows_of(rows, size, pattern)
    groups, height, first = windows.groups, windows.height, pattern.levels[0]
    split = index_bytes(first, groups)
    place = _positions(indices[:, :split], first, groups)
    place = place[:, None].expand(-1, height, -1, -1).reshape(-1, groups, first.n)[:rows]
    for level in pattern.levels[1:]:
        lists = indices[:, split:].reshape(windows.count * height, -1)[:rows]
        place = place.gather(2, _positions(lists, level, groups))
    starts = pattern.m * torch.arange(groups, device=indices.device)
    return (place + starts[:, None]).reshape(rows, groups * pattern.n)


def expanded(values: Tensor, indices: Tensor, pattern: Pattern, size: int) -> Tensor:
    """The dense matrix [rows, size] of the stored values. Nothing waits for a GPU."""
    check_arrays(values, indices, pattern, size)
    rows = values.shape[0]
    indices = natural(indices, rows, size)
    if values.is_cuda and has_kernel(values, indices, pattern):
        return _by_kernel(values, indices, pattern, size)
    bits = _bits(values)
    full = bits.new_zeros(rows, pattern.groups(size) * pattern.m)
    full.scatter_(1, columns(indices, pattern, rows, size), bits)
    return full[:, :size].contiguous().view(values.dtype)


def taken(dense: Tensor, indices: Tensor, pattern: Pattern, out: Tensor | None = None) -> Tensor:
    """The kept elements [rows, kept] of a dense matrix [rows, size] of any strides: the inverse of `expanded`. Nothing
    waits for a GPU.

    out: rows of `empty_values` to write, by default new ones.
    """
    if dense.dim() != 2:
        raise ValueError(f"the dense matrix is [rows, size], got shape {list(dense.shape)}")
    rows, size = dense.shape
    check_indices(indices, pattern, rows, size, dense.dtype)
    indices = natural(indices, rows, size)
    made = empty_values(rows, size, pattern, dense) if out is None else out
    if dense.is_cuda and len(pattern.levels) == 1 and indices.is_contiguous():
        source, pitch = view(dense), made.stride(0) * made.itemsize
        to = Stored(made.data_ptr(), pitch, indices.data_ptr())
        take_into(source, to, pattern).send(source.device or 0, source.stream or 0)
        return made
    wide = functional.pad(_bits(dense), (0, pattern.groups(size) * pattern.m - size))
    return made.copy_(wide.gather(1, columns(indices, pattern, rows, size)).view(dense.dtype))


def empty_values(rows: int, size: int, pattern: Pattern, like: Tensor) -> Tensor:
    """Undefined values [rows, kept] of a matrix [rows, size], of the type and on the device of `like`. Rows begin at
    multiples of 16 bytes, so that kernels read them in place.
    """
    kept = pattern.groups(size) * pattern.n
    wide = -(-kept * like.itemsize // ROW_ALIGNMENT) * ROW_ALIGNMENT // like.itemsize
    return like.new_empty(rows, wide)[:, :kept]


def has_kernel(values: Tensor, indices: Tensor, pattern: Pattern) -> bool:
    """Whether streaming kernels read arrays on a GPU in place."""
    row = values.stride(0) * values.itemsize
    aligned = row % ROW_ALIGNMENT == 0 and values.data_ptr() % ROW_ALIGNMENT == 0 and values.stride(1) == 1
    return len(pattern.levels) == 1 and aligned and indices.is_contiguous() and not is_packed(indices)


def _by_kernel(values: Tensor, indices: Tensor, pattern: Pattern, size: int) -> Tensor:
    out = values.new_empty(values.shape[0], size)
    # Counts illegal indices. Reading the count would wait for the kernel, and `verify` finds such indices.
    counters = torch.zeros(COUNTER_BYTES // 8, dtype=torch.int64, device=values.device)
    stored = Stored(values.data_ptr(), values.stride(0) * values.itemsize, indices.data_ptr())
    to = view(out)
    dense_into(stored, to, pattern, counters.data_ptr()).send(to.device or 0, to.stream or 0)
    return out


def _bits(x: Tensor) -> Tensor:
    """The elements as integers: PyTorch indexes no floats of 8 bits."""
    return x.contiguous().view(_BITS[x.dtype.itemsize])


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def _positions(lists: Tensor, level: Pattern, groups: int) -> Tensor:
    """The position in its group of each kept element of a level: int64 [lists, groups, n]."""
    each = 4 if level in NIBBLE_CODES else index_bits(level)
    shifts = torch.arange(0, 8, each, device=lists.device, dtype=torch.uint8)
    fields = ((lists[:, :, None] >> shifts) & ((1 << each) - 1)).long()
    if level not in NIBBLE_CODES:
        return fields.reshape(len(lists), -1)[:, : groups * level.n].reshape(len(lists), groups, level.n)
    # A code has two bits for each kept element of 2:4. That of 1:2 is the 2:4 code of the halves of its element.
    codes = fields.reshape(len(lists), -1)[:, :groups]
    return torch.stack([(codes >> 2 * slot & 3) * level.m // 4 for slot in range(level.n)], -1)


BLOCK_BYTES: Final = 1 << 27
"""Most bytes of the dense product of a block, unless `BLOCK_ROWS` or a window have more."""

BLOCK_ROWS: Final = 256
"""Rows of a block are multiples of a tile of a product."""


def check_sampled(g: Tensor, x: Tensor, indices: Tensor, pattern: Pattern) -> int:
    """The kept elements of a row. Raises ValueError unless g is [tokens, rows] and x is [tokens, size], of one type, and
    the indices are those of [rows, size].
    """
    if g.dim() != 2 or x.dim() != 2 or g.shape[0] != x.shape[0] or g.dtype != x.dtype:
        raise ValueError(
            f"g and x are [tokens, rows] and [tokens, size] of one type, got {g.dtype} {list(g.shape)} and {x.dtype} {list(x.shape)}"
        )
    check_indices(indices, pattern, g.shape[1], x.shape[1], g.dtype)
    return pattern.groups(x.shape[1]) * pattern.n


def kept_products(g: Tensor, x: Tensor, indices: Tensor, pattern: Pattern) -> Tensor:
    """The elements of gᵀ x at the kept places of a weight [rows, size], in the type of g: [rows, kept].

    g: [tokens, rows]. x: [tokens, size]. Nothing waits for a GPU. Raises as `check_sampled`.
    """
    check_sampled(g, x, indices, pattern)
    rows, size = g.shape[1], x.shape[1]
    indices = natural(indices, rows, size)
    unit = lcm(BLOCK_ROWS, pattern.length)
    blocks = max(1, -(-rows * size * g.itemsize // BLOCK_BYTES))
    step = max(1, -(-rows // (blocks * unit))) * unit
    out = empty_values(rows, size, pattern, g)
    # The layout of V:N:M is another one for less than a window.
    edges = [*range(0, max(1, rows - pattern.length + 1), step), rows]
    for start, stop in itertools.pairwise(edges):
        windows = slice(start // pattern.length, -(-stop // pattern.length))
        taken(g[:, start:stop].t() @ x, indices[windows], pattern, out[start:stop])
    return out.contiguous()
