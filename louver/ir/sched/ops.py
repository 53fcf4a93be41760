"""Operations of the `sched` dialect: the actions of each warp role, stage by stage.

A `kernel` holds rings of shared-memory stages, barriers (one a stage), and roles. A role walks `tiles`; inside a tile
`loop`s walk the K steps, each loop going on where the one before it stopped. The stage in hand is implicit: `advance`
moves a role to the next one, and phase bits never show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeAlias, get_args

from xdsl.dialects.builtin import (
    I32,
    AnyFloatConstr,
    ArrayAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    i32,
)
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    opt_region_def,
    prop_def,
    region_def,
    result_def,
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
    """A kernel for one target; its block arguments are its parameters, named by `params` in the same order.

    cluster: CTAs of a cluster, which work on neighbouring tiles along M, or (`pairs`) on the two ranges of a tile. resident: CTAs that an SM has
    room for, absent for one.
    mma: the warpgroup product that it issues; absent where threads multiply (`sched.fma`).
    `dependent`: it may begin while the grids before it end, and lets the next dependent one begin at once.
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
        """The product of 64 rows that it issues (selector apart), or that its threads compute."""
        return FmaBlock(self.tile.data[1].value.data) if self.mma is None else self.mma.instruction()

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of sums that a CTA of a pair gets: of half of the tile's columns."""
        m, n, _ = (size.value.data for size in self.tile)
        return m * n // 2 * element_type(self.unit.d).bytes

    @property
    def roles(self) -> list[RoleOp]:
        """Its roles, in order."""
        return [op for op in self.body.block.ops if isinstance(op, RoleOp)]


@irdl_op_definition
class RingOp(IRDLOperation):
    """A ring of equal stages in shared memory; `bytes` a stage. `offset` (bytes) is assigned by `assign-shared-memory`."""

    name = "sched.ring"
    sym_name = prop_def(SymbolNameConstraint())
    stages = prop_def(IntegerAttr[I32])
    bytes = prop_def(IntegerAttr[I32])
    offset = opt_prop_def(IntegerAttr[I32])
    traits = traits_def(HasParent(KernelOp), SymbolOpInterface())
    assembly_format = "$sym_name `stages` $stages `bytes` $bytes (`offset` $offset^)? attr-dict"


@irdl_op_definition
class BarriersOp(IRDLOperation):
    """One mbarrier a stage. Counts, transaction bytes and the offset are derived by passes from their users."""

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
    """The work of some warpgroups. `registers` is their setmaxnreg target; absent, the kernel's own cap stays.

    `single`: one elected thread runs the body, of the role's first warp or of number `warp`. Single roles may share a warpgroup.
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
        """The warp whose thread runs a single role, among the role's."""
        return 0 if self.warp is None else self.warp.value.data


def warpgroups(roles: Iterable[RoleOp]) -> list[list[RoleOp]]:
    """Roles by their first warpgroup, in order."""
    return [list(shared) for _, shared in groupby(roles, key=lambda role: role.first.value.data)]


def _check_sharing(roles: Sequence[RoleOp]) -> None:
    """Roles of the same warpgroups are single, each in a warp of its own, and hold the same registers."""
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
    """Wait until the grids that this launch depends on have ended.

    Until then nobody touches memory but stored values and metadata. A role that waits for a barrier that this role arrives at later knows it
    too.
    """

    name = "sched.wait_grids"
    traits = traits_def(HasParent(RoleOp))
    assembly_format = "attr-dict"


@irdl_op_definition
class TilesOp(IRDLOperation):
    """Walk this CTA's output tiles; all warpgroups of the role work on every tile. Block arguments of each region: first row and first
    column of a tile, in elements, and in a batch its entry. Tiles of one entry follow each other.

    `entries`: an array that nobody writes meanwhile, with the number of an entry for each tile along an axis, "m" or "n". That is the
    third block argument, and the kernel's size "entries" in place of a number that no entry has.

    `ranges`: items of work are tiles, of which the first "whole" (a size of the kernel) are taken whole, and each later one is cut into
    "parts" ranges of "part_steps" K steps, the last one shorter. Loops walk the item's steps; each region has the first of them as its
    last argument.

    `raster`: rows of tiles that are walked before the next column, for L2 reuse; without it the kernel's size "raster". `ahead`: what is begun for a tile
    before its turn: for the first one at once, for the others where the body says `sched.next_tile`.
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
    """Run the region `ahead` for the next tile: nothing in hand reads any more what it fills.

    After the last tile it runs for that tile again, to no effect.
    """

    name = "sched.next_tile"
    traits = traits_def(HasParent(TilesOp))
    assembly_format = "attr-dict"


@irdl_op_definition
class LoopOp(IRDLOperation):
    """Walk K steps, `unroll` at a time while that many are left; block argument: the first of them (i32).

    A loop goes on where the loop before it in the same tile stopped. `partial`: fewer than `unroll` + 1 steps are left, and the
    body runs once, as far as there are. `again`: the body runs again and again, the last time as far as steps are left.
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
    """Producer: wait until the stage in hand has been released by all its consumers in this CTA."""

    name = "sched.acquire"


@irdl_op_definition
class InviteOp(_OnBarriers):
    """Producer: tell the other CTAs of the cluster that the stage in hand may be written, on their `barriers`; a `wait` on its
    own ones says the same of theirs.
    """

    name = "sched.invite"


@irdl_op_definition
class ExpectOp(_OnBarriers):
    """Producer: arrive and announce the stage's transaction bytes."""

    name = "sched.expect"


