"""Places tiles and exchanges in shared memory. Those that are not live at the same time share memory."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.effects import is_elementwise
from louver.analysis.passages import passed_to
from louver.compile.lower.tiles.exact import PART_ALIGNMENT, parts_bytes
from louver.compile.lower.tiles.exchange import conversion_of, exchange_plan
from louver.compile.lower.tiles.state import Rooms, register_class
from louver.compile.plan.encode.anchors import is_tile
from louver.compile.plan.encode.exchange_plan import ExchangePlan, Means
from louver.compile.plan.encode.unit import by_warpgroups, in_parts
from louver.ir import tile as tt
from louver.ir.refusal import unsupported
from louver.ir.tile.boxes import BARRIER_BYTES
from louver.ir.tile.layout import LANE_BITS, Layout
from louver.ir.tile.staging import in_shared, staged_bytes, tile_of
from louver.ir.tile.types import element_of, register_encoding, tensor_of
from louver.isa.instruction import LANES, REGISTER_BITS
from louver.isa.swizzle import BANK_LINE
from louver.isa.targets import Target

OWN_BYTES = 1024
"""The largest exchange that has its own memory, in bytes."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Shared memory that is needed from operation `first` to operation `last`, both included."""

    what: SSAValue | Operation
    bytes: int
    alignment: int
    first: int
    last: int

    def meets(self, other: _Wanted) -> bool:
        """Whether both are live at the same time."""
        return self.first <= other.last and other.first <= self.last


