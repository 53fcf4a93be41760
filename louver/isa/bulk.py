"""Bulk tensor copies: tiles between global and shared memory, described by a tensor map.

The tensor map is a kernel parameter passed by value; the instruction takes its generic address.
Source: PTX ISA, cp.async.bulk.tensor, cp.async.bulk.commit_group and wait_group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from louver.isa.instruction import Bits, Effect, Operand, Pure, Requirement
from louver.isa.machine import Suspend, WarpState

SM90 = Requirement((8, 0), "sm_90a")

RANK = 2
"""Dimensions of the tensor maps that Louver uses: a matrix."""


@dataclass(frozen=True, slots=True)
class GenericParameter(Pure):
    """`cvta.param.u64 d, a`: the generic address of a kernel parameter."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d, a."""
        return Operand("d", "out", "b64", kind="register"), Operand("a", "in", "b64", kind="register")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return "cvta.param.u64"

    @property
    def requires(self) -> Requirement:
        """PTX 7.7."""
        return Requirement((7, 7))

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        """The machine's addresses are generic already."""
        return (inputs[0].copy(),)


def _coordinates(bits: Bits, lane: int) -> list[int]:
    return [int(c) for c in bits[:, lane].view(np.int32)]


@dataclass(frozen=True, slots=True)
class BulkTensorLoad(Effect):
    """Start a copy of a map's box from global memory to shared memory; its bytes complete on an mbarrier.

    Operands: destination, map, {x, y} (s32, innermost first), mbarrier, and with `multicast` a b16 mask of CTA ranks that
    all receive the box at the same offset, with its bytes on their own barrier at the same offset.
    """

    multicast: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        """[dst], map, {x, y}, [mbar] and, with multicast, the mask."""
        mask = (Operand("mask", "in", "b16", kind="register"),) if self.multicast else ()
        return (
            Operand("dst", "in", "b32", kind="address"),
            Operand("map", "in", "b64", kind="register"),
            Operand("coordinates", "in", "b32", RANK, braces=True),
            Operand("mbar", "in", "b32", kind="address"),
            *mask,
        )

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        cast = ".multicast::cluster" if self.multicast else ""
        return f"cp.async.bulk.tensor.{RANK}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{cast}"

    @property
    def requires(self) -> Requirement:
        """PTX 8.0."""
        return SM90

    def text(self, *args: str) -> str:
        """Map and coordinates share one pair of brackets."""
        destination, tensor_map, coordinates, mbarrier, *mask = args
        return f"{self.mnemonic} {', '.join([destination, f'[{tensor_map}, {coordinates}]', mbarrier, *mask])}"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Start one copy for each active lane."""
        destination, tensor_map, coordinates, mbarrier, *mask = inputs
        bound = warp.tensor_map(tensor_map)
        for lane in np.flatnonzero(warp.active).tolist():
            ranks = int(mask[0][lane]) if mask else None
            place = _coordinates(coordinates, lane)
            warp.bulk_tensor_load(bound, place, int(destination[lane]), int(mbarrier[lane]), ranks)
        return ()


@dataclass(frozen=True, slots=True)
class BulkTensorStore(Effect):
    """Start a copy of a box from shared memory to global memory, as part of the thread's open bulk group."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """map, {x, y}, [src]."""
        return (
            Operand("map", "in", "b64", kind="register"),
            Operand("coordinates", "in", "b32", RANK, braces=True),
            Operand("src", "in", "b32", kind="address"),
        )

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return f"cp.async.bulk.tensor.{RANK}d.global.shared::cta.tile.bulk_group"

    @property
    def requires(self) -> Requirement:
        """PTX 8.0."""
        return SM90

    def text(self, *args: str) -> str:
        """Map and coordinates share one pair of brackets."""
        tensor_map, coordinates, source = args
        return f"{self.mnemonic} [{tensor_map}, {coordinates}], {source}"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Start one copy for each active lane."""
        tensor_map, coordinates, source = inputs
        bound = warp.tensor_map(tensor_map)
        for lane in np.flatnonzero(warp.active).tolist():
            warp.bulk_tensor_store(bound, _coordinates(coordinates, lane), int(source[lane]))
        return ()


@dataclass(frozen=True, slots=True)
class BulkCommit(Effect):
    """`cp.async.bulk.commit_group`: the thread's copies since the last commit become a group."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """None."""
        return ()

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return "cp.async.bulk.commit_group"

    @property
    def requires(self) -> Requirement:
        """PTX 8.0."""
        return SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Commit."""
        warp.bulk_commit()
        return ()


@dataclass(frozen=True, slots=True)
class BulkWait(Effect):
    """`cp.async.bulk.wait_group.read pending`: until at most `pending` groups of the thread still read shared memory."""

    pending: int = 0

    def __post_init__(self) -> None:
        if self.pending < 0:
            raise ValueError(f"a wait leaves 0 or more groups pending, got {self.pending}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """None: the count is part of the form."""
        return ()

    @property
    def mnemonic(self) -> str:
        """The opcode and its constant."""
        return f"cp.async.bulk.wait_group.read {self.pending}"

    @property
    def requires(self) -> Requirement:
        """PTX 8.0."""
        return SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Wait."""
        suspend = warp.bulk_wait(self.pending, read_only=True)
        return () if suspend is None else suspend
