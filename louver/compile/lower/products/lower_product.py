"""`lower-to-ptx`: lowers schedule IR with assigned offsets to a PTX module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, IntegerAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation

from louver.compile.lower.products import (
    bulk_store,
    combine,
    control,
    exchange,
    gather,
    multiply,
    rows,
    stages,
    store,
    turn,
)
from louver.compile.lower.products.multiply_add import multiply_add
from louver.compile.lower.products.state import Barriers, Lowering, Ring, entry_in_hand
from louver.ir.refusal import source_location
from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import CopyBlocksOp, GatherOp, LoadRowsOp, OpenRowsOp, PointRowsOp, ProxyFenceOp, TurnOp
from louver.ir.sched.types import MapType, PointerType, SizeType
from louver.ptx.arithmetic import Number
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Imm, Kernel, Module, Param, Reg


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
    gathers = next((op for op in kernel.walk() if isinstance(op, GatherOp | TurnOp)), None)
    low = Lowering(kernel, builder, rings, barriers, depth, lambda block: _lower_block(low, block), gathers)
    _load_parameters(low, names)
    control.enter(low)
    for roles in ops.warpgroups(kernel.roles):
        control.lower_roles(low, roles)
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
    acquired = {op.barriers.data for op in kernel.walk() if isinstance(op, ops.AcquireOp)}
    depths: set[int] = set()
    for op in kernel.body.block.ops:
        if isinstance(op, ops.RingOp) and op.offset is not None:
            rings[op.sym_name.data] = Ring(op.offset.value.data, op.bytes.value.data)
        elif isinstance(op, ops.BarriersOp) and op.offset is not None and op.arrivals is not None:
            name, count = op.sym_name.data, op.stages.value.data
            barriers[name] = Barriers(op.offset.value.data, count, op.arrivals.value.data)
            if name in acquired:
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
        rule = _RULES.get(type(op))
        if rule is None:
            raise ValueError(f"schedule IR has no lowering for {op.name}")
        with low.k.at(source_location(op.location)):
            rule(low, op)


Rule: TypeAlias = Callable[[Lowering, Any], None]
"""Lowers an operation."""


def _to_entry(store: Rule) -> Rule:
    """The lowering of a store to the current matrix of a batch."""

    def rule(low: Lowering, op: ops.StoreOp | ops.BulkStoreOp) -> None:
        with entry_in_hand(low, op):
            store(low, op)

    return rule


def _constant(low: Lowering, op: arith.ConstantOp) -> None:
    if not isinstance(op.value, IntegerAttr):
        raise ValueError(f"constants of schedule IR are integers, got {op.value}")
    low.values[op.result] = Imm(op.value.value.data)


def _arithmetic(compute: Callable[[KernelBuilder, Number, Number], Reg]) -> Rule:
    def rule(low: Lowering, op: arith.MuliOp | arith.DivUIOp | arith.AddiOp) -> None:
        low.values[op.result] = compute(low.k, low.number(op.lhs), low.number(op.rhs))

    return rule


_RULES: dict[type[Operation], Rule] = {
    ops.TilesOp: control.lower_tiles,
    ops.NextTileOp: control.next_tile,
    ops.LoopOp: control.lower_loop,
    ops.AdvanceOp: control.advance,
    ops.WaitGridsOp: control.wait_grids,
    staged.OneThreadOp: control.one_thread,
    ops.AcquireOp: stages.acquire,
    ops.InviteOp: stages.invite,
    ops.ExpectOp: stages.expect,
    ops.BulkLoadOp: stages.bulk_load,
    staged.RowsLeftOp: stages.rows_left,
    staged.BoxColumnOp: stages.box_column,
    ops.WaitOp: stages.wait,
    ops.ReleaseOp: stages.release,
    ops.LoadMetadataOp: control.load_metadata,
    staged.CopyMetadataOp: stages.copy_metadata,
    staged.ReadMetadataOp: stages.read_metadata,
    OpenRowsOp: rows.open_rows,
    LoadRowsOp: rows.load_rows,
    PointRowsOp: rows.point_rows,
    GatherOp: gather.gather,
    CopyBlocksOp: turn.copy_blocks,
    TurnOp: turn.turn,
    ProxyFenceOp: stages.proxy_fence,
    ops.MmaFenceOp: multiply.fence,
    ops.MmaOp: multiply.mma,
    ops.MmaCommitOp: multiply.commit,
    ops.MmaWaitOp: multiply.wait_products,
    ops.FmaOp: multiply_add,
    ops.ClearOp: multiply.clear,
    ops.PromoteOp: multiply.promote,
    ops.CombineOp: combine.combine,
    ops.ExchangeOp: exchange.exchange,
    ops.StoreOp: _to_entry(store.store),
    ops.BulkStoreOp: _to_entry(bulk_store.bulk_store),
    arith.ConstantOp: _constant,
    arith.MuliOp: _arithmetic(KernelBuilder.mul_lo),
    arith.DivUIOp: _arithmetic(KernelBuilder.div),
    arith.AddiOp: _arithmetic(KernelBuilder.add),
}
"""The lowering of each operation of schedule IR."""
