"""Lowers products on CUDA cores.

Each thread reads its rows and columns of a stage, and adds their products to its sums. A stage has the layout that
`wgmma` reads: swizzled lines of 128 bytes. A line of values has one row with 32 elements of K, or two rows with 16. A
line of the dense operand has 32 columns of one element of K. Boxes begin at multiples of 1,024 bytes, so an exclusive
or of an address swaps pieces of its line.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from louver.compile.lower.products.epilogue import first_column, first_row
from louver.compile.lower.products.multiply import dense_tile, own_rows, values_tile
from louver.compile.lower.products.state import Lowering
from louver.formats.lists import PICK_BYTES
from louver.ir.sched import ops
from louver.isa.floating import Fma
from louver.isa.fma_block import COLUMNS, LANE_COLUMNS, FmaBlock
from louver.isa.move import FULL_MASK
from louver.isa.swizzle import CHUNK
from louver.isa.sync import WarpSync
from louver.ptx.module import Address, Reg

LINE = 128
"""Bytes of a line."""

PIECE = 4
"""Elements of a piece: elements of K in the values, columns in the dense operand."""

TRIP = 8
"""Elements of K of an iteration: two pieces of a line of values. Then the swizzle of the dense operand repeats."""


def multiply_add(low: Lowering, op: ops.FmaOp) -> None:
    """Multiply all of K of the current stage, for every block of the warpgroup.

    Lanes synchronize at the end, because one of them releases the stage.
    """
    k = low.k
    row, column = first_row(low), first_column(low)
    values, source = _values(low, op, row), (_InOrder if op.picks is None else _Picked).of(low, op, column)
    done, span, (_, block_rows) = k.mov(0), values_tile(low).swizzle.span, low.row_steps
    with k.loop(uniform=True) as loop:
        pieces = k.xor(values, k.mul_lo(done, CHUNK // PIECE))
        # One exclusive or for each part of an address that is the same in all lanes.
        places: dict[int, Reg] = {}
        for half in range(TRIP // PIECE):
            source.begin(half)
            for (block, offset), sums in _rows(low).items():
                key = half ^ _phase(span, offset)
                if key not in places:
                    places[key] = k.xor(pieces, key * CHUNK) if key else pieces
                elements = k.regs("f32", PIECE)
                k.load_shared(elements, Address(places[key], (block_rows * block + offset) * span))
                for element, along in zip(elements, source.columns(half, block), strict=True):
                    for total, factor in zip(sums, along, strict=True):
                        k.emit(Fma(), total, element, factor, total)
        source.advance()
        k.add(done, TRIP, into=done)
        loop.repeat_if(k.setp("lt", "u32", done, low.tile[2]))
    k.emit(WarpSync(), FULL_MASK)


@dataclass(slots=True)
class _InOrder:
    """Lines of the dense operand in the order of the values' columns. They are the same for all rows.

    address: the address of the thread's columns in the first line.
    """

    low: Lowering
    address: Reg
    found: list[list[Reg]] = field(default_factory=list[list[Reg]])

    @classmethod
    def of(cls, low: Lowering, op: ops.FmaOp, column: Reg) -> _InOrder:
        return cls(low, low.k.mov(_dense(low, op, column)))

    def begin(self, half: int) -> None:
        """Load the lines for four columns of the values."""
        self.found = [_columns(self.low, self.address, PIECE * half + index) for index in range(PIECE)]

    def columns(self, half: int, block: int) -> list[list[Reg]]:
        """The thread's columns of each of these lines."""
        return self.found

    def advance(self) -> None:
        """On to the next trip."""
        span = dense_tile(self.low, transposed=True).swizzle.span
        self.low.k.add(self.address, TRIP * span, into=self.address)


