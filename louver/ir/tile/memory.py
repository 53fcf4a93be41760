"""Operations on memory: descriptors and block pointers, and accesses through them and through pointers.

Shapes, strides and offsets count elements of the dense tensor, also if it is sparse. A descriptor reads zeros outside
its shape, and drops stores there. A block pointer does so along the dimensions in `boundaryCheck`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import I32, DenseArrayBase, IntegerAttr, IntegerType, StringAttr, TensorType, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile import syntax
from louver.ir.tile.syntax import Index
from louver.ir.tile.types import AnyTensor, DescriptorType, PointerType, as_tensor, loaded_type, sparse_encoding

I32Array = DenseArrayBase.constr(i32)
I64Array = DenseArrayBase.constr(i64)


def _verify_base(base: Attribute, block: AnyTensor) -> None:
    """Require that a view has the element type and encoding of its base."""
    expected = PointerType(block.element_type, block.encoding)
    if base != expected:
        raise VerifyException(f"a block of type {block} needs a base of type {expected}, got {base}")


def _described(descriptor: SSAValue) -> AnyTensor:
    return cast(DescriptorType, descriptor.type).block


@irdl_op_definition
class MakeTensorDescriptorOp(IRDLOperation):
    """Describe a tensor in global memory, for accesses by blocks. Its last dimension is contiguous."""

    name = "tt.make_tensor_descriptor"
    base = operand_def(PointerType)
    shape = var_operand_def(i32)
    strides = var_operand_def(i64)
    static_shape = prop_def(I64Array)
    static_strides = prop_def(I64Array)
    padding = opt_prop_def(IntegerAttr[I32])
    result = result_def(DescriptorType)
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    custom_directives = (syntax.Indices, syntax.StrippedPointer, syntax.StrippedDescriptor)
    assembly_format = (
        "$base `,` custom<Indices>($shape, $static_shape) `,` custom<Indices>($strides, $static_strides) attr-dict `:`"
        " custom<StrippedPointer>(type($base)) `,` custom<StrippedDescriptor>(type($result))"
    )

    def __init__(self, base: SSAValue, shape: Sequence[Index], strides: Sequence[Index], block: Sequence[int]) -> None:
        sizes, static_shape = syntax.split_indices(shape)
        steps, static_strides = syntax.split_indices(strides)
        pointer = cast(PointerType, base.type)
        super().__init__(
            operands=[base, sizes, steps],
            properties={"static_shape": static_shape, "static_strides": static_strides},
            result_types=[DescriptorType(TensorType(pointer.pointee, block, pointer.encoding))],
        )

    @property
    def sizes(self) -> tuple[Index, ...]:
        """Elements along each dimension."""
        return syntax.join_indices(self.shape, self.static_shape)

    @property
    def steps(self) -> tuple[Index, ...]:
        """Elements between neighbours along each dimension."""
        return syntax.join_indices(self.strides, self.static_strides)

    @property
    def block(self) -> AnyTensor:
        """The type of a block."""
        return self.result.type.block

    def verify_(self) -> None:
        rank = self.block.get_num_dims()
        syntax.verify_indices("a descriptor's shape", self.shape, self.static_shape, rank)
        syntax.verify_indices("a descriptor's strides", self.strides, self.static_strides, rank)
        last = self.steps[-1]
        if isinstance(last, int) and last != 1:
            raise VerifyException(f"a descriptor's last dimension is contiguous: its stride must be 1, got {last}")
        _verify_base(self.base.type, self.block)


@irdl_op_definition
class DescriptorLoadOp(IRDLOperation):
    """Load the block at `indices`, in elements. Elements outside the tensor are zeros."""

    name = "tt.descriptor_load"
    desc = operand_def(DescriptorType)
    indices = var_operand_def(i32)
    static_indices = prop_def(I64Array)
    cache = opt_prop_def(StringAttr)
    evict = opt_prop_def(StringAttr)
    result = result_def(TensorType)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryReadEffect())
    custom_directives = (syntax.Indices, syntax.Word)
    assembly_format = (
        "$desc `` custom<Indices>($indices, $static_indices) (`cacheModifier` `=` custom<Word>($cache)^)?"
        " (`evictionPolicy` `=` custom<Word>($evict)^)? attr-dict `:` type($desc) `->` type($result)"
    )

    def __init__(self, desc: SSAValue, indices: Sequence[Index]) -> None:
        values, literals = syntax.split_indices(indices)
        super().__init__(
            operands=[desc, values],
            properties={"static_indices": literals},
            result_types=[_described(desc)],
        )

    @property
    def offsets(self) -> tuple[Index, ...]:
        """First element of the block along each dimension."""
        return syntax.join_indices(self.indices, self.static_indices)

    def verify_(self) -> None:
        block = _described(self.desc)
        syntax.verify_indices("the indices of a block", self.indices, self.static_indices, block.get_num_dims())
        if self.result.type != block:
            raise VerifyException(f"a load from {self.desc.type} gives {block}, got {self.result.type}")


class _Stored(IRDLOperation):
    """An operation that writes a tile to the block of a descriptor at `indices`, in elements."""

    desc = operand_def(DescriptorType)
    indices = var_operand_def(i32)
    src = operand_def(TensorType)
    static_indices = prop_def(I64Array)
    irdl_options = (ParsePropInAttrDict(),)

    @property
    def offsets(self) -> tuple[Index, ...]:
        """First element of the block along each dimension."""
        return syntax.join_indices(self.indices, self.static_indices)

    def verify_(self) -> None:
        block = _described(self.desc)
        syntax.verify_indices("the indices of a block", self.indices, self.static_indices, block.get_num_dims())
        if sparse_encoding(block):
            raise VerifyException(f"a sparse tensor cannot be stored, got {block}: store a dense result")
        if self.src.type != block:
            raise VerifyException(f"a store to {self.desc.type} needs {block}, got {self.src.type}")


@irdl_op_definition
class DescriptorStoreOp(_Stored):
    """Store a block at `indices`, in elements. Elements outside the tensor are dropped."""

    name = "tt.descriptor_store"
    traits = traits_def(MemoryWriteEffect())
    custom_directives = (syntax.Indices,)
    assembly_format = (
        "$desc `` custom<Indices>($indices, $static_indices) `,` $src attr-dict `:` type($desc) `,` type($src)"
    )

    def __init__(self, desc: SSAValue, indices: Sequence[Index], src: SSAValue) -> None:
        values, literals = syntax.split_indices(indices)
        super().__init__(operands=[desc, values, src], properties={"static_indices": literals})

    def through(self, desc: SSAValue, indices: Sequence[Index], src: SSAValue) -> DescriptorStoreOp:
        """The same operation on a block of another descriptor."""
        return DescriptorStoreOp(desc, indices, src)


REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
"""The operations that combine a block with memory. Source: Triton's DescriptorReduceKind."""


