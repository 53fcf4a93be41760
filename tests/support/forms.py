"""Every ordinary instruction form, and kernels that apply one to data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import get_args

import numpy as np

from louver.isa.async_copy import AsyncArrive, AsyncCommit, AsyncCopy, AsyncWait, StoreAsync
from louver.isa.bits import CountOnes, ExtractField, Logic3, PermuteBytes
from louver.isa.bulk import (
    BulkCommit,
    BulkLoad,
    BulkTensorLoad,
    BulkTensorStore,
    BulkWait,
    CachePolicy,
    GenericParameter,
    TensorMapFetch,
)
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.convert import (
    INTEGER_CONVERSIONS,
    WHOLE_ROUNDINGS,
    ConvertInteger,
    F32ToInteger,
    Fp8PairFromF32,
    FromF32,
    HalfPairFromFp8,
    IntegerToF32,
    IntegerToHalf,
    PairFromF32,
    RoundToEven,
    RoundWhole,
    ToF32,
)
from louver.isa.floating import APPROXIMATIONS, Approximate, Fma, Sign, SquareRoot
from louver.isa.instruction import Effect, Instruction, Operand, Pure
from louver.isa.matrix import LoadMatrix, StoreMatrix
from louver.isa.memory import (
    ATOMIC_TYPES,
    ATOMIC_UPDATES,
    AddVector,
    AtomicAdd,
    AtomicCompareAndSwap,
    AtomicUpdate,
    Load,
    LoadParameter,
    Store,
    SymbolAddress,
)
from louver.isa.move import SPECIAL, Bitcast, Elect, Move, Pack, Select, ShuffleButterfly, ShuffleIndex, Special, Unpack
from louver.isa.packed import PackedBinary, PackedOp
from louver.isa.scalar import COMPARE, OPERATIONS, Binary, Compare, MultiplyAdd, MultiplyWide, Not
from louver.isa.sync import (
    BarrierAny,
    BarrierSync,
    ClusterArrive,
    ClusterWait,
    FenceGpu,
    FenceMbarrierInit,
    FenceProxyAsync,
    GridWait,
    LaunchDependents,
    MapShared,
    MbarrierArrive,
    MbarrierArriveExpect,
    MbarrierInit,
    MbarrierInvalidate,
    MbarrierTryWait,
    SetMaxRegisters,
    WarpSync,
)
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Arg, Imm, Kernel, Param, Reg
from louver.ptx.validate import check_arguments
from support.scalar import STORAGE, WIDTH, random_floats, random_integers
from support.warp_products import every_form as warp_products

THREADS = 1024
"""Threads that `pure_kernel` applies its form in: 32 warps."""


def pure_forms() -> Iterator[Pure]:
    """Forms that compute."""
    for kind, table in OPERATIONS.items():
        yield from (Binary(op, kind) for op in table)
    for kind in ("s32", "u32", "s64", "u64"):
        yield MultiplyAdd(kind)
    for kind in ("s32", "u32", "s64", "u64", "f32"):
        yield from (Compare(compare, kind) for compare in COMPARE)
    for kind in ("u32", "s32"):
        yield from (
            MultiplyWide(kind),
            MultiplyWide(kind, add=True),
            ExtractField(kind),
            IntegerToF32(kind),
            IntegerToF32(kind, "rz"),
        )
        yield from (F32ToInteger(kind, rounding) for rounding in ("rni", "rzi"))
    for kind in ("b16", "b32", "b64", "f32"):
        yield from (Move(kind), Select(kind))
    yield from (Move("pred"), Pack("b64"), Pack("b32"), Unpack("b64"), Unpack("b32"), Bitcast("b32"), Bitcast("f32"))
    yield from (Fma(), RoundToEven(), PermuteBytes(), CountOnes())
    yield from (Logic3(table) for table in (0x00, 0xFF, 0xE8, 0xCA, 0x96, 0x2B))
    yield from (Sign(op, kind) for op in ("neg", "abs") for kind in ("s32", "s64", "f32"))
    yield from (Approximate(op) for op in APPROXIMATIONS)
    yield from (SquareRoot(), *(RoundWhole(to) for to in WHOLE_ROUNDINGS))
    yield from (ConvertInteger(to, source) for to, source in INTEGER_CONVERSIONS)
    for half in ("f16", "bf16"):
        yield from (FromF32(half), PairFromF32(half), ToF32(half))
        yield from (IntegerToHalf(half, source) for source in ("s32", "u32"))
        yield from (PackedBinary(op, half) for op in get_args(PackedOp))
    for fp8 in ("e4m3", "e5m2"):
        yield from (Fp8PairFromF32(fp8), HalfPairFromFp8(fp8))
    yield from (Not(kind) for kind in ("b16", "b32", "b64", "pred"))


def effect_forms() -> Iterator[Effect | Pure]:
    """Forms that touch memory, barriers or other lanes, and address arithmetic that belongs to them."""
    for count in (1, 2, 4):
        for kind in ("b16", "b32", "f32", *(("b64",) if count < 4 else ())):
            yield from (Load("global", kind, count), Load("shared", kind, count))
            yield from (Store("global", kind, count), Store("shared", kind, count))
        for transpose in (False, True):
            yield from (LoadMatrix(transpose, count), StoreMatrix(transpose, count))
    yield from (Load("global", "b32", 4, read_only=True), Load("global", "b32", 4, read_only=True, streaming=True))
    yield from (Load("global", "b32", streaming=True), LoadByte(), StoreByte())
    yield from (Load("global", "f32", 4, volatile=True), Store("global", "b32", volatile=True))
    yield from (LoadByte(volatile=True), StoreByte(volatile=True))
    yield from (LoadByte("shared"), StoreByte("shared"))
    yield from (AtomicCompareAndSwap(kind) for kind in ("b16", "b32", "b64"))
    yield from (AtomicAdd(kind, returns) for kind in ATOMIC_TYPES for returns in (False, True))
    yield from (AddVector(kind, count) for kind in ("f32", "f16x2", "bf16x2") for count in (2, 4))
    for op, (types, _) in ATOMIC_UPDATES.items():
        yield from (AtomicUpdate(op, types[0], True, order) for order in ("acquire", "release", "acq_rel"))  # type: ignore[arg-type]
        yield from (AtomicUpdate(op, kind, returns) for kind in types for returns in (False, True)[op == "exch" :])  # type: ignore[arg-type]
    yield from (LoadParameter(kind) for kind in ("u32", "u64", "f32"))
    yield from (SymbolAddress("b32"), SymbolAddress("b64"), GenericParameter())
    yield from (Special(name) for name in SPECIAL)
    yield from (
        ShuffleIndex(),
        ShuffleButterfly(),
        Elect(),
        WarpSync(),
        BarrierSync(3, 96),
        BarrierAny(3, 96),
    )
    yield from (
        ClusterArrive(),
        ClusterWait(),
        FenceProxyAsync(),
        FenceProxyAsync("global"),
        FenceGpu(),
        FenceMbarrierInit(),
        MapShared(),
        LaunchDependents(),
        GridWait(),
    )
    yield from (SetMaxRegisters("dec", 24), SetMaxRegisters("inc", 240))
    yield from (MbarrierInit(), MbarrierTryWait(), MbarrierInvalidate())
    for remote in (False, True):
        yield from (MbarrierArrive(remote), MbarrierArrive(remote, counted=True), MbarrierArriveExpect(remote))
    for rank in range(1, 6):
        yield from (BulkTensorLoad(rank=rank), BulkTensorStore(rank), BulkTensorStore(rank, cache_hint=True))
        yield from (BulkTensorStore(rank, add=True), BulkTensorStore(rank, True, add=True))
    yield from (BulkTensorLoad(True), BulkTensorLoad(True, cache_hint=True), BulkTensorLoad(cache_hint=True))
    yield from (BulkTensorLoad(space="shared::cta"), BulkTensorLoad(cache_hint=True, space="shared::cta"))
    yield from (CachePolicy("first"), CachePolicy("last"))
    yield from (TensorMapFetch(), BulkLoad(), BulkCommit(), BulkWait(0), BulkWait(3), BulkWait(0, reads_only=False))
    yield from (AsyncCopy(), AsyncCopy(8), AsyncCopy(4), AsyncCommit(), AsyncWait(0), AsyncWait(2))
    yield from (AsyncCopy(partial=True), AsyncCopy(4, partial=True), AsyncArrive())
    yield from (StoreAsync(kind, count) for kind in ("b32", "f32", "b64") for count in (1, 2))
    yield from (StoreAsync("b32", 4), StoreAsync("f32", 4))
    yield from warp_products()


def form_name(form: Instruction) -> str:
    """A PTX name for the form's kernel."""
    return "k_" + "".join(c if c.isalnum() else "_" for c in repr(form))