def place_shared(function: tt.FuncOp, target: Target) -> Rooms:
    """The places of all tiles and exchanges of a function with encodings.

    Rejects an exchange that is too large. The total may exceed the limit; the caller tests it.
    """
    limit = target.max_shared_bytes
    walk = _Walk(function, Means.of(target))
    wanted = list(walk.wanted())
    placed: list[tuple[_Wanted, int]] = []
    for each in sorted(wanted, key=lambda one: -one.bytes):
        start = 0
        for other, at in sorted(placed, key=lambda pair: pair[1]):
            if each.meets(other) and start < at + other.bytes and at < start + each.bytes:
                start = -(-(at + other.bytes) // each.alignment) * each.alignment
        placed.append((each, start))
    staged = {each.what: start for each, start in placed if isinstance(each.what, SSAValue)}
    exchanges = {each.what: start for each, start in placed if isinstance(each.what, Operation)}
    for each, _ in placed:
        if isinstance(each.what, Operation) and not isinstance(each.what, tt.DotOp) and each.bytes > limit:
            raise unsupported(
                f"a tile is exchanged through at most {limit} bytes of shared memory, not {each.bytes}",
                each.what,
                "choose smaller blocks",
            )
    reused = dict.fromkeys(
        each.what
        for each, start in placed
        for other, at in placed
        if isinstance(each.what, SSAValue)
        and not each.meets(other)
        and start < at + other.bytes
        and at < start + each.bytes
    )
    size = max((start + each.bytes for each, start in placed), default=0)
    multiplied = dict.fromkeys(tile for name, tiles in walk.tiles.items() if _is_multiplied(name) for tile in tiles)
    own = frozenset(op for each, _ in placed if isinstance(op := each.what, Operation) and _has_own(op, each.bytes))
    return Rooms(staged, exchanges, own, walk.tiles, reused.keys(), multiplied.keys(), size)


def shared_peak(function: tt.FuncOp, means: Means) -> Callable[[Operation, Container[SSAValue | Operation]], int]:
    """A function that gives the peak of shared memory in bytes within an operation, without the bytes of some tiles."""
    walk = _Walk(function, means)
    wanted = list(walk.wanted())

    def peak(scope: Operation, without: Container[SSAValue | Operation]) -> int:
        first, last = walk.numbers[scope], walk.ends[scope]
        inside = [each for each in wanted if each.what not in without and each.first <= last and first <= each.last]
        starts = {max(first, each.first) for each in inside}
        return max((sum(each.bytes for each in inside if each.first <= at <= each.last) for at in starts), default=0)

    return peak


def _is_multiplied(tile: SSAValue) -> bool:
    """Whether a warpgroup product uses this value."""
    return any(isinstance(use.operation, tt.DotOp) and by_warpgroups(use.operation) for use in tile.uses)


class _Walk:
    """The operations of a function, numbered in order. ends: the number of the last operation inside each."""

    def __init__(self, function: tt.FuncOp, means: Means) -> None:
        self.operations = list(function.body.walk())
        self.numbers = {op: number for number, op in enumerate(self.operations)}
        self.ends = {
            op: self.numbers[op] + (sum(1 for _ in op.walk()) - 1 if op.regions else 0) for op in self.operations
        }
        self.waits = [self.numbers[op] for op in self.operations if isinstance(op, tt.AsyncWaitOp)]
        self.means = means
        self.tiles: dict[SSAValue, list[SSAValue]] = {}

    def wanted(self) -> Iterator[_Wanted]:
        """The needed memory and its live ranges."""
        for op, number in self.numbers.items():
            if isinstance(op, tt.InitBarriersOp):
                # Barriers are live until the kernel ends.
                yield _Wanted(op.result, op.count.value.data * BARRIER_BYTES, BANK_LINE, 0, len(self.operations))
            elif isinstance(op, tt.ConvertLayoutOp | tt.LocalAllocOp) and in_shared(op.result):
                size, repeat = staged_bytes(op.result), tile_of(op.result).swizzle.repeat
                yield _Wanted(op.result, size, repeat, number, self._last(op.result))
            elif isinstance(op, tt.DotOp) and (size := parts_bytes(op)):
                yield _Wanted(op, size, PART_ALIGNMENT, number, self._end(op, op.parent_block()))
            elif size := _exchange_bytes(op, self.means):
                first, last = (0, len(self.operations)) if _has_own(op, size) else (number, self.ends[op])
                yield _Wanted(op, size, BANK_LINE, first, last)

    def _last(self, tile: SSAValue) -> int:
        """The number of the last operation that needs a tile, by any of its names."""
        home, last = tile.owner.parent_block() if isinstance(tile.owner, Operation) else None, 0
        pending, seen = [tile], {tile: None}
        while pending:
            for use in pending.pop().uses:
                last = max(last, self._end(use.operation, home))
                names = [name for name in _names(use.operation, use.index) if name not in seen]
                seen |= dict.fromkeys(names)
                pending += names
        for name in seen:
            self.tiles.setdefault(name, []).append(tile)
        return last

    def _end(self, op: Operation, home: Block | None) -> int:
        """The number of the last operation during which a use of a tile may still run. home: the block of the tile."""
        parts = in_parts(op) if isinstance(op, tt.DotOp) and by_warpgroups(op) else ()
        wait = op.wait if isinstance(op, tt.DotOp) else None
        last, outer = self.ends[parts[-1] if parts else wait or op], op
        while outer.parent_block() is not home and (parent := outer.parent_op()) is not None:
            outer = parent
            last = self.ends[outer]
        if any(isinstance(each, tt.AsyncCopyOp) for each in outer.walk()):
            # Copies run until a wait. The loop that reads boxes waits for each of them.
            last = next((number for number in self.waits if number > last), len(self.operations))
        return last


def _names(op: Operation, index: int) -> Sequence[SSAValue]:
    """The other names that an operation gives to operand number `index`, a tile in shared memory."""
    match op:
        case scf.ForOp() | scf.YieldOp():
            return passed_to(op, index)
        case _:
            return [result for result in op.results if in_shared(result)]


def _has_own(op: Operation, size: int) -> bool:
    """Whether an exchange has memory that nothing else uses: one of few bytes, between the dots of a loop.

    It then needs one barrier, and products run on.
    """
    block = op.parent_block()
    if not isinstance(op, tt.ConvertLayoutOp) or size > OWN_BYTES or block is None:
        return False
    return isinstance(block.parent_op(), scf.ForOp) and any(isinstance(each, tt.DotOp) for each in block.ops)


def _exchange_bytes(op: Operation, means: Means) -> int:
    """Bytes of shared memory for the exchange of an operation's elements between threads."""
    match op:
        case _ if is_elementwise(op):
            return 0
        case tt.ConvertLayoutOp() if not in_shared(op.src) and not in_shared(op.result):
            found = conversion_of(op, _layout(op.src), _layout(op.result), means)
            return found.memory.bytes if isinstance(found, ExchangePlan) else 0
        case tt.LoadOp() if is_tile(op.result) or not op.fresh:
            return 0
        case tt.AtomicRMWOp() | tt.AtomicCASOp() | tt.LoadOp() if op.result.first_use is not None:
            layout = _layout(op.result) if is_tile(op.result) else Layout((), (), ((),) * LANE_BITS, ())
            return exchange_plan(op, layout, layout, means).memory.bytes if layout.repeats else 0
        case tt.GatherOp():
            return _layout(op.src).size * _register_bytes(op.src, op)
        case tt.ReduceOp() | tt.ScanOp():
            return _combined_bytes(op)
        case _:
            return 0


def _combined_bytes(op: tt.ReduceOp | tt.ScanOp) -> int:
    """Bytes for one element of each thread and total, of the widest operand.

    A scan has a total for each register at first.
    """
    layout, axis = _layout(op.srcs[0]), op.axis.value.data
    if not any(step[axis] for step in layout.warp):
        return 0
    totals = 1 << sum(isinstance(op, tt.ScanOp) or not step[axis] for step in layout.register)
    return totals * layout.warps * LANES * max(_register_bytes(each, op) for each in op.srcs)


def _register_bytes(value: SSAValue, op: Operation) -> int:
    """Bytes of a register of a tile. Booleans are exchanged as 32-bit numbers."""
    kind = register_class(element_of(value.type), op)
    return REGISTER_BITS["b32" if kind == "pred" else kind] // 8


def _layout(value: SSAValue) -> Layout:
    tensor = tensor_of(value)
    encoding = register_encoding(tensor)
    assert encoding is not None
    return encoding.layout(tensor.get_shape())
