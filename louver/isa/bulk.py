"""Bulk copies between global and shared memory: runs of bytes, and tiles of a tensor map.

A tensor map is data: the arguments of `cuTensorMapEncodeTiled`. It is a kernel parameter passed by value; instructions take
its generic address.
Source: PTX ISA, cp.async.bulk, cp.async.bulk.tensor, cp.async.bulk.commit_group and wait_group, createpolicy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from louver.isa.instruction import LANES, SM90, Bits, Effect, Operand, Pure, Requirement, output, pointer, register
from louver.isa.machine import GENERIC_PARAMETERS, Outcome, WarpState
from louver.isa.rule import RuleError
from louver.isa.targets import MAX_PENDING_COPIES, MBARRIER_MAX_TRANSACTION_BYTES, TENSOR_MAP_MAX_BOX, BulkSpace

COPY_CHUNK = 16
"""Granularity of a tiled copy along the innermost dimension, in bytes. Measured on an H200, not documented:

- A copy whose innermost coordinate is not a multiple stops with an illegal instruction.
- A store writes whole chunks, also past the end of a dimension that is not a multiple.
- A load gives zeros exactly from the end of the dimension.
"""

SwizzleBytes = Literal[0, 32, 64, 128]
"""Swizzle span in bytes; 0 means no swizzle."""

ADDED_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "s32": 4}
"""Element types that bulk copies add, and their bytes. Source: PTX ISA, cp.reduce.async.bulk."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tiled view of global memory. Dimensions are innermost first, as in the driver.

    address: bytes, a multiple of 16. element_bytes: 1, 2, 4 or 8. shape: elements of each dimension. strides: bytes
    between neighbours along dimensions 1…, multiples of 16; dimension 0 is contiguous. box: elements that one copy
    moves along each dimension, 1 to 256. The inner box is a multiple of 16 bytes and fits the swizzle span. adds:
    element type for copies that add; None allows plain copies only. Reads outside `shape` give zeros. Writes outside
    are dropped, but see `COPY_CHUNK`. Source: CUDA driver API, cuTensorMapEncodeTiled.
    """

    address: int
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: SwizzleBytes = 0
    l2_promotion: Literal[0, 64, 128, 256] = 128
    adds: str | None = None

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= 5:
            raise RuleError(f"a tensor map has 1 to 5 dimensions, got {rank}")
        if len(self.strides) != rank - 1 or len(self.box) != rank:
            raise RuleError(
                f"a tensor map of {rank} dimensions needs {rank - 1} strides and {rank} box sizes, "
                f"got {len(self.strides)} and {len(self.box)}"
            )
        if self.element_bytes not in (1, 2, 4, 8):
            raise RuleError(f"element_bytes must be 1, 2, 4 or 8, got {self.element_bytes}")
        if self.adds is not None and ADDED_BYTES.get(self.adds) != self.element_bytes:
            raise RuleError(
                f"bulk copies add {', '.join(ADDED_BYTES)} of their own size, got {self.adds} of {self.element_bytes} bytes"
            )
        if self.address % 16:
            raise RuleError(
                f"the address must be a multiple of 16 bytes, got {self.address:#x}: copy to an aligned buffer"
            )
        for size in self.shape:
            if not 1 <= size <= 1 << 32:
                raise RuleError(f"each dimension has 1 to 2^32 elements, got {size}")
        for stride in self.strides:
            if stride % 16 or not 0 < stride < 1 << 40:
                raise RuleError(f"strides are multiples of 16 bytes under 2^40, got {stride}: pad the row pitch")
        for size in self.box:
            if not 1 <= size <= TENSOR_MAP_MAX_BOX:
                raise RuleError(f"each box dimension has 1 to {TENSOR_MAP_MAX_BOX} elements, got {size}")
        inner = self.box[0] * self.element_bytes
        if inner % 16:
            raise RuleError(f"the box's inner dimension must be a multiple of 16 bytes, got {inner}")
        if self.swizzle and inner > self.swizzle:
            raise RuleError(
                f"the box's inner bytes must fit the swizzle span, got {inner} bytes for a span of {self.swizzle}"
            )

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy writes to shared memory and completes on the barrier, including fill zeros."""
        total = self.element_bytes
        for size in self.box:
            total *= size
        return total


