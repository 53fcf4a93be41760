"""Tensor maps of a call's arrays, for the boxes that a kernel of register tiles copies."""

from __future__ import annotations

from louver.compile.tile_signature import BoxParameter
from louver.ir.polynomial import Numbers
from louver.isa.tensormap import TensorMap
from louver.library.operand import METADATA_SLACK


def tensor_map(box: BoxParameter, address: int, held: int, numbers: Numbers) -> TensorMap:
    """The map. held: bytes of the array from its address on, which end what the kernel does not.

    Raises ValueError for what bulk copies cannot read: strides that are no whole chunks, nothing, and more than the array has.
    """
    strides = [each.value(numbers) for each in box.strides]
    whole = held // box.element_bytes
    if box.part == "metadata":
        # What is read beyond the last row, or behind a row, is legal codes.
        sizes = [strides[0] + METADATA_SLACK, (whole - METADATA_SLACK) // max(1, strides[0])]
    else:
        sizes = [
            -(-whole // max(1, stride)) if size is None else size.value(numbers)
            for size, stride in zip(box.sizes, [1, *strides], strict=True)
        ]
    steps = tuple(stride * box.element_bytes for stride in strides)
    found = TensorMap(address, box.element_bytes, tuple(sizes), steps, box.box, box.swizzle)
    reached = sizes[0] + sum((size - 1) * stride for size, stride in zip(sizes[1:], strides, strict=True))
    if reached > whole:
        raise ValueError(f"boxes of {box.argument!r} reach {reached} elements, got an array of {whole}")
    return found
