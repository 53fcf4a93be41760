"""The state of lowering a product: parameters, shared-memory layout, and the position of each role.

Of a batch: the addresses of its matrices in the epilogue, and the entry that an array selects for each tile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.ir import Block, SSAValue

from louver.compile.plan.layout import BLOCK_ROWS
from louver.compile.plan.turned import Turned
from louver.formats.dtypes import element_type
from louver.ir.sched import ops
from louver.ir.sched.epilogue import MatrixOp
from louver.ir.sched.gathered import GatherOp, TurnOp
from louver.ir.sched.types import PointerType
from louver.isa.convert import ConvertInteger
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Imm, Reg


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of stages: its offset and the size of a stage, in bytes."""

    offset: int
    stage_bytes: int


@dataclass(frozen=True, slots=True)
class Barriers:
    """An array of mbarriers: offset in bytes, number of barriers, and arrivals of a phase."""

    offset: int
    count: int
    arrivals: int


@dataclass(slots=True)
class RolePosition:
    """A role's position in the rings: registers for the current stage, its parity bit, and the stage before it."""

    stage: Reg
    parity: Reg
    previous: Reg


@dataclass(slots=True)
class TileState:
    """The position in a tile.

    step: the first step of the current loop body.
    first, last: the steps of the tile are those from `first` to before `last`.
    advanced: steps since the beginning of the body.
    leave: in a partial loop, the branches that skip the rest of the body when no step remains.
    unroll: steps of the body.
    """

    step: Reg
    first: Reg | int
    last: Reg
    advanced: int = 0
    leave: ExitStack | None = None
    unroll: int = 0


class Origin(NamedTuple):
    """The start of a tile: its first row and column, in elements, and its entry, if there are entries.

    first, last: the first step of a range of K, and the end of its steps; None if all tiles are whole.
    """

    m: Reg
    n: Reg
    entry: Reg | None = None
    first: Reg | None = None
    last: Reg | None = None

    @property
    def arguments(self) -> list[Reg]:
        """The block arguments of the regions of a walk over tiles."""
        return [each for each in self[:4] if each is not None]


class Entries(NamedTuple):
    """The array with the entry of each tile: its address, the bytes of a number, and the axis along which tiles are
    counted.
    """

    address: Reg
    width: int
    along: str


@dataclass(slots=True)
class TileWalk:
    """A role's walk over its tiles or ranges.

    tile: the number of the current tile or range.
    stride: from one number to the next.
    total: the number of all tiles and ranges.
    raster: rows of tiles that are processed before the next column.
    here: the origin of the current tile.
    entries: the array from which entries are read; None if the entry follows from the number of the tile.
    ahead: the origin of the tile that has been begun ahead.
    """

    tile: Reg
    stride: Reg
    total: Reg
    raster: Reg | int
    here: Origin
    entries: Entries | None = None
    ahead: Origin | None = None


@dataclass(slots=True)
class ConsumerState:
    """The registers of a consumer warpgroup.

    accumulators: [block][register].
    metadata: words [set][block][word]; empty if products read none.
    promoted: promoted sums [block][register]; empty without promotion.
    """

    accumulators: list[list[Reg]]
    metadata: list[list[list[Reg]]] = field(default_factory=list[list[list[Reg]]])
    metadata_addresses: list[Reg] = field(default_factory=list[Reg])
    promoted: list[list[Reg]] = field(default_factory=list[list[Reg]])


@dataclass(frozen=True, slots=True)
class RowFeed:
    """A thread's rows of each list.

    first: the first of the thread's neighbouring entries in a step.
    own: the column of a tile at which the thread's first piece begins.
    size: bytes of an element.
    pitch: bytes from a row to the next.
    entries: registers [set][list][row].

    For the open tile:

    lists: addresses of the thread's first entries [list].
    base: address of the thread's first piece of row 0.
    column: the column of that piece.
    end: the end of the tile's columns.
    """

    first: Reg
    own: Reg
    size: int
    pitch: Reg
    entries: Sequence[Sequence[Sequence[Reg]]]
    lists: Sequence[Reg]
    base: Reg
    column: Reg
    end: Reg


@dataclass(frozen=True, slots=True)
class Gatherer:
    """A thread's part of the rows of each list in a stage: the same piece of 16 bytes in a line of each of its rows.

    places: addresses of the piece of each row, in the first box of the first stage, without the offset of the ring.
    boxes: boxes side by side. A box has lines of `span` bytes, and `box_bytes` in total.
    """

    places: tuple[Reg, ...]
    boxes: int
    span: int
    box_bytes: int


