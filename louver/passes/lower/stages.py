"""Barriers and bulk copies of one stage."""

from __future__ import annotations

from louver.ir.sched import ops
from louver.passes.lower.state import Lowering
from louver.ptx.module import Address, Imm, Reg


def barrier_address(low: Lowering, stage: Reg) -> Reg:
    """Address of the barrier of `stage`, without the ring's constant offset."""
    return low.k.mad_lo(stage, 8, low.named["smem"])


def acquire(low: Lowering, op: ops.AcquireOp) -> None:
    """The first time round every stage is free: waiting for the phase before the first one passes at once."""
    k, position = low.k, low.position
    address = barrier_address(low, position.stage)
    k.wait(Address(address, low.barriers[op.barriers.data].offset), k.xor(position.parity, 1))


def expect(low: Lowering, op: ops.ExpectOp) -> None:
    """Arrive and announce the bytes of the whole stage, whoever sends them."""
    barriers = low.barriers[op.barriers.data]
    address = barrier_address(low, low.position.stage)
    low.k.mbarrier_arrive_expect(Address(address, barriers.offset), barriers.transaction_bytes)


def wait(low: Lowering, op: ops.WaitOp) -> None:
    """Wait for the stage's copies."""
    address = barrier_address(low, low.position.stage)
    low.k.wait(Address(address, low.barriers[op.barriers.data].offset), low.position.parity)


def release(low: Lowering, op: ops.ReleaseOp) -> None:
    """One lane of each warp arrives at the empty barrier, in every CTA of the cluster: each of them sends to the stage.

    The warp's own wait covers only its own share of the products, so each warp arrives for itself.
    """
    k, position, tile = low.k, low.position, low.tile_state
    lag = op.lag.value.data
    stage = position.stage if lag == 0 else position.previous
    lane = k.and_(low.named["tid"], 31)
    selected = k.setp("lt", "u32", lane, low.cluster)
    if lag > tile.advanced:
        begun = k.setp("ge", "u32", tile.step, lag - tile.advanced)
        selected = k.and_pred(selected, begun)
    barriers = low.barriers[op.barriers.data]
    address = barrier_address(low, stage)
    if low.cluster > 1:
        remote = k.map_shared(k.add(address, barriers.offset), lane)
        k.mbarrier_arrive(Address(remote), remote=True, guard=selected)
    else:
        k.mbarrier_arrive(Address(address, barriers.offset), guard=selected)


def bulk_load(low: Lowering, op: ops.BulkLoadOp) -> None:
    """A tiled copy into the stage in hand."""
    k, position = low.k, low.position
    ring = low.rings[op.ring.data]
    destination = k.mad_lo(position.stage, ring.stage_bytes, low.named["smem"])
    offset = ring.offset + op.offset.value.data
    coordinates: list[Reg | Imm] = [low.number(value) for value in op.coordinates]
    mask = None
    if op.multicast is not None:
        axis, elements, size = (value.value.data for value in op.multicast)
        coordinates[axis] = k.mad_lo(low.named["rank"], elements, coordinates[axis])
        destination = k.mad_lo(low.named["rank"], size, destination)
        mask = (1 << low.cluster) - 1
    barriers = low.barriers[op.barriers.data]
    k.bulk_tensor_load(
        Address(destination, offset),
        low.register(op.map),
        coordinates,
        Address(barrier_address(low, position.stage), barriers.offset),
        multicast=mask,
    )
