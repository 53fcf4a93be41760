"""Operations that compute each element of a tile from the elements at the same position."""

from __future__ import annotations

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from louver.ir import arith as ours
from louver.ir.comparisons import CmpfOp, CmpiOp, SelectOp
from louver.ir.tile import AddPtrOp, ClampFOp, ExternElementwiseOp, FpToFpOp, PointerCastOp, PtrToIntOp

ELEMENTWISE: tuple[type[Operation], ...] = (
    *(op for op in arith.Arith.operations if op is not arith.ConstantOp),
    *math.Math.operations,
    *(ours.SIToFPOp, ours.FPToSIOp, ours.UIToFPOp, ours.FPToUIOp, ours.ExtSIOp, ours.ExtUIOp, ours.TruncIOp),
    *(
        CmpiOp,
        CmpfOp,
        SelectOp,
        ClampFOp,
        FpToFpOp,
        AddPtrOp,
        ours.RemFOp,
        ExternElementwiseOp,
        PtrToIntOp,
        PointerCastOp,
    ),
)
