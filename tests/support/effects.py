"""Kernels for instructions that touch memory, barriers and other lanes, with what they must leave in memory.

Each case has one input and one output array, parameters `x` and `y`, and runs in one CTA, or in one cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from louver.formats.dtypes import element_type
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.bulk import BulkLoad
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.matrix import LoadMatrix, StoreMatrix
from louver.isa.memory import ATOMIC_TYPES, AddVector, AtomicAdd, AtomicUpdate, Load, Store
from louver.isa.move import Elect
from louver.isa.sync import (
    BarrierAny,
    BarrierSync,
    MbarrierArrive,
    MbarrierArriveExpect,
    MbarrierInit,
    MbarrierInvalidate,
    WarpSync,
)
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Param, Reg
from support.scalar import WIDTH, random_integers

SHARED = 4096
Random = np.random.Generator


@dataclass(frozen=True)
class Case:
    """kernel: to be launched in one cluster. x: its input. y: the output as it is before, expected: as it is afterwards."""

    kernel: Kernel
    x: np.ndarray
    y: np.ndarray
    expected: np.ndarray


def cases() -> dict[str, Callable[[Random], Case]]:
    """Functions that make each case from random numbers, by name."""
    made = dict(_vector_cases())
    for transpose in (False, True):
        for count in (1, 2, 4):
            suffix = f"{'-transposed' if transpose else ''}-x{count}"
            made[f"stmatrix{suffix}"] = _bind(_store_matrix, transpose, count)
            made[f"ldmatrix{suffix}"] = _bind(_load_matrix, transpose, count)
    for kind in ATOMIC_TYPES:
        made[f"red-{kind}"] = _bind(_reduce, kind)
    for kind in ("f32", "f16x2", "bf16x2"):
        for count in (2, 4):
            made[f"red-v{count}-{kind}"] = _bind(_reduce_vector, kind, count)
    made |= {
        "bytes": _bytes,
        "shared-bytes": _shared_bytes,
        "butterfly": _butterfly,
        "atom": _atomic,
        "lanes": _lanes,
        "mbarrier": _mbarrier,
        "bulk": _bulk,
        "async-copies": _async_copies,
        "named": _named,
        "any": _any,
        "count": _count,
    }
    return made


def _bind(function: Callable[..., Case], *arguments: object) -> Callable[[Random], Case]:
    return lambda rng: function(rng, *arguments)


def _builder(threads: int = 32, cluster: int = 1) -> KernelBuilder:
    params = (Param("x", "u64"), Param("y", "u64"))
    return KernelBuilder("effect", params, threads=threads, cluster=cluster, dynamic_shared=SHARED)


def _at(k: KernelBuilder, name: str, index: Reg, size: int) -> Address:
    return Address(k.mad_wide(index, size, k.ld_param(name)))


def _vector_cases() -> Iterator[tuple[str, Callable[[Random], Case]]]:
    for kind in ("b16", "b32", "b64", "f32"):
        for count in (1, 2, 4):
            if count * WIDTH.get(kind, 32) <= 128:
                yield f"vector-{kind}-x{count}", _bind(_vectors, kind, count)
                if kind != "b16":
                    yield f"store-async-{kind}-x{count}", _bind(_async_stores, kind, count)


def _vectors(rng: Random, kind: str, count: int) -> Case:
    """Every lane's vector goes through shared memory to the lane before it."""
    k = _builder()
    size = count * WIDTH.get(kind, 32) // 8
    lane = k.special("%laneid")
    registers = tuple(k.regs(kind, count))  # type: ignore[arg-type]
    vector = registers if count > 1 else registers[0]
    k.emit(Load("global", kind, count, read_only=True, streaming=True), vector, _at(k, "x", lane, size))  # type: ignore[arg-type]
    smem = k.shared_symbol()
    k.emit(Store("shared", kind, count), Address(k.mad_lo(lane, size, smem), 64), vector)  # type: ignore[arg-type]
    k.emit(WarpSync(), -1)
    after = k.and_(k.add(lane, 1), 31)
    k.emit(Load("shared", kind, count), vector, Address(k.mad_lo(after, size, smem), 64))  # type: ignore[arg-type]
    k.emit(Store("global", kind, count), _at(k, "y", lane, size), vector)  # type: ignore[arg-type]
    x = np.stack([random_integers(rng, "b32" if kind == "f32" else kind) for _ in range(count)], axis=1)
    return Case(k.finish(), x, np.zeros_like(x), np.roll(x, -1, axis=0))


