"""sink-conversions: moves a conversion that widens a tile after the loop, if only code after the loop reads the tile.

For example, scales of rows take one element a thread as loaded. In the layout of the sums they take an element for each
row of the thread. Input and output are valid tile IR with encodings (after assign-encodings).
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from louver.compile.plan.feeds.steps_ahead import is_pure
from louver.compile.rewrite.insert import move
from louver.ir.tile import ConvertLayoutOp
from louver.ir.tile.staging import in_shared
from louver.ir.tile.types import register_encoding, tensor_of


def sink_conversions(module: ModuleOp) -> None:
    """Moves conversions in place."""
    for loop in [op for op in module.walk() if isinstance(op, scf.ForOp | scf.WhileOp)]:
        block, late, op = loop.parent, set[Operation](), loop.prev_op
        assert block is not None
        # Operations from here to the loop, which read what is computed here. All other readers follow the loop.
        early: set[Operation | None] = {None, loop}
        while op is not None:
            users = [block.find_ancestor_op_in_block(use.operation) for result in op.results for use in result.uses]
            if is_pure(op) and users and early.isdisjoint(users):
                late.add(op)
            else:
                early.add(op)
            op = op.prev_op
        _sink(block, loop, late)


def _sink(block: Block, loop: Operation, late: set[Operation]) -> None:
    """Move the conversions that widen a tile, and the operations that read their results."""
    place, sunk = loop.next_op, set[Operation]()
    assert place is not None
    for op in list(block.ops):
        if op in late and (_widens(op) or any(operand.owner in sunk for operand in op.operands)):
            move(place, op)
            sunk.add(op)


def _widens(op: Operation) -> bool:
    """Whether an operation gives a thread more elements of a tile than it had."""
    if not isinstance(op, ConvertLayoutOp) or any(map(in_shared, (op.src, op.result))):
        return False
    return _elements(op.result) > _elements(op.src)


def _elements(value: SSAValue) -> int:
    encoding, tensor = register_encoding(value.type), tensor_of(value)
    assert encoding is not None
    return len(encoding.layout(tensor.get_shape()).registers)
