"""Operations of the `sched` dialect: the actions of each warp role, stage by stage.

A `kernel` contains rings of shared-memory stages, barriers (one for each stage), and roles. A role walks `tiles`.
Inside a tile, `loop`s walk the K steps. Each loop continues where the last one stopped. The current stage is implicit:
`advance` moves a role to the next stage. Phase bits do not appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeAlias, get_args

from xdsl.dialects.builtin import (
    I32,
    ArrayAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    i32,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_region_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import HasParent, IsTerminator, NoTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from louver.formats.dtypes import element_type
from louver.ir.sched.types import MapType, PointerType, WgmmaAttr
from louver.isa.bulk import Eviction
from louver.isa.fma_block import FmaBlock
from louver.isa.targets import WARPS_PER_WARPGROUP
from louver.isa.wgmma import Wgmma

I32Attr: TypeAlias = IntegerAttr[I32]


def i32_attr(value: int) -> I32Attr:
    """A 32-bit integer attribute."""
    return IntegerAttr(value, i32)


def _check_eviction(evict: StringAttr | None) -> None:
    if evict is not None and evict.data not in get_args(Eviction):
        raise VerifyException(f'data is evicted "first" or "last", got {evict.data!r}')


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A kernel for one target. Its block arguments are its parameters, with the names `params` in the same order.

    cluster: CTAs of a cluster. They process neighbouring tiles along M, or (`pairs`) the two ranges of a tile.
    resident: CTAs that fit an SM; absent for one. mma: the warpgroup product; absent if threads multiply (`sched.fma`).
    dependent: it may begin while earlier grids end, and lets the next dependent grid begin at once.
    """

    name = "sched.kernel"
    sym_name = prop_def(SymbolNameConstraint())
    params = prop_def(ArrayAttr[StringAttr])
    threads = prop_def(IntegerAttr[I32])
    cluster = prop_def(IntegerAttr[I32])
    pairs = opt_prop_def(UnitAttr)
    resident = opt_prop_def(IntegerAttr[I32])
    dependent = opt_prop_def(UnitAttr)
    tile = prop_def(ArrayAttr[IntegerAttr[I32]])
    mma = opt_prop_def(WgmmaAttr)
    shared_bytes = opt_prop_def(IntegerAttr[I32])
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), SymbolOpInterface())
    assembly_format = (
        "$sym_name `params` $params `threads` $threads `cluster` $cluster (`pairs` $pairs^)? (`resident` $resident^)? (`dependent` $dependent^)? `tile` $tile (`mma` $mma^)?"
        " (`shared_bytes` $shared_bytes^)? $body attr-dict"
    )

    def verify_(self) -> None:
        if len(self.params) != len(self.body.block.args):
            raise VerifyException(f"{len(self.params)} parameter names for {len(self.body.block.args)} block arguments")
        if len(self.tile) != 3:
            raise VerifyException(f"a tile is [m, n, k], got {len(self.tile)} sizes")
        waits = any(isinstance(op, WaitGridsOp) for role in self.roles for op in role.body.block.ops)
        if waits != (self.dependent is not None):
            raise VerifyException(
                f"a dependent kernel has a sched.wait_grids, and no other one, got {'one' if waits else 'none'} in "
                f"{'another' if waits else 'a dependent'} kernel"
            )
        exchanges = any(isinstance(op, ExchangeOp) for op in self.walk())
        if exchanges != (self.pairs is not None) or (exchanges and self.cluster.value.data != 2):
            raise VerifyException(
                f"CTAs that exchange sums are pairs, clusters of two, got clusters of {self.cluster.value.data}"
            )
        for shared in warpgroups(self.roles):
            _check_sharing(shared)

    @property
    def unit(self) -> Wgmma | FmaBlock:
        """The product of 64 rows that the kernel issues (without the selector), or that its threads compute."""
        return FmaBlock(self.tile.data[1].value.data) if self.mma is None else self.mma.instruction()

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of sums that a CTA of a pair receives: the sums of half of the tile's columns."""
        m, n, _ = (size.value.data for size in self.tile)
        return m * n // 2 * element_type(self.unit.d).bytes

    @property
    def roles(self) -> list[RoleOp]:
        """The roles, in order."""
        return [op for op in self.body.block.ops if isinstance(op, RoleOp)]


