"""Lowers kernel entry, roles, the walk over tiles and the loops over K steps. Opens a consumer's registers (accumulators and
metadata sets), and loads metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

from xdsl.ir import Block

from louver.compile.generate.generation import SETS
from louver.compile.lower.products import bulk_store, gather, ranges, rows, turn
from louver.compile.lower.products.multiply import has_entries
from louver.compile.lower.products.state import (
    ConsumerState,
    Lowering,
    Origin,
    RolePosition,
    TileState,
    TileWalk,
    entries_of,
    entry_of_metadata,
    load_entry,
)
from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import GatherOp
from louver.ir.sched.types import MapType
from louver.isa.bulk import TensorMapFetch
from louver.isa.instruction import LANES
from louver.isa.metadata import LOAD_BYTES, WORD_BYTES, WORDS, columns_per_load
from louver.isa.sync import ClusterArrive, GridWait, LaunchDependents
from louver.isa.targets import WARPGROUP_THREADS, WARPS_PER_WARPGROUP
from louver.ptx.module import Address, Imm, Reg

PADDING = 0x44444444
"""A metadata word of legal codes."""


def open_consumer(low: Lowering, role: ops.RoleOp, blocks: int) -> None:
    """Open the registers that live during the role. Accumulators and metadata get initial values."""
    k = low.k
    unit = low.kernel.unit
    kind, count = "f32" if unit.d == "f32" else "b32", unit.d_fragment.registers
    low.consumer = ConsumerState(
        accumulators=[k.regs(kind, count) for _ in range(blocks)],
    )
    if unit.sparse:
        low.consumer.metadata = [[k.regs("b32", WORDS) for _ in range(blocks)] for _ in range(SETS)]
        low.consumer.metadata_addresses = k.regs("b64", blocks)
    if any(isinstance(op, ops.PromoteOp) for op in role.walk()):
        low.consumer.promoted = [k.regs(kind, count) for _ in range(blocks)]
    for block in low.consumer.accumulators:
        _fill(low, block, Imm(0.0 if kind == "f32" else 0))
    for register_set in low.consumer.metadata:
        for block in register_set:
            _fill(low, block, Imm(PADDING))


def _fill(low: Lowering, registers: Sequence[Reg], value: Imm) -> None:
    for register in registers:
        low.k.mov(value, into=register)


def open_tile(low: Lowering, tiles: ops.TilesOp, at: Origin) -> None:
    """Compute the addresses of a tile's metadata, one for each block of 64 rows.

    A block past the last row reads the words of the last block. Its values are zeros, so any legal codes are correct.
    Entries of a batch follow each other in whole blocks.
    """
    k, consumer = low.k, low.consumer
    blocks = len(consumer.accumulators)
    columns = columns_per_load(low.kernel.unit.a)
    groups = k.shr(k.add(low.depth, columns - 1), columns.bit_length() - 1)
    last = k.shr(k.sub(low.sizes["M"], 1), 6)
    first = k.mad_lo(low.warpgroup, blocks, k.shr(at.m, 6))
    metadata = next(op.metadata for op in tiles.walk() if isinstance(op, ops.LoadMetadataOp))
    thread = k.mad_wide(k.and_(low.named["tid"], 127), 4, low.register(metadata))
    for block, address in enumerate(consumer.metadata_addresses):
        index = k.min(k.add(first, block), last)
        if at.entry is not None and has_entries(low, "a"):
            index = k.mad_lo(entry_of_metadata(low, at.entry), k.add(last, 1), index)
        k.add(thread, k.shl(k.mul_wide(index, groups), LOAD_BYTES.bit_length() - 1), into=address)


def load_metadata(low: Lowering, op: ops.LoadMetadataOp) -> None:
    """Fill one register set, for every block of the warpgroup. Past the last step the set does not change.

    The load is an ordinary one, which stays between the barrier operations around it. ptxas moves loads of read-only
    data (`.nc`) down to their first use, which exposes their latency.
    """
    k = low.k
    ahead = op.ahead.value.data
    covers = columns_per_load(low.kernel.unit.a) // low.tile[2]
    step = low.number(op.step)
    # If the step is a register, the protocol check has tested its alignment.
    begin = ahead if isinstance(step, Reg) else ahead + int(step.value)
    if begin % covers:
        raise ValueError(
            f"a load of metadata begins at a multiple of the {covers} steps that it covers, got {begin}: {op}"
        )
    loop, words = op.parent_op(), WORDS
    if isinstance(loop, ops.LoopOp) and loop.partial is not None:
        # Steps behind the body of a partial loop do not come, and need no words.
        words = min(WORDS, (loop.unroll.value.data - ahead) * WORDS // covers)
    # Every tile has a first step, also a tile that is begun ahead.
    inside = isinstance(step, Reg) and isinstance(loop, ops.LoopOp)
    guard = k.setp("lt", "u32", k.add(step, ahead), low.tile_state.last) if inside else None
    for base, registers in zip(low.consumer.metadata_addresses, low.consumer.metadata[op.set.value.data], strict=True):
        address = base
        if isinstance(step, Reg):
            address = k.add(base, k.mul_wide(k.shr(step, covers.bit_length() - 1), LOAD_BYTES))
        for word, register in enumerate(registers[:words]):
            k.load_global([register], Address(address, begin // covers * LOAD_BYTES + word * WORD_BYTES), guard=guard)


BARRIER_BYTES = 8


def enter(low: Lowering) -> None:
    """Compute thread indices, sizes and counts for all roles, initialise barriers, and prefetch tensor maps.

    A dependent next grid may begin at once. It waits before it reads data that this grid writes.
    """
    k, named = low.k, low.named
    if low.kernel.dependent is not None:
        k.emit(LaunchDependents())
    named["tid"] = k.special("%tid.x")
    # The assembler knows that a shuffled warp index is the same in all lanes, so branches on it are uniform.
    named["warp"] = k.shuffle(k.shr(named["tid"], 5), 0)
    named["smem"] = k.shared_symbol()
    if low.ranked:
        named["rank"] = k.special("%cluster_ctarank")
    tile_m, tile_n, tile_k = low.tile
    sizes = low.sizes
    named["steps"] = k.shr(k.add(low.depth, tile_k - 1), tile_k.bit_length() - 1)
    rows = tile_m * low.cluster
    named["tiles_m"] = k.div(k.add(sizes["M"], rows - 1), rows)
    named["tiles_n"] = k.div(k.add(sizes["N"], tile_n - 1), tile_n)
    # scale-d must be a predicate register. PTX has no constant predicate.
    named["always"] = k.setp("eq", "u32", named["tid"], named["tid"])
    if any(isinstance(op, ops.PromoteOp) for op in low.kernel.walk()):
        named["never"] = k.setp("ne", "u32", named["tid"], named["tid"])
    _initialise_barriers(low)


def _initialise_barriers(low: Lowering) -> None:
    """One lane of each warp initialises a part of the barriers, because the first copy waits for all of them.

    A different warp prefetches each tensor map.
    """
    k, warp = low.k, low.named["warp"]
    warps = low.kernel.threads.value.data // LANES
    maps = [low.register(each) for each in low.kernel.body.block.args if isinstance(each.type, MapType)]
    with k.if_(k.setp("eq", "u32", k.and_(low.named["tid"], LANES - 1), 0)):
        for number, each in enumerate(maps):
            k.emit(TensorMapFetch(), Address(each), guard=k.setp("eq", "u32", warp, number % warps))
        own = k.mad_lo(warp, BARRIER_BYTES, low.named["smem"])
        for barriers in low.barriers.values():
            for first in range(0, barriers.count, warps):
                left = barriers.count - first
                inside = k.setp("lt", "u32", warp, left) if left < warps else None
                k.mbarrier_init(Address(own, barriers.offset + BARRIER_BYTES * first), barriers.arrivals, guard=inside)
        k.fence_mbarrier_init()
    if low.cluster > 1:
        k.cluster_sync()
        return
    if low.pairs:
        # The matching wait is before the exchange, long after the other CTA has begun.
        k.emit(ClusterArrive())
    k.barrier_sync(0, low.kernel.threads.value.data)


def leave(low: Lowering) -> None:
    """A CTA of a cluster ends only when no other CTA can send data to it.

    A CTA of a pair has already waited for all data.
    """
    if low.cluster > 1:
        low.k.cluster_sync()


def lower_roles(low: Lowering, roles: Sequence[ops.RoleOp]) -> None:
    """Lower one branch of the kernel. Warpgroups set their registers. They, or single threads of them, run these roles."""
    k, role = low.k, roles[0]
    first = role.first.value.data * WARPS_PER_WARPGROUP
    last = first + role.warpgroups.value.data * WARPS_PER_WARPGROUP
    inside = k.setp("lt", "u32", k.sub(low.named["warp"], first), last - first)
    with k.if_(inside, uniform=True):
        if role.registers is not None:
            k.setmaxnreg(role.registers.value.data, "inc" if _multiplies(role) else "dec")
        low.warpgroup = k.shr(k.sub(low.named["warp"], first), 2)
        low.warpgroups = role.warpgroups.value.data
        for each in roles:
            if each.single is None:
                _start_role(low, each)
                continue
            elected = k.setp("eq", "u32", low.named["tid"], (first + each.elected) * LANES)
            with k.if_(elected):
                _start_role(low, each)


def _start_role(low: Lowering, role: ops.RoleOp) -> None:
    k = low.k
    low.role = role
    low.position = RolePosition(stage=k.mov(0), parity=k.mov(0), previous=k.mov(0))
    if _multiplies(role):
        tile_m, _, _ = low.tile
        open_consumer(low, role, tile_m // (64 * role.warpgroups.value.data))
    elif isinstance(low.gathers, GatherOp):
        gather.open_gatherer(low, low.gathers)
    elif low.gathers is not None:
        turn.open_turner(low, low.gathers)
    low.lower_block(role.body.block)


def _multiplies(role: ops.RoleOp) -> bool:
    return any(isinstance(inner, ops.MmaOp | ops.FmaOp) for inner in role.walk())


def wait_grids(low: Lowering, op: ops.WaitGridsOp) -> None:
    """`griddepcontrol.wait`."""
    low.k.emit(GridWait())


def one_thread(low: Lowering, op: staged.OneThreadOp) -> None:
    """Lower the region for the first thread of the warpgroup only."""
    k = low.k
    with k.if_(k.setp("eq", "u32", k.and_(low.named["tid"], WARPGROUP_THREADS - 1), 0)):
        low.lower_block(op.body.block)


def lower_tiles(low: Lowering, op: ops.TilesOp) -> None:
    """Persistent CTAs: each cluster processes every `grid`-th tile or range, in an order that covers some rows of tiles
    at a time.
    """
    k, named = low.k, low.named
    tile = k.div(k.special("%ctaid.x"), low.cluster)
    stride = k.div(k.special("%nctaid.x"), low.cluster)
    total = k.mul_lo(named["tiles_m"], named["tiles_n"])
    if "batch" in low.sizes:
        named["tiles"] = total
        total = k.mul_lo(total, low.sizes["batch"])
    if op.ranges is not None:
        total = ranges.items(low, total)
    if low.cluster == 1 and not low.pairs:
        tile = k.mov(tile)
        waves, column = k.setp("gt", "u32", total, stride), k.setp("eq", "u32", named["tiles_n"], 1)
        with k.if_(waves, uniform=True), k.if_(column, uniform=True):
            k.mov(_spread(low, tile, stride), into=tile)
    raster = low.sizes["raster"] if op.raster is None else op.raster.value.data
    with k.if_(k.setp("lt", "u32", tile, total), uniform=True):
        low.walk = walk = TileWalk(tile, stride, total, raster, _origin(low, op), entries_of(low, op))
        _move_to(low, tile, walk.here)
        _begin(low, op, walk.here)
        with k.loop(uniform=True) as loop:
            _bind(low, op.body.block, walk.here)
            low.tile_state = _first_step(low, walk.here)
            low.end = low.tile_state.last
            low.lower_block(op.body.block)
            k.add(tile, stride, into=tile)
            if walk.ahead is None:
                _move_to(low, tile, walk.here)
            else:
                for following, current in zip(walk.ahead, walk.here, strict=True):
                    if following is not None:
                        k.mov(following, into=current)
            loop.repeat_if(k.setp("lt", "u32", tile, total))
    if any(isinstance(inner, ops.BulkStoreOp) for inner in op.body.walk()):
        bulk_store.drain(low)
    if low.gathers is not None and low.gathers in op.body.walk():
        rows.drain(low)


def _spread(low: Lowering, cta: Reg, ctas: Reg) -> Reg:
    """The place of a CTA if every fourth CTA comes first, then those in the middle between them, then the others.

    Consecutive CTAs without clusters fill a GPC. In this order a last, partial wave has CTAs of all GPCs. One column of
    tiles needs their bandwidth; with more columns, neighbours share reads in their GPC.
    """
    k = low.k
    odd, middle = k.and_(cta, 1), k.and_(k.shr(cta, 1), 1)
    half = k.mul_lo(odd, k.shr(k.add(ctas, 1), 1))
    quarter = k.mul_lo(middle, k.shr(k.sub(k.add(ctas, 3), odd), 2))
    return k.add(k.shr(cta, 2), k.add(half, quarter))


def next_tile(low: Lowering, op: ops.NextTileOp) -> None:
    """Begin the next tile. After the last tile, begin that tile again, so that every address is inside the operand."""
    k, walk = low.k, low.walk
    tiles = op.parent_op()
    assert isinstance(tiles, ops.TilesOp)
    walk.ahead = _origin(low, tiles)
    _move_to(low, k.min(k.add(walk.tile, walk.stride), k.sub(walk.total, 1)), walk.ahead)
    _begin(low, tiles, walk.ahead)


def _begin(low: Lowering, op: ops.TilesOp, at: Origin) -> None:
    if op.ahead is None:
        return
    if any(isinstance(inner, ops.LoadMetadataOp) for inner in op.walk()):
        open_tile(low, op, at)
    _bind(low, op.ahead.block, at)
    low.end = _last_step(low, at)
    low.lower_block(op.ahead.block)


def _bind(low: Lowering, block: Block, at: Origin) -> None:
    for argument, register in zip(block.args, at.arguments, strict=True):
        low.values[argument] = register


def _origin(low: Lowering, op: ops.TilesOp) -> Origin:
    k = low.k
    has_entries, cuts = "batch" in low.sizes or "entries" in low.sizes, op.ranges is not None
    m, n, entry = k.mov(0), k.mov(0), k.mov(0) if has_entries else None
    return Origin(m, n, entry, *((k.mov(0), k.mov(0)) if cuts else ()))


def _first_step(low: Lowering, at: Origin) -> TileState:
    """The steps of the tile: all of K, or the current range."""
    last = _last_step(low, at)
    return TileState(low.k.mov(0), 0, last) if at.first is None else TileState(low.k.mov(at.first), at.first, last)


def _last_step(low: Lowering, at: Origin) -> Reg:
    """The end of the tile's steps: the number of its last step plus 1."""
    return low.named["steps"] if at.last is None else at.last


