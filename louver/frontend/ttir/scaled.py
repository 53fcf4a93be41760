"""`tl.dot_scaled` as tile IR has it: both operands become 16-bit numbers, times the scales of their blocks along K, and a
dot multiplies them. Triton does the same on GPUs without an instruction for it, such as Hopper.

A scale of one byte (e8m0) is a power of two, 2^(x - 127), and NaN for 255. Scales that are floats multiply as they are.
"""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import BoolAttr, StringAttr, TensorType, bf16, f16, f32, i8, i16, i32
from xdsl.ir import Attribute, Operation, SSAValue
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
)

from louver.frontend.ttir.libdevice import filled
from louver.ir import tile as tt
from louver.ir.arith import ExtUIOp
from louver.ir.comparisons import CmpiOp
from louver.ir.refusal import unsupported
from louver.ir.tile import syntax
from louver.ir.tile.types import element_of, tensor_like, tensor_of

_FORMATS: dict[str, Attribute] = {
    "e2m1": i8,
    "e4m3": tt.element_attribute("e4m3"),
    "e5m2": tt.element_attribute("e5m2"),
    "bf16": bf16,
    "fp16": f16,
}
"""The element type of an operand's tile, by Triton's name of its numbers. A byte holds two numbers of e2m1."""


@irdl_op_definition
class DotScaledOp(IRDLOperation):
    """a, times its scales, @ b, times its scales, + c. The scales of b are [N, blocks], although b is [K, N].

    fast_math: scales are not NaN. a_packed, b_packed: whether bytes of e2m1 are pairs along K.
    """

    name = "tt.dot_scaled"
    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    a = operand_def(TensorType)
    a_scale = opt_operand_def(TensorType)
    b = operand_def(TensorType)
    b_scale = opt_operand_def(TensorType)
    c = operand_def(T)
    a_format = prop_def(StringAttr, prop_name="a_elem_type")
    b_format = prop_def(StringAttr, prop_name="b_elem_type")
    fast_math = opt_prop_def(BoolAttr, prop_name="fastMath")
    a_packed = opt_prop_def(BoolAttr, prop_name="lhs_k_pack")
    b_packed = opt_prop_def(BoolAttr, prop_name="rhs_k_pack")
    d = result_def(T)
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    custom_directives = (syntax.Word,)
    assembly_format = (
        "$a (`scale` $a_scale^)? `,` $b (`scale` $b_scale^)? `,` $c `lhs` `=` custom<Word>($a_elem_type) "
        "`rhs` `=` custom<Word>($b_elem_type) attr-dict `:` type($a) (`,` type($a_scale)^)? `*` type($b) "
        "(`,` type($b_scale)^)? `->` type($d)"
    )


def scaled_dot(op: DotScaledOp) -> Operation:
    """The dot that computes it. Rejects formats, tiles and scales that Triton does not have."""
    rank = tensor_of(op.d).get_num_dims()
    if not tensor_of(op.a).get_num_dims() == tensor_of(op.b).get_num_dims() == rank > 1:
        raise unsupported("tl.dot_scaled multiplies matrices, or batches of them", op)
    half = f16 if f16 in (element_of(op.a.type), element_of(op.b.type)) else bf16
    rows, columns = rank - 2, rank - 1
    a = _operand(op, op.a, op.a_format.data, op.a_scale, half, columns, columns if _holds(op.a_packed) else rows)
    b = _operand(op, op.b, op.b_format.data, op.b_scale, half, rows, rows if _holds(op.b_packed) else columns)
    return tt.DotOp(a, b, op.c)


def _holds(attribute: BoolAttr | None) -> bool:
    """Whether an attribute is true, or left out."""
    return attribute is None or bool(attribute.value.data)


def _operand(
    op: DotScaledOp, tile: SSAValue, form: str, scale: SSAValue | None, half: Attribute, along: int, packed: int
) -> SSAValue:
    """An operand as 16-bit numbers, times its scales. along: the axis that is K. packed: the axis of pairs of e2m1."""
    if _FORMATS.get(form) != element_of(tile.type):
        raise unsupported(
            f"the operands of tl.dot_scaled are {', '.join(_FORMATS)}, each by its own type or as bytes",
            op,
            "convert the tile to one of them",
        )
    numbers = _unpacked(tile, packed) if form == "e2m1" else tile
    if scale is not None:
        shape = list(tensor_of(numbers).get_shape())
        shape.append(shape.pop(along))
        factors = _as(_turned(_factors(op, scale, shape), along), f32)
        # In f32, since scales exceed the exponents of f16. Only the product is rounded.
        numbers = arith.MulfOp(_as(numbers, f32), factors).result
    return _as(numbers, half)


