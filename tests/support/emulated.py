"""Small kernels for the emulator's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from louver.emulator import Earliest, GlobalMemory, Latest, Order, Report, Seeded, run
from louver.emulator.parameters import Argument
from louver.isa.bulk import BulkCommit, BulkTensorLoad, BulkTensorStore, BulkWait, GenericParameter
from louver.isa.instruction import Bits, Effect, Operand
from louver.isa.machine import Suspend, WarpState
from louver.isa.memory import Load, LoadParameter, Store, SymbolAddress
from louver.isa.sync import (
    BarrierSync,
    ClusterArrive,
    ClusterWait,
    FenceMbarrierInit,
    FenceProxyAsync,
    MapShared,
    MbarrierArrive,
    MbarrierArriveExpect,
    MbarrierInit,
    MbarrierTryWait,
)
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Imm, Kernel, Param, Reg

ORDERS: tuple[Order, ...] = (Earliest(), Latest(), Seeded(1), Seeded(2))
every_order = pytest.mark.parametrize("order", ORDERS, ids=str)


def smem(offset: int) -> Address:
    """A byte of the dynamic shared memory."""
    return Address("smem", offset)


def _place(at: int | Reg) -> Address:
    """An offset in the dynamic shared memory, or the address in a register."""
    return smem(at) if isinstance(at, int) else Address(at)


@dataclass(frozen=True, slots=True)
class Probe(Effect):
    """A test's own instruction: what the machine offers, spelled out by the test."""

    name: str
    action: Callable[..., Any]
    ins: tuple[Operand, ...] = ()
    outs: tuple[Operand, ...] = ()

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.outs, *self.ins)

    @property
    def mnemonic(self) -> str:
        return self.name

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        result = self.action(warp, *inputs)
        return () if result is None else result


ADDRESS = Operand("a", "in", "b32", kind="address")
VALUE = Operand("b", "in", "b32")
RESULT = Operand("d", "out", "b32")