@dataclass(slots=True)
class _Picked:
    """Lines of one box without a swizzle. Each warp picks lines for its rows of a block.

    picks: the address of the number of the first line.
    block_bytes: bytes from the picks of a block to those of the next one; 0 if all blocks pick the same lines.
    """

    low: Lowering
    address: Reg
    picks: Reg
    block_bytes: int
    found: dict[int, list[list[Reg]]] = field(default_factory=dict[int, list[list[Reg]]])

    @classmethod
    def of(cls, low: Lowering, op: ops.FmaOp, column: Reg) -> _Picked:
        k, ring, blocks = low.k, low.rings[op.b.data], len(low.consumer.accumulators)
        start = k.mad_lo(low.position.stage, ring.stage_bytes, k.add(low.named["smem"], ring.offset))
        assert op.picks is not None
        picked, own = low.rings[op.picks.data], PICK_BYTES * low.tile[2]
        picks = k.mad_lo(low.position.stage, picked.stage_bytes, k.add(low.named["smem"], picked.offset))
        picks = k.mad_lo(k.mad_lo(low.warpgroup, 4, k.and_(low.named["warp"], 3)), blocks * own, picks)
        return cls(low, k.mad_lo(column, 4, start), k.mov(picks), own if op.together is None else 0)

    def begin(self, half: int) -> None:
        """Begin four columns of the values. `columns` loads their lines."""
        self.found = {}

    def columns(self, half: int, block: int) -> list[list[Reg]]:
        """The thread's columns of the lines that its warp picks for four columns of the values of `block`."""
        k, begin = self.low.k, block * self.block_bytes
        if begin not in self.found:
            numbers = k.regs("b32", PIECE)
            k.load_shared(numbers, Address(self.picks, begin + half * PIECE * PICK_BYTES))
            self.found[begin] = [self._line(number) for number in numbers]
        return self.found[begin]

    def _line(self, number: Reg) -> list[Reg]:
        k, columns = self.low.k, self.low.tile[1]
        # A shift, because multiplications would use the unit that adds products.
        place = k.add(self.address, k.shl(number, (4 * columns).bit_length() - 1))
        found = k.regs("f32", _lane_columns(self.low))
        for group in range(len(found) // LANE_COLUMNS):
            some = found[LANE_COLUMNS * group : LANE_COLUMNS * (group + 1)]
            k.load_shared(some, Address(place, 4 * COLUMNS * group))
        return found

    def advance(self) -> None:
        """On to the next trip."""
        self.low.k.add(self.picks, TRIP * PICK_BYTES, into=self.picks)


def _values(low: Lowering, op: ops.FmaOp, row: Reg) -> Reg:
    """The address of the first piece of the thread's first row. That row is one of the first eight of the warp."""
    k, ring, span = low.k, low.rings[op.a.data], values_tile(low).swizzle.span
    warp_rows, _ = low.row_steps
    start = k.mad_lo(low.position.stage, ring.stage_bytes, k.add(low.named["smem"], ring.offset))
    start = k.mad_lo(k.mad_lo(low.warpgroup, 4, k.and_(low.named["warp"], 3)), warp_rows * span, start)
    phase = k.shr(row, (LINE // span).bit_length() - 1) if span < LINE else row
    return k.mad_lo(phase, CHUNK, k.mad_lo(row, span, start))


def _phase(span: int, row: int) -> int:
    """The number that the swizzle of a span combines with the places of a row's pieces, by exclusive or."""
    return row * span // LINE & span // CHUNK - 1


def _dense(low: Lowering, op: ops.FmaOp, column: Reg) -> Reg:
    """The address of the thread's first columns in line 0. The swizzle does not change the pieces of line 0."""
    k, ring, tile = low.k, low.rings[op.b.data], dense_tile(low, transposed=True)
    start = k.mad_lo(low.position.stage, ring.stage_bytes, k.add(low.named["smem"], ring.offset))
    share = own_rows(low, tile)
    if share is not None:
        number, size = share
        start = k.mad_lo(number, size, start)
    box_columns = tile.swizzle.span // 4
    start = k.mad_lo(k.shr(column, box_columns.bit_length() - 1), tile.box_bytes, start)
    return k.mad_lo(k.and_(column, box_columns - 1), 4, start)


def _columns(low: Lowering, dense: Reg, line: int) -> list[Reg]:
    """Load the thread's columns of a line. dense: their address in line 0."""
    k, tile = low.k, dense_tile(low, transposed=True)
    span = tile.swizzle.span
    phase = _phase(span, line)
    place = k.xor(dense, phase * CHUNK) if phase else dense
    found = k.regs("f32", _lane_columns(low))
    boxes = COLUMNS * 4 // span
    for group in range(len(found) // LANE_COLUMNS):
        four = found[LANE_COLUMNS * group : LANE_COLUMNS * (group + 1)]
        k.load_shared(four, Address(place, group * boxes * tile.box_bytes + line * span))
    return found


def _lane_columns(low: Lowering) -> int:
    return FmaBlock(low.tile[1]).lane_columns


def _rows(low: Lowering) -> dict[tuple[int, int], list[Reg]]:
    """The thread's sums in the order of columns, by block and by distance from the thread's first row."""
    places = low.places
    rows, columns = (sorted({place[axis] for place in places}) for axis in (0, 1))
    return {
        (block, row): [held[places[row, column]] for column in columns]
        for block, held in enumerate(low.consumer.accumulators)
        for row in rows
    }