@irdl_op_definition
class RingOp(IRDLOperation):
    """A ring of equal stages of `bytes` bytes in shared memory. `assign-shared-memory` sets `offset`, in bytes."""

    name = "sched.ring"
    sym_name = prop_def(SymbolNameConstraint())
    stages = prop_def(IntegerAttr[I32])
    bytes = prop_def(IntegerAttr[I32])
    offset = opt_prop_def(IntegerAttr[I32])
    traits = traits_def(HasParent(KernelOp), SymbolOpInterface())
    assembly_format = "$sym_name `stages` $stages `bytes` $bytes (`offset` $offset^)? attr-dict"


@irdl_op_definition
class BarriersOp(IRDLOperation):
    """One mbarrier for each stage. Passes derive arrivals, transaction bytes and offset from its users."""

    name = "sched.barriers"
    sym_name = prop_def(SymbolNameConstraint())
    stages = prop_def(IntegerAttr[I32])
    arrivals = opt_prop_def(IntegerAttr[I32])
    transaction_bytes = opt_prop_def(IntegerAttr[I32])
    offset = opt_prop_def(IntegerAttr[I32])
    traits = traits_def(HasParent(KernelOp), SymbolOpInterface())
    assembly_format = (
        "$sym_name `stages` $stages (`arrivals` $arrivals^)? (`transaction_bytes` $transaction_bytes^)?"
        " (`offset` $offset^)? attr-dict"
    )


@irdl_op_definition
class RoleOp(IRDLOperation):
    """The work of some warpgroups.

    registers: their setmaxnreg target; absent if the number of registers does not change.
    single: one elected thread of the first warp, or of warp `warp`, runs the body. Single roles may share a warpgroup.
    """

    name = "sched.role"
    sym_name = prop_def(SymbolNameConstraint())
    first = prop_def(IntegerAttr[I32])
    warpgroups = prop_def(IntegerAttr[I32])
    registers = opt_prop_def(IntegerAttr[I32])
    single = opt_prop_def(UnitAttr)
    warp = opt_prop_def(IntegerAttr[I32])
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), HasParent(KernelOp), SymbolOpInterface())
    assembly_format = (
        "$sym_name `warpgroups` $warpgroups `from` $first (`registers` $registers^)? (`single` $single^)? (`warp` $warp^)?"
        " $body attr-dict"
    )

    @property
    def elected(self) -> int:
        """The number, in the role, of the warp whose thread runs a single role."""
        return 0 if self.warp is None else self.warp.value.data


def warpgroups(roles: Iterable[RoleOp]) -> list[list[RoleOp]]:
    """The roles grouped by their first warpgroup, in order."""
    return [list(shared) for _, shared in groupby(roles, key=lambda role: role.first.value.data)]


def _check_sharing(roles: Sequence[RoleOp]) -> None:
    """Require that roles of the same warpgroups are single, in different warps, and have the same registers."""
    for role in roles:
        if role.warp is not None and (role.single is None or not 0 <= role.elected < WARPS_PER_WARPGROUP):
            raise VerifyException(
                f"a single role runs in warp 0 to {WARPS_PER_WARPGROUP - 1}, got {role.elected} of @{role.sym_name.data}"
            )
    if len(roles) == 1:
        return
    names = ", ".join(f"@{role.sym_name.data}" for role in roles)
    if any(role.single is None for role in roles) or len({role.elected for role in roles}) < len(roles):
        raise VerifyException(f"roles that share a warpgroup are single, each in a warp of its own, got {names}")
    if len({(role.registers, role.warpgroups) for role in roles}) > 1:
        raise VerifyException(f"roles that share a warpgroup give the same registers for it, got {names}")


