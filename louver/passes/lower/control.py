"""Kernel entry, roles, the walk over tiles and the loops over K steps."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Block, Operation, SSAValue

from louver.ir.sched import ops
from louver.isa.targets import WARPS_PER_WARPGROUP
from louver.passes.lower import bulk_store, multiply
from louver.passes.lower.state import Lowering, RolePosition, TileState
from louver.ptx.module import Address, Imm, Reg

LowerBlock = Callable[[Block], None]


def enter(low: Lowering) -> None:
    """Thread indices, sizes and counts that every role needs; initialise the barriers before anybody waits."""
    k, named = low.k, low.named
    named["tid"] = k.special("%tid.x")
    # A shuffled warp index is known to be the same over the warp, so that branches on it are uniform.
    named["warp"] = k.shuffle(k.shr(named["tid"], 5), 0)
    named["smem"] = k.shared_symbol()
    if low.cluster > 1:
        named["rank"] = k.special("%cluster_ctarank")
    tile_m, tile_n, tile_k = low.tile
    sizes = low.sizes
    named["steps"] = k.shr(k.add(sizes["K"], tile_k - 1), tile_k.bit_length() - 1)
    rows = tile_m * low.cluster
    named["tiles_m"] = k.div(k.add(sizes["M"], rows - 1), rows)
    named["tiles_n"] = k.div(k.add(sizes["N"], tile_n - 1), tile_n)
    # scale-d is a predicate register: PTX has no constant one.
    named["always"] = k.setp("eq", "u32", named["tid"], named["tid"])
    _initialise_barriers(low)


def _initialise_barriers(low: Lowering) -> None:
    k = low.k
    with k.if_(k.setp("eq", "u32", low.named["tid"], 0)):
        for barriers in low.barriers.values():
            for stage in range(low.stages):
                k.mbarrier_init(Address(low.named["smem"], barriers.offset + 8 * stage), barriers.arrivals)
        k.fence_mbarrier_init()
    if low.cluster > 1:
        k.cluster_sync()
    else:
        k.barrier_sync(0, low.kernel.threads.value.data)


def leave(low: Lowering) -> None:
    """A CTA of a cluster stays until nobody can send to it any more."""
    if low.cluster > 1:
        low.k.cluster_sync()


def lower_role(low: Lowering, role: ops.RoleOp, lower_block: LowerBlock) -> None:
    """One branch of the kernel: its warpgroups take their registers and run the body."""
    k = low.k
    first = role.first.value.data * WARPS_PER_WARPGROUP
    last = first + role.warpgroups.value.data * WARPS_PER_WARPGROUP
    single = role.single is not None
    inside = k.setp("lt", "u32", k.sub(low.named["warp"], first), last - first)
    with k.if_(inside, uniform=True):
        if role.registers is not None:
            k.setmaxnreg(role.registers.value.data, "dec" if single else "inc")
        low.warpgroup = k.shr(k.sub(low.named["warp"], first), 2)
        if single:
            elected = k.setp("eq", "u32", low.named["tid"], first * 32)
            with k.if_(elected):
                _start_role(low, role, lower_block)
        else:
            _start_role(low, role, lower_block)


def _start_role(low: Lowering, role: ops.RoleOp, lower_block: LowerBlock) -> None:
    k = low.k
    low.position = RolePosition(stage=k.mov(0), parity=k.mov(0), previous=k.mov(0))
    if _multiplies(role):
        tile_m, _, _ = low.tile
        multiply.open_consumer(low, tile_m // (64 * role.warpgroups.value.data))
    lower_block(role.body.block)


def _multiplies(op: Operation) -> bool:
    return any(isinstance(inner, ops.MmaOp) for inner in op.walk())


def _metadata(op: Operation) -> SSAValue:
    """The metadata pointer that the products of a tile read."""
    return next(inner.metadata for inner in op.walk() if isinstance(inner, ops.LoadMetadataOp))


def lower_tiles(low: Lowering, op: ops.TilesOp, lower_block: LowerBlock) -> None:
    """Persistent CTAs: each cluster takes every `grid`-th tile, in an order that walks `raster` rows of tiles at a time."""
    k, named = low.k, low.named
    tile = k.div(k.special("%ctaid.x"), low.cluster)
    stride = k.div(k.special("%nctaid.x"), low.cluster)
    total = k.mul_lo(named["tiles_m"], named["tiles_n"])
    with k.if_(k.setp("lt", "u32", tile, total), uniform=True), k.loop(uniform=True) as loop:
        m, n = _tile_origin(low, tile, op.raster.value.data)
        low.values[op.body.block.args[0]] = m
        low.values[op.body.block.args[1]] = n
        low.tile_state = TileState(step=k.mov(0))
        if _multiplies(op):
            multiply.open_tile(low, low.register(_metadata(op)), m)
        lower_block(op.body.block)
        k.add(tile, stride, into=tile)
        loop.repeat_if(k.setp("lt", "u32", tile, total))
    if any(isinstance(inner, ops.BulkStoreOp) for inner in op.body.block.ops):
        bulk_store.drain(low)


def _tile_origin(low: Lowering, tile: Reg, raster: int) -> tuple[Reg, Reg]:
    """First row and column of a tile, in elements."""
    k, named = low.k, low.named
    tile_m, tile_n, _ = low.tile
    band = k.mul_lo(named["tiles_n"], raster)
    band_index = k.div(tile, band)
    inside = k.sub(tile, k.mul_lo(band_index, band))
    first_row = k.mul_lo(band_index, raster)
    rows = k.min(k.sub(named["tiles_m"], first_row), raster)
    column = k.div(inside, rows)
    row = k.add(first_row, k.sub(inside, k.mul_lo(column, rows)))
    if low.cluster > 1:
        row = k.mad_lo(row, low.cluster, named["rank"])
    return k.mul_lo(row, tile_m), k.mul_lo(column, tile_n)


def lower_loop(low: Lowering, op: ops.LoopOp, lower_block: LowerBlock) -> None:
    """Run the body while `unroll` whole steps are left."""
    k, tile = low.k, low.tile_state
    unroll = op.unroll.value.data
    steps = low.named["steps"]

    def more() -> Reg:
        return k.setp("le", "u32", k.add(tile.step, unroll), steps)

    with k.if_(more(), uniform=True), k.loop(uniform=True) as loop:
        low.values[op.body.block.args[0]] = tile.step
        tile.advanced = 0
        lower_block(op.body.block)
        if tile.advanced != unroll:
            raise ValueError(f"a loop over {unroll} steps must advance {unroll} times, got {tile.advanced}")
        k.add(tile.step, unroll, into=tile.step)
        loop.repeat_if(more())
    tile.advanced = 0


def advance(low: Lowering) -> None:
    """Step to the next stage; the parity flips where the ring wraps."""
    k, position = low.k, low.position
    k.mov(position.stage, into=position.previous)
    k.add(position.stage, 1, into=position.stage)
    wrapped = k.setp("eq", "u32", position.stage, low.stages)
    k.selp(Imm(0), position.stage, wrapped, into=position.stage)
    k.xor(position.parity, k.selp(Imm(1), Imm(0), wrapped), into=position.parity)
    low.tile_state.advanced += 1
