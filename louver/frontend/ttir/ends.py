"""Checks that the regions of loops and branches end with the values that these pass on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import scf
from xdsl.ir import Attribute, Operation, Region, SSAValue

from louver.ir.refusal import unsupported
from louver.ir.tile import FuncOp


def check_ends(function: FuncOp) -> None:
    """Raises UnsupportedKernelError for a loop or branch with a region that ends otherwise."""
    for op in function.walk():
        for region, types in _ends(op):
            end = region.block.last_op if region.blocks else None
            given = end.operands if isinstance(end, scf.YieldOp) else ()
            given = end.operands[1:] if isinstance(end, scf.ConditionOp) else given
            if [each.type for each in given] != list(types):
                raise unsupported(
                    f"a region of {op.name} ends with {len(types)} values of the types that it passes on, not with {len(given)}",
                    op,
                )


def _ends(op: Operation) -> Iterator[tuple[Region, Sequence[Attribute]]]:
    """The regions that must pass on values, with the types of these."""
    match op:
        case scf.IfOp() | scf.ForOp():
            yield from ((region, _types(op.results)) for region in op.regions if region.blocks or op.results)
        case scf.WhileOp():
            yield op.before_region, _types(op.results)
            yield op.after_region, _types(op.arguments)
        case _:
            return


def _types(values: Sequence[SSAValue]) -> Sequence[Attribute]:
    return [each.type for each in values]
