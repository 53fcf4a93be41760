"""Chooses vectors that are loaded, computed and carried by loops with few elements in a thread.

The sums of a product repeat a vector in many threads. Those of a transposed product need up to 32 elements of it in
each thread, and each thread would load and divide them all. Where that costs more than an exchange, a thread has one or
few elements, until a broadcast needs the layout of the sums.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.passages import passages
from louver.compile.plan.encode.accesses import Run, run_of, takes_turns, turns
from louver.compile.plan.encode.anchors import Natures, is_tile
from louver.compile.plan.encode.demand import SOURCES, Demands, operand_encodings
from louver.compile.plan.encode.exchange_plan import GAIN, Means, conversion_cost
from louver.ir.tile import BlockedAttr, BroadcastOp, CompressOp, DecompressOp, ExpandDimsOp, FuncOp, LoadOp
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.types import memory_bytes, tensor_of

STEPS = 16
"""Steps that a loop is taken to run."""


def choose_compact(function: FuncOp, natures: Natures, demands: Demands) -> bool:
    """Choose vectors that are computed in a compact layout. Returns whether there are any."""
    groups: list[_Vectors] = []
    for op in function.body.walk():
        if not isinstance(op, BroadcastOp):
            continue
        value = op.src.owner.src if isinstance(op.src.owner, ExpandDimsOp) else op.src
        for encoding in demands.of(value):
            made = _Vectors(natures)
            if not made.add(value, encoding):
                continue
            # A loop carries a vector in one layout for all its readers.
            for other in [each for each in groups if not made.carried.keys().isdisjoint(each.carried)]:
                groups.remove(other)
                made.join(other)
            groups.append(made)
    chosen = [each for each in groups if each.gain > 0]
    for each in chosen:
        natures.kept.update({**each.carried, **each.read})
    return bool(chosen)


class _Vectors:
    """Vectors that are computed together.

    read: vectors that broadcasts need, each with its compact encoding.
    carried: vectors that loops and branches pass, each with its compact encoding.
    """

    def __init__(self, natures: Natures) -> None:
        self.natures = natures
        self.read: dict[SSAValue, Encoding] = {}
        self.carried: dict[SSAValue, Encoding] = {}
        self._gains: dict[tuple[SSAValue, Encoding], float] = {}

    @property
    def gain(self) -> float:
        """Turns of the banks that a compact layout gains, in a run of the kernel."""
        return sum(self._gains.values())

    def join(self, other: _Vectors) -> None:
        """Add the vectors of another group."""
        self.read.update(other.read)
        self.carried.update(other.carried)
        for key, gain in other._gains.items():
            self._gains.setdefault(key, gain)

    def add(self, value: SSAValue, wide: Encoding) -> bool:
        """Add a vector that is needed in encoding `wide`. Returns whether its compact layout has fewer elements."""
        shape = tensor_of(value).get_shape()
        narrow = BlockedAttr.default(shape, self.natures.warps)
        layouts = wide.layout(shape), narrow.layout(shape)
        known = value in self.natures.copied or self.natures.home(value) is not None
        if known or len(layouts[0].registers) <= len(layouts[1].registers):
            return False
        self._walk(value, wide, narrow)
        exchange = conversion_cost(layouts[1], layouts[0], memory_bytes(value.type), Means()) + GAIN
        self.read[value] = narrow
        self._gains[value, narrow] = -exchange * _runs(value)
        return True

    def _walk(self, value: SSAValue, wide: Encoding, narrow: Encoding) -> None:
        if (value, wide) in self._gains or value in self.natures.copied or not is_tile(value):
            return
        self._gains[value, wide] = 0
        shape, owner = tensor_of(value).get_shape(), value.owner
        nature = self.natures.home(value)
        if nature is not None:
            there, size = nature.layout(shape), memory_bytes(value.type)
            costs = [conversion_cost(there, each.layout(shape), size, Means()) for each in (wide, narrow)]
            self._gains[value, wide] = (costs[0] - costs[1]) * _runs(value)
            return
        around = owner.parent_op() if isinstance(owner, Block) else owner
        if isinstance(around, scf.ForOp | scf.IfOp):
            passage = next(each for each in passages(around) if any(name is value for name in each.names))
            self.carried.update(dict.fromkeys(passage.names, narrow))
            for each in passage.sources:
                self._walk(each, wide, narrow)
        elif isinstance(owner, Operation) and not isinstance(owner, (*SOURCES, scf.WhileOp, CompressOp, DecompressOp)):
            costs = [_cost(self.natures, owner, value, each) for each in (wide, narrow)]
            self._gains[value, wide] = (costs[0] - costs[1]) * _runs(value)
            few = dict(operand_encodings(owner, narrow))
            for each, encoding in operand_encodings(owner, wide):
                self._walk(each, encoding, few[each])


def _cost(natures: Natures, op: Operation, value: SSAValue, encoding: Encoding) -> float:
    """The cost of an operation on the elements of a thread. Numbers of addresses and masks belong to their loads."""
    # Most operations are of such numbers. To find the layout of each takes longer than all else here.
    if not isinstance(op, LoadOp) and not takes_turns(value):
        return 0
    layout = encoding.layout(tensor_of(value).get_shape())
    if isinstance(op, LoadOp):
        return (run_of(op, natures.runs) or Run.scattered(op)).cost(layout)
    return turns(value, layout)


def _runs(value: SSAValue) -> int:
    """How often a value is taken to be computed."""
    found, block = 1, value.owner if isinstance(value.owner, Block) else value.owner.parent_block()
    while block is not None and (op := block.parent_op()) is not None:
        found *= STEPS if isinstance(op, scf.ForOp | scf.WhileOp) else 1
        block = op.parent_block()
    return found
