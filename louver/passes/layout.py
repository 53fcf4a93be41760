"""Where the tiles of a stage stand in shared memory: boxes, swizzles and the offsets that each product reads.

One record for the sparse operand's values and one for the dense operand; the generator turns them into bulk copies and
products, the signature into tensor maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.formats.dtypes import element_type
from louver.isa.tensormap import SwizzleBytes
from louver.passes.schedule import Schedule

SPAN = 128
"""Widest swizzle span in bytes: a box's inner dimension never exceeds it."""

STAGED_BITS = 16
"""Bits of the elements that bulk stores take: stmatrix moves matrices of such."""


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """One operand's tile in a stage.

    box: elements a copy moves, innermost first. copies: boxes a stage. copy_step: how far the coordinates of consecutive
    copies lie apart, in elements, innermost first. swizzle: span in bytes. element_bytes: bytes of an element.
    major: "k" (K contiguous) or "mn".
    """

    box: tuple[int, int]
    copies: int
    copy_step: tuple[int, int]
    swizzle: SwizzleBytes
    element_bytes: int
    major: Literal["k", "mn"]

    @property
    def box_bytes(self) -> int:
        """Bytes of one copy."""
        return self.box[0] * self.box[1] * self.element_bytes

    @property
    def bytes(self) -> int:
        """Bytes of the operand's tile in a stage."""
        return self.box_bytes * self.copies


def values_layout(schedule: Schedule, element: str) -> OperandLayout:
    """The sparse operand's values: K-major, half of tile_k elements a row."""
    size = element_type(element).bits // 8
    inner = schedule.tile_k // 2
    span = inner * size
    if span not in (32, 64, 128):
        raise ValueError(f"a row of stored values must fill a swizzle span of 32, 64 or 128 bytes, got {span}")
    return OperandLayout((inner, schedule.tile_m), 1, (0, 0), span, size, "k")


def dense_layout(schedule: Schedule, element: str, major: Literal["k", "mn"]) -> OperandLayout:
    """The dense operand: boxes of one swizzle span, side by side along K (K-major) or along N (MN-major)."""
    size = element_type(element).bits // 8
    if major == "k":
        inner = min(schedule.tile_k, SPAN // size)
        return OperandLayout(
            (inner, schedule.tile_n), schedule.tile_k // inner, (inner, 0), _span(inner * size), size, "k"
        )
    if size != 2:
        raise ValueError(f"wgmma transposes 16-bit operands only, got {element}: give the dense operand K-major")
    inner = min(schedule.tile_n, SPAN // size)
    if schedule.tile_n % inner or inner * size not in (32, 64, 128):
        raise ValueError(
            f"an N-major dense tile is made of whole swizzle spans: tile_n must be 16, 32 or a multiple of 64, "
            f"got {schedule.tile_n}"
        )
    return OperandLayout(
        (inner, schedule.tile_k), schedule.tile_n // inner, (inner, 0), _span(inner * size), size, "mn"
    )


def output_layout(schedule: Schedule, element: str, *, transposed: bool) -> OperandLayout:
    """The staged output of one block of 64 rows: one box of 64 rows of m for each column (transposed), or boxes of 64 columns."""
    size = element_type(element).bits // 8
    inner = SPAN // size
    if 8 * size != STAGED_BITS:
        raise ValueError(f"bulk stores take 16-bit outputs (their transposition is 16-bit only), got {element}")
    if transposed:
        if schedule.tile_n < 16:
            raise ValueError(f"bulk stores take tiles of at least 16 columns, got {schedule.tile_n}: store directly")
        return OperandLayout((inner, schedule.tile_n), 1, (0, 0), 128, size, "mn")
    if schedule.tile_n % inner:
        raise ValueError(
            f"bulk stores of rows take tiles of a multiple of {inner} columns, got {schedule.tile_n}: store directly"
        )
    return OperandLayout((inner, 64), schedule.tile_n // inner, (inner, 0), 128, size, "k")


def _span(size: int) -> SwizzleBytes:
    if size not in (32, 64, 128):
        raise ValueError(f"a box's inner dimension must fill a swizzle span of 32, 64 or 128 bytes, got {size}")
    return size