@dataclass(frozen=True, slots=True)
class Turner:
    """A thread's blocks of gathered rows.

    parts: parts of all lists.
    own: address of the thread's first piece in the ring of blocks, without the offset of the ring.
    places: bytes from the first column of a part to the words of four columns, in the order of the stores, and to those
    of the next four.
    pairs, fours: selectors that turn 4×4 bytes, in that order.
    """

    turned: Turned
    parts: int
    own: Reg
    places: tuple[tuple[Reg, ...], ...]
    pairs: tuple[Reg, Reg]
    fours: tuple[Reg, Reg]


@dataclass(frozen=True, slots=True)
class Pointers:
    """A thread's rows of a step.

    rows: addresses of the thread's first pieces [list][row].
    missing: predicates, whether a row is outside K [list][row].
    more: predicate, whether the tile has the step; None if it always has.
    """

    rows: tuple[tuple[Reg, ...], ...]
    missing: tuple[tuple[Reg, ...], ...]
    more: Reg | None


@dataclass(slots=True)
class Lowering:
    """The state of lowering one kernel.

    lower_block: lowers a region.
    gathers: the operation that gathers rows of the dense operand; None without one.
    values: the register or constant of each SSA value.
    sizes: the sizes of the kernel by name.
    named: thread indices and counts.
    warpgroup: the index of the warpgroup in its role, one of `warpgroups`. Each takes an equal part of a tile's rows.
    end: the end of the steps of the tile for which loads are, which is the current tile or the one begun ahead.
    columns: the columns of the tile that the current store writes.

    `warpgroup` and the states of role, tile and consumer are set when a role, a tile or a consumer begins.
    """

    kernel: ops.KernelOp
    k: KernelBuilder
    rings: dict[str, Ring]
    barriers: dict[str, Barriers]
    stages: int
    lower_block: Callable[[Block], None]
    gathers: GatherOp | TurnOp | None = None
    values: dict[SSAValue, Reg | Imm] = field(default_factory=dict[SSAValue, "Reg | Imm"])
    sizes: dict[str, Reg] = field(default_factory=dict[str, Reg])
    named: dict[str, Reg] = field(default_factory=dict[str, Reg])
    role: ops.RoleOp = field(init=False)
    warpgroup: Reg = field(init=False)
    warpgroups: int = field(init=False)
    position: RolePosition = field(init=False)
    walk: TileWalk = field(init=False)
    tile_state: TileState = field(init=False)
    end: Reg = field(init=False)
    consumer: ConsumerState = field(init=False)
    feed: RowFeed = field(init=False)
    gatherer: Gatherer = field(init=False)
    turner: Turner = field(init=False)
    pointers: Pointers = field(init=False)
    columns: int = field(init=False)

    def __post_init__(self) -> None:
        self.columns = self.tile[1]

    @property
    def tile(self) -> tuple[int, int, int]:
        """tile_m, tile_n, tile_k in elements."""
        m, n, k = (size.value.data for size in self.kernel.tile)
        return m, n, k

    @property
    def depth(self) -> Reg:
        """The rows of K that are summed: all, or the number that lists name."""
        return self.sizes.get("kept", self.sizes["K"])

    @property
    def cluster(self) -> int:
        """CTAs that work on neighbouring tiles along M and share tiles of the dense operand."""
        return 1 if self.pairs else self.kernel.cluster.value.data

    @property
    def ranked(self) -> bool:
        """Whether the CTA is in a cluster. It then has a rank, which shared addresses contain in their high bits."""
        return self.kernel.cluster.value.data > 1

    @property
    def pairs(self) -> bool:
        """Whether two CTAs work on the ranges of a tile."""
        return self.kernel.pairs is not None

    @property
    def sums(self) -> list[list[Reg]]:
        """The sums that the epilogue reads: promoted ones, or the accumulators."""
        return self.consumer.promoted or self.consumer.accumulators

    @property
    def row_steps(self) -> tuple[int, int]:
        """Rows of sums from a warp to the next warp, and from a block of a warp to its next block.

        On CUDA cores the rows of a warp follow each other, so that more of them are in one window.
        """
        return (16 * len(self.consumer.accumulators), 16) if self.kernel.mma is None else (16, BLOCK_ROWS)

    @property
    def places(self) -> dict[tuple[int, int], int]:
        """The elements of a block of sums that a thread holds, in the columns that are stored.

        The key is the distance in rows and columns from the thread's first element, see `Fragment.offsets`.
        """
        found = self.kernel.unit.d_fragment.offsets()
        return {place: index for place, index in found.items() if place[1] < self.columns}

    def sum_at(self, block: int, row: int, column: int) -> Reg:
        """The thread's sum in a block at this distance in rows and columns from its first one, as f32 or s32.

        f16 accumulators are two to a register. They are unpacked and widened here.
        """
        held, index = self.sums[block], self.places[row, column]
        if self.kernel.unit.d != "f16":
            return held[index]
        return self.k.to_f32("f16", self.k.halves(held[index // 2])[index % 2])

    def register(self, value: SSAValue) -> Reg:
        """The register that holds `value`."""
        held = self.values[value]
        if not isinstance(held, Reg):
            raise TypeError(f"{value} is not held in a register but as {held!r}")
        return held

    def number(self, value: SSAValue) -> Reg | Imm:
        """The register or constant that holds `value`."""
        return self.values[value]


ENTRY_WIDTHS = {"s32": 4, "s64": 8}
"""Bytes of an entry number, by the element type of its array."""


@contextmanager
def entry_in_hand(low: Lowering, op: ops.StoreOp | ops.BulkStoreOp) -> Generator[None]:
    """Within the context, pointers to the output and to arrays of the epilogue point to the entry of the store, if it
    has one.
    """
    if op.entry is None:
        yield
        return
    entry = low.register(op.entry)
    pitches: dict[SSAValue, Reg] = {}
    if isinstance(op, ops.StoreOp):
        pitches[op.destination] = low.sizes["batch_pitch"]
    for each in op.body.block.ops:
        if isinstance(each, MatrixOp) and each.entries is not None:
            pitches[each.matrix] = low.register(each.entries)
    first = {pointer: low.register(pointer) for pointer in pitches}
    low.values.update({pointer: _moved(low, pointer, entry, pitch) for pointer, pitch in pitches.items()})
    yield
    low.values.update(first)


def _moved(low: Lowering, pointer: SSAValue, entry: Reg, pitch: Reg) -> Reg:
    kind = pointer.type
    if not isinstance(kind, PointerType):
        raise TypeError(f"entries of a batch are reached through a pointer, got {kind}")
    k = low.k
    size = element_type(kind.element.data).bytes
    return k.mad_lo(k.mul_lo(k.widen_u64(entry), pitch), size, low.register(pointer))


def entries_of(low: Lowering, op: ops.TilesOp) -> Entries | None:
    """The array from which a walk over tiles reads the entry of each tile; None if there is no such array."""
    if op.entries is None or op.along is None:
        return None
    kind = op.entries.type
    assert isinstance(kind, PointerType)
    return Entries(low.register(op.entries), ENTRY_WIDTHS[kind.element.data], op.along.data)


def load_entry(low: Lowering, entries: Entries, number: Reg, into: Reg) -> None:
    """Load the entry of tile `number` along the axis of the array.

    An invalid number, also a negative one, becomes the number of entries. Tensor maps read zeros there. The launch
    ensures that nothing writes to the array during the kernel. In a dependent kernel, earlier grids may write to it
    until the wait for them.
    """
    k = low.k
    tile, size = (low.tile[0], "M") if entries.along == "m" else (low.tile[1], "N")
    # The array ends with the last tile. A walk may go further at its end, or if a cluster has more tiles than remain.
    last = k.div(k.sub(low.sizes[size], 1), tile)
    number = k.min(number, last)
    (found,) = k.regs("b64" if entries.width == 8 else "b32", 1)
    k.load_global(
        [found], Address(k.mad_wide(number, entries.width, entries.address)), read_only=low.kernel.dependent is None
    )
    end = low.sizes["entries"]
    if entries.width == 8:
        (low_bits,) = k.regs("b32", 1)
        k.emit(ConvertInteger("u32", "u64"), low_bits, k.min(found, k.widen_u64(end)))
        found = low_bits
    k.mov(k.min(found, end), into=into)


def entry_of_metadata(low: Lowering, entry: Reg) -> Reg:
    """The entry whose metadata a tile reads. A tile without an entry reads those of the last one; its values are zeros."""
    return low.k.min(entry, low.k.sub(low.sizes["entries"], 1)) if "entries" in low.sizes else entry
