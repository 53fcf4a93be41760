"""The kept elements of a sparse tensor by PyTorch's operations, on any device and under any tracer."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from louver.formats.codes import NIBBLE_CODES, index_bits, index_bytes
from louver.formats.pattern import Pattern
from louver.formats.rows import Windows
from louver.formats.tensor import ROW_ALIGNMENT
from louver.library.streaming.launches import COUNTER_BYTES, Stored, dense_into
from louver.runtime.arrays import view
from louver.torch.packed import can_pack, is_packed, natural, packed_form


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
    windows = windows_of(rows, size, pattern)
    expected = [windows.count, index_bytes(pattern, groups, windows.height)]
    forms = [(torch.uint8, expected)]
    if is_packed(indices) and can_pack(rows, size, str(pattern), values.dtype):
        forms.append(packed_form(rows, size, values.dtype))
    if (indices.dtype, list(indices.shape)) not in forms:
        texts = [f"{str(dtype).removeprefix('torch.')} of shape {shape}" for dtype, shape in forms]
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
    if values.is_cuda and _has_kernel(values, indices, pattern):
        return _by_kernel(values, indices, pattern, size)
    bits = _bits(values)
    full = bits.new_zeros(rows, pattern.groups(size) * pattern.m)
    full.scatter_(1, columns(indices, pattern, rows, size), bits)
    return full[:, :size].contiguous().view(values.dtype)


def taken(dense: Tensor, indices: Tensor, pattern: Pattern) -> Tensor:
    """The kept elements [rows, kept] of a dense matrix [rows, size]: the inverse of `expanded`."""
    if dense.dim() != 2:
        raise ValueError(f"the dense matrix is [rows, size], got shape {list(dense.shape)}")
    rows, size = dense.shape
    padding = pattern.groups(size) * pattern.m - size
    wide = functional.pad(_bits(dense), (0, padding))
    return wide.gather(1, columns(indices, pattern, rows, size)).view(dense.dtype)


def _has_kernel(values: Tensor, indices: Tensor, pattern: Pattern) -> bool:
    """Whether the streaming kernel reads arrays on a GPU in place."""
    row = values.stride(0) * values.itemsize
    aligned = row % ROW_ALIGNMENT == 0 and values.data_ptr() % ROW_ALIGNMENT == 0 and values.stride(1) == 1
    return len(pattern.levels) == 1 and aligned and indices.is_contiguous()


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