def _factors(op: DotScaledOp, scale: SSAValue, shape: list[int]) -> SSAValue:
    """The scale of each number of a tile of a shape [..., rows, K]."""
    blocks = list(tensor_of(scale).get_shape())
    if blocks[:-1] != shape[:-1] or blocks[-1] < 1 or shape[-1] % blocks[-1]:
        raise unsupported(
            f"an operand of tl.dot_scaled with rows of {shape[-1]} columns has scales [rows, blocks of K]",
            op,
            "give each row a scale for every block; those of the right operand are not transposed",
        )
    one = tt.ExpandDimsOp(_powers(op, scale), len(blocks)).result
    return tt.ReshapeOp(tt.BroadcastOp(one, [*blocks, shape[-1] // blocks[-1]]).result, shape).result


def _powers(op: DotScaledOp, scale: SSAValue) -> SSAValue:
    """Scales as numbers of bf16, which has all of them."""
    if element_of(scale.type) == _FORMATS["e4m3"]:
        return _as(scale, bf16)
    if element_of(scale.type) != i8:
        raise unsupported(
            "scales of tl.dot_scaled are bytes (tl.uint8), x for 2^(x - 127), or tl.float8e4nv",
            op,
            "convert them, or scale the operands beside tl.dot",
        )
    codes = ExtUIOp(scale, tensor_like(tensor_of(scale), i16)).result
    # The greatest bit of the mantissa makes 2^-127 of 0, and NaN of 255: the bytes that are below 2 with 1 added.
    ends = CmpiOp(arith.AddiOp(scale, filled(1, scale.type)).result, filled(2, scale.type), "ult").result
    found = arith.OrIOp(_shifted(codes, 7), _shifted(ExtUIOp(ends, codes.type).result, 6)).result
    return arith.BitcastOp(found, tensor_like(tensor_of(scale), bf16)).result


def _unpacked(tile: SSAValue, axis: int) -> SSAValue:
    """The numbers, in f32, of bytes that hold two of e2m1 along an axis, the first one in the low bits."""
    pairs = _turned(tile, axis)
    *shape, count = tensor_of(pairs).get_shape()
    first = arith.AndIOp(pairs, filled(15, pairs.type)).result
    both = tt.ReshapeOp(
        tt.JoinOp(first, arith.ShRUIOp(pairs, filled(4, pairs.type)).result).result, [*shape, 2 * count]
    )
    codes = ExtUIOp(both.result, tensor_like(tensor_of(both.result), i32)).result
    sign = _shifted(arith.AndIOp(codes, filled(8, codes.type)).result, 28)
    # Exponent and mantissa in their places give numbers that are 2^126 times too small, and 0.5 as a subnormal one.
    size = _shifted(arith.AndIOp(codes, filled(7, codes.type)).result, 22)
    small = arith.BitcastOp(arith.OrIOp(sign, size).result, tensor_like(tensor_of(codes), f32)).result
    return _turned(arith.MulfOp(small, filled(2.0**126, small.type)).result, axis)


def _shifted(integers: SSAValue, by: int) -> SSAValue:
    return arith.ShLIOp(integers, filled(by, integers.type)).result


def _as(numbers: SSAValue, element: Attribute) -> SSAValue:
    """The numbers in another type of floats."""
    type_ = tensor_like(tensor_of(numbers), element)
    return numbers if numbers.type == type_ else tt.FpToFpOp.create(operands=[numbers], result_types=[type_]).result


def _turned(tile: SSAValue, axis: int) -> SSAValue:
    """The tile with one of its last two axes as the last one, or moved back from there."""
    rank = tensor_of(tile).get_num_dims()
    return tile if axis == rank - 1 else tt.TransOp(tile, (*range(rank - 2), rank - 1, rank - 2)).result
