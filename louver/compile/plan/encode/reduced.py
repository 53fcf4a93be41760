"""Chooses the encoding of a reduction's result: the slice of its operand, or few elements in each thread.

All warps that share the axis need the result of a transposed product: up to 64 elements of it in each thread, the same in all
warps. A kernel that computes with the result before it stores it, such as with logarithms, would repeat this in each warp. The
exchange among warps may end in any layout.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from louver.analysis.effects import is_elementwise
from louver.analysis.runs import Runs
from louver.compile.plan.encode.accesses import Run, run_of, turns
from louver.compile.plan.encode.exchange_plan import GAIN, Means, conversion_cost
from louver.compile.plan.encode.reduction_plan import plan_reduction
from louver.ir.tile import AtomicRMWOp, BlockedAttr, BroadcastOp, ExpandDimsOp, LoadOp, ReduceOp, SliceAttr, StoreOp
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import as_tensor, memory_bytes, tensor_of


def encoding_of_result(op: ReduceOp, source: Encoding, warps: int, runs: Runs) -> Encoding:
    """The encoding of all results. source: that of the operands."""
    axis, layout = op.axis.value.data, source.layout(tensor_of(op.srcs[0]).get_shape())
    own, result = SliceAttr.of(axis, source), as_tensor(op.result[0].type)
    if result is None or not any(step[axis] for step in layout.warp):
        return own
    shape = result.get_shape()
    few = BlockedAttr.default(shape, warps)
    layouts = own.layout(shape), few.layout(shape)
    if len(layouts[0].registers) <= len(layouts[1].registers):
        return own
    sizes = [memory_bytes(each.type) for each in op.srcs]
    costs = [plan_reduction(layout, axis, each, sizes, Means()).cost for each in layouts]
    gains = _Gains(layouts, runs)
    gain = costs[0] - costs[1] + sum(map(gains.of, op.result))
    return few if gains.known and gain > GAIN else own


class _Gains:
    """What the users of values gain by the second layout. known: whether all users are known."""

    def __init__(self, layouts: tuple[Layout, Layout], runs: Runs) -> None:
        self.layouts, self.runs, self.known = layouts, runs, True
        self._seen = set[Operation]()

    def of(self, value: SSAValue) -> float:
        """Turns of the banks."""
        gain, exchanged = 0.0, False
        for use in value.uses:
            op = use.operation
            if isinstance(op, ExpandDimsOp | BroadcastOp):
                exchanged = True
            elif op in self._seen:
                continue
            elif isinstance(op, StoreOp | AtomicRMWOp) and not any(result.first_use for result in op.results):
                gain += self._accessed(op)
            elif is_elementwise(op):
                gain += self._computed(op)
            else:
                self.known = False
            self._seen.add(op)
        wide, few = self.layouts
        return gain - (conversion_cost(few, wide, memory_bytes(value.type), Means()) + GAIN if exchanged else 0)

    def _computed(self, op: Operation) -> float:
        wide, few = self.layouts
        loads = [each.owner for each in op.operands if isinstance(each.owner, LoadOp)]
        own = sum(turns(each, wide) - turns(each, few) for each in op.results)
        return own + sum(map(self._accessed, loads)) + sum(map(self.of, op.results))

    def _accessed(self, op: LoadOp | StoreOp | AtomicRMWOp) -> float:
        run = run_of(op, self.runs) or Run.scattered(op)
        return run.cost(self.layouts[0]) - run.cost(self.layouts[1])
