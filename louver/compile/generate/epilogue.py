"""Generates the epilogue in schedule IR: from the sum (two sums for a gated product) to the stored value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    StringAttr,
    UnitAttr,
    f32,
)
from xdsl.ir import Attribute, Operation, SSAValue

from louver.compile.signature import batch_pitch_name, parameter_name, pitch_name
from louver.ir.arith import FPToSIOp, SIToFPOp
from louver.ir.elementwise import apply_step
from louver.ir.product import (
    Accumulator,
    Apply,
    Cast,
    Constant,
    Expression,
    LoadMatrix,
    LoadScalar,
    LoadVector,
    Number,
    Part,
    ProductNest,
    walk,
)
from louver.ir.sched.epilogue import MatrixOp, ScalarOp, VectorOp
from louver.ir.sched.types import PointerType, SizeType
from louver.ir.tile.elements import element_attribute
from louver.isa.rule import RuleError

COMPUTED = ("f32", "f16", "bf16", "s32")
"""Element types in which an epilogue computes. It may store other types."""


def epilogue_parameters(expression: Expression) -> dict[str, Attribute]:
    """The types of the kernel parameters that the epilogue reads, by name: pointers, f32 numbers and pitches, in order
    of use.
    """
    types: dict[str, Attribute] = {}
    for node in walk(expression):
        match node:
            case LoadScalar(argument, element) | LoadVector(argument, element) | LoadMatrix(argument, element):
                name = parameter_name(argument)
                types[name] = PointerType(StringAttr(name), StringAttr(element))
            case Number(argument):
                types[parameter_name(argument)] = f32
            case _:
                pass
        if isinstance(node, LoadMatrix):
            pitches = [pitch_name(node.argument)]
            if node.batch is not None:
                pitches.append(batch_pitch_name(node.argument))
            types |= {pitch: SizeType(StringAttr(pitch), IntAttr(64)) for pitch in pitches}
    return types


def build_epilogue(nest: ProductNest, sums: Sequence[SSAValue], parameters: Mapping[str, SSAValue]) -> SSAValue:
    """Emit the operations of the nest's epilogue at the builder's insertion point and return the value to store.

    sums: one for each `Accumulator.part`. Equal subexpressions are emitted once.
    """
    return _Builder(nest.places, sums, parameters).build(nest.epilogue)


@dataclass(frozen=True, slots=True)
class _Builder:
    places: Mapping[Part, LocationAttr]
    sums: Sequence[SSAValue]
    parameters: Mapping[str, SSAValue]
    built: dict[Expression, SSAValue] = field(default_factory=dict[Expression, SSAValue])

    def build(self, expression: Expression) -> SSAValue:
        found = self.built.get(expression)
        if found is None:
            found = self.built[expression] = self._build(expression)
            if isinstance(found.owner, Operation) and expression in self.places:
                found.owner.location = self.places[expression]
        return found

    def _build(self, expression: Expression) -> SSAValue:
        match expression:
            case Accumulator(part):
                return self.sums[part]
            case Number(argument):
                return self.parameters[parameter_name(argument)]
            case Constant(value, element):
                type_ = _computed(element)
                if isinstance(type_, IntegerType):
                    return arith.ConstantOp(IntegerAttr(int(value), cast("IntegerType", type_))).result
                return arith.ConstantOp(FloatAttr(value, cast(AnyFloat, type_))).result
            case LoadScalar(argument, element):
                return ScalarOp(operands=[self._pointer(argument)], result_types=[_computed(element)]).result
            case LoadVector(argument, element, axis):
                return VectorOp(
                    operands=[self._pointer(argument)],
                    properties={"axis": StringAttr(axis)},
                    result_types=[_computed(element)],
                ).result
            case LoadMatrix(argument, element, _, transposed, batch):
                entries = [] if batch is None else [self.parameters[batch_pitch_name(argument)]]
                return MatrixOp(
                    operands=[self._pointer(argument), self.parameters[pitch_name(argument)], entries],
                    properties={"transposed": UnitAttr()} if transposed else {},
                    result_types=[_computed(element)],
                ).result
            case Apply(step, operands):
                return apply_step(step, *(self.build(operand) for operand in operands)).results[0]
            case Cast(operand, to):
                return _cast(self.build(operand), element_attribute(to))

    def _pointer(self, argument: str) -> SSAValue:
        return self.parameters[parameter_name(argument)]


def _computed(element: str) -> Attribute:
    if element not in COMPUTED:
        raise RuleError(f"an epilogue computes in {', '.join(COMPUTED)}, got {element}")
    return element_attribute(element)


def _cast(value: SSAValue, to: Attribute) -> SSAValue:
    source = value.type
    if source == to:
        return value
    if isinstance(to, IntegerType) and isinstance(source, AnyFloat):
        return FPToSIOp(value, cast(Attribute, to)).result
    if not isinstance(to, AnyFloat) or not isinstance(source, AnyFloat | IntegerType):
        raise RuleError(f"an epilogue casts to floating-point types, and from them to integers, got {source} to {to}")
    if isinstance(source, IntegerType):
        return SIToFPOp(value, to).result
    if to.bitwidth > source.bitwidth:
        return arith.ExtFOp(value, to).result
    if to.bitwidth == source.bitwidth:
        wide = arith.ExtFOp(value, f32).result
        return arith.TruncFOp(wide, to).result
    return arith.TruncFOp(value, to).result
