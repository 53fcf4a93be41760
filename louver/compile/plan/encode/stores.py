"""Chooses loads and stores that get a special layout, if the gain exceeds the cost of an exchange.

The sums of products have fixed places: a lane has 4 or 8 bytes of a row, or single elements of a transposed product. A
store of such a tile accesses many lines. In a special layout, lanes store 16 contiguous bytes. Loads may have one too.
A tile is exchanged where that costs least, for example after a conversion to fewer bits, and before an addition of data
from memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.effects import is_elementwise
from louver.analysis.integers import position
from louver.compile.plan.encode.accesses import Run, run_of
from louver.compile.plan.encode.anchors import Natures, is_tile
from louver.compile.plan.encode.compact import choose_compact
from louver.compile.plan.encode.demand import Demands
from louver.compile.plan.encode.exchange_plan import GAIN, Means, conversion_cost
from louver.compile.plan.encode.shared_access import SCHEDULERS
from louver.ir.tile import (
    AtomicRMWOp,
    BlockedAttr,
    BroadcastOp,
    DotOp,
    FuncOp,
    LinearAttr,
    LoadOp,
    SharedAttr,
    SplatOp,
    StoreOp,
)
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import memory_bytes, tensor_of
from louver.ir.walk import each_once
from louver.isa.swizzle import BANK_LINE


@dataclass(slots=True)
class _Way:
    """How a tile is computed in a layout.

    cost: the cost in turns of the banks.
    kept: tiles that are computed in their natural encoding and then exchanged.
    """

    cost: float
    kept: list[SSAValue] = field(default_factory=list[SSAValue])


def choose_stores(function: FuncOp, natures: Natures) -> None:
    """Choose special layouts of stores, and the tiles that are exchanged for them. Natural encodings must be known."""
    for op in function.body.walk():
        if not isinstance(op, StoreOp | AtomicRMWOp) or not is_tile(op.ptr):
            continue
        if isinstance(op, AtomicRMWOp) and op.result.first_use is not None:
            continue
        run, nature = run_of(op, natures.runs), natures.of(op.value) or natures.of(op.ptr)
        shape = tensor_of(op.ptr).get_shape()
        repeated = nature is not None and shape and nature.layout(shape).repeats
        # Elements that are moved one by one gain too little, unless many threads have the same elements.
        if (run is None or run.together == 1) and not repeated:
            continue
        run = run or Run(len(shape) - 1, 1, BANK_LINE)
        if nature is None:
            order = (run.along, *(each for each in reversed(range(len(shape))) if each != run.along))
            natures.store_in(op, BlockedAttr.default(shape, natures.warps, natures.together, order))
            continue
        layout = nature.layout(shape)
        rows = run.rows(layout)
        way = _Conversion(natures, rows).of(op.value)
        if run.cost(rows) + way.cost + GAIN < run.cost(layout) + _cost_by_nature(natures, op.value, layout, set()):
            natures.store_in(op, LinearAttr.of(rows))
            natures.kept.update((each, encoding) for each in way.kept if (encoding := natures.of(each)) is not None)


def choose_flags(function: FuncOp, natures: Natures, demands: Demands) -> bool:
    """Choose layouts of flags that are set where a condition holds: those in which the condition's parts are computed for others. Returns
    whether there are any. A flag may be set twice.
    """
    found = False
    for op in function.body.walk():
        if not isinstance(op, AtomicRMWOp) or op.kind.data != "or" or op.result.first_use is not None:
            continue
        if not isinstance(op.ptr.owner, SplatOp) or op.mask is None or op in natures.stores:
            continue
        shape, own = tensor_of(op.mask).get_shape(), natures.place(op)
        pending, seen = [op.mask], set[SSAValue]()
        while pending and op not in natures.stores:
            value = pending.pop(0)
            others = [each for each in demands.of(value) if each != own and not isinstance(each, SharedAttr)]
            if others:
                natures.store_in(op, others[0])
                found = True
            elif value not in seen and is_elementwise(value.owner):
                pending += [
                    each for each in value.owner.operands if is_tile(each) and tensor_of(each).get_shape() == shape
                ]
            seen.add(value)
    return found


def choose_exchanged(function: FuncOp, natures: Natures, demands: Demands) -> bool:
    """Choose computed tiles that are exchanged for their users, because to compute them again in another layout, from
    exchanged tiles, costs more. Returns whether there are any.
    """
    found = False
    for op in function.body.walk():
        value = op.results[0] if is_elementwise(op) and op.results else None
        nature = None if value is None or not is_tile(value) or natures.keeps(value) else natures.of(value)
        if value is None or nature is None or nature not in demands.of(value):
            continue
        shape, size = tensor_of(value).get_shape(), memory_bytes(value.type)
        for encoding in demands.of(value):
            if encoding == nature or isinstance(encoding, SharedAttr):
                continue
            layout = encoding.layout(shape)
            parts = sum(_Conversion(natures, layout).of(each).cost for each in _operands(value))
            again = parts + len(layout.registers) / SCHEDULERS
            if conversion_cost(nature.layout(shape), layout, size, Means()) < again:
                natures.kept[value] = nature
                found = True
    return found


def choose_loads(function: FuncOp, natures: Natures, demands: Demands) -> bool:
    """Choose special layouts for loads where the layouts that users need cost more. Returns whether there are any."""
    found, multiplied = False, _multiplied(function)
    for op in function.body.walk():
        if (
            not isinstance(op, LoadOp)
            or not is_tile(op.ptr)
            or natures.of(op.result) is not None
            or op.result in natures.copied
        ):
            continue
        wanted = demands.of(op.result)
        if op in multiplied or not wanted:
            continue
        run, shape = run_of(op, natures.runs), tensor_of(op.ptr).get_shape()
        layouts = [encoding.layout(shape) for encoding in wanted]
        # One thread loads each element that is scattered in memory.
        own = LinearAttr.of(run.rows(layouts[0])) if run is not None else BlockedAttr.default(shape, natures.warps)
        given: list[Encoding] = [*wanted, own]
        run = run or Run.scattered(op)
        costs = [_loaded(run, each.layout(shape), layouts) for each in given]
        if min(costs) + GAIN < sum(map(run.cost, layouts)):
            natures.kept[op.result] = given[costs.index(min(costs))]
            found = True
    return found


def _multiplied(function: FuncOp) -> set[Operation]:
    """Operations from which operands of dots are computed, and all operations of loops and branches that only multiply.

    They need no other layout. A block that stores its sums exchanges them: there a tile that is added to the sums may be exchanged
    too.
    """
    dots = [op for op in function.body.walk() if isinstance(op, DotOp)]
    blocks = [block for dot in dots if (block := dot.parent_block()) is not None]
    found = {op for block in blocks if _only_multiplies(block) for op in block.ops}
    pending = [each for dot in dots for each in (dot.a, dot.b, dot.metadata) if each is not None]
    for value in each_once(pending):
        if isinstance(value.owner, Operation):
            found.add(value.owner)
            pending += value.owner.operands
        elif isinstance(loop := value.owner.parent_op(), scf.ForOp) and value is not value.owner.args[0]:
            pending.append(loop.iter_args[position(value, value.owner.args) - 1])
    return found


def _only_multiplies(block: Block) -> bool:
    """Whether the block is one of a loop or branch, and stores no tile."""
    inside = not isinstance(block.parent_op(), FuncOp)
    return inside and not any(isinstance(op, StoreOp) and is_tile(op.ptr) for op in block.ops)


def _loaded(run: Run, layout: Layout, wanted: list[Layout]) -> float:
    return run.cost(layout) + sum(conversion_cost(layout, each, run.size, Means()) for each in wanted)


def _cost_by_nature(natures: Natures, value: SSAValue, layout: Layout, seen: set[SSAValue]) -> float:
    """The cost of the loads from which a tile is computed, in its natural encoding."""
    if value in seen or natures.keeps(value):
        return 0
    seen.add(value)
    if isinstance(value.owner, LoadOp):
        return _load_cost(natures, value.owner, layout)
    return sum(_cost_by_nature(natures, each, layout, seen) for each in _operands(value))


def _load_cost(natures: Natures, op: LoadOp, layout: Layout) -> float:
    """The lower cost of two ways: a load in the layout, or a load in rows with an exchange."""
    run = run_of(op, natures.runs)
    if run is None:
        return 0
    return min(run.cost(layout), _loaded(run, run.rows(layout), [layout]))


def _operands(value: SSAValue) -> Iterator[SSAValue]:
    """The tiles from which a tile is computed by an elementwise operation. Scalars cost nothing in any layout."""
    if is_elementwise(value.owner):
        for each in value.owner.operands:
            if is_tile(each) and not isinstance(each.owner, SplatOp | arith.ConstantOp):
                yield each


class _Conversion:
    """Finds the cheapest ways in which tiles are computed in one layout."""

    def __init__(self, natures: Natures, rows: Layout) -> None:
        self.natures = natures
        self.rows = rows
        self._known: dict[SSAValue, _Way] = {}

    def of(self, value: SSAValue) -> _Way:
        """The cheapest way: exchange the tile, or the tiles from which it is computed."""
        if value not in self._known:
            self._known[value] = min(self._ways(value), key=lambda way: way.cost)
        return self._known[value]

    def _ways(self, value: SSAValue) -> Iterator[_Way]:
        nature = self.natures.of(value)
        if nature is not None:
            layout = nature.layout(self.rows.shape)
            size = memory_bytes(value.type)
            exchanged = conversion_cost(layout, self.rows, size, Means())
            yield _Way(exchanged + _cost_by_nature(self.natures, value, layout, set()), [value])
        if not self.natures.keeps(value):
            if isinstance(value.owner, LoadOp):
                yield _Way(_load_cost(self.natures, value.owner, self.rows))
            elif isinstance(value.owner, BroadcastOp):
                yield _Way(self._repeated(value.owner))
            elif nature is None or is_elementwise(value.owner):
                parts = [self.of(each) for each in _operands(value)]
                yield _Way(sum(part.cost for part in parts), [each for part in parts for each in part.kept])

    def _repeated(self, op: BroadcastOp) -> float:
        """The cost of repeated rows; 0 if they may be computed in any encoding."""
        source, nature = tensor_of(op.src), self.natures.of(op.src)
        if nature is None:
            return 0
        shape, size = source.get_shape(), memory_bytes(source)
        return conversion_cost(nature.layout(shape), LinearAttr.of(self.rows).layout(shape), size, Means())


def layouts_of_accesses(function: FuncOp, natures: Natures) -> Demands:
    """The encodings in which tiles are needed, with special layouts for the accesses that gain by them."""
    choose_stores(function, natures)
    demands = Demands(function, natures)
    if choose_flags(function, natures, demands):
        demands = Demands(function, natures)
    if choose_exchanged(function, natures, demands):
        demands = Demands(function, natures)
    if choose_compact(function, natures, demands):
        demands = Demands(function, natures)
    return Demands(function, natures) if choose_loads(function, natures, demands) else demands