@irdl_op_definition
class DescriptorReduceOp(_Stored):
    """Combine a block with memory: memory becomes its sum (`kind` "add"), minimum and so on with the block.

    Each element is changed atomically. The order among programs is not defined.
    """

    name = "tt.descriptor_reduce"
    kind = prop_def(StringAttr)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    custom_directives = (syntax.Indices, syntax.Word)
    assembly_format = (
        "custom<Word>($kind) `,` $desc `` custom<Indices>($indices, $static_indices) `,` $src attr-dict `:` type($desc) `,`"
        " type($src)"
    )

    def __init__(self, kind: str, desc: SSAValue, indices: Sequence[Index], src: SSAValue) -> None:
        values, literals = syntax.split_indices(indices)
        properties = {"kind": StringAttr(kind), "static_indices": literals}
        super().__init__(operands=[desc, values, src], properties=properties)

    def through(self, desc: SSAValue, indices: Sequence[Index], src: SSAValue) -> DescriptorReduceOp:
        """The same operation on a block of another descriptor."""
        return DescriptorReduceOp(self.kind.data, desc, indices, src)

    def verify_(self) -> None:
        if self.kind.data not in REDUCTIONS:
            raise VerifyException(f"a descriptor reduces by one of {', '.join(REDUCTIONS)}, got {self.kind.data}")
        super().verify_()


