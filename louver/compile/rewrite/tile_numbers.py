"""Arithmetic on integers that are scalars or tiles, which broadcast to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, TensorType, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from louver.compile.rewrite.insert import insert_before
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp, ExtUIOp, TruncIOp
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile.types import as_tensor, element_of

Number: TypeAlias = "SSAValue | int"


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """The shape of a tile; empty for a scalar."""
    tensor = as_tensor(value.type)
    return () if tensor is None else tensor.get_shape()


def like(element: Attribute, shape: Sequence[int]) -> Attribute:
    """The type of a tile, or of a scalar for an empty shape."""
    return TensorType(element, shape) if shape else element


@dataclass(frozen=True, slots=True)
class TileNumbers:
    """Computes before `op`, with its source line. An int beside a value has the type of its elements."""

    op: Operation

    def constant(self, number: int, element: Attribute = i32) -> SSAValue:
        """A scalar."""
        return self._made(arith.ConstantOp(IntegerAttr(number, cast(Any, element))))

    def filled(self, number: float, element: Attribute, shape: Sequence[int]) -> SSAValue:
        """A tile in which all elements are `number`."""
        numbers: Any = [number]
        return self._made(
            arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(cast(Any, TensorType(element, shape)), numbers))
        )

    def whole(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """The value, broadcast to a shape."""
        if not shape or shape_of(value) == tuple(shape):
            return value
        splat = as_tensor(value.type) is None
        return insert_before(self.op, (tt.SplatOp if splat else tt.BroadcastOp)(value, shape))

    def broadcast(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """The values in the least shape to which all of them broadcast; scalars if all are."""
        shapes = [shape for value in values if (shape := shape_of(value))]
        shape = [max(sizes) for sizes in zip(*shapes, strict=True)]
        return [self.whole(each, shape) for each in values]

    def wide(self, value: Number) -> Number:
        """Integers as i64."""
        if isinstance(value, int):
            return value
        return value if element_of(value.type) == i64 else self._made(ExtSIOp(value, like(i64, shape_of(value))))

    def unsigned(self, value: SSAValue) -> SSAValue:
        """The 32 bits of i32 as i64 that is not negative."""
        return self._made(ExtUIOp(value, like(i64, shape_of(value))))

    def add(self, left: Number, right: Number) -> SSAValue:
        """left + right."""
        return self._binary(arith.AddiOp, left, right)

    def minus(self, left: Number, right: Number) -> SSAValue:
        """left - right."""
        return self._binary(arith.SubiOp, left, right)

    def times(self, left: Number, right: Number) -> SSAValue:
        """left · right."""
        return left if right == 1 and isinstance(left, SSAValue) else self._binary(arith.MuliOp, left, right)

    def quotient(self, left: Number, right: Number) -> SSAValue:
        """left / right of numbers that are not negative, rounded down."""
        return left if right == 1 and isinstance(left, SSAValue) else self._binary(arith.DivSIOp, left, right)

    def rest(self, left: Number, right: Number) -> SSAValue:
        """The remainder of numbers that are not negative."""
        return self._binary(arith.RemSIOp, left, right)

    def shifted(self, left: Number, by: Number) -> SSAValue:
        """left / 2^by, rounded down."""
        return left if by == 0 and isinstance(left, SSAValue) else self._binary(arith.ShRSIOp, left, by)

    def masked(self, left: SSAValue, bits: int) -> SSAValue:
        """The bits of a number that are set in another one."""
        return self._binary(arith.AndIOp, left, bits)

    def left(self, left: SSAValue, by: int) -> SSAValue:
        """The bits, moved up."""
        return self._binary(arith.ShLIOp, left, by)

    def right(self, left: SSAValue, by: Number) -> SSAValue:
        """The bits, moved down between zeros."""
        return self._binary(arith.ShRUIOp, left, by)

    def narrow(self, value: SSAValue) -> SSAValue:
        """The low half of i64; i32 unchanged."""
        return value if element_of(value.type) == i32 else self._made(TruncIOp(value, like(i32, shape_of(value))))

    def compared(self, left: Number, predicate: str, right: Number) -> SSAValue:
        """The comparison of MLIR with this name."""
        return self._binary(lambda a, b: CmpiOp(a, b, predicate), left, right)

    def both(self, left: SSAValue | None, right: SSAValue) -> SSAValue:
        """Whether both conditions hold; None always holds."""
        return right if left is None else self._binary(arith.AndIOp, left, right)

    def either(self, *conditions: SSAValue) -> SSAValue:
        """Whether any of these conditions holds."""
        found = conditions[0]
        for each in conditions[1:]:
            found = self._binary(arith.OrIOp, found, each)
        return found

    def differ(self, left: SSAValue, right: SSAValue) -> SSAValue:
        """Whether two conditions differ."""
        return self._binary(arith.XOrIOp, left, right)

    def choice(self, condition: SSAValue, left: SSAValue, right: SSAValue) -> SSAValue:
        """`left` where the condition holds, else `right`."""
        return self._made(SelectOp(*self.broadcast([condition, left, right])))

    def _binary(self, make: Callable[[SSAValue, SSAValue], Operation], left: Number, right: Number) -> SSAValue:
        known = left if isinstance(left, SSAValue) else right
        assert isinstance(known, SSAValue), "numbers that are all known need no operation"
        element = element_of(known.type)
        pair = [each if isinstance(each, SSAValue) else self.constant(each, element) for each in (left, right)]
        return self._made(make(*self.broadcast(pair)))

    def _made(self, op: Operation) -> SSAValue:
        return insert_before(self.op, op)