class Sketch(KernelBuilder):
    """A kernel builder with shorthands; barrier and data addresses are offsets in the dynamic shared memory."""

    def init(self, barrier: int, count: int) -> None:
        self.emit(MbarrierInit(), smem(barrier), count)

    def init_barriers(self, counts: dict[int, int], threads: int) -> None:
        """Thread 0 initialises, then everybody goes on."""
        with self.thread(0):
            for barrier, count in counts.items():
                self.init(barrier, count)
            self.emit(FenceMbarrierInit())
        self.sync(threads)

    def sync(self, threads: int, index: int = 0) -> None:
        self.emit(BarrierSync(index, threads))

    def cluster_sync(self) -> None:
        self.emit(ClusterArrive())
        self.emit(ClusterWait())

    def thread(self, index: int):
        return self.if_(self.setp("eq", "u32", self.special("%tid.x"), index))

    def warp(self, index: int):
        return self.if_(self.setp("eq", "u32", self.shr(self.special("%tid.x"), 5), index), uniform=True)

    def warpgroup(self, index: int):
        return self.if_(self.setp("eq", "u32", self.shr(self.special("%tid.x"), 7), index), uniform=True)

    def lane(self, index: int):
        return self.if_(self.setp("eq", "u32", self.and_(self.special("%tid.x"), 31), index))

    def rank(self, index: int):
        return self.if_(self.setp("eq", "u32", self.special("%cluster_ctarank"), index))

    def arrive(self, barrier: int | Reg) -> None:
        self.emit(MbarrierArrive(), _place(barrier))

    def arrive_remote(self, barrier: int, rank: int) -> None:
        mapped = self.reg("b32")
        self.emit(MapShared(), mapped, self.add(self.base(), barrier), rank)
        self.emit(MbarrierArrive(remote=True), Address(mapped))

    def expect(self, barrier: int | Reg, size: int) -> None:
        self.emit(MbarrierArriveExpect(), _place(barrier), size)

    def await_(self, barrier: int | Reg, parity: int | Reg) -> None:
        with self.loop() as loop:
            done = self.reg("pred")
            self.emit(MbarrierTryWait(), done, _place(barrier), parity)
            loop.repeat_if(done, negated=True)

    def base(self) -> Reg:
        result = self.reg("b32")
        self.emit(SymbolAddress("b32"), result, Address("smem"))
        return result

    def map(self, name: str) -> Reg:
        place, result = self.regs("b64", 2)
        self.emit(SymbolAddress("b64"), place, Address(name))
        self.emit(GenericParameter(), result, place)
        return result

    def bulk_load(
        self, name: str, at: Sequence[int | Reg], to: int | Reg, barrier: int | Reg, mask: int | None = None
    ) -> None:
        extra = [] if mask is None else [self.mov(mask, kind="b16")]
        load = BulkTensorLoad(mask is not None)
        self.emit(load, _place(to), self.map(name), _vector(at), _place(barrier), *extra)

    def bulk_store(self, name: str, at: Sequence[int | Reg], source: int) -> None:
        self.emit(BulkTensorStore(), self.map(name), _vector(at), smem(source))

    def bulk_store_at(self, name: str, at: Sequence[int | Reg], source: Reg) -> None:
        self.emit(BulkTensorStore(), self.map(name), _vector(at), Address(source))

    def bulk_commit_wait(self, pending: int = 0) -> None:
        self.emit(BulkCommit())
        self.emit(BulkWait(pending))

    def fence_async(self) -> None:
        self.emit(FenceProxyAsync())

    def pointer(self, name: str) -> Reg:
        result = self.reg("b64")
        self.emit(LoadParameter("u64"), result, Address(name))
        return result

    def load(self, offset: int | Reg) -> Reg:
        """A b32 of shared memory: at a constant offset, or at the address in a register."""
        result = self.reg("b32")
        self.emit(Load("shared", "b32"), result, _place(offset))
        return result

    def store(self, offset: int | Reg, value: int | Reg) -> None:
        self.emit(Store("shared", "b32"), _place(offset), self.mov(value) if isinstance(value, int) else value)

    def own(self, offset: int) -> Reg:
        """Address of this thread's b32 in an array at `offset`."""
        return self.mad_lo(self.special("%tid.x"), 4, self.add(self.base(), offset))

    def output(self, name: str, value: Reg, index: Reg | None = None) -> None:
        """Store b32 `value` at `index`, by default the thread's."""
        index = self.special("%tid.x") if index is None else index
        self.emit(Store("global", "b32"), Address(self.mad_wide(index, 4, self.pointer(name))), value)


def _vector(at: Sequence[int | Reg]) -> tuple[Reg | Imm, ...]:
    return tuple(Imm(c) if isinstance(c, int) else c for c in at)


def kernel(
    write: Callable[[Sketch], None], *, threads: int = 32, cluster: int = 1, shared: int = 4096, **params: str
) -> Kernel:
    """The kernel that `write` writes; params: names and types."""
    listed = tuple(Param(name, kind) for name, kind in params.items())  # type: ignore[arg-type]
    sketch = Sketch("test", listed, threads=threads, cluster=cluster, dynamic_shared=shared)
    write(sketch)
    return sketch.finish()


@dataclass
class Bench:
    """Global memory and arguments of a run."""

    memory: GlobalMemory = field(default_factory=GlobalMemory)
    arguments: dict[str, Argument] = field(default_factory=dict)

    def output(self, name: str, shape: int | tuple[int, ...], dtype: Any = np.uint32) -> NDArray[Any]:
        array = np.zeros(shape, dtype)
        self.arguments[name] = self.memory.add(name, array, initialised=False)
        return array

    def input(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        self.arguments[name] = self.memory.add(name, array, writable=False)
        return array

    def run(self, kernel: Kernel, order: Order, grid: int = 1) -> Report:
        return run(kernel, grid, self.arguments, memory=self.memory, order=order)


def launch(kernel: Kernel, order: Order) -> Report:
    """Run a kernel without parameters."""
    return Bench().run(kernel, order)