@irdl_op_definition
class MakeTensorPtrOp(IRDLOperation):
    """A pointer to a block of a tensor. order: dimensions, the fastest first; row-major if absent."""

    name = "tt.make_tensor_ptr"
    base = operand_def(PointerType)
    shape = var_operand_def(i64)
    strides = var_operand_def(i64)
    offsets = var_operand_def(i32)
    static_shape = prop_def(I64Array)
    static_strides = prop_def(I64Array)
    static_offsets = prop_def(I64Array)
    order = opt_prop_def(I32Array)
    result = result_def(PointerType)
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(Pure())
    custom_directives = (syntax.Indices, syntax.BlockPointer)
    assembly_format = (
        "$base `,` custom<Indices>($shape, $static_shape) `,` custom<Indices>($strides, $static_strides) `,`"
        " custom<Indices>($offsets, $static_offsets) attr-dict `:` custom<BlockPointer>(type($result), type($base))"
    )

    @property
    def block(self) -> AnyTensor:
        """The type of the block."""
        return cast(AnyTensor, self.result.type.pointee)

    def verify_(self) -> None:
        if not isinstance(self.result.type.pointee, TensorType):
            raise VerifyException(f"a block pointer points to a tensor, got {self.result.type}")
        rank = self.block.get_num_dims()
        syntax.verify_indices("a block pointer's shape", self.shape, self.static_shape, rank)
        syntax.verify_indices("a block pointer's strides", self.strides, self.static_strides, rank)
        syntax.verify_indices("a block pointer's offsets", self.offsets, self.static_offsets, rank)
        if self.order is not None and sorted(self.order.get_values()) != list(range(rank)):
            raise VerifyException(
                f"order must name each of {rank} dimensions once, got {list(self.order.get_values())}"
            )
        _verify_base(self.base.type, self.block)


@irdl_op_definition
class AdvanceOp(IRDLOperation):
    """Move a block pointer by `offsets`, in elements."""

    name = "tt.advance"
    ptr = operand_def(PointerType)
    offsets = var_operand_def(i32)
    static_offsets = prop_def(I64Array)
    result = result_def(PointerType)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    custom_directives = (syntax.Indices, syntax.SamePointer)
    assembly_format = "$ptr `,` custom<Indices>($offsets, $static_offsets) attr-dict `:` custom<SamePointer>(type($result), type($ptr))"

    def verify_(self) -> None:
        block = as_tensor(cast(PointerType, self.ptr.type).pointee)
        if block is None:
            raise VerifyException(f"only a pointer to a block is advanced, got {self.ptr.type}")
        syntax.verify_indices("an advance", self.offsets, self.static_offsets, block.get_num_dims())
        if self.result.type != self.ptr.type:
            raise VerifyException(f"advancing {self.ptr.type} gives the same type, got {self.result.type}")


class _LoadEffects(MemoryEffect):
    """A load reads memory. A fresh one also has an effect: a loop may wait for what it reads. Source: `LoadOp` of Triton."""

    @classmethod
    def get_effects(cls, op: Operation) -> set[EffectInstance]:
        read = {EffectInstance(MemoryEffectKind.READ)}
        return read | {EffectInstance(MemoryEffectKind.WRITE)} if isinstance(op, LoadOp) and op.fresh else read


