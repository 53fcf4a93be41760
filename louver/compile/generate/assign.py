"""`assign-shared-memory`: computes ring and barrier offsets, arrival counts and transaction bytes from the schedule."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import GatherOp
from louver.isa.targets import WARPGROUP_THREADS, WARPS_PER_WARPGROUP, Target

RING_ALIGNMENT = 1024
"""Bytes. A 128-byte-swizzled tile repeats every 1,024 bytes, and its descriptor's base offset is then 0."""

BARRIER_BYTES = 8


def assign_shared_memory(module: ModuleOp, target: Target) -> None:
    """Fill in every offset, count and size in place. Raises ValueError when the stages do not fit the target."""
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
    for barrier in barriers:
        barrier.offset = ops.i32_attr(offset)
        offset += barrier.stages.value.data * BARRIER_BYTES
        _count(kernel, barrier, rings)
    if offset > target.max_shared_bytes:
        stages = rings[0].stages.value.data
        raise ValueError(
            f"a CTA on {target.name} has {target.max_shared_bytes} bytes of shared memory, got a schedule that needs "
            f"{offset} for {stages} stages: use fewer stages or a smaller tile"
        )
    kernel.shared_bytes = ops.i32_attr(offset)


def _count(kernel: ops.KernelOp, barrier: ops.BarriersOp, rings: list[ops.RingOp]) -> None:
    """A full barrier counts its producer and its bytes, and each thread that gathers; an empty one the warps that release it; one of
    invitations the other CTAs of the cluster.
    """
    name = barrier.sym_name.data
    copies = (op for op in kernel.walk() if isinstance(op, ops.BulkLoadOp | staged.CopyMetadataOp))
    filled = {op.ring.data for op in copies if op.barriers.data == name}
    releasing = {id(role): role for role in _roles_that_release(kernel, name)}
    if filled:
        barrier.transaction_bytes = ops.i32_attr(sum(r.bytes.value.data for r in rings if r.sym_name.data in filled))
    arrivals = 1 if filled else 0
    arrivals += sum(WARPGROUP_THREADS for op in kernel.walk() if isinstance(op, GatherOp) and op.barriers.data == name)
    for role in releasing.values():
        arrivals += role.warpgroups.value.data * WARPS_PER_WARPGROUP
    if any(isinstance(op, ops.InviteOp) and op.barriers.data == name for op in kernel.walk()):
        arrivals += kernel.cluster.value.data - 1
    if not arrivals:
        raise ValueError(f"barriers @{name} are never arrived at: a wait on them would hang")
    barrier.arrivals = ops.i32_attr(arrivals)


def _roles_that_release(kernel: ops.KernelOp, name: str) -> list[ops.RoleOp]:
    roles = [op for op in kernel.body.block.ops if isinstance(op, ops.RoleOp)]
    return [
        role for role in roles if any(isinstance(op, ops.ReleaseOp) and op.barriers.data == name for op in role.walk())
    ]
