"""The sparse operand on a device: its values as they are, its metadata prepacked."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import raw_bits
from louver.formats.tensor import SparseTensor, row_pitch
from louver.isa.fragments import ROWS
from louver.isa.metadata import PADDING_CODE, WARP_ROWS
from louver.isa.prepack import WORDS, metadata_rows, prepack, split
from louver.library.boxes import METADATA_SLACK
from louver.library.rows import Rows
from louver.runtime.driver import DriverError, DriverMissingError, call, device_context
from louver.runtime.memory import DeviceBuffer

METADATA_ROWS_SLACK = 16
"""Rows of legal codes behind the metadata of register tiles: a tile has 256 rows at most, of 16 for each."""


@dataclass(frozen=True, slots=True)
class DeviceOperand:
    """values: [rows, kept] of `element_bytes`, with `pitch` bytes a row, those of a batch's entries one after the other.
    metadata: prepacked, so many words a load.

    Products on any stream may read it until the end: the device is waited for before its memory is given back.
    """

    values: DeviceBuffer
    kept: int
    pitch: int
    element_bytes: int
    metadata: DeviceBuffer

    def rows(self, m: int, entries: int) -> Rows:
        """The values: of each entry `m` rows."""
        address, pitch = self.values.address, self.pitch
        return Rows(address, self.kept, m, pitch, self.element_bytes, self, entries, m * pitch)

    def refresh(self, s: SparseTensor) -> None:
        """Write the values of `s` here, after every product that reads the present ones."""
        _overwrite(self.values, pitched(s))

    def __del__(self) -> None:
        _wait_to_the_end(self.values.ordinal)


def _wait(ordinal: int) -> None:
    with device_context(ordinal):
        call("cuCtxSynchronize", doing="waiting for the products of a sparse tensor")


def _wait_to_the_end(ordinal: int) -> None:
    """Before memory is given back: that goes in the order of one stream, while the streams that read it are the callers'."""
    if not sys.is_finalizing():
        with contextlib.suppress(DriverError, DriverMissingError):
            _wait(ordinal)


def _overwrite(buffer: DeviceBuffer, whole: NDArray[Any]) -> None:
    _wait(buffer.ordinal)
    buffer.write(whole)


def upload(s: SparseTensor, ordinal: int, words: int = WORDS) -> DeviceOperand:
    """The operand on device `ordinal`, complete when this returns. words: of a load of metadata, see `louver.isa.prepack`."""
    whole = pitched(s)
    values = DeviceBuffer(whole.nbytes, ordinal=ordinal)
    values.write(whole)
    return DeviceOperand(values, s.kept, row_pitch(s.kept, s.dtype), s.dtype.bytes, _metadata(s, ordinal, words))


def pitched(s: SparseTensor) -> NDArray[Any]:
    """The values' raw bits with what lies between rows as zeros."""
    whole = np.zeros((s.rows, row_pitch(s.kept, s.dtype) // s.dtype.bytes), s.dtype.bits_dtype)
    whole[:, : s.kept] = raw_bits(s.values)
    return whole


def with_words(operand: DeviceOperand, s: SparseTensor, words: int) -> DeviceOperand:
    """The operand of the same tensor, its values in the same place, with metadata of another number of words a load."""
    return replace(operand, metadata=_metadata(s, operand.values.ordinal, words))


def _metadata(s: SparseTensor, ordinal: int, words: int) -> DeviceBuffer:
    whole = prepacked(s, words)
    buffer = DeviceBuffer(whole.nbytes, ordinal=ordinal)
    buffer.write(whole)
    return buffer


def prepacked(s: SparseTensor, words: int) -> NDArray[np.uint32]:
    """The metadata of `s` [..., M, K] as products load it, so many words at a time: prepacked entry by entry, the rows of each
    padded to whole blocks.
    """
    m = as_stored(s).shape[-2]
    if m % ROWS == 0:
        return split(prepack(s.indices, s.rows, s.size, s.dtype), words)
    entries = np.split(s.indices, prod(s.shape[:-2]))
    return np.concatenate([split(prepack(entry, m, s.size, s.dtype), words) for entry in entries])


@dataclass(frozen=True, slots=True)
class TileOperand:
    """The sparse operand of register-tile kernels on a device: `tile_values` and `tile_metadata`. Given back as a `DeviceOperand` is."""

    values: DeviceBuffer
    metadata: DeviceBuffer

    def refresh(self, s: SparseTensor) -> None:
        """Write the values of `s` here, after every kernel that reads the present ones."""
        _overwrite(self.values, tile_values(s))

    def __del__(self) -> None:
        _wait_to_the_end(self.values.ordinal)


def upload_tiles(s: SparseTensor, ordinal: int, element: str) -> TileOperand:
    """The operand on device `ordinal`, complete when this returns. element: see `tile_metadata`."""
    buffers: list[DeviceBuffer] = []
    for array in (tile_values(s), tile_metadata(s, element)):
        buffers.append(DeviceBuffer(array.nbytes, ordinal=ordinal))
        buffers[-1].write(array)
    return TileOperand(*buffers)


def tile_values(s: SparseTensor) -> NDArray[Any]:
    """The kept values without gaps between rows, [..., M, K/2], as raw bits. Raises ValueError for a K that is not whole groups."""
    if s.size % s.pattern.m:
        raise ValueError(f"K of a sparse argument is a multiple of {s.pattern.m}, got {s.size}: pad it with zeros")
    return np.ascontiguousarray(raw_bits(np.ascontiguousarray(s.values))).reshape(*as_stored(s).shape[:-1], s.kept)


def as_stored(s: SparseTensor) -> SparseTensor:
    """The tensor, or its transpose, that is sparse along its last axis."""
    return s if s.axis == s.ndim - 1 else s.mT


def tile_metadata(s: SparseTensor, element: str) -> NDArray[np.uint16]:
    """The metadata of each matrix of `s`, one after the other, for products of `element`: `louver.isa.prepack.metadata_rows`, row by row.

    Legal codes follow, as far as a box that begins in the tensor may reach.
    """
    m, k = as_stored(s).shape[-2:]
    entries = np.split(s.indices, s.rows // m)
    rows = [metadata_rows(entry, m, k, element).reshape(-1) for entry in entries]
    pitch = rows[0].size // -(-m // WARP_ROWS)
    behind = np.full(METADATA_ROWS_SLACK * pitch + METADATA_SLACK, PADDING_CODE * 0x1111, np.uint16)
    return np.concatenate([*rows, behind])