def _initialised(name: str, emit: Callable[[KernelBuilder, dict[str, list[Reg]]], None]) -> Kernel:
    """A kernel of what `emit` writes on initialised registers of each class."""
    params = (Param("map", "tensormap"), Param("u32", "u32"), Param("u64", "u64"), Param("f32", "f32"))
    k = KernelBuilder(name, params, threads=128, dynamic_shared=1024)
    registers = {kind: [k.mov(number, kind=kind) for number in range(1, 6)] for kind in ("b16", "b32", "b64")}
    registers["f32"] = [k.mov(float(number), kind="f32") for number in range(5)]
    registers["pred"] = [k.mov(1, kind="pred")] * 5
    emit(k, registers)
    return k.finish()


def statement_kernel(name: str, forms: list[Instruction]) -> Kernel:
    """A kernel that only has to assemble: each form once, on initialised registers."""

    def emit(k: KernelBuilder, registers: dict[str, list[Reg]]) -> None:
        for form in forms:
            k.emit(form, *(_any_argument(form, operand, registers) for operand in form.operands))

    return _initialised(name, emit)


def constant_kernel(name: str, cases: Iterable[tuple[Instruction, int, int]]) -> tuple[Kernel, list[tuple[str, int]]]:
    """A kernel with each form once for each constant that the validator takes, and these cases as texts: mnemonic and
    operand, value. cases: a form, the number of an operand, a value. The place of an instruction is the number of its case.
    """
    taken: list[tuple[str, int]] = []

    def emit(k: KernelBuilder, registers: dict[str, list[Reg]]) -> None:
        for form, index, value in cases:
            args = [_any_argument(form, operand, registers) for operand in form.operands]
            args[index] = Imm(value)
            try:
                check_arguments(form, tuple(args))
            except ValueError:
                continue
            with k.at(f"case:{len(taken)}:1"):
                k.emit(form, *args)
            taken.append((f"{form.mnemonic}: {form.operands[index].name}", value))

    return _initialised(name, emit), taken


