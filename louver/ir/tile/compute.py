"""Operations on tensors: conversions, also to another encoding, and changes of shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.arith import floatingPointLike
from xdsl.dialects.builtin import I32, BoolAttr, DenseArrayBase, IntegerAttr, StringAttr, TensorType, UnitAttr, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile import syntax
from louver.ir.tile.encodings import Encoding, SliceAttr
from louver.ir.tile.layout import Layout
from louver.ir.tile.shared import SharedAttr
from louver.ir.tile.types import AnyTensor, as_tensor, register_encoding, sparse_encoding, tensor_like, tensor_of


class Converting(IRDLOperation):
    """Makes `result` of `src`."""

    traits = traits_def(Pure())
    assembly_format = "$src attr-dict `:` type($src) `->` type($result)"


class Moving(Converting):
    """Makes a tensor of the elements of another one."""

    src = operand_def(TensorType)
    result = result_def(TensorType)


@irdl_op_definition
class TransOp(Moving):
    """Permute dimensions: dimension i of the result is dimension order[i] of the source."""

    name = "tt.trans"
    order = prop_def(DenseArrayBase.constr(i32))
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, src: SSAValue, order: Sequence[int] = (1, 0)) -> None:
        tensor = tensor_of(src)
        shape = [tensor.get_shape()[dimension] for dimension in order]
        super().__init__(
            operands=[src],
            properties={"order": DenseArrayBase.from_list(i32, order)},
            result_types=[TensorType(tensor.element_type, shape, tensor.encoding)],
        )

    def verify_(self) -> None:
        source, order = tensor_of(self.src), self.order.get_values()
        rank = source.get_num_dims()
        if sorted(order) != list(range(rank)):
            raise VerifyException(f"order must name each of {rank} dimensions once, got {list(order)}")
        shape = [source.get_shape()[dimension] for dimension in order]
        _verify_moved(self, source, shape, lambda layout: layout.permuted(order))


@irdl_op_definition
class ReshapeOp(Moving):
    """The elements in row-major order, in another shape. For a sparse tensor, the last dimension does not change.

    The attributes permit another order, or ask for an efficient layout. Louver uses neither.
    """

    name = "tt.reshape"
    allow_reorder = opt_prop_def(UnitAttr)
    efficient_layout = opt_prop_def(UnitAttr)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$src (`allow_reorder` $allow_reorder^)? (`efficient_layout` $efficient_layout^)? attr-dict "
        "`:` type($src) `->` type($result)"
    )

    def __init__(self, src: SSAValue, shape: Sequence[int]) -> None:
        tensor = tensor_of(src)
        super().__init__(operands=[src], result_types=[TensorType(tensor.element_type, shape, tensor.encoding)])

    def verify_(self) -> None:
        source, result = tensor_of(self.src), tensor_of(self.result)
        if source.element_type != result.element_type or prod(source.get_shape()) != prod(result.get_shape()):
            raise VerifyException(f"a reshape keeps every element, got {source} to {result}")
        shape = result.get_shape()
        if register_encoding(source) is not None:
            _verify_moved(self, source, shape, lambda layout: layout.reshaped(shape))
        elif source.encoding != result.encoding:
            raise VerifyException(f"a reshape keeps the encoding, got {source} to {result}")
        if sparse_encoding(source) and source.get_shape()[-1:] != result.get_shape()[-1:]:
            raise VerifyException(f"a reshape of a sparse tensor keeps its last dimension, got {source} to {result}")


@irdl_op_definition
class SplitOp(IRDLOperation):
    """Split a tensor whose last dimension has two elements into the tensor of the first ones and the tensor of the
    second ones.
    """

    name = "tt.split"
    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    src = operand_def(TensorType)
    first = result_def(T)
    second = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$src attr-dict `:` type($src) `->` type($first)"

    def __init__(self, src: SSAValue) -> None:
        tensor = tensor_of(src)
        part = TensorType(tensor.element_type, tensor.get_shape()[:-1])
        super().__init__(operands=[src], result_types=[part, part])

    def verify_(self) -> None:
        source = tensor_of(self.src)
        if source.get_num_dims() == 0 or source.get_shape()[-1] != 2:
            raise VerifyException(f"a split halves a last dimension of 2 elements, got {source}")
        shape = source.get_shape()[:-1]
        for result in self.results:
            _verify_result(self, TensorType(source.element_type, shape, tensor_of(result).encoding), result.type)
            kept, found = register_encoding(source), register_encoding(result.type)
            if kept and found and found.layout(shape).paired() != kept.layout(source.get_shape()):
                raise VerifyException(f"a split keeps elements in their threads, got {source} to {result.type}")


@irdl_op_definition
class JoinOp(IRDLOperation):
    """Join two tensors to one with a last dimension of two elements: from the first tensor, and from the second."""

    name = "tt.join"
    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"

    def __init__(self, lhs: SSAValue, rhs: SSAValue) -> None:
        tensor = tensor_of(lhs)
        super().__init__(operands=[lhs, rhs], result_types=[TensorType(tensor.element_type, [*tensor.get_shape(), 2])])

    def verify_(self) -> None:
        source, result = tensor_of(self.lhs), tensor_of(self.result)
        shape = source.get_shape()
        _verify_result(self, TensorType(source.element_type, [*shape, 2], result.encoding), result)
        kept, found = register_encoding(source), register_encoding(result)
        if kept and found and kept.layout(shape).paired() != found.layout(result.get_shape()):
            raise VerifyException(f"a join keeps elements in their threads, got {source} to {result}")


@irdl_op_definition
class GatherOp(IRDLOperation):
    """Elements of a tensor at the places along `axis` that the indices give.

    Places along other dimensions do not change.
    """

    name = "tt.gather"
    src = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(IntegerAttr[I32])
    efficient_layout = opt_prop_def(UnitAttr)
    result = result_def(TensorType)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$src `[` $indices `]` attr-dict `:` `(` type($src) `,` type($indices) `)` `->` type($result)"

    def verify_(self) -> None:
        source, indices, axis = tensor_of(self.src), tensor_of(self.indices), self.axis.value.data
        shapes = [list(each.get_shape()) for each in (source, indices)]
        if not 0 <= axis < len(shapes[0]):
            raise VerifyException(f"axis must be 0 to {len(shapes[0]) - 1}, got {axis}")
        for shape in shapes:
            del shape[axis : axis + 1]
        if len(source.get_shape()) != len(indices.get_shape()) or shapes[0] != shapes[1]:
            raise VerifyException(
                f"a gather's indices differ in size along axis {axis} alone, got {source} and {indices}"
            )
        _verify_result(self, tensor_like(indices, source.element_type), self.result.type)


@irdl_op_definition
class ExternElementwiseOp(IRDLOperation):
    """Apply a function of a device library, given by its symbol, to each element."""

    name = "tt.extern_elementwise"
    srcs = var_operand_def()
    libname = prop_def(StringAttr)
    libpath = prop_def(StringAttr)
    symbol = prop_def(StringAttr)
    pure = prop_def(BoolAttr)
    result = result_def()
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$srcs attr-dict `:` `(` type($srcs) `)` `->` type($result)"

    def __init__(self, symbol: str, srcs: Sequence[SSAValue]) -> None:
        super().__init__(
            operands=[srcs],
            properties={
                "libname": StringAttr(""),
                "libpath": StringAttr(""),
                "symbol": StringAttr(symbol),
                "pure": BoolAttr.from_bool(True),
            },
            result_types=[srcs[0].type],
        )


@irdl_op_definition
class SplatOp(Converting):
    """A tensor with a scalar in each element."""

    name = "tt.splat"
    src = operand_def()
    result = result_def(TensorType)

    def __init__(self, src: SSAValue, shape: Sequence[int], encoding: Attribute | None = None) -> None:
        type_ = TensorType(src.type, shape) if encoding is None else TensorType(src.type, shape, encoding)
        super().__init__(operands=[src], result_types=[type_])

    def verify_(self) -> None:
        if self.result.type.element_type != self.src.type:
            raise VerifyException(f"a splat of {self.src.type} gives a tensor of it, got {self.result.type}")


@irdl_op_definition
class ExpandDimsOp(Moving):
    """Insert a dimension of one element at `axis`."""

    name = "tt.expand_dims"
    axis = prop_def(IntegerAttr[I32])
    irdl_options = (ParsePropInAttrDict(),)

    def __init__(self, src: SSAValue, axis: int) -> None:
        tensor = tensor_of(src)
        shape = list(tensor.get_shape())
        shape.insert(axis, 1)
        super().__init__(
            operands=[src],
            properties={"axis": IntegerAttr(axis, 32)},
            result_types=[TensorType(tensor.element_type, shape, tensor.encoding)],
        )

    def verify_(self) -> None:
        source, axis = tensor_of(self.src), self.axis.value.data
        shape = list(source.get_shape())
        if not 0 <= axis <= len(shape):
            raise VerifyException(f"axis must be 0 to {len(shape)}, got {axis}")
        shape.insert(axis, 1)
        encoding = register_encoding(self.result.type)
        if encoding is not None and source.encoding != SliceAttr.of(axis, encoding):
            raise VerifyException(
                f"a tile gets a dimension from the slice without it, got {source} to {self.result.type}"
            )
        _verify_result(self, TensorType(source.element_type, shape, encoding or source.encoding), self.result.type)


@irdl_op_definition
class BroadcastOp(Moving):
    """Repeat dimensions of one element."""

    name = "tt.broadcast"

    def __init__(self, src: SSAValue, shape: Sequence[int]) -> None:
        tensor = tensor_of(src)
        super().__init__(operands=[src], result_types=[TensorType(tensor.element_type, shape, tensor.encoding)])

    def verify_(self) -> None:
        source, result = tensor_of(self.src), tensor_of(self.result)
        _verify_result(self, TensorType(source.element_type, result.get_shape(), source.encoding), result)
        sizes, wanted = source.get_shape(), result.get_shape()
        fits = len(sizes) == len(wanted) and all(size in (1, to) for size, to in zip(sizes, wanted, strict=True))
        if not fits:
            raise VerifyException(f"a broadcast repeats dimensions of one element, got {source} to {result}")


@irdl_op_definition
class ClampFOp(IRDLOperation):
    """Clamp each element between two bounds.

    With `propagateNan = all`, a NaN operand gives NaN. With `none`, numbers replace NaN.
    """

    name = "tt.clampf"
    T: ClassVar = VarConstraint("T", floatingPointLike)
    x = operand_def(T)
    low = operand_def(T)
    high = operand_def(T)
    propagate_nan = prop_def(StringAttr, prop_name="propagateNan")
    result = result_def(T)
    traits = traits_def(Pure())
    custom_directives = (syntax.Word,)
    assembly_format = (
        "$x `,` $low `,` $high `,` `propagateNan` `=` custom<Word>($propagateNan) attr-dict `:` type($result)"
    )

    def verify_(self) -> None:
        if self.propagate_nan.data not in ("none", "all"):
            raise VerifyException(f"propagateNan is none or all, got {self.propagate_nan.data}")


@irdl_op_definition
class FpToFpOp(IRDLOperation):
    """Convert floating-point numbers to another type, to or from 8 bits.

    rounding: the mode, if the result has fewer bits.
    """

    name = "tt.fp_to_fp"
    src = operand_def(floatingPointLike)
    rounding = opt_prop_def(StringAttr)
    result = result_def(floatingPointLike)
    traits = traits_def(Pure())
    custom_directives = (syntax.Word,)
    assembly_format = "$src attr-dict (`,` `rounding` `=` custom<Word>($rounding)^)? `:` type($src) `->` type($result)"

    def verify_(self) -> None:
        if self.rounding is not None and self.rounding.data not in ("rtne", "rtz"):
            raise VerifyException(f"rounding is rtne (to nearest even) or rtz (towards zero), got {self.rounding.data}")
        source, result = as_tensor(self.src.type), as_tensor(self.result.type)
        if (source and source.get_shape()) != (result and result.get_shape()):
            raise VerifyException(f"a conversion keeps the shape, got {self.src.type} to {self.result.type}")


def _verify_moved(
    op: TransOp | ReshapeOp, source: AnyTensor, shape: Sequence[int], move: Callable[[Layout], Layout]
) -> None:
    """Require that the result has `shape`, and that each element stays in its place of registers or shared memory."""
    kept, found = register_encoding(source), register_encoding(op.result.type)
    _verify_result(op, TensorType(source.element_type, shape, found or source.encoding), op.result.type)
    if (kept is None) != (found is None):
        raise VerifyException(f"{op.name} of a tile in registers gives one, got {source} to {op.result.type}")
    if isinstance(kept, SharedAttr) or isinstance(found, SharedAttr):
        if not isinstance(op, TransOp) or not isinstance(kept, SharedAttr) or kept.turned() != found:
            raise VerifyException(
                f"{op.name} leaves elements in shared memory where they are, got {source} to {op.result.type}"
            )
    elif kept and found and move(kept.layout(source.get_shape())) != found.layout(shape):
        raise VerifyException(f"{op.name} keeps elements in their registers, got {source} to {op.result.type}")


def _verify_result(op: IRDLOperation, expected: Attribute, actual: Attribute) -> None:
    if expected != actual:
        raise VerifyException(f"{op.name} gives {expected}, got {actual}")


@irdl_op_definition
class ConvertLayoutOp(Moving):
    """The same elements in other registers, lanes and warps, or in shared memory."""

    name = "ttg.convert_layout"

    def __init__(self, src: SSAValue, encoding: Encoding) -> None:
        tensor = tensor_of(src)
        result: TensorType[Attribute] = TensorType(tensor.element_type, tensor.get_shape(), encoding)
        super().__init__(operands=[src], result_types=[result])

    def verify_(self) -> None:
        source, result = tensor_of(self.src), tensor_of(self.result)
        if (source.element_type, source.get_shape()) != (result.element_type, result.get_shape()):
            raise VerifyException(f"a tile keeps its elements in other registers, got {source} to {result}")
        if register_encoding(source) is None or register_encoding(result) is None:
            raise VerifyException(f"tiles in registers have encodings, got {source} to {result}")
