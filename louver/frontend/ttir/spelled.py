"""Triton operations that tile IR expresses by other operations, or drops. Barriers (`debug_barrier`) are dropped,
because a program's accesses keep their written order. Printing and assertions are dropped with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from xdsl.builder import Builder
from xdsl.dialects import arith
from xdsl.dialects.arith import floatingPointLike, signlessIntegerLike
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType, i1, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.rewriter import InsertPoint, Rewriter

from louver.frontend.ttir.assembly import InlineAssemblyOp, read_assembly
from louver.frontend.ttir.calls import CallOp
from louver.frontend.ttir.libdevice import respell, upper_half
from louver.frontend.ttir.limits import check_count
from louver.frontend.ttir.scaled import DotScaledOp, scaled_dot
from louver.ir import tile as tt
from louver.ir.arith import ExtUIOp
from louver.ir.building import building
from louver.ir.comparisons import CmpiOp
from louver.ir.refusal import source_location, unsupported
from louver.ir.tile.types import as_tensor, element_of, tensor_like, tensor_of


@irdl_op_definition
class CatOp(IRDLOperation):
    """Two concatenated vectors. Triton allows any order of the elements."""

    name = "tt.cat"
    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(TensorType)
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"


@irdl_op_definition
class PreciseSqrtOp(IRDLOperation):
    """A square root, rounded to nearest even."""

    name = "tt.precise_sqrt"
    T: ClassVar = VarConstraint("T", floatingPointLike)
    x = operand_def(T)
    result = result_def(T)
    assembly_format = "$x attr-dict `:` type($x)"


@irdl_op_definition
class PreciseDivFOp(IRDLOperation):
    """A quotient, rounded to nearest even."""

    name = "tt.precise_divf"
    T: ClassVar = VarConstraint("T", floatingPointLike)
    x = operand_def(T)
    y = operand_def(T)
    result = result_def(T)
    assembly_format = "$x `,` $y attr-dict `:` type($x)"


@irdl_op_definition
class MulhiUIOp(IRDLOperation):
    """The upper half of a product of unsigned integers."""

    name = "tt.mulhiui"
    T: ClassVar = VarConstraint("T", signlessIntegerLike)
    x = operand_def(T)
    y = operand_def(T)
    result = result_def(T)
    assembly_format = "$x `,` $y attr-dict `:` type($x)"


@irdl_op_definition
class HistogramOp(IRDLOperation):
    """The number of occurrences of 0, 1, 2, … among the elements that the mask selects."""

    name = "tt.histogram"
    src = operand_def(TensorType)
    mask = opt_operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def parse(cls, parser: Parser) -> HistogramOp:
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        tensor = as_tensor(type_)
        mask = [] if tensor is None else [tensor_like(tensor, i1)]
        values = parser.resolve_operands(operands, [type_, *mask][: len(operands)], parser.pos)
        return cls.build(operands=[values[0], values[1:]], result_types=[result])


@irdl_op_definition
class BarrierOp(IRDLOperation):
    """A barrier of a program's threads (`tl.debug_barrier`) in Triton 3.6 and newer."""

    name = "ttg.barrier"

    @classmethod
    def parse(cls, parser: Parser) -> BarrierOp:
        parser.parse_identifier()
        while parser.parse_optional_punctuation("|"):
            parser.parse_identifier()
        return cls.create()


@irdl_op_definition
class GpuBarrierOp(IRDLOperation):
    """The same barrier in Triton up to 3.5."""

    name = "gpu.barrier"
    assembly_format = "attr-dict"


@irdl_op_definition
class PrintOp(IRDLOperation):
    """Prints values (`tl.device_print`)."""

    name = "tt.print"
    values = var_operand_def()

    @classmethod
    def parse(cls, parser: Parser) -> PrintOp:
        parser.parse_str_literal()
        parser.parse_optional_attr_dict()
        if not parser.parse_optional_punctuation(":"):
            return cls.create()
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return cls.create(operands=parser.resolve_operands(operands, types, parser.pos))


@irdl_op_definition
class AssertOp(IRDLOperation):
    """Stops the kernel unless all conditions hold (`tl.device_assert`)."""

    name = "tt.assert"
    condition = operand_def()

    @classmethod
    def parse(cls, parser: Parser) -> AssertOp:
        operand = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        parser.parse_str_literal()
        parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return cls.create(operands=[parser.resolve_operand(operand, parser.parse_type())])


