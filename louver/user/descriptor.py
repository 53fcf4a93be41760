"""A tensor descriptor over any array or sparse tensor: the counterpart of Triton's over PyTorch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from louver.formats.dynamo import opaque
from louver.formats.tensor import SparseTensor
from louver.runtime.arrays import view
from louver.runtime.dlpack import row_major


@opaque
@dataclass(slots=True)
class TensorDescriptor:
    """A tensor in an array's memory that a kernel reads and writes in blocks.

    base: the array at the tensor's start, or a sparse tensor, which stands for its dense array. shape, strides,
    block_shape: in elements; the last stride is 1. Only `block_shape` may be assigned (by config hooks).
    Raises ValueError with the broken rule.
    """

    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]

    def __init__(self, base: Any, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int]) -> None:
        object.__setattr__(self, "base", base)
        for name, value in (("shape", shape), ("strides", strides), ("block_shape", block_shape)):
            object.__setattr__(self, name, tuple(int(each) for each in value))
        check_descriptor(self.shape, self.strides, self.block_shape)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "block_shape":
            raise AttributeError(f"of a descriptor only block_shape may be set, got {name}: make another descriptor")
        block_shape = tuple(int(each) for each in value)
        check_descriptor(self.shape, self.strides, block_shape)
        object.__setattr__(self, name, block_shape)

    @classmethod
    def from_tensor(cls, base: Any, block_shape: Sequence[int]) -> TensorDescriptor:
        """A descriptor of a whole array or sparse tensor."""
        if isinstance(base, SparseTensor):
            return cls(base, base.shape, row_major(base.shape), block_shape)
        found = view(base)
        return cls(base, found.shape, found.strides, block_shape)


def check_descriptor(shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int]) -> None:
    """Raises ValueError unless the three describe blocks of a tensor."""
    rank = len(shape)
    if not rank or len(strides) != rank or len(block_shape) != rank:
        raise ValueError(
            f"a descriptor has a size, a stride and a block size for each dimension, got shape {list(shape)}, strides "
            f"{list(strides)} and block_shape {list(block_shape)}"
        )
    if min(shape) < 1 or min(block_shape) < 1:
        raise ValueError(
            f"a descriptor's sizes are positive, got shape {list(shape)} and block_shape {list(block_shape)}"
        )
    if strides[-1] != 1:
        raise ValueError(f"a descriptor's last stride is 1, got {strides[-1]}: its rows are contiguous")
