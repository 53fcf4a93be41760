"""Tiles that go from any layout to any other one: every element kept, banks without conflicts, memory in parts."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.plan.encode.exchange_plan import MOST_BYTES, ExchangePlan, Means, conversion, plan_exchange
from louver.emulator import Seeded
from louver.ir.tile import BlockedAttr, DotOperandAttr, LinearAttr, MmaAttr
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.layout import LANE_BITS, Layout, Vector
from support.copied_tiles import compiled
from support.emulate_tiles import emulate_tiles

DTYPES = {"i8": np.int8, "f8E4M3FN": np.uint8, "f16": np.uint16, "i16": np.int16, "f32": np.uint32, "i64": np.int64}


def check(rng: np.random.Generator, t: str, shape: Vector, encodings: list[Encoding], machine: str = "sm_90a") -> str:
    made = compiled(t, *shape, encodings, machine)
    dtype = np.dtype(DTYPES[t])
    x = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8).view(dtype)[..., 0]
    out = np.zeros_like(x)
    emulate_tiles(made, (1,), {"out": out, "x": x}, order=Seeded(3), uninitialised=["out"])  # type: ignore[arg-type]
    np.testing.assert_array_equal(out, x)
    return made.ptx


def drawn(rng: np.random.Generator, shape: Vector, warps: int) -> LinearAttr:
    """Any layout: each step of the tile in a register, a lane or a warp, and threads that have the same elements."""
    steps = [
        tuple(1 << bit if axis == dimension else 0 for axis in range(2))
        for dimension, size in enumerate(shape)
        for bit in range(size.bit_length() - 1)
    ]
    threads: list[Vector] = [(0, 0)] * (LANE_BITS + warps)
    rng.shuffle(steps)
    kept = int(rng.integers(0, len(steps) + 1))
    for place in rng.permutation(len(threads))[: len(steps) - kept]:
        threads[place] = steps.pop()
    registers = tuple(map(tuple, steps))
    return LinearAttr.of(Layout(shape, registers, tuple(threads[:LANE_BITS]), tuple(threads[LANE_BITS:])))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("t", DTYPES)
def test_any_layout_to_any_other(t: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(1 << int(bits) for bits in rng.integers(0, 6, 2))
    warps = int(rng.integers(0, 3))
    check(rng, t, shape, [drawn(rng, shape, warps) for _ in range(3)])


MMA = {
    "wgmma": (MmaAttr.of_warpgroups(1, 1, 64), (64, 64)),
    "wgmma, transposed": (MmaAttr.of_warpgroups(1, 1, 64, transposed=True), (64, 64)),
    "wgmma, two warpgroups": (MmaAttr.of_warpgroups(1, 2, 32), (64, 64)),
    "wgmma, two warpgroups, transposed": (MmaAttr.of_warpgroups(2, 1, 32, transposed=True), (32, 128)),
    "mma": (MmaAttr.of(2, 2), (32, 64)),
    "mma, transposed": (MmaAttr.of(2, 2, transposed=True), (64, 32)),
    "mma, few rows": (MmaAttr.of(1, 4), (16, 64)),
    "mma, few columns": (MmaAttr.of(4, 1), (64, 8)),
}


def rows(shape: Vector, warps: int, t: str, along: int = 1) -> BlockedAttr:
    return BlockedAttr.default(shape, warps, 16 // np.dtype(DTYPES[t]).itemsize, (along, 1 - along))


@pytest.mark.parametrize("name", MMA)
@pytest.mark.parametrize("t", DTYPES)
@pytest.mark.parametrize("along", [0, 1])
def test_sums_to_rows_and_back(rng: np.random.Generator, t: str, name: str, along: int) -> None:
    sums, shape = MMA[name]
    blocked = rows(shape, sums.warps, t, along)
    check(rng, t, shape, [blocked, sums, blocked])


@pytest.mark.parametrize(("name", "along"), [("wgmma", 1), ("wgmma, transposed", 1), ("wgmma", 0)])
def test_halves_go_by_matrices(rng: np.random.Generator, name: str, along: int) -> None:
    sums, shape = MMA[name]
    ptx = check(rng, "f16", shape, [sums, rows(shape, sums.warps, "f16", along)])
    lines = [line for line in ptx.splitlines() if "stmatrix" in line]
    # 64 x 64 sums are four matrices of eight by eight for each instruction of each of four warps.
    assert len(lines) == 4
    assert all(((along == 0) != bool(sums.transposed.data)) == (".trans" in line) for line in lines)
    other = check(rng, "f16", shape, [sums, rows(shape, sums.warps, "f16", along)], "sm_80")
    assert "stmatrix" not in other


@pytest.mark.parametrize("name", MMA)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.parametrize("back", [False, True], ids=["store", "load"])
def test_banks_have_no_conflicts(name: str, size: int, along: int, back: bool) -> None:
    """No more turns of the banks than the bytes of an access need, one at least."""
    sums, shape = MMA[name]
    blocked = BlockedAttr.default(shape, sums.warps, 16 // size, (along, 1 - along)).layout(shape)
    if blocked.repeats or len(blocked.registers) * size < 16:
        pytest.skip("lanes have less than 16 bytes")
    pair = sums.layout(shape), blocked
    plan = plan_exchange(*(reversed(pair) if back else pair), size, Means())
    for way, layout in ((plan.store, plan.source), (plan.load, plan.result)):
        lanes = 8 << len(way.at_once) if way.matrices else 32
        accesses = 1 << len(way.rest(layout))
        assert way.turns(layout, plan.memory) == accesses * max(1, lanes * way.bytes(size) // 128)
        assert way.bytes(size) >= min(4, 2 * size)


@pytest.mark.parametrize("t", ["i8", "i16", "i64"])
def test_booleans(rng: np.random.Generator, t: str) -> None:
    sums, shape = MMA["mma"]
    made = compiled(t, *shape, [rows(shape, 4, t), sums, rows(shape, 4, t, 0)], truths=True)
    x = rng.integers(-1, 2, shape).astype(DTYPES[t])
    out = np.full_like(x, 77)
    emulate_tiles(made, (1,), {"out": out, "x": x}, order=Seeded(3), uninitialised=["out"])  # type: ignore[arg-type]
    np.testing.assert_array_equal(out, x != 0)


def test_a_warp_waits_for_itself_alone(rng: np.random.Generator) -> None:
    shape = (64, 64)
    sums = MmaAttr.of_warpgroups(1, 1, 64)
    lanes = ((0, 8), (0, 16), (0, 32), (1, 0), (2, 0))
    own = LinearAttr.of(Layout(shape, ((0, 1), (0, 2), (0, 4), (4, 0), (8, 0)), lanes, sums.layout(shape).warp))
    ptx = check(rng, "f16", shape, [sums, own])
    assert "bar.warp.sync" in ptx
    # That one is between the loads and the stores of global memory.
    assert ptx.count("barrier.sync") == 1


def test_lanes_shuffle_what_one_register_has(rng: np.random.Generator) -> None:
    shape = (32, 4)
    lanes = ((1, 0), (2, 0), (4, 0), (8, 0), (16, 0))
    pair = [LinearAttr.of(Layout(shape, ((0, 1), (0, 2)), each, ())) for each in (lanes, lanes[::-1])]
    for t in DTYPES:
        ptx = check(rng, t, shape, pair)
        assert "shfl" in ptx
        assert ".shared" not in ptx


def test_large_tiles_go_in_parts(rng: np.random.Generator) -> None:
    shape = (128, 256)
    sums = MmaAttr.of_warpgroups(2, 1, 256)
    blocked = rows(shape, 8, "f32")
    found = conversion(sums.layout(shape), blocked.layout(shape), 4, Means())
    assert isinstance(found, ExchangePlan)
    assert len(found.apart) == 1
    made = compiled("f32", *shape, [sums, blocked])
    assert made.signature.shared_bytes == MOST_BYTES
    check(rng, "f32", shape, [sums, blocked])


def test_operands_come_from_rows(rng: np.random.Generator) -> None:
    parent = MmaAttr.of(2, 2)
    ptx = check(rng, "f16", (64, 64), [rows((64, 64), 4, "f16"), DotOperandAttr.of(0, parent, 16)])
    assert "ldmatrix" in ptx or "ld.shared.v4" in ptx
