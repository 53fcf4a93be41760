"""The sparse operand on a device: its values as they are, its metadata prepacked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from louver.formats.dtypes import raw_bits
from louver.formats.tensor import SparseTensor, row_pitch
from louver.isa.prepack import prepack
from louver.runtime.memory import DeviceBuffer


@dataclass(frozen=True, slots=True)
class DeviceOperand:
    """values: [rows, kept] of `element_bytes`, with `pitch` bytes a row. metadata: prepacked words."""

    values: DeviceBuffer
    kept: int
    pitch: int
    element_bytes: int
    metadata: DeviceBuffer


def upload(s: SparseTensor, ordinal: int) -> DeviceOperand:
    """The operand on device `ordinal`, complete when this returns."""
    pitch = row_pitch(s.kept, s.dtype)
    whole = np.zeros((s.rows, pitch // s.dtype.bytes), s.dtype.bits_dtype)
    whole[:, : s.kept] = raw_bits(s.values)
    words = prepack(s.indices, s.rows, s.size, s.dtype)
    values = DeviceBuffer(whole.nbytes, ordinal=ordinal)
    values.write(whole)
    metadata = DeviceBuffer(words.nbytes, ordinal=ordinal)
    metadata.write(words)
    return DeviceOperand(values, s.kept, pitch, s.dtype.bytes, metadata)
