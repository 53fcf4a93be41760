"""What operations do: side effects, operations that are defined for all operands, and operations that compute each element of
a tile from the elements at the same position.
"""

from __future__ import annotations

import functools
from typing import TypeGuard

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FixedBitwidthType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsTerminator, MemoryEffect, NoMemoryEffect, SymbolOpInterface, is_side_effect_free

from louver.analysis.integers import constant_everywhere
from louver.ir import arith as ours
from louver.ir.arith import DIVISIONS
from louver.ir.comparisons import CmpfOp, CmpiOp, SelectOp
from louver.ir.tile import AddPtrOp, ClampFOp, ExternElementwiseOp, FpToFpOp, PointerCastOp, PtrToIntOp
from louver.ir.tile.types import element_of

_SHIFTS = (arith.ShLIOp, arith.ShRSIOp, arith.ShRUIOp)
_PARTIAL = (*DIVISIONS, *_SHIFTS)


@functools.cache
def only_computes(kind: type[Operation]) -> bool:
    """Whether no operation of a kind has an effect or ends a block. A kernel has hundreds of operations of few kinds."""
    effects = kind.get_traits_of_type(MemoryEffect)
    others = kind.has_trait(IsTerminator) or kind.has_trait(SymbolOpInterface)
    return bool(effects) and all(isinstance(each, NoMemoryEffect) for each in effects) and not others


def has_no_effect(op: Operation) -> bool:
    """Whether an operation only computes results."""
    # xDSL lacks the trait on the last operation.
    return only_computes(type(op)) or is_side_effect_free(op) or isinstance(op, arith.RemUIOp)


def takes_any(op: Operation) -> bool:
    """Whether an operation is defined for all operands. Divisors and shift counts must be suitable constants."""
    # By class, because isinstance asks each of these abstract classes of the many other operations.
    if type(op) not in _PARTIAL:
        return True
    if isinstance(op, DIVISIONS):
        by = constant_everywhere(op.rhs)
        return by is not None and by > 0
    assert isinstance(op, _SHIFTS)
    by, element = constant_everywhere(op.rhs), element_of(op.rhs.type)
    return by is not None and isinstance(element, FixedBitwidthType) and 0 <= by < element.bitwidth


_ELEMENTWISE: tuple[type[Operation], ...] = (
    *(op for op in arith.Arith.operations if op is not arith.ConstantOp),
    *math.Math.operations,
    *(ours.SIToFPOp, ours.FPToSIOp, ours.UIToFPOp, ours.FPToUIOp, ours.ExtSIOp, ours.ExtUIOp, ours.TruncIOp),
    *(
        CmpiOp,
        CmpfOp,
        SelectOp,
        ClampFOp,
        FpToFpOp,
        AddPtrOp,
        ours.RemFOp,
        ExternElementwiseOp,
        PtrToIntOp,
        PointerCastOp,
    ),
)


@functools.cache
def _is_elementwise(kind: type[object]) -> bool:
    return issubclass(kind, _ELEMENTWISE)


def is_elementwise(op: object) -> TypeGuard[Operation]:
    """Whether an operation computes each element of a tile from the elements at the same position. False for a block."""
    # By kind, because there are a hundred of them, and abstract classes: `isinstance` asks each.
    return _is_elementwise(type(op))


def varies(value: SSAValue, block: Block) -> bool:
    """Whether a value may differ between iterations of a loop with the body `block`."""
    if isinstance(value.owner, Block):
        return value.owner is block
    if value.owner.parent_block() is not block:
        return False
    return not has_no_effect(value.owner) or any(varies(each, block) for each in value.owner.operands)