def _move_to(low: Lowering, tile: Reg, to: Origin) -> None:
    """Set `to` to the origin of a tile: first row and column in elements, entry, and steps of a range."""
    k, named = low.k, low.named
    if to.first is not None and to.last is not None:
        tile = ranges.tile_of(low, tile, to.first, to.last)
    entries = low.walk.entries
    if to.entry is not None and entries is None:
        k.mov(k.div(tile, named["tiles"]), into=to.entry)
        tile = k.sub(tile, k.mul_lo(to.entry, named["tiles"]))
    tile_m, tile_n, _ = low.tile
    raster = low.walk.raster
    row, column = k.mov(tile), k.mov(0)
    # With one column of tiles, the tile number is the row. This avoids slow divisions, for which the first copy would
    # wait.
    with k.if_(k.setp("ne", "u32", named["tiles_n"], 1), uniform=True):
        band = k.mul_lo(named["tiles_n"], raster)
        band_index = k.div(tile, band)
        inside = k.sub(tile, k.mul_lo(band_index, band))
        first_row = k.mul_lo(band_index, raster)
        rows = k.min(k.sub(named["tiles_m"], first_row), raster)
        k.mov(k.div(inside, rows), into=column)
        k.add(first_row, k.sub(inside, k.mul_lo(column, rows)), into=row)
    if low.cluster > 1:
        row = k.mad_lo(row, low.cluster, named["rank"])
    if to.entry is not None and entries is not None:
        load_entry(low, entries, row if entries.along == "m" else column, to.entry)
    k.mul_lo(row, tile_m, into=to.m)
    k.mul_lo(column, tile_n, into=to.n)


