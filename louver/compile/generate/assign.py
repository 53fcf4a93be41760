"""assign-shared-memory: computes ring and barrier offsets, arrival counts and transaction bytes from the schedule."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import GatherOp, TurnOp
from louver.isa.rule import RuleError
from louver.isa.targets import WARPGROUP_THREADS, WARPS_PER_WARPGROUP, Target

RING_ALIGNMENT = 1024
"""Alignment in bytes.

A tile with the 128-byte swizzle repeats every 1,024 bytes. The base offset of its descriptor is then 0.
"""

BARRIER_BYTES = 8


def assign_shared_memory(module: ModuleOp, target: Target) -> None:
    """Fill in every offset, count and size in place. Raises ValueError if the stages do not fit the target."""
    for kernel in module.body.block.ops:
        if isinstance(kernel, ops.KernelOp):
            _assign(kernel, target)


def _assign(kernel: ops.KernelOp, target: Target) -> None:
    rings = [op for op in kernel.body.block.ops if isinstance(op, ops.RingOp)]
    barriers = [op for op in kernel.body.block.ops if isinstance(op, ops.BarriersOp)]
    offset = 0
    for ring in rings:
        offset = -(-offset // RING_ALIGNMENT) * RING_ALIGNMENT
        ring.offset = ops.i32_attr(offset)
        offset += ring.stages.value.data * ring.bytes.value.data
    for op in kernel.walk():
        if isinstance(op, ops.ExchangeOp):
            _check_exchange(kernel, [ring for name in op.rings for ring in rings if ring.sym_name == name])
    for barrier in barriers:
        barrier.offset = ops.i32_attr(offset)
        offset += barrier.stages.value.data * BARRIER_BYTES
        _count(kernel, barrier, rings)
    ctas = 1 if kernel.resident is None else kernel.resident.value.data
    if offset > target.shared_bytes(ctas):
        stages = rings[0].stages.value.data
        beside = "a CTA" if ctas == 1 else f"each of {ctas} CTAs"
        raise RuleError(
            f"{beside} on an SM of {target.name} has {target.shared_bytes(ctas)} bytes of shared memory, got a schedule that needs "
            f"{offset} for {stages} stages: use fewer stages or a smaller tile"
        )
    kernel.shared_bytes = ops.i32_attr(offset)


def _count(kernel: ops.KernelOp, barrier: ops.BarriersOp, rings: list[ops.RingOp]) -> None:
    """Set the arrivals and bytes of a barrier.

    - A full barrier counts the roles that fill its rings, their bytes, and each thread that gathers.
    - An empty barrier counts the warps that release a stage.
    - A barrier for invitations counts the other CTAs of the cluster.
    - The barriers of an exchange count the warps that make room, and the warpgroups with the bytes of their sums.
    """
    name = barrier.sym_name.data
    arrivals, filled = 0, set[str]()
    for role in kernel.roles:
        own = staged.filled_rings(role, name)
        if own & filled:
            raise ValueError(
                f"one role fills a ring, got several that fill {', '.join(f'@{ring}' for ring in own & filled)}"
            )
        filled |= own
        arrivals += 1 if own else 0
        if any(isinstance(op, ops.ReleaseOp) and op.barriers.data == name for op in role.walk()):
            arrivals += role.warpgroups.value.data * WARPS_PER_WARPGROUP
    if filled:
        barrier.transaction_bytes = ops.i32_attr(sum(r.bytes.value.data for r in rings if r.sym_name.data in filled))
    if any(isinstance(op, GatherOp | TurnOp) and op.barriers.data == name for op in kernel.walk()):
        arrivals += WARPGROUP_THREADS
    if any(isinstance(op, ops.InviteOp) and op.barriers.data == name for op in kernel.walk()):
        arrivals += kernel.cluster.value.data - 1
    for role in kernel.roles:
        for op in role.walk():
            if isinstance(op, ops.ExchangeOp) and name in (op.room.data, op.sums.data):
                arrivals += _exchanged(kernel, role, barrier, whole=op.sums.data == name)
    if not arrivals:
        raise ValueError(f"barriers @{name} are never arrived at: a wait on them would hang")
    barrier.arrivals = ops.i32_attr(arrivals)


def _check_exchange(kernel: ops.KernelOp, rings: list[ops.RingOp]) -> None:
    room, needed = sum(ring.stages.value.data * ring.bytes.value.data for ring in rings), kernel.exchanged_bytes
    if needed > room:
        raise RuleError(
            f"a pair exchanges {needed} bytes of sums through its stages, got stages of {room} bytes: use more stages or a smaller tile"
        )


def _exchanged(kernel: ops.KernelOp, role: ops.RoleOp, barrier: ops.BarriersOp, *, whole: bool) -> int:
    """Arrivals of an exchange barrier: one for each warpgroup that expects sums (`whole`), or one for each of their
    warps.
    """
    warpgroups = role.warpgroups.value.data
    if whole:
        barrier.transaction_bytes = ops.i32_attr(kernel.exchanged_bytes)
        return warpgroups
    return warpgroups * WARPS_PER_WARPGROUP
