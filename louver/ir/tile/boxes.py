"""Bulk copies of boxes to shared memory, and the barriers that count their bytes, with names of Triton."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import I32, IntegerAttr, TensorType, UnitAttr, i1, i32
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.staging import verify_shared
from louver.ir.tile.types import AnyTensor, DescriptorType, tensor_of

BARRIER_BYTES = 8
"""Bytes of a barrier in shared memory."""


@irdl_op_definition
class InitBarriersOp(IRDLOperation):
    """Initialise barriers for the slots of a ring, `BARRIER_BYTES` apart. They live until the kernel ends.

    The result is the offset of the first one, in bytes.
    """

    name = "ttng.init_barrier"
    count = prop_def(IntegerAttr[I32])
    result = result_def(i32)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict"

    def __init__(self, count: int) -> None:
        super().__init__(properties={"count": IntegerAttr(count, i32)}, result_types=[i32])

    def verify_(self) -> None:
        if self.count.value.data < 1:
            raise VerifyException(f"a ring has a barrier at least, got {self.count.value.data}")


@irdl_op_definition
class EvenBarriersOp(IRDLOperation):
    """Set each barrier of a ring to phase 0 again, for the next loop. All threads have waited for all copies.

    read: the slot that the loop would read next.
    phase: the phase of that slot.
    """

    name = "ttng.even_barrier"
    first = operand_def(i32)
    read = operand_def(i32)
    phase = operand_def(i32)
    count = prop_def(IntegerAttr[I32])
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$first `[` $read `]` `,` $phase attr-dict"

    def __init__(self, first: SSAValue, read: SSAValue, phase: SSAValue, count: int) -> None:
        super().__init__(operands=[first, read, phase], properties={"count": IntegerAttr(count, i32)})


@irdl_op_definition
class WaitBarrierOp(IRDLOperation):
    """Wait until the copies of a barrier's phase, 0 or 1 in turn, have arrived."""

    name = "ttng.wait_barrier"
    barrier = operand_def(i32)
    phase = operand_def(i32)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "$barrier `,` $phase attr-dict"

    def __init__(self, barrier: SSAValue, phase: SSAValue) -> None:
        super().__init__(operands=[barrier, phase])


@irdl_op_definition
class BoxCopiesOp(IRDLOperation):
    """Begin to copy a block of each descriptor to its slot, if `pred` is true.

    Elements outside of the tensors are zeros.

    places: the indices of the first element of each block, block by block.
    barrier: it counts the bytes of all copies.
    free: all threads have synchronized since the last read of the slots.
    apart: the kernel has not stored to the arrays of the boxes since copies without this mark.
    """

    name = "ttng.async_tma_copy_global_to_local"
    boxes = var_operand_def(DescriptorType)
    places = var_operand_def(i32)
    slots = var_operand_def(TensorType)
    barrier = operand_def(i32)
    pred = operand_def(i1)
    free = opt_prop_def(UnitAttr)
    apart = opt_prop_def(UnitAttr)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = (
        "$barrier `,` $pred `,` $boxes `[` $places `]` `->` $slots attr-dict `:` type($boxes) `->` type($slots)"
    )

    def __init__(
        self,
        boxes: Sequence[SSAValue],
        places: Sequence[SSAValue],
        slots: Sequence[SSAValue],
        barrier: SSAValue,
        pred: SSAValue,
        *,
        free: bool = False,
        apart: bool = False,
    ) -> None:
        properties = {name: UnitAttr() for name, holds in (("free", free), ("apart", apart)) if holds}
        super().__init__(operands=[boxes, places, slots, barrier, pred], properties=properties)

    @property
    def copies(self) -> list[tuple[SSAValue, list[SSAValue], SSAValue]]:
        """For each copy, the descriptor, the place of its block, and the slot."""
        rest = list(self.places)
        found: list[tuple[SSAValue, list[SSAValue], SSAValue]] = []
        for box, slot in zip(self.boxes, self.slots, strict=True):
            rank = _block(box).get_num_dims()
            found.append((box, rest[:rank], slot))
            rest = rest[rank:]
        return found

    def verify_(self) -> None:
        if len(self.boxes) != len(self.slots) or sum(_block(box).get_num_dims() for box in self.boxes) != len(
            self.places
        ):
            raise VerifyException(
                f"copies have a slot for each box and an index for each dimension, got {len(self.boxes)} boxes, {len(self.slots)} "
                f"slots and {len(self.places)} indices"
            )
        for box, slot in zip(self.boxes, self.slots, strict=True):
            block, tile = _block(box), tensor_of(slot)
            verify_shared(tile)
            shapes = [sorted(size for size in each.get_shape() if size > 1) for each in (block, tile)]
            if block.element_type != tile.element_type or shapes[0] != shapes[1]:
                raise VerifyException(f"a copy of a block {block} needs memory of its shape and type, got {tile}")


@irdl_op_definition
class FitBoxOp(IRDLOperation):
    """The descriptor for copies of blocks that all begin at row `first`, or at any rows if `first` is 0.

    Such copies may leave out rows beyond the array, always the same ones of a block. No block begins before row 0.
    """

    name = "ttng.fit_box"
    box = operand_def(DescriptorType)
    first = operand_def(i32)
    result = result_def(DescriptorType)
    traits = traits_def(Pure())
    assembly_format = "$box `[` $first `]` attr-dict `:` type($box) `->` type($result)"

    def __init__(self, box: SSAValue, first: SSAValue) -> None:
        super().__init__(operands=[box, first], result_types=[box.type])

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return _block(self.box).get_shape()[-2]


@irdl_op_definition
class ClearSlotsOp(IRDLOperation):
    """Fill the slots of each `ttg.local_alloc` with zeros, if copies by its descriptor bring fewer rows than a slot has.

    boxes: results of `ttng.fit_box`. No copy by them has begun yet.
    """

    name = "ttng.clear_slots"
    boxes = var_operand_def(DescriptorType)
    memories = var_operand_def(TensorType)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = "$memories `for` $boxes attr-dict `:` type($memories) `for` type($boxes)"

    def __init__(self, boxes: Sequence[SSAValue], memories: Sequence[SSAValue]) -> None:
        super().__init__(operands=[boxes, memories])

    def verify_(self) -> None:
        if len(self.boxes) != len(self.memories):
            raise VerifyException(
                f"each descriptor has a memory, got {len(self.boxes)} descriptors and {len(self.memories)} memories"
            )
        for memory in self.memories:
            verify_shared(tensor_of(memory))


def _block(box: SSAValue) -> AnyTensor:
    assert isinstance(box.type, DescriptorType)
    return box.type.block