def _bytes(rng: Random) -> Case:
    """Single bytes at odd addresses; their neighbours stay."""
    k = _builder()
    lane = k.special("%laneid")
    value = k.reg("b16")
    k.emit(LoadByte(), value, Address(k.mad_wide(lane, 3, k.ld_param("x")), 1))
    k.emit(StoreByte(), Address(k.mad_wide(lane, 2, k.ld_param("y")), 1), value)
    x = rng.integers(0, 256, 100).astype(np.uint8)
    y = np.full(64, 9, np.uint8)
    expected = y.copy()
    expected[1::2] = x[1 : 1 + 3 * 32 : 3][:32]
    return Case(k.finish(), x, y, expected)


def _shared_bytes(rng: Random) -> Case:
    """Single bytes at odd addresses of shared memory; the high byte of the register is not stored."""
    k = _builder()
    lane, smem = k.special("%laneid"), k.shared_symbol()
    value = k.reg("b16")
    k.emit(Load("global", "b16"), value, _at(k, "x", lane, 2))
    k.emit(StoreByte("shared"), Address(k.mad_lo(lane, 3, smem), 1), value)
    k.emit(WarpSync(), -1)
    k.emit(LoadByte("shared"), value, Address(k.mad_lo(k.xor(lane, 1), 3, smem), 1))
    k.emit(Store("global", "b16"), _at(k, "y", lane, 2), value)
    x = random_integers(rng, "b16")
    return Case(k.finish(), x, np.full_like(x, 9), x[np.arange(32) ^ 1] & 0xFF)


def _butterfly(rng: Random) -> Case:
    """Lanes change places by constant masks and by one from memory; of it the low five bits count."""
    k = _builder()
    lane = k.special("%laneid")
    value, mask = k.reg("b32"), k.reg("b32")
    k.load_global((value,), _at(k, "x", lane, 4))
    k.load_global((mask,), Address(k.ld_param("x"), 128))
    results = (k.shuffle_xor(value, 1), k.shuffle_xor(value, 16), k.shuffle_xor(value, 31), k.shuffle_xor(value, mask))
    k.emit(Store("global", "b32", 4), _at(k, "y", lane, 16), results)
    x = np.concatenate([random_integers(rng, "b32"), np.array([32 + 6], np.uint32)])
    expected = np.stack([x[np.arange(32) ^ m] for m in (1, 16, 31, 6)], axis=1)
    return Case(k.finish(), x, np.zeros_like(expected), expected)


def _row_order(rng: Random) -> np.ndarray:
    """The row of 32 that each lane's address names."""
    return rng.permutation(32)


