"""load-once: loads the element once that all elements of a load have in common.

A tile of one element is such a load: `tl.load(scale + tl.arange(0, 1))`. Loads through block pointers stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    Signedness,
    SignednessAttr,
)
from xdsl.ir import Block, Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.rewriter import Rewriter

from louver.analysis.effects import has_no_effect, is_elementwise
from louver.compile.rewrite.insert import insert_before, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import BroadcastOp, ExpandDimsOp, FuncOp, LoadOp, MakeRangeOp, SplatOp
from louver.ir.tile.types import as_tensor, element_of, first_of, is_splat, tensor_of

SIGNLESS = SignednessAttr(Signedness.SIGNLESS)


def load_once(module: ModuleOp) -> None:
    """Rewrite in place."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        loads = [op for op in function.body.walk() if isinstance(op, LoadOp) and as_tensor(op.ptr.type)]
        found = [op for op in loads if all(each is None or _is_common(each) for each in (op.ptr, op.mask, op.other))]
        for op in found:
            made = _Common(op)
            given = [None if each is None else made.of(each) for each in (op.ptr, op.mask, op.other)]
            properties = {name: each for name, each in op.properties.items() if name != "operandSegmentSizes"}
            loaded = LoadOp.build(
                operands=[*given, None, []], properties=properties, result_types=[element_of(op.result.type)]
            )
            Rewriter.replace_op(op, SplatOp(insert_before(op, loaded), tensor_of(op.result).get_shape()))
        if found:
            remove_dead(function)


def _is_common(value: SSAValue) -> bool:
    """Whether all elements of a tile are the same number. A scalar is."""
    op = value.owner
    match op:
        case _ if as_tensor(value.type) is None:
            return True
        case SplatOp():
            return True
        case MakeRangeOp():
            return op.end.value.data - op.start.value.data == 1
        case BroadcastOp() | ExpandDimsOp():
            return _is_common(op.src)
        case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as numbers):
            # A scalar constant has no sign in its type.
            return is_splat(numbers) and getattr(numbers.get_element_type(), "signedness", SIGNLESS) == SIGNLESS
        case Operation() if is_elementwise(op) and has_no_effect(op) and len(op.results) == 1:
            return all(map(_is_common, op.operands))
        case _:
            return False


@dataclass(slots=True)
class _Common:
    """Computes the element that all elements of a tile have in common, before a load."""

    load: LoadOp
    known: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def of(self, value: SSAValue) -> SSAValue:
        """The common element of a tile, or the scalar itself."""
        if as_tensor(value.type) is None:
            return value
        if value not in self.known:
            self.known[value] = self._of(value.owner)
        return self.known[value]

    def _of(self, op: Operation | Block) -> SSAValue:
        if isinstance(op, SplatOp | BroadcastOp | ExpandDimsOp):
            return self.of(op.src)
        if isinstance(op, MakeRangeOp):
            return integer(self.load, op.start.value.data)
        if isinstance(op, arith.ConstantOp):
            return insert_before(self.load, arith.ConstantOp(_number(cast(DenseIntOrFPElementsAttr, op.value))))
        assert isinstance(op, Operation)
        made = cast(type[IRDLOperation], type(op))
        new = made.build(
            operands=list(map(self.of, op.operands)),
            properties=dict(op.properties),
            result_types=[element_of(op.results[0].type)],
        )
        return insert_before(self.load, new)


def _number(numbers: DenseIntOrFPElementsAttr) -> IntegerAttr[Any] | FloatAttr[Any]:
    """The number that all elements of a constant are."""
    number, element = first_of(numbers), cast(Any, numbers.get_element_type())
    return IntegerAttr(number, element) if isinstance(number, int) else FloatAttr(number, element)