def _any_argument(form: Instruction, operand: Operand, registers: dict[str, list[Reg]]) -> Arg:
    if isinstance(form, LoadParameter):
        return Address(form.type) if operand.kind == "address" else registers[operand.type][0]
    if isinstance(form, SymbolAddress):
        return (
            Address("smem" if form.type == "b32" else "map")
            if operand.kind == "address"
            else registers[operand.type][0]
        )
    if operand.kind == "address":
        return Address(registers[operand.type][0], 64)
    if operand.braces:
        return tuple(registers[operand.type][: operand.count])
    return registers[operand.type][1]


def pure_kernel(form: Pure) -> Kernel:
    """A kernel that applies `form` in every thread: input i from array `in_i`, output i to array `out_i`.

    Arrays hold registers as `inputs` and `compute` have them, vectors one after the other; predicates as uint32.
    """
    sources = [o for o in form.operands if o.role != "out"]
    results = [o for o in form.operands if o.role == "out"]
    names = [f"in_{i}" for i in range(len(sources))] + [f"out_{i}" for i in range(len(results))]
    k = KernelBuilder(form_name(form), tuple(Param(name, "u64") for name in names), threads=256)
    thread = k.mad_lo(k.special("%ctaid.x"), 256, k.special("%tid.x"))
    given = iter([_read(k, operand, f"in_{i}", thread) for i, operand in enumerate(sources)])
    made = [tuple(k.regs(operand.type, operand.count)) for operand in results]
    left = iter(made)
    args = [_bundle(operand, next(left) if operand.role == "out" else next(given)) for operand in form.operands]
    k.emit(form, *args)
    for i, (operand, registers) in enumerate(zip(results, made, strict=True)):
        _write(k, operand, registers, f"out_{i}", thread)
    return k.finish()