MAX_RANK = 5
"""Greatest number of dimensions of a tensor map."""

Eviction: TypeAlias = Literal["first", "last"]
"""Whether the L2 cache evicts data first or last."""


def _check_rank(rank: int) -> None:
    if not 1 <= rank <= MAX_RANK:
        raise RuleError(f"a tensor map has 1 to {MAX_RANK} dimensions, got {rank}")


@dataclass(frozen=True, slots=True)
class GenericParameter(Pure):
    """`cvta.param.u64 d, a`: the generic address of a kernel parameter."""

    opcode = "cvta.param.u64"
    takes = (output("b64"), register("a", "b64"))
    needs = Requirement((7, 7))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        return (inputs[0] + np.uint64(GENERIC_PARAMETERS),)


@dataclass(frozen=True, slots=True)
class CachePolicy(Pure):
    """`createpolicy.fractional.L2::evict_….b64 d, 1.0`: a policy: the L2 cache evicts copied data first, or last.

    Only the machine reads the bits of a policy; here they are the index of the choice. A policy changes no result.
    """

    eviction: Eviction

    opcode = "createpolicy.fractional.L2::evict_{self.eviction}.b64"
    takes = (output("b64"),)
    needs = Requirement((7, 4), "sm_80")

    def __post_init__(self) -> None:
        if self.eviction not in get_args(Eviction):
            raise RuleError(f'data is evicted "first" or "last", got {self.eviction!r}')

    def text(self, *args: str) -> str:
        """The fraction 1.0 applies the policy to all data."""
        return f"{self.mnemonic} {args[0]}, 1.0"

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        return (np.full(LANES, get_args(Eviction).index(self.eviction), np.uint64),)


def _coordinates(bits: Bits, lane: int) -> list[int]:
    return [int(c) for c in bits[:, lane].view(np.int32)]


@dataclass(frozen=True, slots=True)
class TensorMapFetch(Effect):
    """`prefetch.tensormap [a]`: fetch a tensor map before the first copy needs it. Source: PTX ISA, prefetch."""

    opcode = "prefetch.tensormap"
    takes = (pointer("a", "b64"),)
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Check that the address is a tensor map's."""
        warp.tensor_map(inputs[0])


@dataclass(frozen=True, slots=True)
class BulkTensorLoad(Effect):
    """Start a copy of a box from global to shared memory. Its bytes complete on an mbarrier.

    Operands: destination, map, coordinates (s32, innermost first), mbarrier. `multicast` adds a b16 mask of CTA ranks:
    each of these CTAs receives the box and completes its bytes on a barrier, both at the same offsets. `cache_hint`
    adds a 64-bit policy of createpolicy. rank: dimensions of the map. space: of the destination, "shared::cta" for the
    CTA's own memory. The meaning is the same, but see `Target.bulk_copies`.
    """

    multicast: bool = False
    rank: int = 2
    cache_hint: bool = False
    space: BulkSpace = "shared::cluster"

    def __post_init__(self) -> None:
        _check_rank(self.rank)
        if self.multicast and self.space == "shared::cta":
            raise RuleError("a multicast copy goes to shared::cluster, got shared::cta: that is one CTA's memory")

    @property
    def requires(self) -> Requirement:
        return Requirement((8, 6), "sm_90") if self.space == "shared::cta" else SM90

    @property
    def operands(self) -> tuple[Operand, ...]:
        mask = (Operand("mask", "in", "b16", values=range(1 << 16)),) if self.multicast else ()
        policy = (register("policy", "b64"),) if self.cache_hint else ()
        return (
            pointer("dst", "b32"),
            register("map", "b64"),
            Operand("coordinates", "in", "b32", self.rank, braces=True),
            pointer("mbar", "b32"),
            *mask,
            *policy,
        )

    @property
    def mnemonic(self) -> str:
        options = (".multicast::cluster" if self.multicast else "") + (".L2::cache_hint" if self.cache_hint else "")
        return f"cp.async.bulk.tensor.{self.rank}d.{self.space}.global.tile.mbarrier::complete_tx::bytes{options}"

    def text(self, *args: str) -> str:
        """Map and coordinates share one pair of brackets."""
        destination, tensor_map, coordinates, *others = args
        return f"{self.mnemonic} {', '.join([destination, f'[{tensor_map}, {coordinates}]', *others])}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        destination, tensor_map, coordinates, mbarrier, *others = inputs
        bound = warp.tensor_map(tensor_map)
        for lane in np.flatnonzero(warp.active).tolist():
            ranks = int(others[0][lane]) if self.multicast else None
            place = _coordinates(coordinates, lane)
            warp.bulk_tensor_load(bound, place, int(destination[lane]), int(mbarrier[lane]), ranks)


