"""narrow-operands: multiplies narrow elements as f16 or bf16, where a kernel converts them to f32 for a dot.

A product of two f16 or of two bf16 is exact in f32, so the sums are the same, up to the order and the rounding of additions. Tensor
cores multiply 16-bit elements at twice the rate of f32, and keep 2 of 4 of them, but 1 of 2 of f32. Elements of 8 bits are f16 and bf16
too.

A kernel may multiply the converted elements by scales. Those that are equal along the summed axis are factors of the whole
sum, and multiply it. The sum is then rounded less often: f32 operands of a dot are rounded to tf32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    DenseIntOrFPElementsAttr,
    Float16Type,
    Float32Type,
    ModuleOp,
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.compile.rewrite.insert import insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.arith import SIToFPOp, UIToFPOp
from louver.ir.tile import BroadcastOp, DotOp, FpToFpOp, FuncOp, ReshapeOp, SplatOp, TransOp, element_name
from louver.ir.tile.types import splat_of, tensor_of

EIGHT_BITS = ("e4m3", "e5m2", "s8", "u8")
"""Element types whose numbers are numbers of f16 and of bf16."""

Conversion: TypeAlias = "arith.ExtFOp | FpToFpOp | SIToFPOp | UIToFPOp"


def narrow_operands(module: ModuleOp) -> None:
    """Rewrite in place. Operands may be transposed behind their conversion."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        dots = [op for op in function.body.walk() if isinstance(op, DotOp)]
        narrowed = [op for op in dots if _narrow(op)]
        if narrowed:
            remove_dead(function)


def _narrow(op: DotOp) -> bool:
    if {tensor_of(each).element_type for each in (op.a, op.b, op.c)} != {Float32Type()}:
        return False
    reader = _Reader(op)
    a, b = reader.read(op.a, 1), reader.read(op.b, 0)
    element = None if a is None or b is None else _common(a.name, b.name)
    if a is None or b is None or element is None:
        reader.withdraw()
        return False
    one, other = (reader.converted(each, element) for each in (a, b))
    scales = reader.joined([*a.scales, *b.scales])
    total = reader.placed(DotOp(one, other, reader.constant(op.c.type, 0.0) if scales else op.c))
    total.name_hint = op.d.name_hint
    for scale in scales:
        factor = reader.placed(BroadcastOp(scale, tensor_of(total).get_shape()))
        total = reader.placed(arith.MulfOp(total, factor))
    Rewriter.replace_op(op, [], [reader.placed(arith.AddfOp(op.c, total)) if scales else total])
    return True


def _common(one: str, other: str) -> AnyFloat | None:
    """The type of 16 bits that holds the numbers of both types."""
    for element, held in ((Float16Type(), ("f16", *EIGHT_BITS)), (BFloat16Type(), ("bf16", *EIGHT_BITS))):
        if one in held and other in held:
            return element
    return None


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tile before its conversion to f32, and the scales that multiply it, of one element along the summed axis."""

    tile: SSAValue
    conversion: Conversion
    scales: tuple[SSAValue, ...] = ()

    @property
    def name(self) -> str:
        return element_name(tensor_of(self.tile).element_type)


@dataclass(slots=True)
class _Reader:
    """Reads the operands of a dot, and inserts operations before it."""

    dot: DotOp
    made: list[Operation] = field(default_factory=list[Operation])

    def placed(self, op: Operation) -> SSAValue:
        self.made.append(op)
        return insert_before(self.dot, op)

    def constant(self, type_: Attribute, number: float) -> SSAValue:
        """A tile with the same number in each element."""
        return self.placed(arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(cast(Any, type_), [cast(Any, number)])))

    def withdraw(self) -> None:
        """Erase what was inserted."""
        for op in reversed(self.made):
            Rewriter.erase_op(op)

    def read(self, value: SSAValue, axis: int) -> _Operand | None:
        """An operand; None if it is no narrow tile with scales. axis: the summed one."""
        match value.owner:
            case arith.ExtFOp() | FpToFpOp() | SIToFPOp() | UIToFPOp() as conversion:
                return _Operand(conversion.operands[0], conversion)
            case TransOp() as turned:
                order = list(turned.order.get_values())
                inner = self.read(turned.src, order[axis])
                if inner is None:
                    return None
                tile, *scales = (self.placed(TransOp(each, order)) for each in (inner.tile, *inner.scales))
                return replace(inner, tile=tile, scales=tuple(scales))
            case arith.MulfOp() as product:
                for one, other in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
                    scale = self.across(other, axis)
                    inner = None if scale is None else self.read(one, axis)
                    if scale is not None and inner is not None:
                        return replace(inner, scales=(*inner.scales, scale))
                return None
            case _:
                return None

    def across(self, value: SSAValue, axis: int) -> SSAValue | None:
        """A tile whose elements are equal along an axis, with one element there; other axes may have one element too."""
        shape = list(tensor_of(value).get_shape())
        match value.owner:
            case BroadcastOp() as repeated if tensor_of(repeated.src).get_shape()[axis] == 1:
                return repeated.src
            case SplatOp() as splat:
                return self.placed(SplatOp(splat.src, [1] * len(shape)))
            case arith.ConstantOp() as constant:
                number = splat_of(constant.value) if isinstance(constant.value, DenseIntOrFPElementsAttr) else None
                single = TensorType(tensor_of(value).element_type, [1] * len(shape))
                return None if number is None else self.constant(single, number)
            case ReshapeOp() as reshaped:
                before = list(tensor_of(reshaped.src).get_shape())
                kept, longer = ([each for each, size in enumerate(sizes) if size > 1] for sizes in (shape, before))
                if axis not in kept or [shape[each] for each in kept] != [before[each] for each in longer]:
                    return None
                found = self.across(reshaped.src, longer[kept.index(axis)])
                if found is None:
                    return None
                sizes = [1] * len(shape)
                for to, of in zip(kept, longer, strict=True):
                    sizes[to] = tensor_of(found).get_shape()[of]
                return self.placed(ReshapeOp(found, sizes))
            case arith.MulfOp() as product:
                factors = [self.across(each, axis) for each in product.operands]
                sizes = [1 if each == axis else size for each, size in enumerate(shape)]
                if None in factors:
                    return None
                one, other = (self.placed(BroadcastOp(each, sizes)) for each in factors if each is not None)
                return self.placed(arith.MulfOp(one, other))
            case _:
                return None

    def joined(self, scales: Sequence[SSAValue]) -> list[SSAValue]:
        """The same scales, those with one element multiplied with another one first."""
        found: list[SSAValue] = []
        for scale in sorted(scales, key=lambda each: prod(tensor_of(each).get_shape())):
            last = found.pop() if found and prod(tensor_of(found[-1]).get_shape()) == 1 else None
            if last is None:
                found.append(scale)
            else:
                repeated = self.placed(BroadcastOp(last, tensor_of(scale).get_shape()))
                found.append(self.placed(arith.MulfOp(repeated, scale)))
        return found

    def converted(self, operand: _Operand, element: AnyFloat) -> SSAValue:
        """The tile of an operand with elements of another type."""
        tile = tensor_of(operand.tile)
        if tile.element_type == element:
            return operand.tile
        wide = TensorType(element, tile.get_shape())
        if isinstance(operand.conversion, SIToFPOp | UIToFPOp):
            return self.placed(type(operand.conversion).create(operands=[operand.tile], result_types=[wide]))
        return self.placed(FpToFpOp.create(operands=[operand.tile], result_types=[wide]))
