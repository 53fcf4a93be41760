"""`lower-to-ptx`: schedule IR with assigned offsets to a PTX module."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, IntegerAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation

from louver.compile.lower.products import (
    bulk_store,
    combine,
    control,
    gather,
    multiply,
    operands,
    stage_metadata,
    stages,
    store,
)
from louver.compile.lower.products.batch_indices import entry_in_hand
from louver.compile.lower.products.multiply_add import multiply_add
from louver.compile.lower.products.state import Barriers, Lowering, Ring
from louver.ir.refusal import source_location
from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import GatherOp, LoadRowsOp, ProxyFenceOp
from louver.ir.sched.types import MapType, PointerType, SizeType
from louver.isa.sync import GridWait
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Imm, Kernel, Module, Param


def lower(module: ModuleOp, target: str) -> Module:
    """The PTX module of every kernel in schedule IR. Raises ValueError for an operation that has no lowering."""
    kernels = [op for op in module.body.block.ops if isinstance(op, ops.KernelOp)]
    return Module(target, [_lower_kernel(kernel) for kernel in kernels])


def _lower_kernel(kernel: ops.KernelOp) -> Kernel:
    if kernel.shared_bytes is None:
        raise ValueError("shared memory is assigned before lowering: run assign-shared-memory")
    names = [name.data for name in kernel.params]
    types = [argument.type for argument in kernel.body.block.args]
    builder = KernelBuilder(
        kernel.sym_name.data,
        tuple(_param(name, kind) for name, kind in zip(names, types, strict=True)),
        threads=kernel.threads.value.data,
        min_ctas=1 if kernel.resident is None else kernel.resident.value.data,
        cluster=kernel.cluster.value.data,
        dynamic_shared=kernel.shared_bytes.value.data,
    )
    rings, barriers, depth = _layout(kernel)
    gathers = next((op for op in kernel.walk() if isinstance(op, GatherOp)), None)
    low = Lowering(kernel, builder, rings, barriers, depth, gathers)
    _load_parameters(low, names)
    control.enter(low)
    for roles in ops.warpgroups(kernel.roles):
        control.lower_roles(low, roles, lambda block: _lower_block(low, block))
    control.leave(low)
    return builder.finish()


def _param(name: str, kind: Attribute) -> Param:
    match kind:
        case MapType():
            return Param(name, "tensormap")
        case PointerType():
            return Param(name, "u64")
        case Float32Type():
            return Param(name, "f32")
        case SizeType():
            return Param(name, "u64" if kind.width.data == 64 else "u32")
        case _:
            raise ValueError(f"a kernel's parameter is a tensor map, a pointer, a number or a size, got {kind}")


def _layout(kernel: ops.KernelOp) -> tuple[dict[str, Ring], dict[str, Barriers], int]:
    rings: dict[str, Ring] = {}
    barriers: dict[str, Barriers] = {}
    depths: set[int] = set()
    for op in kernel.body.block.ops:
        if isinstance(op, ops.RingOp) and op.offset is not None:
            rings[op.sym_name.data] = Ring(op.offset.value.data, op.bytes.value.data)
        elif isinstance(op, ops.BarriersOp) and op.offset is not None and op.arrivals is not None:
            name, count = op.sym_name.data, op.stages.value.data
            barriers[name] = Barriers(op.offset.value.data, count, op.arrivals.value.data)
            depths.add(count)
    if len(depths) != 1:
        raise ValueError(f"all barriers of a kernel's stages have one depth, got {sorted(depths)}")
    return rings, barriers, depths.pop()


def _load_parameters(low: Lowering, names: list[str]) -> None:
    for name, argument in zip(names, low.kernel.body.block.args, strict=True):
        if isinstance(argument.type, MapType):
            low.values[argument] = low.k.map_address(name)
            continue
        register = low.k.ld_param(name)
        low.values[argument] = register
        if isinstance(argument.type, SizeType):
            low.sizes[argument.type.meaning.data] = register


def _lower_block(low: Lowering, block: Block) -> None:
    for op in block.ops:
        _lower_op(low, op)


def _lower_op(low: Lowering, op: Operation) -> None:
    with low.k.at(source_location(op.location)):
        _lower_placed(low, op)


def _lower_placed(low: Lowering, op: Operation) -> None:
    match op:
        case ops.TilesOp():
            control.lower_tiles(low, op, lambda block: _lower_block(low, block))
        case ops.LoopOp():
            control.lower_loop(low, op, lambda block: _lower_block(low, block))
        case ops.WaitGridsOp():
            low.k.emit(GridWait())
        case ops.AdvanceOp():
            control.advance(low)
        case ops.AcquireOp():
            stages.acquire(low, op)
        case ops.InviteOp():
            stages.invite(low, op)
        case ops.ExpectOp():
            stages.expect(low, op)
        case ops.BulkLoadOp():
            stages.bulk_load(low, op)
        case ops.WaitOp():
            stages.wait(low, op)
        case ops.ReleaseOp():
            stages.release(low, op)
        case ops.NextTileOp():
            control.next_tile(low, op, lambda block: _lower_block(low, block))
        case ops.LoadMetadataOp():
            operands.load_metadata(low, op)
        case ops.MmaFenceOp() | ops.MmaOp() | ops.MmaCommitOp() | ops.MmaWaitOp() | ops.ClearOp() | ops.PromoteOp():
            _lower_products(low, op)
        case ops.FmaOp():
            multiply_add(low, op)
        case ops.CombineOp() | ops.StoreOp() | ops.BulkStoreOp():
            _lower_results(low, op)
        case _:
            _lower_staged(low, op)


def _lower_products(
    low: Lowering,
    op: ops.MmaFenceOp | ops.MmaOp | ops.MmaCommitOp | ops.MmaWaitOp | ops.ClearOp | ops.PromoteOp,
) -> None:
    match op:
        case ops.MmaFenceOp():
            multiply.fence(low)
        case ops.MmaOp():
            multiply.mma(low, op)
        case ops.MmaCommitOp():
            multiply.commit(low)
        case ops.MmaWaitOp():
            multiply.wait_products(low, op)
        case ops.ClearOp():
            multiply.clear(low)
        case ops.PromoteOp():
            multiply.promote(low)


def _lower_results(low: Lowering, op: ops.CombineOp | ops.StoreOp | ops.BulkStoreOp) -> None:
    match op:
        case ops.CombineOp():
            combine.combine(low, op, lambda block: _lower_block(low, block))
        case ops.StoreOp():
            with entry_in_hand(low, op):
                store.store(low, op)
        case ops.BulkStoreOp():
            with entry_in_hand(low, op):
                bulk_store.bulk_store(low, op)


def _lower_staged(low: Lowering, op: Operation) -> None:
    match op:
        case staged.OneThreadOp():
            control.one_thread(low, op, lambda block: _lower_block(low, block))
        case staged.CopyMetadataOp():
            stage_metadata.copy(low, op)
        case staged.ReadMetadataOp():
            stage_metadata.read(low, op)
        case LoadRowsOp():
            gather.load_rows(low, op)
        case GatherOp():
            gather.gather(low, op)
        case ProxyFenceOp():
            low.k.fence_proxy_async()
        case _:
            _lower_arithmetic(low, op)


def _lower_arithmetic(low: Lowering, op: Operation) -> None:
    match op:
        case arith.ConstantOp(value=IntegerAttr() as value):
            low.values[op.result] = Imm(value.value.data)
        case arith.MuliOp():
            low.values[op.result] = low.k.mul_lo(low.number(op.lhs), low.number(op.rhs))
        case arith.DivUIOp():
            low.values[op.result] = low.k.div(low.number(op.lhs), low.number(op.rhs))
        case arith.AddiOp():
            low.values[op.result] = low.k.add(low.number(op.lhs), low.number(op.rhs))
        case _:
            raise ValueError(f"schedule IR has no lowering for {op.name}")
