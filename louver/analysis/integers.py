"""Integers in tile IR: constants, sizes divided into steps, and tensors of zeros. Values are equal because equal operations
compute them from equal operands.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue

from louver.ir.arith import ExtSIOp
from louver.ir.tile import BroadcastOp, ExpandDimsOp, Index, SplatOp
from louver.ir.tile.types import splat_of


def position(value: SSAValue, among: Sequence[SSAValue]) -> int:
    """The position of a value among an operation's results or a block's arguments."""
    return next(index for index, each in enumerate(among) if each is value)


def constant_integer(value: SSAValue) -> int | None:
    """The integer of a constant scalar, or of a tensor constant with equal elements; else None."""
    op = value.owner
    if not isinstance(op, arith.ConstantOp):
        return None
    if isinstance(op.value, IntegerAttr):
        return op.value.value.data
    if isinstance(op.value, DenseIntOrFPElementsAttr):
        number = splat_of(op.value)
        return number if isinstance(number, int) else None
    return None


def repeated(value: SSAValue) -> SSAValue:
    """The numbers that a tile repeats, or has in a wider type."""
    while isinstance(value.owner, SplatOp | BroadcastOp | ExpandDimsOp | ExtSIOp):
        value = value.owner.operands[0]
    return value


def constant_everywhere(value: SSAValue) -> int | None:
    """`constant_integer`, also through extensions and broadcasts."""
    return constant_integer(repeated(value))


def literal(entry: Index) -> int | None:
    """The integer of an entry of an index list, or None."""
    return entry if isinstance(entry, int) else constant_integer(entry)


def least_of(value: SSAValue) -> list[SSAValue]:
    """The numbers whose minimum a number, or a tile of it, is."""
    match value.owner:
        case SplatOp(src=inner) | BroadcastOp(src=inner):
            return least_of(inner)
        case arith.MinSIOp(lhs=one, rhs=other):
            return [*least_of(one), *least_of(other)]
        case _:
            return [value]


def is_zero(value: SSAValue) -> bool:
    """Whether `value` is a tensor constant of zeros."""
    op = value.owner
    if not isinstance(op, arith.ConstantOp) or not isinstance(op.value, DenseIntOrFPElementsAttr):
        return False
    return splat_of(op.value) == 0


def without_extension(value: SSAValue) -> SSAValue:
    """The value before sign extensions."""
    while isinstance(value.owner, ExtSIOp):
        value = value.owner.input
    return value


def steps_of(value: SSAValue) -> tuple[SSAValue, int] | None:
    """The whole and the step of a number of steps rounded up, as `tl.cdiv` and MLIR write it; else None."""
    match value.owner:
        case arith.CeilDivSIOp(lhs=whole, rhs=by):
            step = constant_integer(by)
        case arith.DivSIOp(lhs=above, rhs=by) if isinstance(above.owner, arith.AddiOp):
            step, whole = constant_integer(by), above.owner.lhs
            added = constant_integer(above.owner.rhs)
            if added is None:
                added, whole = constant_integer(whole), above.owner.rhs
            if step is None or added != step - 1:
                return None
        case _:
            return None
    return None if step is None or step < 1 else (whole, step)


def whole_steps_of(value: SSAValue) -> tuple[SSAValue, int] | None:
    """The whole and the step of a number of steps rounded down; else None."""
    op = value.owner
    step = constant_integer(op.rhs) if isinstance(op, arith.DivSIOp | arith.FloorDivSIOp) else None
    return None if step is None or not isinstance(op, arith.DivSIOp | arith.FloorDivSIOp) else (op.lhs, step)


def equal(one: SSAValue, other: SSAValue) -> bool:
    """Whether equal operations compute both values from equal operands."""
    if one is other:
        return True
    first, second = one.owner, other.owner
    if not isinstance(first, Operation) or type(first) is not type(second) or not isinstance(second, Operation):
        return False
    if first.regions or first.properties != second.properties or len(first.operands) != len(second.operands):
        return False
    if list(first.results).index(one) != list(second.results).index(other) or one.type != other.type:  # pyright: ignore[reportArgumentType]
        return False
    return all(equal(a, b) for a, b in zip(first.operands, second.operands, strict=True))


def equal_index(one: Index, other: Index) -> bool:
    """`equal` for entries of index lists."""
    if isinstance(one, int) or isinstance(other, int) or literal(one) is not None:
        return literal(one) == literal(other)
    return equal(one, other)


def equal_indices(one: Sequence[Index], other: Sequence[Index]) -> bool:
    """`equal` for index lists."""
    return len(one) == len(other) and all(map(equal_index, one, other))
