"""Tensor maps as data: the arguments of `cuTensorMapEncodeTiled`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.isa.targets import TENSOR_MAP_MAX_BOX

COPY_CHUNK = 16
"""Granularity of a tiled copy along the innermost dimension, in bytes. Measured on an H200, not documented:

- A copy whose innermost coordinate is not a multiple stops with an illegal instruction.
- A store writes whole chunks, also past the end of a dimension that is not a multiple.
- A load gives zeros exactly from the end of the dimension.
"""

SwizzleBytes = Literal[0, 32, 64, 128]
"""Swizzle span in bytes; 0 means no swizzle."""

ADDED_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "s32": 4}
"""Element types that bulk copies add, and their bytes. Source: PTX ISA, cp.reduce.async.bulk."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tiled view of global memory. Dimensions are innermost first, as in the driver.

    address: bytes, a multiple of 16. element_bytes: 1, 2, 4 or 8. shape: elements of each dimension. strides: bytes
    between neighbours along dimensions 1…, multiples of 16; dimension 0 is contiguous. box: elements that one copy
    moves along each dimension, 1 to 256. The inner box is a multiple of 16 bytes and fits the swizzle span. adds:
    element type for copies that add; None allows plain copies only. Reads outside `shape` give zeros. Writes outside
    are dropped, but see `COPY_CHUNK`. Source: CUDA driver API, cuTensorMapEncodeTiled.
    """

    address: int
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: SwizzleBytes = 0
    l2_promotion: Literal[0, 64, 128, 256] = 128
    adds: str | None = None

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= 5:
            raise ValueError(f"a tensor map has 1 to 5 dimensions, got {rank}")
        if len(self.strides) != rank - 1 or len(self.box) != rank:
            raise ValueError(
                f"a tensor map of {rank} dimensions needs {rank - 1} strides and {rank} box sizes, "
                f"got {len(self.strides)} and {len(self.box)}"
            )
        if self.element_bytes not in (1, 2, 4, 8):
            raise ValueError(f"element_bytes must be 1, 2, 4 or 8, got {self.element_bytes}")
        if self.adds is not None and ADDED_BYTES.get(self.adds) != self.element_bytes:
            raise ValueError(
                f"bulk copies add {', '.join(ADDED_BYTES)} of their own size, got {self.adds} of {self.element_bytes} bytes"
            )
        if self.address % 16:
            raise ValueError(
                f"the address must be a multiple of 16 bytes, got {self.address:#x}: copy to an aligned buffer"
            )
        for size in self.shape:
            if not 1 <= size <= 1 << 32:
                raise ValueError(f"each dimension has 1 to 2^32 elements, got {size}")
        for stride in self.strides:
            if stride % 16 or not 0 < stride < 1 << 40:
                raise ValueError(f"strides are multiples of 16 bytes under 2^40, got {stride}: pad the row pitch")
        for size in self.box:
            if not 1 <= size <= TENSOR_MAP_MAX_BOX:
                raise ValueError(f"each box dimension has 1 to {TENSOR_MAP_MAX_BOX} elements, got {size}")
        inner = self.box[0] * self.element_bytes
        if inner % 16:
            raise ValueError(f"the box's inner dimension must be a multiple of 16 bytes, got {inner}")
        if self.swizzle and inner > self.swizzle:
            raise ValueError(
                f"the box's inner bytes must fit the swizzle span, got {inner} bytes for a span of {self.swizzle}"
            )

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy writes to shared memory and completes on the barrier, including fill zeros."""
        total = self.element_bytes
        for size in self.box:
            total *= size
        return total
