"""Instructions with effects, on the emulator: memory, matrices, lanes, barriers, bulk copies, tensor maps of every rank."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from louver.emulator import Earliest, GlobalMemory, Latest, Order, Seeded, run
from louver.isa.async_copy import AsyncWait
from louver.isa.bulk import (
    BulkCommit,
    BulkTensorLoad,
    BulkTensorStore,
    BulkWait,
    TensorMap,
)
from louver.isa.instruction import Instruction
from louver.isa.matrix import LoadMatrix, StoreMatrix
from louver.isa.memory import ATOMIC_TYPES, AtomicAdd, Load, Store
from louver.isa.move import Special
from louver.isa.sync import BarrierSync, SetMaxRegisters
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Module, Param
from louver.ptx.validate import validate
from support.effects import NUMBERS, Case, cases

ORDERS: tuple[Order, ...] = (Earliest(), Latest(), Seeded(3))


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", cases())
def test_memory_is_left_as_it_must_be(name: str, order: Order, rng: np.random.Generator) -> None:
    case: Case = cases()[name](rng)
    validate(Module("sm_90a", [case.kernel]))
    memory = GlobalMemory()
    arguments = {"x": memory.add("x", case.x, writable=False), "y": memory.add("y", case.y)}
    run(case.kernel, case.kernel.cluster, arguments, memory=memory, order=order)
    np.testing.assert_array_equal(case.y, case.expected)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_tensor_copies_of_every_rank_go_there_and_back(rank: int, order: Order, rng: np.random.Generator) -> None:
    shape, box = (12, 5, 3, 2, 3)[:rank], (8, 2, 2, 1, 2)[:rank]
    at = (4, -1, 1, 1, 2)[:rank]
    k = KernelBuilder("ranks", (Param("a", "tensormap"), Param("b", "tensormap")), threads=32, dynamic_shared=4096)
    smem = k.shared_symbol()
    a, b = k.map_address("a"), k.map_address("b")
    coordinates = tuple(k.mov(c) for c in at)
    count = 4 * int(np.prod(box))
    with k.if_(k.setp("eq", "u32", k.special("%laneid"), 0)):
        k.mbarrier_init(Address(smem), 1)
        k.fence_mbarrier_init()
        k.mbarrier_arrive_expect(Address(smem), count)
        k.emit(BulkTensorLoad(rank=rank), Address(smem, 1024), a, coordinates, Address(smem))
        k.wait(Address(smem), k.mov(0))
        k.emit(BulkTensorStore(rank), b, coordinates, Address(smem, 1024))
        k.emit(BulkCommit())
        k.emit(BulkWait(0, reads_only=False))
    source = rng.integers(0, 1 << 31, shape[::-1]).astype(np.uint32)
    target = np.zeros_like(source)
    strides = tuple(int(np.prod((shape[0] + 4, *shape[1:dimension]))) * 4 for dimension in range(1, rank))
    pitch = [(0, 0)] * (rank - 1) + [(0, 4)]
    padded, filled = np.pad(source, pitch), np.pad(target, pitch)
    memory = GlobalMemory()
    maps = {
        name: TensorMap(memory.add(name, array).address, 4, shape, strides, box)
        for name, array in (("a", padded), ("b", filled))
    }
    run(k.finish(), 1, maps, memory=memory, order=order)
    inside = tuple(slice(max(c, 0), min(c + n, s)) for c, n, s in zip(at, box, shape, strict=True))[::-1]
    target[inside] = source[inside]
    np.testing.assert_array_equal(filled[..., : shape[0]], target)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("kind", ["s32", "f32", "bf16"])
def test_ctas_add_to_the_same_sums(kind: str, order: Order, rng: np.random.Generator) -> None:
    """Atomics of CTAs, which nothing orders, are no race."""
    dtype = NUMBERS[kind]
    k = KernelBuilder("sums", (Param("x", "u64"), Param("y", "u64")), threads=64)
    tid = k.special("%tid.x")
    value = k.reg(ATOMIC_TYPES[kind].register)  # type: ignore[index]
    thread = k.mad_lo(k.special("%ctaid.x"), 64, tid)
    k.load_global((value,), Address(k.mad_wide(thread, dtype.itemsize, k.ld_param("x"))))
    place = k.mad_wide(k.and_(tid, 15), dtype.itemsize, k.ld_param("y"))
    k.emit(AtomicAdd(kind), Address(place), value)  # type: ignore[arg-type]
    x = rng.integers(-7, 8, (5, 4, 16)).astype(dtype)
    y = np.ones(16, dtype)
    memory = GlobalMemory()
    run(k.finish(), 5, {"x": memory.add("x", x), "y": memory.add("y", y)}, memory=memory, order=order)
    np.testing.assert_array_equal(y, (1 + x.astype(np.float64).sum(axis=(0, 1))).astype(dtype))


def test_special_registers_of_a_grid() -> None:
    k = KernelBuilder("special", (Param("y", "u64"),), threads=64, cluster=2)
    names = ("%ctaid.x", "%nctaid.x", "%cluster_ctarank", "%cluster_nctarank", "%laneid", "%tid.x")
    where = k.mad_lo(k.special("%ctaid.x"), 64, k.special("%tid.x"))
    place = k.mad_wide(where, 4 * len(names), k.ld_param("y"))
    for index, name in enumerate(names):
        k.store_global(Address(place, 4 * index), k.special(name))
    memory = GlobalMemory()
    y = np.zeros((4, 64, len(names)), np.uint32)
    run(k.finish(), 4, {"y": memory.add("y", y)}, memory=memory)
    cta, thread = np.divmod(np.arange(256, dtype=np.uint32), 64)
    expected = np.stack([cta, np.full(256, 4), cta % 2, np.full(256, 2), thread % 32, thread], axis=1)
    np.testing.assert_array_equal(y.reshape(256, -1), expected)


@pytest.mark.parametrize(
    "make,rule",
    [
        (lambda: Load("global", "pred"), "a load moves 1, 2 or 4 registers"),
        (lambda: Load("global", "b32", 3), "got 3 × b32"),
        (lambda: Store("shared", "b64", 4), "at most 16 bytes a lane, got 4 × b64"),
        (lambda: Load("shared", "b32", read_only=True), "only global memory is read by .nc"),
        (lambda: Load("shared", "b32", streaming=True), "only global memory"),
        (
            lambda: Load("shared", "b32", volatile=True),
            "only global memory is read by .nc, past L1 or volatile, got shared",
        ),
        (
            lambda: Load("global", "b32", read_only=True, volatile=True),
            "a volatile load has no hints, got read_only: leave",
        ),
        (lambda: AtomicAdd("f64"), "atomics add u32, s32, u64, f32, f16, bf16, f16x2, bf16x2, got f64: convert"),
        (lambda: StoreMatrix(count=3), "1, 2 or 4 matrices move at once, got 3"),
        (lambda: LoadMatrix(count=8), "1, 2 or 4 matrices move at once, got 8"),
        (lambda: Special("%clock"), "the special registers are %tid.x"),
        (lambda: BarrierSync(16, 32), "barriers 0 to 15, got 16"),
        (lambda: BarrierSync(1, 48), "whole warps of 32 threads, got 48"),
        (lambda: BarrierSync(1, 0), "whole warps of 32 threads, got 0"),
        (lambda: SetMaxRegisters("inc", 250), "a multiple of 8 from 24 to 256, got 250"),
        (lambda: SetMaxRegisters("dec", 16), "a multiple of 8 from 24 to 256, got 16"),
        (lambda: BulkTensorLoad(rank=6), "1 to 5 dimensions, got 6"),
        (
            lambda: BulkTensorLoad(True, space="shared::cta"),
            "a multicast copy goes to shared::cluster, got shared::cta",
        ),
        (lambda: BulkTensorStore(0), "1 to 5 dimensions, got 0"),
        (lambda: BulkWait(-1), "0 to 63 groups pending, got -1"),
        (lambda: BulkWait(64), "0 to 63 groups pending, got 64"),
        (lambda: AsyncWait(-1), "0 to 63 groups pending, got -1"),
        (lambda: AsyncWait(64), "0 to 63 groups pending, got 64"),
    ],
)
def test_forms_that_no_target_has_are_refused(make: Callable[[], Instruction], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        make()
