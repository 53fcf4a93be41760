"""The staging area of a warpgroup for bulk stores: buffers, swizzled lines, and each lane's place in them.

A chunk is 64 rows of m by some columns of n. For a gated product it has 32 rows, and a warp has 8 of them in place of
16. Lines run along n for an output [M, N] (one line for each row), and along m for an output [N, M] (one line for each
column). A line has as many bytes as the swizzle's span. So a chunk has one or more panels, side by side along the
lines. A panel is sent as one box of the output's tensor map, or as several boxes with some of its lines each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from louver.compile.lower.products.epilogue import output_block
from louver.compile.lower.products.state import Lowering
from louver.formats.dtypes import element_type
from louver.ir.sched import ops
from louver.ir.sched.types import MapType
from louver.isa.swizzle import BANK_LINE
from louver.isa.swizzle import CHUNK as PIECE
from louver.isa.targets import WARPS_PER_WARPGROUP
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Reg


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk, which is staged and then sent.

    block: the number of the warpgroup's block of 64 rows.
    column: the first of its `columns`, counted in the tile.
    offset: bytes from the `start` of the area to the chunk's buffer.
    """

    block: int
    column: int
    columns: int
    offset: int


@dataclass(frozen=True, slots=True)
class Area:
    """A warpgroup's part of the staging area: `buffers` buffers of one chunk, from `offset` bytes after `start` on.

    rows, columns: size of a chunk. The last chunk of a tile may have fewer columns.
    size: bytes of an element.
    span: bytes of a line. The swizzle permutes its pieces.
    box_lines: lines of a box that one copy sends.
    """

    start: Reg
    offset: int
    buffers: int
    rows: int
    columns: int
    size: int
    span: int
    box_lines: int
    transposed: bool

    @property
    def warp_rows(self) -> int:
        """Rows of a chunk that one warp has: 16, or 8 for a gated product."""
        return self.rows // WARPS_PER_WARPGROUP

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a buffer."""
        return self.rows * self.columns * self.size

    @property
    def panel_bytes(self) -> int:
        """Bytes of a buffer for each panel."""
        return (self.columns if self.transposed else self.rows) * self.span

    @property
    def line_elements(self) -> int:
        """Elements of a line."""
        return self.span // self.size

    def chunks(self, blocks: int, columns: int) -> Iterator[Chunk]:
        """The chunks of the warpgroup's part of `columns` columns of a tile, in order. They use the buffers in turn."""
        starts = [(block, column) for block in range(blocks) for column in range(0, columns, self.columns)]
        for index, (block, column) in enumerate(starts):
            own = min(self.columns, columns - column)
            yield Chunk(block, column, own, self.offset + index % self.buffers * self.chunk_bytes)

    def swizzled(self, k: KernelBuilder, line: Reg, piece: Reg) -> Reg:
        """The place of piece number `piece` in `line`, in pieces of 16 bytes. Lines 8 apart have the same permutation."""
        lines = BANK_LINE // self.span
        group = k.shr(line, lines.bit_length() - 1) if lines > 1 else line
        return k.xor(piece, k.and_(group, self.span // PIECE - 1))

    def address(self, k: KernelBuilder, line: Reg, place: Reg) -> Reg:
        """The address of a piece of a line in a buffer at `start`. place: the result of `swizzled`."""
        return k.add(k.mad_lo(line, self.span, self.start), k.shl(place, PIECE.bit_length() - 1))


@dataclass(frozen=True, slots=True)
class Lane:
    """A thread of a warpgroup: warp 0 to 3, lane 0 to 31.

    It holds rows `row` and `row` + 8, columns 2 · `pair` and 2 · `pair` + 1.
    """

    warp: Reg
    lane: Reg
    row: Reg
    pair: Reg

    @classmethod
    def of(cls, low: Lowering) -> Lane:
        """The values of this thread."""
        k = low.k
        lane = k.and_(low.named["tid"], 31)
        return cls(k.and_(low.named["warp"], 3), lane, k.shr(lane, 2), k.and_(lane, 3))


def open_area(low: Lowering, op: ops.BulkStoreOp) -> Area:
    """The part of the current warpgroup."""
    kind = op.destination.type
    if not isinstance(kind, MapType):
        raise TypeError(f"a bulk store's destination is a tensor map, got {kind}")
    size = element_type(op.element.data).bytes
    columns = op.columns.value.data
    ring = low.rings[op.ring.data]
    share = ring.stage_bytes // low.warpgroups
    start = low.k.mad_lo(low.warpgroup, share, low.named["smem"])
    rows = output_block(op)
    buffers = share // (rows * columns * size)
    lines = kind.box.data[1].data
    step = lines if op.transposed is not None else kind.box.data[0].data
    if columns % step or low.columns % step:
        raise ValueError(
            f"the boxes of a bulk store divide its chunks of {columns} columns and the tile's {low.columns}, got boxes of "
            f"{step}: use the box of `output_layout`"
        )
    return Area(start, ring.offset, buffers, rows, columns, size, kind.span, lines, op.transposed is not None)
