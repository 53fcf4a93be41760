"""The `tile` dialect: operations of Triton, with their names in Triton, and sparse types.

Source: Triton's `tt` dialect, as versions 3.4 to 3.9 print it. `arith`, `math` and `scf` are dialects of MLIR.
"""

# The names of the submodules are for importers of this package.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from __future__ import annotations

from louver.ir.dialect import dialect
from louver.ir.tile.atomic import AtomicCASOp, AtomicOp, AtomicRMWOp
from louver.ir.tile.boxes import BoxCopiesOp, ClearSlotsOp, EvenBarriersOp, FitBoxOp, InitBarriersOp, WaitBarrierOp
from louver.ir.tile.compute import (
    BroadcastOp,
    ClampFOp,
    ConvertLayoutOp,
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
from louver.ir.tile.decompress import CompressOp, DecompressOp
from louver.ir.tile.dot import DotOp, DotWaitOp
from louver.ir.tile.elements import ACCUMULATORS, BYTE_FLOATS, ELEMENTS, element_attribute, element_name
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
from louver.ir.tile.staging import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp, LocalAllocOp, LocalStoreOp, MeetOp, SlotOp
from louver.ir.tile.syntax import Index
from louver.ir.tile.types import (
    FORMATS,
    AnyTensor,
    CachePolicyAttr,
    DescriptorType,
    PointerType,
    SparseAttr,
    sparse_encoding,
)

TILE = dialect("tt", __name__)