def lower_loop(low: Lowering, op: ops.LoopOp) -> None:
    """Run the body while at least `unroll` steps remain.

    Other loops run it once, or until no step remains, and may leave it early.
    """
    k, tile = low.k, low.tile_state
    tile.unroll = op.unroll.value.data
    low.values[op.body.block.args[0]] = tile.step
    if op.partial is not None:
        with ExitStack() as tile.leave:
            tile.leave.enter_context(_if_left(low, 0))
            _lower_body(low, op)
        tile.leave = None
        k.mov(tile.last, into=tile.step)
        return
    if op.again is not None:
        with k.loop(uniform=True) as loop:
            with ExitStack() as tile.leave:
                tile.leave.enter_context(_if_left(low, 0))
                _lower_body(low, op)
            tile.leave = None
            k.add(tile.step, tile.unroll, into=tile.step)
            loop.repeat_if(k.setp("lt", "u32", tile.step, tile.last))
        return

    def more() -> Reg:
        return k.setp("le", "u32", k.add(tile.step, tile.unroll), tile.last)

    with k.if_(more(), uniform=True), k.loop(uniform=True) as loop:
        _lower_body(low, op)
        k.add(tile.step, tile.unroll, into=tile.step)
        loop.repeat_if(more())


def _lower_body(low: Lowering, op: ops.LoopOp) -> None:
    tile = low.tile_state
    low.lower_block(op.body.block)
    if tile.advanced != tile.unroll:
        raise ValueError(f"a loop over {tile.unroll} steps must advance {tile.unroll} times, got {tile.advanced}")
    tile.advanced = 0


def _if_left(low: Lowering, done: int) -> AbstractContextManager[object]:
    """A branch that is taken if more than `done` steps remain at the first step of the body."""
    k = low.k
    left = k.setp("lt", "u32", k.add(low.tile_state.step, done), low.tile_state.last)
    return k.if_(left, uniform=True)


def advance(low: Lowering, op: ops.AdvanceOp) -> None:
    """Advance to the next stage. The parity flips when the ring wraps."""
    k, position, tile = low.k, low.position, low.tile_state
    k.mov(position.stage, into=position.previous)
    k.add(position.stage, 1, into=position.stage)
    wrapped = k.setp("eq", "u32", position.stage, low.stages)
    k.selp(Imm(0), position.stage, wrapped, into=position.stage)
    k.xor(position.parity, k.selp(Imm(1), Imm(0), wrapped), into=position.parity)
    tile.advanced += 1
    if tile.leave is not None and tile.advanced < tile.unroll:
        tile.leave.enter_context(_if_left(low, tile.advanced))
