"""Asynchronous copies of tiles from global to shared memory: memory for slots, copies, and waits."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import I32, IntegerAttr, TensorType, UnitAttr, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import MemoryAllocEffect, MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.pointers import PointerType
from louver.ir.tile.shared import SharedAttr, SharedLayout
from louver.ir.tile.types import AnyTensor, as_tensor, loaded_type, memory_bytes, register_encoding, tensor_of


def verify_shared(tile: AnyTensor) -> None:
    """Raise VerifyException for a tile that is not in shared memory."""
    if not isinstance(register_encoding(tile), SharedAttr):
        raise VerifyException(f"a tile in shared memory has the encoding #tt.shared<…>, got {tile}")


@irdl_op_definition
class LocalAllocOp(IRDLOperation):
    """Allocate shared memory for `slots` slots, each for one tile, until the program ends. The contents are undefined.

    The result is the tile in the first slot.
    """

    name = "ttg.local_alloc"
    slots = prop_def(IntegerAttr[I32])
    result = result_def(TensorType)
    traits = traits_def(MemoryAllocEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, tile: AnyTensor, slots: int) -> None:
        super().__init__(properties={"slots": IntegerAttr(slots, i32)}, result_types=[tile])

    def verify_(self) -> None:
        verify_shared(tensor_of(self.result))
        if self.slots.value.data < 1:
            raise VerifyException(f"memory has a slot at least, got {self.slots.value.data}")


@irdl_op_definition
class SlotOp(IRDLOperation):
    """The tile in a slot of a `ttg.local_alloc`. Slots are numbered from 0."""

    name = "ttg.memdesc_index"
    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    memory = operand_def(T)
    index = operand_def(i32)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$memory `[` $index `]` attr-dict `:` type($memory)"

    def __init__(self, memory: SSAValue, index: SSAValue) -> None:
        super().__init__(operands=[memory, index], result_types=[memory.type])

    def verify_(self) -> None:
        if not isinstance(self.memory.owner, LocalAllocOp):
            raise VerifyException("a slot is part of memory from ttg.local_alloc")


@irdl_op_definition
class AsyncCopyOp(IRDLOperation):
    """Begin to copy the elements at `ptr` to the memory of `slot`. Elements are zero where the mask is false.

    The result is the tile in the slot after a `ttg.async_wait`. `slot` must not be used any more.

    free: all threads have synchronized since the last read of the slot.
    elsewhere: an address. Where the mask is false, elements from this address are copied in place of zeros.
    chunk: bytes that a thread copies at once. They are neighbours with the same mask.
    sure: bytes by which addresses are known to be aligned, and which have the same mask. If they are less than a chunk, addresses and
        masks are tested, and where one does not fit, so many bytes are copied at once.
    """

    name = "ttg.async_copy_global_to_local"
    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    ptr = operand_def(TensorType)
    slot = operand_def(T)
    mask = opt_operand_def(TensorType)
    elsewhere = opt_operand_def(PointerType)
    free = opt_prop_def(UnitAttr)
    chunk = prop_def(IntegerAttr[I32])
    sure = prop_def(IntegerAttr[I32])
    result = result_def(T)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = "$ptr `,` $slot (`mask` $mask^ `:` type($mask))? (`elsewhere` $elsewhere^ `:` type($elsewhere))? attr-dict `:` type($ptr) `->` type($slot)"

    def __init__(
        self,
        ptr: SSAValue,
        slot: SSAValue,
        mask: SSAValue | None,
        elsewhere: SSAValue | None = None,
        *,
        chunk: int,
        sure: int,
        free: bool = False,
    ) -> None:
        properties: dict[str, Attribute] = {"chunk": IntegerAttr(chunk, i32), "sure": IntegerAttr(sure, i32)}
        properties |= {"free": UnitAttr()} if free else {}
        super().__init__(operands=[ptr, slot, mask, elsewhere], properties=properties, result_types=[slot.type])

    def verify_(self) -> None:
        loaded, slot = as_tensor(loaded_type(self.ptr.type)), tensor_of(self.slot)
        verify_shared(slot)
        if loaded is None or (loaded.element_type, loaded.get_shape()) != (slot.element_type, slot.get_shape()):
            raise VerifyException(f"a copy of {loaded} needs memory of its shape and type, got {slot}")
        if self.mask is not None and tensor_of(self.mask).get_shape() != slot.get_shape():
            raise VerifyException(f"a mask has an element for each of {slot}, got {self.mask.type}")


@irdl_op_definition
class LocalStoreOp(IRDLOperation):
    """Store a tile from registers to the memory of `slot`.

    The result is the tile there. `slot` must not be used any more.

    free: all threads have synchronized since the last read of the slot.
    """

    name = "ttg.local_store"
    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    src = operand_def(TensorType)
    slot = operand_def(T)
    free = opt_prop_def(UnitAttr)
    result = result_def(T)
    traits = traits_def(MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$src `,` $slot attr-dict `:` type($src) `->` type($slot)"

    def __init__(self, src: SSAValue, slot: SSAValue, *, free: bool = False) -> None:
        properties = {"free": UnitAttr()} if free else {}
        super().__init__(operands=[src, slot], properties=properties, result_types=[slot.type])

    def verify_(self) -> None:
        stored, slot = tensor_of(self.src), tensor_of(self.slot)
        verify_shared(slot)
        if (stored.element_type, stored.get_shape()) != (slot.element_type, slot.get_shape()):
            raise VerifyException(f"a tile is stored to memory of its shape and type, got {stored} and {slot}")


@irdl_op_definition
class AsyncCommitOp(IRDLOperation):
    """Commit the copies since the last commit as a group. The group may be empty."""

    name = "ttg.async_commit_group"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "attr-dict"


@irdl_op_definition
class MeetOp(IRDLOperation):
    """Prepare copies to shared memory: all threads have read and stored what was there, and stored what copies read."""

    name = "ttg.meet"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    assembly_format = "attr-dict"


@irdl_op_definition
class AsyncWaitOp(IRDLOperation):
    """Wait for all groups of copies except the newest `num`."""

    name = "ttg.async_wait"
    num = prop_def(IntegerAttr[I32])
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict"

    def __init__(self, pending: int) -> None:
        super().__init__(properties={"num": IntegerAttr(pending, i32)})

    def verify_(self) -> None:
        if self.num.value.data < 0:
            raise VerifyException(f"a wait leaves 0 or more groups pending, got {self.num.value.data}")


def in_shared(value: SSAValue) -> bool:
    """Whether a tile is in shared memory."""
    return isinstance(register_encoding(value.type), SharedAttr)


def tile_of(value: SSAValue) -> SharedLayout:
    """The places of the elements of a tile in shared memory."""
    tensor = tensor_of(value)
    encoding = register_encoding(tensor)
    assert isinstance(encoding, SharedAttr)
    return encoding.place(tensor.get_shape(), memory_bytes(tensor))


def staged_bytes(memory: SSAValue) -> int:
    """The size of a `ttg.local_alloc`, or of a single tile."""
    slots = memory.owner.slots.value.data if isinstance(memory.owner, LocalAllocOp) else None
    return tile_of(memory).bytes if slots is None else slots * slot_bytes(memory)


def slot_bytes(memory: SSAValue) -> int:
    """Bytes from one slot of a tile to the next. Each slot begins at a multiple of the swizzle's period."""
    tile = tile_of(memory)
    return -(-tile.bytes // tile.swizzle.repeat) * tile.swizzle.repeat