@dataclass(frozen=True, slots=True)
class BulkTensorStore(Effect):
    """Start a copy of a box from shared to global memory, in the thread's open bulk group.

    rank: dimensions of the map. cache_hint: the last operand is a policy of createpolicy. add: add the box to memory,
    each element atomically and relaxed, in the map's element type. Source: PTX ISA, cp.reduce.async.bulk.tensor.
    """

    rank: int = 2
    cache_hint: bool = False
    add: bool = False

    needs = SM90

    def __post_init__(self) -> None:
        _check_rank(self.rank)

    @property
    def operands(self) -> tuple[Operand, ...]:
        policy = (register("policy", "b64"),) if self.cache_hint else ()
        return (
            register("map", "b64"),
            Operand("coordinates", "in", "b32", self.rank, braces=True),
            pointer("src", "b32"),
            *policy,
        )

    @property
    def mnemonic(self) -> str:
        hint = ".L2::cache_hint" if self.cache_hint else ""
        if self.add:
            return f"cp.reduce.async.bulk.tensor.{self.rank}d.global.shared::cta.add.tile.bulk_group{hint}"
        return f"cp.async.bulk.tensor.{self.rank}d.global.shared::cta.tile.bulk_group{hint}"

    def text(self, *args: str) -> str:
        tensor_map, coordinates, *others = args
        return f"{self.mnemonic} {', '.join([f'[{tensor_map}, {coordinates}]', *others])}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        tensor_map, coordinates, source, *_ = inputs
        bound = warp.tensor_map(tensor_map)
        for lane in np.flatnonzero(warp.active).tolist():
            warp.bulk_tensor_store(bound, _coordinates(coordinates, lane), int(source[lane]), add=self.add)


@dataclass(frozen=True, slots=True)
class BulkLoad(Effect):
    """Start a copy of `size` bytes from global to shared memory. They complete on an mbarrier.

    Both addresses and the size are multiples of 16 bytes.
    """

    opcode = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    takes = (
        pointer("dst", "b32"),
        pointer("src", "b64"),
        Operand("size", "in", "b32", values=range(0, MBARRIER_MAX_TRANSACTION_BYTES + 1, 16)),
        pointer("mbar", "b32"),
    )
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        for lane in np.flatnonzero(warp.active).tolist():
            destination, source, size, mbarrier = (int(bits[lane]) for bits in inputs)
            warp.bulk_load(source, destination, size, mbarrier)


@dataclass(frozen=True, slots=True)
class BulkCommit(Effect):
    """`cp.async.bulk.commit_group`: the thread's copies since the last commit become a group."""

    opcode = "cp.async.bulk.commit_group"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.bulk_commit()


@dataclass(frozen=True, slots=True)
class BulkWait(Effect):
    """`cp.async.bulk.wait_group[.read] pending`: wait until at most `pending` of the thread's groups are unfinished.

    reads_only: wait only until they no longer read shared memory. Their writes to global memory may come later.
    """

    pending: int = 0
    reads_only: bool = True

    needs = SM90

    def __post_init__(self) -> None:
        if not 0 <= self.pending <= MAX_PENDING_COPIES:
            raise RuleError(f"a wait leaves 0 to {MAX_PENDING_COPIES} groups pending, got {self.pending}")

    @property
    def mnemonic(self) -> str:
        return f"cp.async.bulk.wait_group{'.read' if self.reads_only else ''} {self.pending}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return warp.bulk_wait(self.pending, read_only=self.reads_only)