def _bundle(operand: Operand, registers: tuple[Reg, ...]) -> Arg:
    return registers if operand.braces else registers[0]


def _place(k: KernelBuilder, name: str, thread: Reg, bits: int, index: int) -> Address:
    size = max(bits, 32 if bits == 1 else bits) // 8
    return Address(k.mad_wide(thread, size, k.ld_param(name)), index * THREADS * size)


def _read(k: KernelBuilder, operand: Operand, name: str, thread: Reg) -> tuple[Reg, ...]:
    registers: list[Reg] = []
    for index in range(operand.count):
        place = _place(k, name, thread, WIDTH.get(operand.type, 32), index)
        register = k.reg("b32" if operand.type == "pred" else operand.type)
        k.load_global((register,), place)
        registers.append(k.setp("ne", "u32", register, 0) if operand.type == "pred" else register)
    return tuple(registers)


def _write(k: KernelBuilder, operand: Operand, registers: tuple[Reg, ...], name: str, thread: Reg) -> None:
    for index, register in enumerate(registers):
        place = _place(k, name, thread, WIDTH.get(operand.type, 32), index)
        value = k.selp(Imm(1), Imm(0), register) if operand.type == "pred" else register
        k.store_global(place, value)


def random_inputs(form: Pure, rng: np.random.Generator) -> list[np.ndarray]:
    """Registers for `form` over `THREADS` lanes: [THREADS], or [count, THREADS] for a vector. No division by zero or overflow."""
    inputs: list[np.ndarray] = []
    for operand in form.operands:
        if operand.role == "out":
            continue
        vector = [
            np.concatenate([_random_register(form, operand, rng) for _ in range(THREADS // 32)])
            for _ in range(operand.count)
        ]
        inputs.append(np.stack(vector) if operand.braces else vector[0])
    if isinstance(form, Binary) and form.op in ("div", "rem"):
        # The results of division by zero, and of the least integer by -1, are left open.
        inputs[1] = np.where(inputs[1] + inputs[1].dtype.type(1) <= 1, inputs[1].dtype.type(7), inputs[1])
    return inputs


def _random_register(form: Pure, operand: Operand, rng: np.random.Generator) -> np.ndarray:
    if isinstance(form, Approximate):
        return rng.uniform(-20, 20, 32).astype(np.float32).view(np.uint32)
    if operand.type == "f32":
        return random_floats(rng)
    return random_integers(rng, operand.type)


def as_memory(registers: np.ndarray) -> np.ndarray:
    """The registers in memory, as `pure_kernel` keeps them."""
    flat = registers.reshape(-1)
    return flat.astype(np.uint32) if flat.dtype == np.bool_ else np.ascontiguousarray(flat)


def empty_outputs(form: Pure) -> list[np.ndarray]:
    """Arrays for `pure_kernel`'s outputs."""
    sizes = [(32 if o.type in ("pred", "f32") else WIDTH[o.type], o.count) for o in form.operands if o.role == "out"]
    return [np.zeros(count * THREADS, STORAGE[bits]) for bits, count in sizes]


def expected_outputs(form: Pure, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The results of `compute`, as `pure_kernel` keeps them, warp by warp."""
    warps = [form.compute(*(bits[..., first : first + 32] for bits in inputs)) for first in range(0, THREADS, 32)]
    return [as_memory(np.concatenate(parts, axis=-1)) for parts in zip(*warps, strict=True)]