def _store_matrix(rng: Random, transpose: bool, count: int) -> Case:
    """Registers to rows of shared memory in a random order."""
    k = _builder()
    lane = k.special("%laneid")
    words = tuple(k.regs("b32", 4))
    k.emit(Load("global", "b32", 4), words, _at(k, "x", lane, 16))
    order = k.reg("b32")
    k.emit(Load("global", "b32"), order, Address(k.mad_wide(lane, 4, k.ld_param("x")), 512))
    smem = k.shared_symbol()
    blank = k.mov(0)
    mine = Address(k.mad_lo(lane, 16, smem))
    k.emit(Store("shared", "b32", 4), mine, (blank,) * 4)
    k.emit(WarpSync(), -1)
    k.emit(StoreMatrix(transpose, count), Address(k.mad_lo(order, 16, smem)), words[:count])  # type: ignore[arg-type]
    k.emit(WarpSync(), -1)
    k.emit(Load("shared", "b32", 4), words, mine)
    k.emit(Store("global", "b32", 4), _at(k, "y", lane, 16), words)
    halves, order_of = rng.integers(0, 1 << 16, (32, 4, 2)).astype(np.uint16), _row_order(rng)
    rows = np.zeros((32, 8), np.uint16)
    for matrix in range(count):
        for row in range(8):
            for column in range(8):
                r, c = (column, row) if transpose else (row, column)
                rows[order_of[8 * matrix + row], column] = halves[4 * r + c // 2, matrix, c % 2]
    x = np.concatenate([halves.reshape(-1).view(np.uint32), order_of.astype(np.uint32)])
    return Case(k.finish(), x, np.zeros(128, np.uint32), rows.reshape(-1).view(np.uint32))


def _load_matrix(rng: Random, transpose: bool, count: int) -> Case:
    """Rows of shared memory in a random order to registers."""
    k = _builder()
    lane = k.special("%laneid")
    words = tuple(k.regs("b32", 4))
    k.emit(Load("global", "b32", 4), words, _at(k, "x", lane, 16))
    order = k.reg("b32")
    k.emit(Load("global", "b32"), order, Address(k.mad_wide(lane, 4, k.ld_param("x")), 512))
    smem = k.shared_symbol()
    k.emit(Store("shared", "b32", 4), Address(k.mad_lo(lane, 16, smem)), words)
    k.emit(WarpSync(), -1)
    made = tuple(k.regs("b32", count))
    k.emit(LoadMatrix(transpose, count), made, Address(k.mad_lo(order, 16, smem)))  # type: ignore[arg-type]
    for index, register in enumerate(made):
        k.store_global(Address(k.mad_wide(lane, 4 * count, k.ld_param("y")), 4 * index), register)
    rows, order_of = rng.integers(0, 1 << 16, (32, 8)).astype(np.uint16), _row_order(rng)
    halves = np.zeros((32, count, 2), np.uint16)
    for matrix in range(count):
        for row in range(8):
            for column in range(8):
                r, c = (column, row) if transpose else (row, column)
                halves[4 * r + c // 2, matrix, c % 2] = rows[order_of[8 * matrix + row], column]
    x = np.concatenate([rows.reshape(-1).view(np.uint32), order_of.astype(np.uint32)])
    return Case(k.finish(), x, np.zeros(32 * count, np.uint32), halves.reshape(-1).view(np.uint32))


NUMBERS = {
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    **{kind: element_type(kind.removesuffix("x2")).numpy for kind in ("s32", "f32", "f16", "bf16", "f16x2", "bf16x2")},
}
"""The dtype of a number in each type that atomics add."""


def _any(rng: Random) -> Case:
    """Two warpgroups ask, ten times, whether any of their threads has a number of the round: each at a barrier of its own."""
    k = _builder(threads=256)
    tid, rounds = k.special("%tid.x"), 10
    number, found = k.reg("b32"), k.mov(0)
    k.load_global((number,), _at(k, "x", tid, 4))
    for group in range(2):
        with k.if_(k.setp("eq", "u32", k.shr(tid, 7), group), uniform=True):
            for index in range(rounds):
                holds = k.reg("pred")
                k.emit(BarrierAny(4 + group, 128), holds, k.setp("eq", "u32", number, index))
                k.mov(k.or_(found, k.selp(1 << index, 0, holds)), into=found)
    k.store_global(_at(k, "y", tid, 4), found)
    x = rng.integers(0, 4 * 128, 256).astype(np.uint32)
    x[[3, 200]] = 2, 7
    masks = [sum(1 << index for index in range(rounds) if index in x[start : start + 128]) for start in (0, 128)]
    return Case(k.finish(), x, np.zeros(256, np.uint32), np.repeat(np.uint32(masks), 128))


def _count(rng: Random) -> Case:
    """64 threads count to 5 and begin anew, in each of three places; what each finds is counted too."""
    k = _builder(threads=64)
    tid = k.special("%tid.x")
    place, before = k.sub(tid, k.mul_lo(k.div(tid, 3), 3)), k.reg("b32")
    k.emit(AtomicUpdate("inc", "u32", returns=True), before, _at(k, "y", place, 4), 4)
    k.emit(AtomicAdd("u32"), _at(k, "y", k.add(before, 3), 4), 1)
    counts = [len(range(place, 64, 3)) for place in range(3)]
    found = [sum(-(-(count - value) // 5) for count in counts) for value in range(5)]
    return Case(
        k.finish(), np.zeros(1, np.uint32), np.zeros(8, np.uint32), np.uint32([*(c % 5 for c in counts), *found])
    )


def _reduce(rng: Random, kind: str) -> Case:
    """64 threads add into five sums (of pairs, into five pairs)."""
    k = _builder(threads=64)
    register = ATOMIC_TYPES[kind].register  # type: ignore[index]
    size = WIDTH.get(register, 32) // 8
    tid = k.special("%tid.x")
    value = k.reg(register)
    k.load_global((value,), _at(k, "x", tid, size))
    bin_ = k.sub(tid, k.mul_lo(k.div(tid, 5), 5))
    k.emit(AtomicAdd(kind), _at(k, "y", bin_, size), value)  # type: ignore[arg-type]
    dtype = NUMBERS[kind]
    # Small sums are exact in floating point, in any order: bf16 keeps 8 bits.
    low, high = {"u": (0, 1 << 20), "i": (-(1 << 20), 1 << 20), "f": (-8, 9)}.get(dtype.kind, (-8, 9))
    x = rng.integers(low, high, (64, size // dtype.itemsize)).astype(dtype)
    y = rng.integers(0, 10, (5, x.shape[1])).astype(dtype)
    expected = np.stack([y[b] + x[b::5].sum(axis=0, dtype=np.float64).astype(dtype) for b in range(5)])
    return Case(k.finish(), x, y, expected)


def _reduce_vector(rng: Random, kind: str, count: int) -> Case:
    """64 threads add vectors into three places."""
    k = _builder(threads=64)
    tid, size = k.special("%tid.x"), 4 * count
    values = k.regs(ATOMIC_TYPES[kind].register, count)  # type: ignore[index]
    k.load_global(values, _at(k, "x", tid, size))
    bin_ = k.sub(tid, k.mul_lo(k.div(tid, 3), 3))
    k.emit(AddVector(kind, count), _at(k, "y", bin_, size), tuple(values))  # type: ignore[arg-type]
    dtype = NUMBERS[kind]
    x = rng.integers(-8, 9, (64, size // dtype.itemsize)).astype(dtype)
    y = rng.integers(0, 10, (3, x.shape[1])).astype(dtype)
    expected = np.stack([y[b] + x[b::3].sum(axis=0, dtype=np.float64).astype(dtype) for b in range(3)])
    return Case(k.finish(), x, y, expected)


def _atomic(rng: Random) -> Case:
    """The atomic operation returns the old number: one counter gives every lane a place of its own."""
    k = _builder()
    one = k.mov(1)
    place = k.reg("b32")
    k.emit(AtomicAdd("u32", returns=True), place, Address(k.ld_param("y")), one)
    k.store_global(Address(k.mad_wide(place, 4, k.ld_param("y")), 4), k.mov(7))
    y = np.zeros(33, np.uint32)
    return Case(k.finish(), y.copy(), y, np.array([32, *[7] * 32], np.uint32))


def _lanes(rng: Random) -> Case:
    """One lane is elected; values come from other lanes."""
    k = _builder()
    lane = k.special("%laneid")
    elected = k.reg("pred")
    k.emit(Elect(), elected)
    value = k.reg("b32")
    k.load_global((value,), _at(k, "x", lane, 4))
    ones = k.selp(k.mov(1), k.mov(0), elected)
    counted = k.mov(0)
    for source in range(32):
        k.add(counted, k.shuffle(ones, source), into=counted)
    results = (counted, k.shuffle(value, k.xor(lane, 21)))
    k.emit(Store("global", "b32", 2), _at(k, "y", lane, 8), results)
    x = random_integers(rng, "b32")
    expected = np.stack([np.ones(32, np.uint32), x[np.arange(32) ^ 21]], axis=1)
    return Case(k.finish(), x, np.zeros_like(expected), expected)


def _mbarrier(rng: Random) -> Case:
    """Arrivals by count complete a phase; an invalidated barrier can be initialised again."""
    k = _builder()
    lane = k.special("%laneid")
    bar = Address(k.shared_symbol(), 64)
    with k.if_(k.setp("eq", "u32", lane, 0)):
        for arrivals in ((3, 2), (1,)):
            k.emit(MbarrierInit(), bar, sum(arrivals))
            for count in arrivals:
                k.emit(MbarrierArrive(counted=True), bar, count)
            k.wait(bar, k.mov(0))
            k.emit(MbarrierInvalidate(), bar)
        k.store_global(Address(k.ld_param("y")), k.mov(1))
    return Case(k.finish(), np.zeros(1, np.uint32), np.full(1, 9, np.uint32), np.ones(1, np.uint32))


def _async_stores(rng: Random, kind: str, count: int) -> Case:
    """Two CTAs of two warps: every thread's vector goes to the thread before it in the other CTA, three times."""
    k = _builder(threads=64, cluster=2)
    size, turns = count * WIDTH.get(kind, 32) // 8, 3
    smem, rank, tid = k.shared_symbol(), k.special("%cluster_ctarank"), k.special("%tid.x")
    bar, peer, before = Address(smem), k.xor(rank, 1), k.and_(k.add(tid, 63), 63)
    first = k.setp("eq", "u32", tid, 0)
    with k.if_(first):
        k.mbarrier_init(bar, 1)
        k.fence_mbarrier_init()
    k.cluster_sync()
    vector = k.regs(kind, count)  # type: ignore[arg-type]
    peers_bar = Address(k.map_shared(smem, peer))
    for turn in range(turns):
        with k.if_(first):
            k.mbarrier_arrive_expect(bar, 64 * size)
        index = k.mad_lo(k.mad_lo(rank, turns, turn), 64, tid)
        k.load_global(vector, _at(k, "x", index, size))
        k.store_async(Address(k.map_shared(k.mad_lo(before, size, smem), peer), 1024), vector, peers_bar)
        k.wait(bar, k.mov(turn & 1))
        k.load_shared(vector, Address(k.mad_lo(tid, size, smem), 1024))
        k.store_global(_at(k, "y", index, size), vector)
        if turn + 1 < turns:
            k.cluster_sync()
    x = np.stack(
        [random_integers(rng, "b32" if kind == "f32" else kind) for _ in range(2 * turns * 2 * count)], axis=1
    ).reshape(2, turns, 64, count)
    return Case(k.finish(), x, np.zeros_like(x), np.roll(x[::-1], -1, axis=2))


def _bulk(rng: Random) -> Case:
    """A run of bytes by a bulk copy."""
    k = _builder()
    lane = k.special("%laneid")
    smem = k.shared_symbol()
    bar = Address(smem, 0)
    with k.if_(k.setp("eq", "u32", lane, 0)):
        k.emit(MbarrierInit(), bar, 1)
        k.fence_mbarrier_init()
        k.emit(MbarrierArriveExpect(), bar, 272)
        k.emit(BulkLoad(), Address(smem, 128), Address(k.ld_param("x"), 16), 272, bar)
    k.emit(WarpSync(), -1)
    k.wait(bar, k.mov(0))
    for offset in (0, 16, 144):
        value = k.reg("b32")
        k.emit(Load("shared", "b32"), value, Address(k.mad_lo(lane, 4, smem), 128 + offset))
        k.store_global(Address(k.mad_wide(lane, 4, k.ld_param("y")), offset), value)
    x = rng.integers(0, 1 << 32, 100, dtype=np.uint32)
    return Case(k.finish(), x, np.zeros(68, np.uint32), x[4:72].copy())


def _async_copies(rng: Random) -> Case:
    """Two groups of copies: some lanes ignore their source, some do not copy; other threads read after waits and barriers."""
    k = _builder(threads=64)
    tid, smem, x = k.special("%tid.x"), k.shared_symbol(), k.ld_param("x")
    slot, source = k.mad_lo(tid, 16, smem), k.mad_wide(tid, 16, x)
    for group in range(2):
        k.emit(Store("shared", "b32", 4), Address(slot, 1024 * group), (k.mov(7),) * 4)
    ignored = k.setp("eq", "u32", k.and_(tid, 3), 1)
    never = k.mov(0, kind="pred")
    copied = k.setp("lt", "u32", tid, 59)
    # Ignored sources may lie anywhere.
    k.selp(k.mov(0, kind="b64"), source, ignored, into=source)
    k.emit(AsyncCopy(), Address(slot), Address(source, 16), ignored, guard=copied)
    k.emit(AsyncCommit())
    k.emit(AsyncCopy(), Address(slot, 1024), Address(k.mad_wide(tid, 16, x), 1040), never, guard=copied, negated=True)
    k.emit(AsyncCommit())
    other = k.mad_lo(k.xor(tid, 37), 16, smem)
    for group in range(2):
        k.emit(AsyncWait(1 - group))
        k.barrier_sync(0, 64)
        words = tuple(k.regs("b32", 4))
        k.emit(Load("shared", "b32", 4), words, Address(other, 1024 * group))
        k.emit(Store("global", "b32", 4), Address(k.mad_wide(tid, 16, k.ld_param("y")), 1024 * group), words)
    x = rng.integers(0, 1 << 32, (2, 64, 4), dtype=np.uint32)
    thread = np.arange(64)
    shared = np.full_like(x, 7)
    shared[0, :59] = np.where((thread & 3 == 1)[:59, None], 0, x[0, :59])
    shared[1, 59:] = x[1, 59:]
    given = np.concatenate([np.zeros(4, np.uint32), x.reshape(-1)])
    return Case(k.finish(), given, np.zeros_like(x), shared[:, thread ^ 37])


def _named(rng: Random) -> Case:
    """Warp 0 writes, warp 1 reads; both wait at the same barrier."""
    k = _builder(threads=64)
    tid, smem = k.special("%tid.x"), k.shared_symbol()
    lane = k.and_(tid, 31)
    first = k.setp("lt", "u32", tid, 32)
    with k.if_(first, uniform=True) as branch:
        value = k.reg("b32")
        k.load_global((value,), _at(k, "x", lane, 4))
        k.emit(Store("shared", "b32"), Address(k.mad_lo(lane, 4, smem)), value)
        k.emit(BarrierSync(3, 64))
    with branch.otherwise():
        k.emit(BarrierSync(3, 64))
        got = k.reg("b32")
        k.emit(Load("shared", "b32"), got, Address(k.mad_lo(k.xor(lane, 1), 4, smem)))
        k.store_global(_at(k, "y", lane, 4), got)
    x = random_integers(rng, "b32")
    return Case(k.finish(), x, np.zeros_like(x), x[np.arange(32) ^ 1])