@irdl_op_definition
class BulkLoadOp(IRDLOperation):
    """Start a tiled copy of `map`'s box at the coordinates (innermost first) into the stage in hand, `offset` bytes in.

    `multicast` [coordinate, elements, bytes]: each CTA of the cluster loads its share, that many elements on along that
    coordinate and bytes on in the stage for each rank, and sends it to all. `evict` "first" or "last": when the data leaves
    the L2 cache.
    """

    name = "sched.bulk_load"
    map = operand_def(MapType)
    coordinates = var_operand_def(IntegerType)
    ring = prop_def(SymbolNameConstraint())
    offset = prop_def(IntegerAttr[I32])
    barriers = prop_def(SymbolNameConstraint())
    multicast = opt_prop_def(ArrayAttr[IntegerAttr[I32]])
    evict = opt_prop_def(StringAttr)
    assembly_format = (
        "$map `[` $coordinates `:` type($coordinates) `]` `to` $ring `offset` $offset `on` $barriers"
        " (`multicast` $multicast^)? (`evict` $evict^)? `:` type($map) attr-dict"
    )

    def verify_(self) -> None:
        _check_eviction(self.evict)


@irdl_op_definition
class WaitOp(_OnBarriers):
    """Wait for the phase of the stage in hand: until its copies have arrived, or all that are to send to it may."""

    name = "sched.wait"


@irdl_op_definition
class ReleaseOp(IRDLOperation):
    """Consumer: hand back the stage `lag` steps behind the one in hand, unless this tile has not come that far."""

    name = "sched.release"
    barriers = prop_def(SymbolNameConstraint())
    lag = prop_def(IntegerAttr[I32])
    assembly_format = "$barriers `lag` $lag attr-dict"


@irdl_op_definition
class AdvanceOp(IRDLOperation):
    """Go on to the next stage."""

    name = "sched.advance"
    assembly_format = "attr-dict"


@irdl_op_definition
class LoadMetadataOp(IRDLOperation):
    """Load the four metadata words of the group of K steps that `step` + `ahead` begins into register set `set`.

    Both are multiples of a group's steps. Past the last group nothing is loaded.
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
    """One warpgroup product on the stage in hand, `a_offset` and `b_offset` bytes in.

    block: which 64 rows of the warpgroup. set, word, selector: its metadata register, of a sparse one. fresh: the accumulators' old
    contents are not added to.
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
    """Close the group of products issued since the last commit."""

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
    """Multiply and add all of the stage in hand, on CUDA cores, for every block of 64 rows of the warpgroup.

    It adds to sums that the tile has cleared. When it ends, all threads of a warp have read the stage. picks: the ring of the rows of b
    that 16 rows of a are multiplied with; absent where each row of b is for all. together: all rows of a warp have the same.
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
    """Begin the tile's sums at zero: those that threads add to (`fma`, or `promote`), which the epilogue reads.

    Promoted sums are a second set of f32 registers, beside the accumulators.
    """

    name = "sched.clear"
    traits = traits_def(HasParent(TilesOp))
    assembly_format = "attr-dict"


@irdl_op_definition
class PromoteOp(IRDLOperation):
    """Add the accumulators to the promoted sums; the products that follow begin anew (`fresh`)."""

    name = "sched.promote"
    traits = traits_def(HasParent(LoopOp))
    assembly_format = "attr-dict"


@irdl_op_definition
class CombineOp(IRDLOperation):
    """Run the region, which stores, once for each tile: for a whole one at once, for one cut into ranges when all of them have come here.

    Each warpgroup writes the sums of its range to `workspace`, in the order of its registers, and counts it in `counters`. The last one of
    a tile reads all of them in the order of the ranges, leaves the counter at 0, and runs the region with their sum.
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
    """Run the region, which stores the columns of a tile from its block argument on: for a whole tile all of them, from `column`.

    For a tile cut into two ranges, each CTA of the pair runs it with half of the columns, whose sums it has got from the other one. An
    item cut so is the last one of its CTA. Sums go to the memory of `rings`, side by side, which both have read then: `room` says so to the
    other CTA. `sums` counts the bytes that arrive.
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
    """The epilogue: for each accumulator run the region (block argument: the sum), and store what it yields.

    `transposed`: the destination is [N, M] row-major, else [M, N]; `pitch` is its row pitch in elements. entry: of a batch, whose
    entries are `batch_pitch` elements apart. add: it is added to what is there.
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
    """The epilogue by way of shared memory: as `store`, but each warpgroup stages its rows in `ring`, `columns` columns of 64
    rows at a time, and sends them by bulk copies through the tensor map `destination`, which drops what is outside. The
    warpgroups share the ring's one stage; each takes turns in as many buffers as its share holds. The copies run on while
    the role goes on. entry: of a batch, the map's third coordinate. `evict` as in `bulk_load`. add: they add to what is there.
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
class VectorOp(IRDLOperation):
    """The element of a vector that belongs to the accumulator's row (`axis` "m") or column ("n"); 0 outside."""

    name = "sched.vector"
    vector = operand_def(PointerType)
    axis = prop_def(StringAttr)
    result = result_def(AnyFloatConstr | base(IntegerType))
    assembly_format = "$vector `along` $axis `:` type($vector) `->` type($result) attr-dict"

    def verify_(self) -> None:
        if self.axis.data not in ("m", "n"):
            raise VerifyException(f'the axis is "m" or "n", got {self.axis.data!r}')


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends an epilogue region with the value to store."""

    name = "sched.yield"
    value = operand_def()
    traits = traits_def(IsTerminator(), HasParent(StoreOp, BulkStoreOp))
    assembly_format = "$value `:` type($value) attr-dict"