@irdl_op_definition
class WaitGridsOp(IRDLOperation):
    """Wait until the grids on which this launch depends have ended.

    Before that, only stored values and metadata may be accessed. A role that later waits for an arrival of this role
    also knows that the grids have ended.
    """

    name = "sched.wait_grids"
    traits = traits_def(HasParent(RoleOp))
    assembly_format = "attr-dict"


@irdl_op_definition
class TilesOp(IRDLOperation):
    """Walk the output tiles of this CTA. All warpgroups of the role process every tile. Tiles of one entry follow each
    other.

    The block arguments of each region are the first row and column of a tile, in elements, and in a batch its entry.

    entries: an array with the number of an entry for each tile along an axis, "m" or "n". Nothing writes to it during
    the walk. The number is the third block argument. For an invalid number it is the kernel's size "entries".
    ranges: the first "whole" tiles (a size of the kernel) are processed whole. Each later tile is cut into "parts"
    ranges of "part_steps" K steps; the last range is shorter. Loops walk the steps of a tile or range. The last
    argument of each region is the first of these steps.
    raster: rows of tiles that are processed before the next column; by default the kernel's size "raster".
    ahead: work for a tile before its turn. For the first tile it runs at once, for others at `sched.next_tile`.
    """

    name = "sched.tiles"
    entries = opt_operand_def(PointerType)
    raster = opt_prop_def(IntegerAttr[I32])
    along = opt_prop_def(StringAttr)
    ranges = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    ahead = opt_region_def("single_block")
    traits = traits_def(NoTerminator(), HasParent(RoleOp))
    assembly_format = "(`raster` $raster^)? (`entries` $entries^ `along` $along `:` type($entries))? (`ranges` $ranges^)? $body (`ahead` $ahead^)? attr-dict"

    def verify_(self) -> None:
        along = None if self.along is None else self.along.data
        if (along is None) != (self.entries is None) or along not in (None, "m", "n"):
            raise VerifyException(f'an array of entries is along "m" or "n", got {along!r}')
        stored = [op for op in self.body.block.ops if isinstance(op, StoreOp | BulkStoreOp)]
        if self.ranges is not None and stored:
            raise VerifyException(f"the sums of ranges are combined before they are stored, got {stored[0].name} alone")
        begins = [op for op in self.body.block.ops if isinstance(op, NextTileOp)]
        if len(begins) != (0 if self.ahead is None else 1):
            raise VerifyException(f"tiles with a region ahead hold one sched.next_tile, others none, got {len(begins)}")


@irdl_op_definition
class NextTileOp(IRDLOperation):
    """Run `ahead` for the next tile, or again for the last tile. The current tile no longer reads registers that it
    fills.
    """

    name = "sched.next_tile"
    traits = traits_def(HasParent(TilesOp))
    assembly_format = "attr-dict"


@irdl_op_definition
class LoopOp(IRDLOperation):
    """Walk K steps from the end of the last loop in the tile, `unroll` at a time while that many remain.

    The block argument is the first of these steps (i32).
    partial: at most `unroll` steps remain. The body runs once, and ends after the last step.
    again: the body runs until no step remains. The last run ends after the last step.
    """

    name = "sched.loop"
    unroll = prop_def(IntegerAttr[I32])
    partial = opt_prop_def(UnitAttr)
    again = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), HasParent(TilesOp))
    assembly_format = "(`partial` $partial^)? (`again` $again^)? `unroll` $unroll $body attr-dict"


class _OnBarriers(IRDLOperation):
    barriers = prop_def(SymbolNameConstraint())
    assembly_format = "$barriers attr-dict"


@irdl_op_definition
class AcquireOp(_OnBarriers):
    """Producer: wait until all consumers in this CTA have released the current stage."""

    name = "sched.acquire"


