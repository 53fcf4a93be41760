"""Sparse tensors on the fake GPU, what travels there, and what its memory holds."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np

from louver.formats.tensor import SparseTensor
from louver.runtime.arrays import view
from support.fake_gpu import FakeGpu, Tensor

TRIPS = ("cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync")
WAITS = ("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize")


def on_gpu(array: np.ndarray, ordinal: int = 0) -> Tensor:
    """A fake PyTorch tensor of these elements and strides, and as far off a multiple of 16 bytes."""
    extent = sum((size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)) + array.itemsize
    whole = np.zeros(extent + 32, np.uint8)
    start = -whole.ctypes.data % 16 + array.ctypes.data % 16
    made = np.ndarray(array.shape, array.dtype, whole, start, array.strides)
    made[...] = array
    return Tensor.of(made, ordinal=ordinal)


def resident(s: SparseTensor, ordinal: int = 0) -> SparseTensor:
    """The tensor of arrays that a user has on a GPU."""
    return replace(s, values=on_gpu(s.values, ordinal), indices=on_gpu(s.indices, ordinal))


def contents(array: Any) -> np.ndarray:
    return np.ascontiguousarray(view(array).to_numpy())


def calls(gpu: FakeGpu, names: tuple[str, ...]) -> list[str]:
    return [name for name, _ in gpu.calls if name in names]


def read(gpu: FakeGpu, address: int, nbytes: int) -> bytes:
    return bytes(gpu.memory[address][address - gpu_start(gpu, address) :][:nbytes])


def gpu_start(gpu: FakeGpu, address: int) -> int:
    return ctypes.addressof(gpu.memory[address])
