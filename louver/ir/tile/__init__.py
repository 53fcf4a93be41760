"""The `tile` dialect: Triton's operations, under their own names, as far as a product needs them, with sparse types.

Sources: Triton's `tt` dialect as versions 3.4 to 3.9 print it; `arith`, `math` and `scf` are MLIR's.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from louver.ir.tile.atomic import AtomicCASOp, AtomicOp, AtomicRMWOp
from louver.ir.tile.boxes import BoxCopiesOp, InitBarriersOp, InvalBarriersOp, WaitBarrierOp
from louver.ir.tile.compute import (
    BroadcastOp,
    ClampFOp,
    ExpandDimsOp,
    ExternElementwiseOp,
    FpToFpOp,
    GatherOp,
    JoinOp,
    ReshapeOp,
    SplatOp,
    SplitOp,
    TransOp,
)
from louver.ir.tile.convert import ConvertLayoutOp
from louver.ir.tile.decompress import DecompressOp
from louver.ir.tile.dot import DotOp
from louver.ir.tile.elements import ACCUMULATORS, ELEMENTS, element_attribute, element_name
from louver.ir.tile.encodings import BlockedAttr, DotOperandAttr, LinearAttr, MmaAttr, SliceAttr
from louver.ir.tile.function import FuncOp, GetNumProgramsOp, GetProgramIdOp, ReturnOp
from louver.ir.tile.memory import (
    AdvanceOp,
    DescriptorLoadOp,
    DescriptorReduceOp,
    DescriptorStoreOp,
    LoadOp,
    MakeTensorDescriptorOp,
    MakeTensorPtrOp,
    StoreOp,
)
from louver.ir.tile.pointers import AddPtrOp, MakeRangeOp, PointerCastOp, PtrToIntOp
from louver.ir.tile.reduce import CombiningOp, ReduceOp, ReduceReturnOp, ScanOp, ScanReturnOp
from louver.ir.tile.shared import SharedAttr
from louver.ir.tile.staging import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp, LocalAllocOp, LocalStoreOp, SlotOp
from louver.ir.tile.syntax import Index
from louver.ir.tile.types import FORMATS, AnyTensor, DescriptorType, PointerType, SparseAttr, sparse_encoding

TILE = Dialect(
    "tt",
    [
        FuncOp,
        ReturnOp,
        GetProgramIdOp,
        GetNumProgramsOp,
        MakeTensorDescriptorOp,
        DescriptorLoadOp,
        DescriptorStoreOp,
        DescriptorReduceOp,
        MakeTensorPtrOp,
        AdvanceOp,
        LoadOp,
        StoreOp,
        DotOp,
        DecompressOp,
        TransOp,
        ReshapeOp,
        SplitOp,
        SplatOp,
        ExpandDimsOp,
        BroadcastOp,
        ClampFOp,
        FpToFpOp,
        MakeRangeOp,
        AddPtrOp,
        ReduceOp,
        ReduceReturnOp,
        ScanOp,
        ScanReturnOp,
        JoinOp,
        GatherOp,
        ExternElementwiseOp,
        PtrToIntOp,
        PointerCastOp,
        AtomicRMWOp,
        AtomicCASOp,
        ConvertLayoutOp,
        LocalAllocOp,
        LocalStoreOp,
        AsyncCopyOp,
        AsyncCommitOp,
        AsyncWaitOp,
        SlotOp,
        InitBarriersOp,
        InvalBarriersOp,
        WaitBarrierOp,
        BoxCopiesOp,
    ],
    [SparseAttr, PointerType, DescriptorType, BlockedAttr, MmaAttr, DotOperandAttr, SliceAttr, LinearAttr, SharedAttr],
)

__all__ = [
    "ACCUMULATORS",
    "AddPtrOp",
    "AdvanceOp",
    "AnyTensor",
    "AsyncCommitOp",
    "AsyncCopyOp",
    "AsyncWaitOp",
    "AtomicCASOp",
    "AtomicOp",
    "AtomicRMWOp",
    "BlockedAttr",
    "BoxCopiesOp",
    "BroadcastOp",
    "ClampFOp",
    "CombiningOp",
    "ConvertLayoutOp",
    "DecompressOp",
    "DescriptorLoadOp",
    "DescriptorReduceOp",
    "DescriptorStoreOp",
    "DescriptorType",
    "DotOp",
    "DotOperandAttr",
    "ELEMENTS",
    "ExpandDimsOp",
    "ExternElementwiseOp",
    "FORMATS",
    "FpToFpOp",
    "FuncOp",
    "GatherOp",
    "GetNumProgramsOp",
    "GetProgramIdOp",
    "Index",
    "InitBarriersOp",
    "InvalBarriersOp",
    "JoinOp",
    "LinearAttr",
    "LoadOp",
    "LocalAllocOp",
    "LocalStoreOp",
    "MakeRangeOp",
    "MakeTensorDescriptorOp",
    "MakeTensorPtrOp",
    "MmaAttr",
    "PointerCastOp",
    "PointerType",
    "PtrToIntOp",
    "ReduceOp",
    "ReduceReturnOp",
    "ReshapeOp",
    "ReturnOp",
    "ScanOp",
    "ScanReturnOp",
    "SharedAttr",
    "SliceAttr",
    "SlotOp",
    "SparseAttr",
    "SplatOp",
    "SplitOp",
    "StoreOp",
    "TILE",
    "TransOp",
    "WaitBarrierOp",
    "element_attribute",
    "element_name",
    "sparse_encoding",
]
