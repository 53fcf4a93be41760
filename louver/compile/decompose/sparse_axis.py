"""Which dimension of a loaded tile is the sparse axis of its tensor."""

from __future__ import annotations

from xdsl.ir import SSAValue

from louver.analysis.effects import has_no_effect
from louver.analysis.passages import passed_to
from louver.analysis.runs import Runs
from louver.ir import tile as tt
from louver.ir.tile.types import as_tensor, memory_bytes, tensor_of


def columns_of(load: tt.LoadOp, runs: Runs, *, across: bool) -> int:
    """The dimension of a tile that is the sparse axis: that of neighbours in memory, or the other one for a tensor that is
    sparse along its last axis but one. If no neighbours are known, the dimension along which a dot sums, or else a reduction.
    """
    size = memory_bytes(tensor_of(load.result))
    for dimension in (1, 0):
        run = runs.of(load.ptr, dimension, 2)
        if run is not None and run.step == size:
            return 1 - dimension if across else dimension
    pending, seen, reduced = [(load.result, False)], set[SSAValue](), 1
    while pending:
        value, is_turned = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for use in value.uses:
            op = use.operation
            if isinstance(op, tt.DotOp):
                if use.index < 2:
                    return (1 - use.index) ^ is_turned
            elif isinstance(op, tt.ReduceOp):
                reduced = op.axis.value.data ^ is_turned
            elif isinstance(op, tt.TransOp):
                pending.append((op.result, not is_turned))
            elif has_no_effect(op) and not op.regions and [_shape(each) for each in op.results] == [_shape(value)]:
                pending.append((op.results[0], is_turned))
            else:
                pending += [(each, is_turned) for each in passed_to(op, use.index)]
    return reduced


def _shape(value: SSAValue) -> tuple[int, ...] | None:
    tensor = as_tensor(value.type)
    return None if tensor is None else tuple(tensor.get_shape())
