"""The `sched` dialect: warp roles, rings of stages, barriers, bulk copies and warpgroup products."""

from __future__ import annotations

from xdsl.ir import Dialect

from louver.ir.sched import epilogue, gathered, ops, staged, turned, types

SCHED = Dialect(
    "sched",
    [
        ops.KernelOp,
        ops.RingOp,
        ops.BarriersOp,
        ops.RoleOp,
        ops.WaitGridsOp,
        ops.TilesOp,
        ops.NextTileOp,
        ops.LoopOp,
        ops.AcquireOp,
        ops.InviteOp,
        ops.ExpectOp,
        ops.BulkLoadOp,
        ops.WaitOp,
        ops.ReleaseOp,
        ops.AdvanceOp,
        ops.LoadMetadataOp,
        staged.OneThreadOp,
        staged.CopyMetadataOp,
        staged.ReadMetadataOp,
        staged.RowsLeftOp,
        staged.BoxColumnOp,
        gathered.OpenRowsOp,
        gathered.LoadRowsOp,
        gathered.PointRowsOp,
        gathered.GatherOp,
        turned.CopyBlocksOp,
        turned.TurnOp,
        gathered.ProxyFenceOp,
        ops.MmaFenceOp,
        ops.MmaOp,
        ops.MmaCommitOp,
        ops.MmaWaitOp,
        ops.FmaOp,
        ops.ClearOp,
        ops.PromoteOp,
        ops.CombineOp,
        ops.ExchangeOp,
        ops.StoreOp,
        ops.BulkStoreOp,
        epilogue.VectorOp,
        epilogue.ScalarOp,
        epilogue.MatrixOp,
        ops.YieldOp,
    ],
    [types.MapType, types.PointerType, types.SizeType, types.WgmmaAttr],
)
