"""`KernelBuilder`: methods for common instructions. Results are new registers unless `into` names one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from louver.isa.async_copy import StoreAsync
from louver.isa.bulk import (
    BulkCommit,
    BulkTensorLoad,
    BulkTensorStore,
    BulkWait,
    CachePolicy,
    Eviction,
    GenericParameter,
)
from louver.isa.bytes import StoreByte
from louver.isa.matrix import StoreMatrix
from louver.isa.memory import Load, LoadParameter, Store, SymbolAddress
from louver.isa.scalar import REGISTER
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
    SetMaxRegisters,
)
from louver.isa.targets import BulkSpace
from louver.ptx.arithmetic import Arithmetic, Number
from louver.ptx.module import Address, Imm, Reg
from louver.ptx.validate import SHARED_SYMBOL


class KernelBuilder(Arithmetic):
    """Arithmetic, memory, barriers and bulk copies."""

    # --- memory ----------------------------------------------------------------------------------------------------
    def ld_param(self, name: str) -> Reg:
        """The value of a scalar parameter."""
        kind = self.params[name].type
        if kind == "tensormap":
            raise ValueError(f"{name} is a tensor map, which is not loaded: take its address")
        result = self.reg(REGISTER[kind])
        self.emit(LoadParameter(kind), result, Address(name))
        return result

    def shared_symbol(self) -> Reg:
        """The address of the dynamic shared memory."""
        result = self.reg("b32")
        self.emit(SymbolAddress("b32"), result, Address(SHARED_SYMBOL))
        return result

    def map_address(self, name: str) -> Reg:
        """The generic address of a tensor-map parameter."""
        place, result = self.regs("b64", 2)
        self.emit(SymbolAddress("b64"), place, Address(name))
        self.emit(GenericParameter(), result, place)
        return result

    def load_global(
        self, registers: Sequence[Reg], address: Address, *, guard: Reg | None = None, read_only: bool = False
    ) -> None:
        """Load 1, 2 or 4 registers of one class. read_only: nobody writes the data meanwhile."""
        count = _vector(len(registers))
        target = registers[0] if count == 1 else tuple(registers)
        self.emit(Load("global", registers[0].type, count, read_only), target, address, guard=guard)

    def store_global(self, address: Address, value: Reg | Sequence[Reg], *, guard: Reg | None = None) -> None:
        """Store a register, or 1, 2 or 4 of one class."""
        self._store("global", address, value, guard)

    def load_shared(self, registers: Sequence[Reg], address: Address) -> None:
        """As `load_global`, from shared memory."""
        count = _vector(len(registers))
        target = registers[0] if count == 1 else tuple(registers)
        self.emit(Load("shared", registers[0].type, count), target, address)

    def store_shared(self, address: Address, value: Reg | Sequence[Reg], *, guard: Reg | None = None) -> None:
        """As `store_global`, to shared memory."""
        self._store("shared", address, value, guard)

    def _store(
        self, space: Literal["global", "shared"], address: Address, value: Reg | Sequence[Reg], guard: Reg | None
    ) -> None:
        registers = (value,) if isinstance(value, Reg) else tuple(value)
        count = _vector(len(registers))
        self.emit(
            Store(space, registers[0].type, count), address, registers[0] if count == 1 else registers, guard=guard
        )

    def store_byte(self, address: Address, value: Reg, *, guard: Reg | None = None) -> None:
        """Store the low byte of a 16-bit register."""
        self.emit(StoreByte(), address, value, guard=guard)

    def store_matrices(self, address: Address, registers: Sequence[Reg], *, transpose: bool) -> None:
        """Four 8×8 matrices of 16-bit elements to shared memory."""
        self.emit(StoreMatrix(transpose), address, tuple(registers))

    # --- barriers --------------------------------------------------------------------------------------------------
    def mbarrier_init(self, address: Address, count: int, *, guard: Reg | None = None) -> None:
        """A barrier whose phases complete after `count` arrivals."""
        self.emit(MbarrierInit(), address, Imm(count), guard=guard)

    def mbarrier_arrive(self, address: Address, *, remote: bool = False, guard: Reg | None = None) -> None:
        """One arrival. remote: the address is from `map_shared`."""
        self.emit(MbarrierArrive(remote), address, guard=guard)

    def mbarrier_arrive_expect(self, address: Address, transaction_bytes: Number) -> None:
        self.emit(MbarrierArriveExpect(), address, transaction_bytes)

    def wait(self, address: Address, parity: Number) -> None:
        """Spin until the barrier's phase of that parity is complete."""
        with self.loop() as loop:
            done = self.reg("pred")
            self.emit(MbarrierTryWait(), done, address, parity)
            loop.repeat_if(done, negated=True)

    def fence_mbarrier_init(self) -> None:
        self.emit(FenceMbarrierInit())

    def fence_proxy_async(self) -> None:
        self.emit(FenceProxyAsync())

    def map_shared(self, address: Number, rank: Number) -> Reg:
        """The address in the window of CTA `rank`."""
        result = self.reg("b32")
        self.emit(MapShared(), result, address, rank)
        return result

    def store_async(self, address: Address, value: Reg | Sequence[Reg], mbarrier: Address) -> None:
        """Store 1, 2 or 4 registers of one class later, to a CTA of the cluster. Their bytes complete on a barrier
        there. Both addresses are from `map_shared`.
        """
        registers = (value,) if isinstance(value, Reg) else tuple(value)
        count = _vector(len(registers))
        store = StoreAsync(registers[0].type, count)
        self.emit(store, address, registers[0] if count == 1 else registers, mbarrier)

    def barrier_sync(self, index: int, threads: int) -> None:
        self.emit(BarrierSync(index, threads))

    def cluster_sync(self) -> None:
        """Wait for all threads of the cluster."""
        self.emit(ClusterArrive())
        self.emit(ClusterWait())

    def setmaxnreg(self, count: int, action: Literal["inc", "dec"]) -> None:
        self.emit(SetMaxRegisters(action, count))

    # --- bulk copies -----------------------------------------------------------------------------------------------
    def bulk_tensor_load(
        self,
        destination: Address,
        tensor_map: Reg,
        coordinates: Sequence[Reg | Imm],
        mbarrier: Address,
        *,
        multicast: int | None = None,
        evict: Eviction | None = None,
        space: BulkSpace = "shared::cluster",
    ) -> None:
        """Copy a box to shared memory. coordinates: one for each dimension. multicast: mask of CTA ranks. evict:
        whether the L2 cache evicts the data first or last. space: see `BulkTensorLoad`.
        """
        mask: list[Reg] = [] if multicast is None else [self.mov(multicast, kind="b16")]
        load = BulkTensorLoad(multicast is not None, len(coordinates), evict is not None, space)
        self.emit(load, destination, tensor_map, tuple(coordinates), mbarrier, *mask, *self._policy(evict))

    def bulk_tensor_store(
        self,
        tensor_map: Reg,
        coordinates: Sequence[Reg | Imm],
        source: Address,
        *,
        evict: Eviction | None = None,
        add: bool = False,
    ) -> None:
        """Copy a box from shared to global memory, or add it there."""
        store = BulkTensorStore(len(coordinates), cache_hint=evict is not None, add=add)
        self.emit(store, tensor_map, tuple(coordinates), source, *self._policy(evict))

    def _policy(self, evict: Eviction | None) -> list[Reg]:
        if evict is None:
            return []
        policy = self.reg("b64")
        self.emit(CachePolicy(evict), policy)
        return [policy]

    def bulk_commit(self) -> None:
        self.emit(BulkCommit())

    def bulk_wait(self, pending: int) -> None:
        """Wait until at most `pending` groups still read shared memory."""
        self.emit(BulkWait(pending))


def _vector(count: int) -> Literal[1, 2, 4]:
    if count not in (1, 2, 4):
        raise ValueError(f"a memory access moves 1, 2 or 4 registers, got {count}")
    return count