@irdl_op_definition
class InviteOp(_OnBarriers):
    """Producer: arrive at `barriers` of the other CTAs, which may then write the stage. A `wait` waits for theirs."""

    name = "sched.invite"


@irdl_op_definition
class ExpectOp(IRDLOperation):
    """Producer: arrive, and announce the transaction bytes of the stage.

    rows: the rows of the dense operand that copies bring; by default the rows of a whole tile.
    """

    name = "sched.expect"
    rows = opt_operand_def(IntegerType)
    barriers = prop_def(SymbolNameConstraint())
    assembly_format = "$barriers (`rows` $rows^ `:` type($rows))? attr-dict"


@irdl_op_definition
class BulkLoadOp(IRDLOperation):
    """Begin a tensor copy of a box of `map` to the current stage.

    coordinates: the place of the box, innermost dimension first. offset: bytes from the beginning of the stage.
    multicast: [coordinate, elements, bytes]. Each CTA of the cluster loads its share and sends it to all CTAs. Its
    place moves by elements along the coordinate, and by bytes in the stage, for each rank.
    evict: "first" or "last", the eviction priority in the L2 cache.
    tail, rows: if `rows` is less than the rows of a tile, the copy uses the map `tail`, whose box has `rows` rows.
    """

    name = "sched.bulk_load"
    map = operand_def(MapType)
    coordinates = var_operand_def(IntegerType)
    tail = opt_operand_def(MapType)
    rows = opt_operand_def(IntegerType)
    ring = prop_def(SymbolNameConstraint())
    offset = prop_def(IntegerAttr[I32])
    barriers = prop_def(SymbolNameConstraint())
    multicast = opt_prop_def(ArrayAttr[IntegerAttr[I32]])
    evict = opt_prop_def(StringAttr)
    assembly_format = (
        "$map `[` $coordinates `:` type($coordinates) `]` `to` $ring `offset` $offset `on` $barriers"
        " (`multicast` $multicast^)? (`evict` $evict^)? (`tail` $tail^ `rows` $rows `:` type($tail) `,` type($rows))?"
        " `:` type($map) attr-dict"
    )
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())

    def verify_(self) -> None:
        _check_eviction(self.evict)
        if (self.tail is None) != (self.rows is None):
            raise VerifyException("a copy has both a tail and its rows, or neither")


@irdl_op_definition
class WaitOp(_OnBarriers):
    """Wait for the phase of the current stage: until its copies have arrived, or until all CTAs may receive data."""

    name = "sched.wait"


@irdl_op_definition
class ReleaseOp(IRDLOperation):
    """Consumer: release the stage of `lag` steps before the current one, if this tile has processed that step."""

    name = "sched.release"
    barriers = prop_def(SymbolNameConstraint())
    lag = prop_def(IntegerAttr[I32])
    assembly_format = "$barriers `lag` $lag attr-dict"


@irdl_op_definition
class AdvanceOp(IRDLOperation):
    """Advance to the next stage."""

    name = "sched.advance"
    assembly_format = "attr-dict"


@irdl_op_definition
class LoadMetadataOp(IRDLOperation):
    """Load the four metadata words of a group of K steps, from `step` + `ahead` on, to register set `set`.

    Both are multiples of the steps of a group. Past the last group nothing is loaded.
    """

    name = "sched.load_metadata"
    metadata = operand_def(PointerType)
    step = operand_def(IntegerType)
    set = prop_def(IntegerAttr[I32])
    ahead = prop_def(IntegerAttr[I32])
    assembly_format = "$metadata `[` $step `plus` $ahead `]` `set` $set `:` type($metadata) `,` type($step) attr-dict"


@irdl_op_definition
class MmaFenceOp(IRDLOperation):
    """Order register accesses before the products that follow."""

    name = "sched.mma_fence"
    assembly_format = "attr-dict"


