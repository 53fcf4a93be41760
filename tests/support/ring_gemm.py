"""A small warp-specialized sparse product, written by hand: bulk copies feed a ring, two warpgroups multiply, bulk stores
write the result. It has the parts of a real kernel that the emulator's tests need, and nothing else."""

from __future__ import annotations

import numpy as np

from louver.formats.compress import compress
from louver.formats.prune import prune
from louver.isa.bulk import TensorMap
from louver.isa.memory import Load, Store
from louver.isa.metadata import prepack
from louver.isa.swizzle import Swizzle, SwizzledTile, describe
from louver.isa.sync import SetMaxRegisters
from louver.isa.wgmma import Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait
from louver.ptx.module import Address, Kernel
from support.emulated import Bench, Sketch, kernel

TILE_M, TILE_K = 128, 64
A_BYTES = TILE_M * TILE_K
BOX = 32
"""Columns of one stored box: 128 bytes of f32."""

BOX_BYTES = 64 * BOX * 4


class Layout:
    """Offsets in shared memory."""

    def __init__(self, tile_n: int, stages: int) -> None:
        self.tile_n, self.stages = tile_n, stages
        self.stage_bytes = A_BYTES + tile_n * TILE_K * 2
        self.out = stages * self.stage_bytes
        self.full = self.out + 2 * tile_n * 64 * 4
        self.empty = self.full + 8 * stages
        self.size = -(-(self.empty + 8 * stages) // 1024) * 1024


def build(tile_n: int, stages: int) -> Kernel:
    """d[128, N] = a[128, K] (2:4) @ b[N, K]^T, one CTA for each tile_n columns; `steps` is K / 64, rounded up."""
    layout = Layout(tile_n, stages)

    def write(k: Sketch) -> None:
        barriers = {layout.full + 8 * s: 1 for s in range(stages)} | {layout.empty + 8 * s: 8 for s in range(stages)}
        k.init_barriers(barriers, 384)
        with k.warpgroup(0):
            k.emit(SetMaxRegisters("dec", 40))
            with k.thread(0):
                _produce(k, layout)
        with k.if_(k.setp("ge", "u32", k.shr(k.special("%tid.x"), 7), 1), uniform=True):
            k.emit(SetMaxRegisters("inc", 232))
            _consume(k, layout)

    return kernel(
        write, threads=384, shared=layout.size, a="tensormap", b="tensormap", d="tensormap", meta="u64", steps="u32"
    )


class _Ring:
    """The loop over K steps: step, stage and parity."""

    def __init__(self, k: Sketch, layout: Layout) -> None:
        self.k, self.layout = k, layout
        self.step, self.stage, self.parity = k.mov(0), k.mov(0), k.mov(0)
        self.steps = k.ld_param("steps")

    def barrier(self, first: int):
        return self.k.mad_lo(self.stage, 8, self.k.add(self.k.base(), first))

    def advance(self, loop) -> None:
        k = self.k
        k.add(self.stage, 1, into=self.stage)
        wrapped = k.setp("eq", "u32", self.stage, self.layout.stages)
        k.selp(0, self.stage, wrapped, into=self.stage)
        k.xor(self.parity, k.selp(1, 0, wrapped), into=self.parity)
        k.add(self.step, 1, into=self.step)
        loop.repeat_if(k.setp("lt", "u32", self.step, self.steps))


def _produce(k: Sketch, layout: Layout) -> None:
    ring = _Ring(k, layout)
    column = k.mul_lo(k.special("%ctaid.x"), layout.tile_n)
    with k.loop() as loop:
        k.await_(ring.barrier(layout.empty), k.xor(ring.parity, 1))
        full = ring.barrier(layout.full)
        k.expect(full, layout.stage_bytes)
        to = k.mad_lo(ring.stage, layout.stage_bytes, k.base())
        k.bulk_load("a", [k.mul_lo(ring.step, TILE_K // 2), 0], to, full)
        k.bulk_load("b", [k.mul_lo(ring.step, TILE_K), column], k.add(to, A_BYTES), full)
        ring.advance(loop)


def _consume(k: Sketch, layout: Layout) -> None:
    tid = k.special("%tid.x")
    group = k.sub(k.shr(tid, 7), 1)
    thread = k.and_(tid, 127)
    ring = _Ring(k, layout)
    loads = k.shr(k.add(ring.steps, 3), 2)
    block = k.mul_lo(group, k.mul_lo(loads, 2048))
    d = k.regs("f32", layout.tile_n // 2)
    for register in d:
        k.mov(0.0, into=register)
    word = k.mov(0)
    always = k.setp("eq", "u32", tid, tid)
    with k.loop() as loop:
        at = k.mad_lo(ring.step, 512, k.mad_lo(thread, 4, block))
        k.emit(Load("global", "b32", read_only=True), word, Address(k.mad_wide(at, 1, k.ld_param("meta"))))
        k.await_(ring.barrier(layout.full), ring.parity)
        k.emit(WgmmaFence())
        _multiply(k, layout, ring, group, tuple(d), word, always)
        k.emit(WgmmaCommit())
        k.emit(WgmmaWait(0))
        with k.lane(0):
            k.arrive(ring.barrier(layout.empty))
        ring.advance(loop)
    _store(k, layout, group, thread, d)


def _multiply(k: Sketch, layout: Layout, ring: _Ring, group, d, word, always) -> None:
    a_tile = SwizzledTile("k", 64, TILE_K, Swizzle(64))
    b_tile = SwizzledTile("k", layout.tile_n, TILE_K * 2, Swizzle(128))
    start = k.mad_lo(ring.stage, layout.stage_bytes >> 4, k.shr(k.base(), 4))
    for selector in range(2):
        a = describe(a_tile, 0, 0, 32 * selector).encode()
        b = describe(b_tile, 0, 0, 64 * selector).encode()
        a_low = k.add(k.mad_lo(group, 64 * TILE_K >> 4, start), a & 0xFFFFFFFF)
        b_low = k.add(start, (b & 0xFFFFFFFF) + (A_BYTES >> 4))
        op = Wgmma(layout.tile_n, "f16", "f16", "f32", sparse=True, selector=selector)
        a_desc, b_desc = (k.pack_b64(low, k.mov(whole >> 32)) for low, whole in ((a_low, a), (b_low, b)))
        k.emit(op, d, a_desc, b_desc, word, always)


def _store(k: Sketch, layout: Layout, group, thread, d) -> None:
    out = k.mad_lo(group, layout.tile_n * 256, k.add(k.base(), layout.out))
    lane = k.and_(thread, 31)
    row = k.mad_lo(k.shr(thread, 5), 16, k.shr(lane, 2))
    mine = k.mad_lo(row, BOX * 4, k.mad_lo(k.and_(lane, 3), 8, out))
    for i, register in enumerate(d):
        column = 8 * (i // 4) + (i & 1)
        offset = column // BOX * BOX_BYTES + column % BOX * 4 + 8 * (i >> 1 & 1) * BOX * 4
        k.emit(Store("shared", "f32"), Address(mine, offset), register)
    k.fence_async()
    with k.if_(k.setp("eq", "u32", group, 0), uniform=True):
        k.sync(128, index=1)
    with k.if_(k.setp("eq", "u32", group, 1), uniform=True):
        k.sync(128, index=2)
    column = k.mul_lo(k.special("%ctaid.x"), layout.tile_n)
    with k.if_(k.setp("eq", "u32", thread, 0)):
        for box in range(layout.tile_n // BOX):
            source = k.add(out, box * BOX_BYTES)
            k.bulk_store_at("d", [k.add(column, box * BOX), k.mul_lo(group, 64)], source)
        k.bulk_commit_wait()


class Case:
    """Random integers whose products are exact in float32, and the arguments for `build`."""

    def __init__(self, rng: np.random.Generator, m: int, n: int, k: int, tile_n: int) -> None:
        w = prune(rng.integers(-4, 5, (m, k)).astype(np.float16), "2:4")
        x = rng.integers(-4, 5, (n, -(-k // 8) * 8)).astype(np.float16)
        x[:, k:] = 0
        self.expected = w.astype(np.float32) @ x[:, :k].astype(np.float32).T
        self.grid = -(-n // tile_n)
        sparse = compress(w, "2:4")
        self.inputs = np.ascontiguousarray(sparse.values), x, prepack(sparse.indices, m, k, "f16")
        self.shape, self.tile_n = (m, n, k), tile_n

    def bench(self) -> Bench:
        """Fresh memory with the inputs in it."""
        m, n, k = self.shape
        bench = Bench()
        values, x, words = self.inputs
        pitch = -(-k // 2 * 2 // 16) * 16
        stored = np.zeros((m, pitch // 2), np.float16)
        stored[:, : values.shape[1]] = values
        a, b = (bench.memory.add(name, array, writable=False) for name, array in (("a", stored), ("b", x)))
        # Bulk stores write whole chunks of 16 bytes, so the rows are made of them; b's missing rows are zeros.
        self.d = np.zeros((m, -(-n // 4) * 4), np.float32)
        d = bench.memory.add("d", self.d, initialised=False)
        blocks = np.concatenate([words] + [np.full_like(words[:1], 0x44444444)] * (2 - len(words)))
        bench.arguments = {
            "a": TensorMap(a.address, 2, (values.shape[1], m), (pitch,), (TILE_K // 2, TILE_M), 64),
            "b": TensorMap(b.address, 2, (x.shape[1], n), (x.strides[0],), (TILE_K, self.tile_n), 128),
            "d": TensorMap(d.address, 4, self.d.shape[::-1], (self.d.strides[0],), (BOX, 64)),
            "meta": bench.memory.add("meta", blocks, writable=False),
            "steps": -(-k // TILE_K),
        }
        return bench

    def check(self) -> None:
        np.testing.assert_array_equal(self.d[:, : self.shape[1]], self.expected)
        assert not self.d[:, self.shape[1] :].any()
