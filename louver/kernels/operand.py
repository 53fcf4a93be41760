"""The sparse operand on a device: its values as they are, its metadata prepacked; made once, kept while the tensor lives."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass

import numpy as np

from louver.formats.dtypes import raw_bits
from louver.formats.tensor import SparseTensor, row_pitch
from louver.isa.prepack import prepack
from louver.runtime.memory import DeviceBuffer


@dataclass(frozen=True, slots=True)
class DeviceOperand:
    """values: [rows, kept] with `pitch` bytes a row. metadata: prepacked words."""

    values: DeviceBuffer
    pitch: int
    metadata: DeviceBuffer


class OperandStore:
    """Device operands by tensor and device."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[SparseTensor, dict[int, DeviceOperand]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self, s: SparseTensor, ordinal: int) -> DeviceOperand:
        """The operand on a device; uploaded, and waited for, the first time."""
        with self._lock:
            devices = self._kept.setdefault(s, {})
            if ordinal not in devices:
                devices[ordinal] = _upload(s, ordinal)
            return devices[ordinal]

    def holds(self, s: SparseTensor, ordinal: int) -> bool:
        """Whether the operand is on the device already."""
        return ordinal in self._kept.get(s, {})


def _upload(s: SparseTensor, ordinal: int) -> DeviceOperand:
    pitch = row_pitch(s.kept, s.dtype)
    whole = np.zeros((s.rows, pitch // s.dtype.bytes), s.dtype.bits_dtype)
    whole[:, : s.kept] = raw_bits(s.values)
    words = prepack(s.indices, s.rows, s.size, s.dtype)
    values = DeviceBuffer(whole.nbytes, ordinal=ordinal)
    values.write(whole)
    metadata = DeviceBuffer(words.nbytes, ordinal=ordinal)
    metadata.write(words)
    return DeviceOperand(values, pitch, metadata)
