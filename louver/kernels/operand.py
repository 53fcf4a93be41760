"""The sparse operand on a device: its values as they are, its metadata prepacked."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import raw_bits
from louver.formats.tensor import SparseTensor, row_pitch
from louver.isa.fragments import ROWS
from louver.isa.prepack import WORDS, prepack, split
from louver.runtime.driver import DriverError, DriverMissingError, call, device_context
from louver.runtime.memory import DeviceBuffer


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

    def __del__(self) -> None:
        # The buffers are given back in the order of one stream, while the streams that read them are the callers'.
        if not sys.is_finalizing():
            with contextlib.suppress(DriverError, DriverMissingError), device_context(self.values.ordinal):
                call("cuCtxSynchronize", doing="waiting for the products of a sparse tensor")


def upload(s: SparseTensor, ordinal: int, words: int = WORDS) -> DeviceOperand:
    """The operand on device `ordinal`, complete when this returns. words: of a load of metadata, see `louver.isa.prepack`."""
    pitch = row_pitch(s.kept, s.dtype)
    whole = np.zeros((s.rows, pitch // s.dtype.bytes), s.dtype.bits_dtype)
    whole[:, : s.kept] = raw_bits(s.values)
    values = DeviceBuffer(whole.nbytes, ordinal=ordinal)
    values.write(whole)
    return DeviceOperand(values, s.kept, pitch, s.dtype.bytes, _metadata(s, ordinal, words))


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
    m = s.shape[-2]
    if m % ROWS == 0:
        return split(prepack(s.indices, s.rows, s.size, s.dtype), words)
    entries = np.split(s.indices, prod(s.shape[:-2]))
    return np.concatenate([split(prepack(entry, m, s.size, s.dtype), words) for entry in entries])