@irdl_op_definition
class MmaOp(IRDLOperation):
    """One warpgroup product of the current stage.

    a_offset, b_offset: bytes from the beginning of the operand. block: the number of the warpgroup's block of 64 rows.
    set, word, selector: the metadata register of a sparse product. fresh: old values of the accumulators are ignored.
    """

    name = "sched.mma"
    a = prop_def(SymbolNameConstraint())
    a_offset = prop_def(IntegerAttr[I32])
    b = prop_def(SymbolNameConstraint())
    b_offset = prop_def(IntegerAttr[I32])
    block = prop_def(IntegerAttr[I32])
    set = opt_prop_def(IntegerAttr[I32])
    word = opt_prop_def(IntegerAttr[I32])
    selector = opt_prop_def(IntegerAttr[I32])
    fresh = opt_prop_def(UnitAttr)
    assembly_format = (
        "$a `plus` $a_offset `,` $b `plus` $b_offset `block` $block (`metadata` $set^"
        " `word` $word `selector` $selector)? (`fresh` $fresh^)? attr-dict"
    )

    def verify_(self) -> None:
        if len({self.set is None, self.word is None, self.selector is None}) > 1:
            raise VerifyException("a metadata register has a set, a word and a selector, got some of them")


@irdl_op_definition
class MmaCommitOp(IRDLOperation):
    """Commit the products since the last commit as a group."""

    name = "sched.mma_commit"
    assembly_format = "attr-dict"


@irdl_op_definition
class MmaWaitOp(IRDLOperation):
    """Wait until at most `pending` groups are in flight."""

    name = "sched.mma_wait"
    pending = prop_def(IntegerAttr[I32])
    assembly_format = "`pending` $pending attr-dict"


@irdl_op_definition
class FmaOp(IRDLOperation):
    """Multiply and add all of the current stage on CUDA cores, for every block of 64 rows of the warpgroup.

    It adds to sums that the tile has cleared. When it ends, all threads of a warp have read the stage.

    picks: the ring with the numbers of the rows of b for 16 rows of a; absent if each row of a uses all rows of b.
    together: all rows of a warp have the same picks.
    """

    name = "sched.fma"
    a = prop_def(SymbolNameConstraint())
    b = prop_def(SymbolNameConstraint())
    picks = opt_prop_def(SymbolNameConstraint())
    together = opt_prop_def(UnitAttr)
    traits = traits_def(HasParent(LoopOp))
    assembly_format = "$a `,` $b (`picks` $picks^)? (`together` $together^)? attr-dict"


@irdl_op_definition
class ClearOp(IRDLOperation):
    """Set the sums to which `fma` or `promote` adds to zero. Promoted sums have f32 registers beside the accumulators."""

    name = "sched.clear"
    traits = traits_def(HasParent(TilesOp))
    assembly_format = "attr-dict"


@irdl_op_definition
class PromoteOp(IRDLOperation):
    """Add the accumulators to the promoted sums. The products that follow ignore the old accumulators (`fresh`)."""

    name = "sched.promote"
    traits = traits_def(HasParent(LoopOp))
    assembly_format = "attr-dict"


@irdl_op_definition
class CombineOp(IRDLOperation):
    """Run the region, which stores, once for each tile: at once for a whole tile, or after the last range of a tile.

    Each warpgroup writes the sums of its range to `workspace`, in the order of its registers, and counts the range in
    `counters`. The last range to finish reads the sums of all ranges in their order, resets the counter to 0, and runs
    the region with the total.
    """

    name = "sched.combine"
    workspace = operand_def(PointerType)
    counters = operand_def(PointerType)
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), HasParent(TilesOp))
    assembly_format = "$workspace `counters` $counters `:` type($workspace) `,` type($counters) $body attr-dict"

    def verify_(self) -> None:
        tiles = self.parent_op()
        if isinstance(tiles, TilesOp) and tiles.ranges is None:
            raise VerifyException("sums of ranges are combined, got a walk over whole tiles")