@irdl_op_definition
class LoadOp(IRDLOperation):
    """Load through a block pointer, a tensor of pointers (`mask` and `other` as in Triton) or a pointer to a scalar.

    box: a descriptor whose block at `place`, in elements, has the same elements. A bulk copy may then bring them.
    """

    name = "tt.load"
    ptr = operand_def()
    mask = opt_operand_def()
    other = opt_operand_def()
    box = opt_operand_def(DescriptorType)
    place = var_operand_def(i32)
    boundary_check = opt_prop_def(I32Array, prop_name="boundaryCheck")
    padding = opt_prop_def(IntegerAttr[I32])
    cache = opt_prop_def(StringAttr)
    evict = opt_prop_def(StringAttr)
    is_volatile = opt_prop_def(IntegerAttr[IntegerType], prop_name="isVolatile")
    result = result_def()
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    traits = traits_def(_LoadEffects())
    custom_directives = (syntax.Word, syntax.LoadType)
    assembly_format = (
        "$ptr (`,` $mask^)? (`,` $other^)? (`box` $box^ `[` $place `]` `:` type($box))?"
        " (`cacheModifier` `=` custom<Word>($cache)^)? (`evictionPolicy` `=` custom<Word>($evict)^)? attr-dict"
        " `:` custom<LoadType>(type($ptr), type($result), type($mask), type($other))"
    )

    def __init__(self, ptr: SSAValue, mask: SSAValue | None = None, other: SSAValue | None = None) -> None:
        super().__init__(operands=[ptr, mask, other, None, []], result_types=[loaded_type(ptr.type)])

    @property
    def fresh(self) -> bool:
        """Whether the load reads what other programs store meanwhile, past caches: `volatile=True` or `cache_modifier=".cv"`."""
        volatile = self.is_volatile is not None and bool(self.is_volatile.value.data)
        return volatile or (self.cache is not None and self.cache.data == "cv")

    def found_in(self, box: SSAValue, place: Sequence[SSAValue]) -> LoadOp:
        """The same load with a descriptor, and the place of its block with the same elements."""
        properties = {name: value for name, value in self.properties.items() if name != "operandSegmentSizes"}
        return LoadOp.build(
            operands=[self.ptr, self.mask, self.other, box, list(place)],
            properties=properties,
            result_types=[self.result.type],
        )

    def verify_(self) -> None:
        loaded = loaded_type(self.ptr.type)
        if self.result.type != loaded:
            raise VerifyException(f"a load through {self.ptr.type} gives {loaded}, got {self.result.type}")
        _verify_mask(self, self.mask, loaded)
        if (self.box is None) != (not self.place) or (
            self.box is not None and _described(self.box).get_num_dims() != len(self.place)
        ):
            raise VerifyException(f"the place of a load's box has an index for each dimension, got {len(self.place)}")
        fill = syntax.fill_type(loaded)
        if self.other is not None and self.other.type != fill:
            raise VerifyException(f"the fill value of a load of {fill} has its type, got {self.other.type}")
        _verify_boundary(self.ptr.type, self.boundary_check)


@irdl_op_definition
class StoreOp(IRDLOperation):
    """Store through a block pointer, a tensor of pointers or a pointer to a scalar."""

    name = "tt.store"
    ptr = operand_def()
    value = operand_def()
    mask = opt_operand_def()
    boundary_check = opt_prop_def(I32Array, prop_name="boundaryCheck")
    cache = opt_prop_def(StringAttr)
    evict = opt_prop_def(StringAttr)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(MemoryWriteEffect())
    custom_directives = (syntax.Word, syntax.StoreType)
    assembly_format = (
        "$ptr `,` $value (`,` $mask^)? (`cacheModifier` `=` custom<Word>($cache)^)?"
        " (`evictionPolicy` `=` custom<Word>($evict)^)? attr-dict"
        " `:` custom<StoreType>(type($ptr), type($value), type($mask))"
    )

    def verify_(self) -> None:
        stored = loaded_type(self.ptr.type)
        if sparse_encoding(stored):
            raise VerifyException(f"a sparse tensor cannot be stored, got {stored}: store a dense result")
        if self.value.type != stored:
            raise VerifyException(f"a store through {self.ptr.type} needs {stored}, got {self.value.type}")
        _verify_mask(self, self.mask, stored)
        _verify_boundary(self.ptr.type, self.boundary_check)


def checked(op: LoadOp | StoreOp) -> Sequence[int]:
    """The dimensions of a block pointer along which elements outside of the tensor are not accessed."""
    return () if op.boundary_check is None else cast("Sequence[int]", op.boundary_check.get_values())


def _verify_mask(op: Operation, mask: SSAValue | None, value: Attribute) -> None:
    if mask is not None and mask.type != syntax.mask_type(value):
        raise VerifyException(f"the mask of {op.name} must be {syntax.mask_type(value)}, got {mask.type}")


def _verify_boundary(pointer: Attribute, checked: DenseArrayBase[IntegerType] | None) -> None:
    if checked is None:
        return
    block = as_tensor(pointer.pointee) if isinstance(pointer, PointerType) else None
    if block is None:
        raise VerifyException(f"boundaryCheck needs a block pointer, got {pointer}: mask a tensor of pointers instead")
    for dimension in checked.get_values():
        if not 0 <= dimension < block.get_num_dims():
            raise VerifyException(f"boundaryCheck names dimensions 0 to {block.get_num_dims() - 1}, got {dimension}")