OPERATIONS: tuple[type[Operation], ...] = (
    *(CatOp, PreciseSqrtOp, PreciseDivFOp, MulhiUIOp, HistogramOp, BarrierOp, GpuBarrierOp, PrintOp, AssertOp),
    *(InlineAssemblyOp, CallOp, DotScaledOp),
)  # fmt: skip


def spell(module: ModuleOp) -> None:
    """Replace these, inline assembly and libdevice functions in place. Rejects unsupported ones with the user's line."""
    count = 0
    for op in list(module.walk()):
        rule = _RULES.get(type(op))
        if rule is None:
            continue
        before = op.prev_op
        with building(Builder(InsertPoint.before(op))):
            result = rule(op)
        made = op.prev_op
        while made is not before:
            assert made is not None
            made.location = op.location
            count += 1
            made = made.prev_op
        check_count(count, op)
        if result is not op:
            Rewriter.replace_op(op, [], result.results if isinstance(result, Operation) else result)


def _bitcast(op: tt.PointerCastOp) -> Operation:
    return op if isinstance(element_of(op.src.type), tt.PointerType) else arith.BitcastOp(op.src, op.result.type)


def _cat(op: CatOp) -> Operation:
    both = tt.JoinOp(op.lhs, op.rhs).result
    return tt.ReshapeOp(tt.TransOp(both).result, tensor_of(op.result).get_shape())


def _mulhi(op: MulhiUIOp) -> Operation:
    if element_of(op.x.type) != i32:
        raise unsupported("umulhi takes 32-bit integers", op, "compute wider products from 32-bit halves")
    return upper_half(op.operands, op.result.type)


def _histogram(op: HistogramOp) -> Operation:
    """The sum over the elements of a one-hot row of bins."""
    (count,), (bins,) = tensor_of(op.src).get_shape(), tensor_of(op.result).get_shape()
    shape = [count, bins]
    numbers = tt.BroadcastOp(tt.ExpandDimsOp(tt.MakeRangeOp(0, bins).result, 0).result, shape).result
    elements = tt.BroadcastOp(tt.ExpandDimsOp(op.src, 1).result, shape).result
    found: SSAValue = CmpiOp(elements, numbers, "eq").result
    if op.mask is not None:
        found = arith.AndIOp(found, tt.BroadcastOp(tt.ExpandDimsOp(op.mask, 1).result, shape).result).result
    ones = ExtUIOp(found, TensorType(i32, shape)).result
    block = Block(arg_types=[i32, i32])
    with building(block):
        one, other = block.args
        tt.ReduceReturnOp.create(operands=[arith.AddiOp(one, other).result])
    return tt.ReduceOp.build(
        operands=[[ones]],
        properties={"axis": IntegerAttr(0, 32)},
        result_types=[[op.result.type]],
        regions=[Region(block)],
    )


def _left_out(call: str) -> Callable[[Operation], Sequence[SSAValue]]:
    def rule(op: Operation) -> Sequence[SSAValue]:
        where = source_location(op.location)
        warnings.warn(f"{call} does nothing in Louver{'' if where is None else f' (at {where})'}", stacklevel=2)
        return ()

    return rule


def _product(op: arith.MuliOp) -> Operation:
    """A product of conditions holds where both do."""
    return arith.AndIOp(op.lhs, op.rhs) if element_of(op.result.type) == i1 else op


_RULES: dict[type[Operation], Callable[[Any], Operation | Sequence[SSAValue]]] = {
    tt.PointerCastOp: _bitcast,
    CatOp: _cat,
    PreciseSqrtOp: lambda op: tt.ExternElementwiseOp("__nv_fsqrt_rn", [op.x]),
    PreciseDivFOp: lambda op: tt.ExternElementwiseOp("__nv_fdiv_rn", [op.x, op.y]),
    MulhiUIOp: _mulhi,
    arith.MuliOp: _product,
    HistogramOp: _histogram,
    BarrierOp: lambda op: (),
    GpuBarrierOp: lambda op: (),
    PrintOp: _left_out("tl.device_print"),
    AssertOp: _left_out("tl.device_assert"),
    tt.ExternElementwiseOp: lambda op: respell(op) or op,
    InlineAssemblyOp: read_assembly,
    DotScaledOp: scaled_dot,
}