@irdl_op_definition
class ExchangeOp(IRDLOperation):
    """Run the region, which stores the columns of a tile from its block argument on.

    For a whole tile these are all columns from `column` on. For a tile that is cut into two ranges, each CTA of the
    pair runs it for half of the columns. Before that, it receives their sums from the other CTA. A range is the last
    item of its CTA.

    rings: their memory receives sums, when both CTAs have read all their operands.
    room: the barrier that tells the other CTA that the memory is free. sums: the barrier that counts received bytes.
    """

    name = "sched.exchange"
    column = operand_def(IntegerType)
    rings = prop_def(ArrayAttr[StringAttr])
    room = prop_def(SymbolNameConstraint())
    sums = prop_def(SymbolNameConstraint())
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), HasParent(TilesOp))
    assembly_format = "$column `through` $rings `room` $room `sums` $sums `:` type($column) $body attr-dict"

    def verify_(self) -> None:
        tiles = self.parent_op()
        if isinstance(tiles, TilesOp) and tiles.ranges is None:
            raise VerifyException("sums of ranges are exchanged, got a walk over whole tiles")


@irdl_op_definition
class StoreOp(IRDLOperation):
    """The epilogue: run the region on each accumulator, its block argument, and store the value that it yields.

    transposed: the destination is [N, M] row-major, else [M, N]. The size "pitch" is its row pitch in elements.
    entry: the entry of a batch. Entries are "batch_pitch" elements apart. add: results are added to memory.
    """

    name = "sched.store"
    destination = operand_def(PointerType)
    row = operand_def(IntegerType)
    column = operand_def(IntegerType)
    entry = opt_operand_def(IntegerType)
    transposed = opt_prop_def(UnitAttr)
    add = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(HasParent(TilesOp, CombineOp, ExchangeOp))
    assembly_format = (
        "$destination `[` $row `,` $column `]` (`entry` $entry^ `:` type($entry))? (`transposed` $transposed^)? (`add` $add^)? `:`"
        " type($destination) `,` type($row) `,` type($column) $body attr-dict"
    )


@irdl_op_definition
class BulkStoreOp(IRDLOperation):
    """The epilogue through shared memory.

    Each warpgroup stages its rows in `ring`, `columns` columns of 64 rows at a time, fewer at the end of a tile. Bulk
    copies send them through the tensor map `destination`, which drops elements outside the output. Warpgroups divide
    the only stage of the ring. Each uses the buffers in its part in turn. Copies continue while the role proceeds.
    entry: the entry of a batch, the third coordinate of the map. evict: as in `bulk_load`. add: copies add to memory.
    """

    name = "sched.bulk_store"
    destination = operand_def(MapType)
    row = operand_def(IntegerType)
    column = operand_def(IntegerType)
    entry = opt_operand_def(IntegerType)
    ring = prop_def(SymbolNameConstraint())
    element = prop_def(StringAttr)
    columns = prop_def(IntegerAttr[I32])
    transposed = opt_prop_def(UnitAttr)
    add = opt_prop_def(UnitAttr)
    evict = opt_prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(HasParent(TilesOp, CombineOp, ExchangeOp))
    assembly_format = (
        "$destination `[` $row `,` $column `]` (`entry` $entry^ `:` type($entry))? `as` $element `through` $ring `columns` $columns"
        " (`transposed` $transposed^)? (`add` $add^)? (`evict` $evict^)? `:` type($destination) `,` type($row) `,` type($column) $body attr-dict"
    )

    def verify_(self) -> None:
        _check_eviction(self.evict)


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends an epilogue region with the value to store."""

    name = "sched.yield"
    value = operand_def()
    traits = traits_def(IsTerminator(), HasParent(StoreOp, BulkStoreOp))
    assembly_format = "$value `:` type($value) attr-dict"
