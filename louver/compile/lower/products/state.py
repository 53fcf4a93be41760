"""State of lowering: parameters, shared-memory layout, and the position of each role."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.ir import Block, SSAValue

from louver.compile.plan.layout import BLOCK_ROWS
from louver.compile.plan.turned import Turned
from louver.ir.sched import ops
from louver.ir.sched.gathered import GatherOp
from louver.ir.sched.turned import TurnOp
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Imm, Reg


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of stages: offset and size of a stage in bytes."""

    offset: int
    stage_bytes: int


@dataclass(frozen=True, slots=True)
class Barriers:
    """Some mbarriers: offset in bytes, how many, and the arrivals of a phase."""

    offset: int
    count: int
    arrivals: int


@dataclass(slots=True)
class RolePosition:
    """A role's place in the rings: registers for the stage in hand, its parity bit, and the stage before it."""

    stage: Reg
    parity: Reg
    previous: Reg


@dataclass(slots=True)
class TileState:
    """Inside a tile: the first step of the loop body in hand, and how many steps the body has gone on since.

    first, last: the tile's steps are those from `first` to before `last`. leave: in a partial loop, the branches to leave by where no step is left, and the steps of its body.
    """

    step: Reg
    first: Reg | int
    last: Reg
    advanced: int = 0
    leave: ExitStack | None = None
    unroll: int = 0


class Origin(NamedTuple):
    """The start of a tile: its first row and column, in elements, and its entry, if there are any.

    first, last: the steps of a range of K; None where all tiles are whole.
    """

    m: Reg
    n: Reg
    entry: Reg | None = None
    first: Reg | None = None
    last: Reg | None = None

    @property
    def arguments(self) -> list[Reg]:
        """The arguments of the regions of a walk over tiles."""
        return [each for each in self[:4] if each is not None]


class Entries(NamedTuple):
    """An array that has each tile's entry: its address, the bytes of a number, and the axis along which tiles are counted."""

    address: Reg
    width: int
    along: str


@dataclass(slots=True)
class TileWalk:
    """A role's walk over its tiles or ranges. tile: the number of the one in hand. stride: to the next one. total: how many there are. raster: rows that
    are walked before the next column. here: the origin of the one in hand.

    entries: where tiles' entries are read, None where the tile's number says its entry. ahead: origin of the tile that has been begun
    ahead.
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
    """The registers of a consumer warpgroup: accumulators [block][register], metadata words [set][block][word] (none where products
    take none), promoted sums [block][register] (none where nothing is promoted).
    """

    accumulators: list[list[Reg]]
    metadata: list[list[list[Reg]]] = field(default_factory=list[list[list[Reg]]])
    metadata_addresses: list[Reg] = field(default_factory=list[Reg])
    promoted: list[list[Reg]] = field(default_factory=list[list[Reg]])


@dataclass(frozen=True, slots=True)
class RowFeed:
    """A thread's rows of each list. first: of its neighbouring entries of a step. own: column of a tile, where its first piece begins.
    size: bytes of an element. pitch: bytes from a row to the next. entries: registers [set][list][row].

    Of the tile that is open: lists: addresses of its first entries [list]; base: address of its first piece of row 0; column: where that
    begins; end: the column behind the tile's last one.
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
    """A thread's part of each list's rows in a stage: of each of its rows the same piece of 16 bytes of a line.

    places: addresses of the piece of each row, in the first box of the first stage, without the ring's offset. boxes: side by side, of
    lines of `span` bytes, `box_bytes` each.
    """

    places: tuple[Reg, ...]
    boxes: int
    span: int
    box_bytes: int


@dataclass(frozen=True, slots=True)
class Turner:
    """A thread's blocks of gathered rows. parts: of all lists.

    own: address of its first piece in the ring of blocks, without the ring's offset.
    places: bytes from a part's first column to the words of four columns, in the order in which they are stored, and to those of the next
    four. pairs, fours: selectors that turn 4×4 bytes, in that order.
    """

    turned: Turned
    parts: int
    own: Reg
    places: tuple[tuple[Reg, ...], ...]
    pairs: tuple[Reg, Reg]
    fours: tuple[Reg, Reg]


@dataclass(frozen=True, slots=True)
class Pointers:
    """A thread's rows of a step: addresses [list][row] of its first pieces, and predicates, which of them K does not have.

    more: predicate, whether the tile has that step; None where it has.
    """

    rows: tuple[tuple[Reg, ...], ...]
    missing: tuple[tuple[Reg, ...], ...]
    more: Reg | None


@dataclass(slots=True)
class Lowering:
    """The state of lowering one kernel. lower_block: lowers a region. gathers: what gathers rows of the dense operand, if anything does.

    values: what holds each SSA value. sizes: the kernel's sizes by name. named: thread indices and counts.
    warpgroup (index in its role, one of `warpgroups`; each takes as many rows of a tile) and the states
    below are set where a role, a tile or a consumer begins. end: the step behind the last one of the tile that loads are for, in hand or
    begun ahead. columns: of the tile, that its store in hand is for.
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
        """The rows of K that are summed: all, or so many as lists name."""
        return self.sizes.get("kept", self.sizes["K"])

    @property
    def cluster(self) -> int:
        """CTAs that work on neighbouring tiles along M and share tiles of the dense operand."""
        return 1 if self.pairs else self.kernel.cluster.value.data

    @property
    def ranked(self) -> bool:
        """Whether its CTA is one of a cluster's: it has a rank, which its shared addresses hold among their high bits."""
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
        """Rows of sums from a warp to the next one, and from a block of a warp to its next one. Of a product by threads a warp's rows follow
        each other, so that one window has more of them.
        """
        return (16 * len(self.consumer.accumulators), 16) if self.kernel.mma is None else (16, BLOCK_ROWS)

    @property
    def places(self) -> dict[tuple[int, int], int]:
        """The elements of a block of sums that a thread holds, by rows and columns from its first one, see `Fragment.offsets`: of the columns
        that are stored.
        """
        found = self.kernel.unit.d_fragment.offsets()
        return {place: index for place, index in found.items() if place[1] < self.columns}

    def sum_at(self, block: int, row: int, column: int) -> Reg:
        """The element of a thread's part of a block that is so many rows and columns from its first one.

        f32 or s32: f16 accumulators, two a register, are unpacked and widened where they are read.
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
