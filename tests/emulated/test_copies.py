"""Bulk copies: results, and what must be waited for and fenced."""

from __future__ import annotations

import numpy as np
import pytest

from louver.emulator import (
    BarrierError,
    ConvergenceError,
    DeadlockError,
    Earliest,
    EmulationError,
    ExitError,
    LaunchError,
    MisalignedError,
    OutOfBoundsError,
    OverwriteInUseError,
    ProxyFenceError,
    UninitialisedError,
    UseBeforeArrivalError,
)
from louver.isa.bulk import BulkCommit, BulkLoad, BulkTensorLoad, TensorMap, TensorMapFetch
from louver.isa.memory import SymbolAddress
from louver.isa.sync import FenceMbarrierInit
from louver.ptx.module import Address
from support.emulated import Bench, every_order, kernel, smem

ROWS, COLUMNS = 16, 32
TILE = ROWS * COLUMNS * 4
FULL, EMPTY = 6144, 6144 + 64
SHARED = 8192


def matrix(bench, name, array, swizzle=0, box=(COLUMNS, ROWS), columns=None):
    """A tensor map over a row-major 2-D array of 4-byte elements, or over its first columns."""
    allocation = bench.memory.add(name, array)
    rows, columns = array.shape[0], columns or array.shape[1]
    strides = (array.strides[0],)
    bench.arguments[name] = TensorMap(allocation.address, 4, (columns, rows), strides, box, swizzle)


def ring(k, tiles, stages, *, consumer_waits=True, producer_waits=True, releases=True):
    """Warp 0 copies tiles in, warp 1 adds 1 to each element and writes it out; x is [tiles * ROWS, COLUMNS]."""
    k.init_barriers({FULL + 8 * s: 1 for s in range(stages)} | {EMPTY + 8 * s: 32 for s in range(stages)}, 64)
    stage, parity, tile = k.mov(0), k.mov(0), k.mov(0)

    def advance(loop):
        k.add(stage, 1, into=stage)
        wrapped = k.setp("eq", "u32", stage, stages)
        k.selp(0, stage, wrapped, into=stage)
        k.xor(parity, k.selp(1, 0, wrapped), into=parity)
        k.add(tile, 1, into=tile)
        loop.repeat_if(k.setp("lt", "u32", tile, tiles))

    def barrier(first):
        return k.mad_lo(stage, 8, k.add(k.base(), first))

    with k.thread(0), k.loop() as loop:
        if producer_waits:
            k.await_(barrier(EMPTY), k.xor(parity, 1))
        k.expect(barrier(FULL), TILE)
        k.bulk_load("x", [0, k.mul_lo(tile, ROWS)], k.mad_lo(stage, TILE, k.base()), barrier(FULL))
        advance(loop)
    with k.warp(1), k.loop() as loop:
        if consumer_waits:
            k.await_(barrier(FULL), parity)
        lane = k.and_(k.special("%tid.x"), 31)
        for row in range(ROWS):
            address = k.mad_lo(stage, TILE, k.mad_lo(lane, 4, k.add(k.base(), row * COLUMNS * 4)))
            value = k.add(k.load(address), 1)
            k.output("y", value, k.mad_lo(k.mad_lo(tile, ROWS, row), COLUMNS, lane))
        if releases:
            k.arrive(barrier(EMPTY))
        advance(loop)


def ring_bench(rng, tiles):
    bench = Bench()
    x = rng.integers(0, 1 << 31, (tiles * ROWS, COLUMNS), np.uint32)
    matrix(bench, "x", x)
    return bench, x, bench.output("y", x.shape)


def ring_kernel(tiles=5, stages=2, **options):
    return kernel(lambda k: ring(k, tiles, stages, **options), threads=64, shared=SHARED, x="tensormap", y="u64")


@every_order
@pytest.mark.parametrize(("tiles", "stages"), [(1, 3), (3, 3), (7, 2), (4, 1)])
def test_a_ring_of_stages_copies_everything(rng, order, tiles, stages):
    bench, x, y = ring_bench(rng, tiles)
    report = bench.run(ring_kernel(tiles, stages), order)
    np.testing.assert_array_equal(y, x + 1)
    assert report.bulk_loads == tiles


@every_order
@pytest.mark.parametrize(
    ("options", "errors"),
    [
        ({"consumer_waits": False}, (UseBeforeArrivalError, UninitialisedError)),
        ({"producer_waits": False}, (OverwriteInUseError, BarrierError)),
        ({"releases": False}, DeadlockError),
    ],
    ids=str,
)
def test_a_ring_without_its_waits_is_found(rng, order, options, errors):
    bench, _, _ = ring_bench(rng, 5)
    with pytest.raises(errors):
        bench.run(ring_kernel(5, 2, **options), order)


def _one_load(k, *, size=TILE, box_barrier=FULL, to=0, wait=True, fence=True, read=True, lanes=1):
    with k.thread(0):
        k.init(FULL, 1)
        if fence:
            k.emit(FenceMbarrierInit())
    k.sync(32)
    with k.thread(0):
        if size:
            k.expect(FULL, size)
        else:
            k.arrive(FULL)
    with k.if_(k.setp("lt", "u32", k.special("%tid.x"), lanes)):
        k.bulk_load("x", [0, 0], to, box_barrier)
    if wait:
        k.await_(FULL, 0)
    if read:
        k.output("y", k.load(k.own(to)))


def _load_once(rng, order=None, **options):
    bench, x, y = ring_bench(rng, 1)
    one = kernel(lambda k: _one_load(k, **options), shared=SHARED, x="tensormap", y="u64")
    bench.run(one, order or Earliest())
    return x, y


@every_order
def test_one_load(rng, order):
    x, y = _load_once(rng, order)
    np.testing.assert_array_equal(y[0], x[0])


@every_order
def test_reading_before_the_copy_has_arrived(rng, order):
    with pytest.raises(UseBeforeArrivalError) as caught:
        _load_once(rng, order, wait=False)
    assert "shared byte 0x400 of CTA 0 (128 such bytes)" in str(caught.value)
    assert "a bulk copy that completes on mbarrier 0x1c00 of CTA 0" in str(caught.value)
    assert "thread 0, instruction" in str(caught.value)
    assert "ld.shared.b32" in caught.value.place.instruction


@every_order
def test_bytes_that_nobody_expects(rng, order):
    with pytest.raises((BarrierError, UseBeforeArrivalError, ExitError)):
        _load_once(rng, order, size=0)


@every_order
@pytest.mark.parametrize("size", [TILE - 16, TILE + 16])
def test_a_wrong_number_of_bytes_is_a_deadlock(rng, order, size):
    with pytest.raises(DeadlockError, match=f"0 of 1 arrivals and {size - TILE} bytes missing"):
        _load_once(rng, order, size=size)


@every_order
def test_nobody_waits_for_a_copy(rng, order):
    with pytest.raises(
        ExitError, match="nothing in it waited for the last bulk copies or asynchronous stores on mbarrier 0x1c00"
    ):
        _load_once(rng, order, wait=False, read=False)


def test_a_barrier_needs_its_fence_before_copies_complete_on_it(rng):
    with pytest.raises(BarrierError, match="not followed by fence.mbarrier_init .* in warp 0 of CTA 0, lane 0"):
        _load_once(rng, fence=False)


def test_bulk_copies_are_aligned_inside_the_window_and_issued_once(rng):
    with pytest.raises(MisalignedError, match="multiple of 128, got 0x440"):
        _load_once(rng, to=64)
    with pytest.raises(OutOfBoundsError, match="outside the window"):
        _load_once(rng, to=SHARED - 128)
    with pytest.raises(BarrierError, match="belongs to an mbarrier"):
        _load_once(rng, to=FULL - 1024)
    with pytest.raises(ConvergenceError, match="one thread must issue a bulk copy, got 3 active lanes"):
        _load_once(rng, lanes=3, wait=False, read=False)
    with pytest.raises(BarrierError, match="no initialised mbarrier at shared address 0x1c08"):
        _load_once(rng, box_barrier=FULL + 8)


@every_order
@pytest.mark.parametrize("to", [-4, 12])
@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_tails_are_filled_with_zeros_and_dropped(rng, order, span, to):
    """Copy a box that hangs over the tensor's end in and out again, through every swizzle. Loads may end anywhere."""
    box = ((span or 128) // 4, ROWS)
    size = box[0] * box[1] * 4

    def write(k):
        k.init_barriers({FULL: 1}, 32)
        with k.thread(0):
            k.expect(FULL, size)
            k.bulk_load("x", [4, 5], 1024, FULL)
            k.await_(FULL, 0)
            k.bulk_store("y", [to, 3], 1024)
            k.bulk_commit_wait()

    bench = Bench()
    x = rng.integers(1, 1 << 31, (13, 12), np.uint32)
    y = rng.integers(1, 1 << 31, (11, 20), np.uint32)
    expected = y.copy()
    matrix(bench, "x", x, span, box, columns=11)
    matrix(bench, "y", y, span, box)
    tile = np.zeros((ROWS, box[0]), np.uint32)
    tile[:8, :7] = x[5:13, 4:11]
    low, high = max(to, 0), min(to + box[0], 20)
    expected[3:11, low:high] = tile[:8, low - to : high - to]
    report = bench.run(kernel(write, shared=SHARED, x="tensormap", y="tensormap"), order)
    np.testing.assert_array_equal(y, expected)
    assert (report.bulk_loads, report.bulk_stores) == (1, 1)


def _copy_rows(rng, order, *, columns, load_at=(0, 0), store_at=(0, 0)):
    """Copy a box of 8 by 4 from x to y, matrices of 13 rows and `columns` columns; returns x and y [13, 12]."""

    def write(k):
        k.init_barriers({FULL: 1}, 32)
        with k.thread(0):
            k.expect(FULL, 128)
            k.bulk_load("x", load_at, 1024, FULL)
            k.await_(FULL, 0)
            k.bulk_store("y", store_at, 1024)
            k.bulk_commit_wait()

    bench = Bench()
    x, y = rng.integers(1, 1 << 31, (13, 12), np.uint32), np.zeros((13, 12), np.uint32)
    matrix(bench, "x", x, box=(8, 4), columns=11)
    matrix(bench, "y", y, box=(8, 4), columns=columns)
    bench.run(kernel(write, shared=SHARED, x="tensormap", y="tensormap"), order)
    return x, y


@every_order
@pytest.mark.parametrize("column", [-3, 1, 6])
@pytest.mark.parametrize("direction", ["load", "store"])
def test_a_tiled_copy_starts_at_a_whole_chunk(rng, order, direction, column):
    with pytest.raises(
        MisalignedError, match=f"multiple of 16 bytes .* coordinate {column} of 4-byte elements"
    ) as caught:
        _copy_rows(rng, order, columns=12, **{f"{direction}_at": (column, 2)})
    names = {"load": "cp.async.bulk.tensor.2d.shared::cluster.global", "store": "cp.async.bulk.tensor.2d.global.shared"}
    assert caught.value.place.instruction.startswith(names[direction])


@every_order
def test_a_tiled_store_would_write_past_rows_that_are_not_whole_chunks(rng, order):
    with pytest.raises(
        OutOfBoundsError, match="whole chunks of 16 bytes, got y .* of 11 elements of 4 bytes"
    ) as caught:
        _copy_rows(rng, order, columns=11, store_at=(4, 11))
    assert caught.value.place.instruction.startswith("cp.async.bulk.tensor.2d.global.shared")


@every_order
@pytest.mark.parametrize("store_at", [(0, 11), (4, 13), (4, -4), (12, 0), (-4, 7)])
def test_a_tiled_store_away_from_the_rows_ends_is_sound(rng, order, store_at):
    x, y = _copy_rows(rng, order, columns=11, load_at=(0, 5), store_at=store_at)
    expected = np.zeros_like(y)
    for row in range(4):
        for column in range(8):
            to = store_at[0] + column, store_at[1] + row
            if 0 <= to[0] < 11 and 0 <= to[1] < 13:
                expected[to[1], to[0]] = x[5 + row, column]
    np.testing.assert_array_equal(y, expected)


@every_order
def test_a_bulk_store_to_an_input_is_found_where_it_is_issued(order):
    def write(k):
        k.store(k.own(0), 1)
        k.fence_async()
        k.sync(32)
        with k.thread(0):
            k.bulk_store("y", [0, 0], 0)
            k.bulk_commit_wait()

    bench = Bench()
    fixed = bench.memory.add("y", np.zeros((1, 32), np.uint32), writable=False)
    bench.arguments["y"] = TensorMap(fixed.address, 4, (32, 1), (128,), (32, 1))
    with pytest.raises(OutOfBoundsError, match="y is an input") as caught:
        bench.run(kernel(write, shared=1024, y="tensormap"), order)
    assert caught.value.place.instruction.startswith("cp.async.bulk.tensor.2d.global.shared")


def _store_once(order, *, fence=True, sync=True, commit=True, wait=True, overwrite=False, threads=64, elected=0):
    """All threads write a tile, one thread stores it."""

    def write(k):
        k.store(k.own(0), k.mul_lo(k.special("%tid.x"), 3))
        if fence is True:
            k.fence_async()
        elif fence == "lane 0":
            with k.lane(0):
                k.fence_async()
        if sync:
            k.sync(threads)
        with k.thread(elected):
            k.bulk_store("y", [0, 0], 0)
            if commit:
                k.emit(BulkCommit())
            if wait:
                k.bulk_commit_wait()
        if overwrite:
            if overwrite == "synchronised":
                k.sync(threads)
            k.store(k.own(0), 1)

    bench = Bench()
    y = np.zeros((2, 32), np.uint32)
    matrix(bench, "y", y, box=(32, 2))
    bench.run(kernel(write, threads=threads, shared=1024, y="tensormap"), order)
    np.testing.assert_array_equal(y.reshape(-1), np.arange(64) * 3)


@every_order
def test_a_tile_written_by_all_is_stored_by_one(order):
    _store_once(order)
    _store_once(order, overwrite="synchronised")
    _store_once(order, elected=40)


@every_order
@pytest.mark.parametrize("fence", [False, "lane 0"])
def test_a_missing_proxy_fence_is_found(order, fence):
    with pytest.raises(ProxyFenceError) as caught:
        _store_once(order, fence=fence)
    assert "that thread must execute fence.proxy.async after its store" in str(caught.value)
    assert f"lane {0 if fence is False else 1} and is touched by a bulk store" in str(caught.value)


@every_order
def test_a_proxy_fence_before_the_store_does_not_count(order):
    def write(k):
        k.fence_async()
        k.store(k.own(0), 1)
        k.sync(32)
        with k.thread(0):
            k.bulk_store("y", [0, 0], 0)
            k.bulk_commit_wait()

    bench = Bench()
    matrix(bench, "y", np.zeros((1, 32), np.uint32), box=(32, 1))
    with pytest.raises(ProxyFenceError):
        bench.run(kernel(write, shared=1024, y="tensormap"), order)


@every_order
def test_stores_before_a_bulk_load_need_the_fence_as_well(rng, order):
    def write(k, fence):
        k.store(k.own(0), 1)
        if fence:
            k.fence_async()
        k.sync(32)
        _one_load(k)

    for fence in (True, False):
        bench, x, y = ring_bench(rng, 1)
        one = kernel(lambda k, fence=fence: write(k, fence), shared=SHARED, x="tensormap", y="u64")
        if fence:
            bench.run(one, order)
            np.testing.assert_array_equal(y[0], x[0])
        else:
            with pytest.raises(ProxyFenceError, match="a bulk copy into shared memory"):
                bench.run(one, order)


@every_order
def test_a_bulk_store_needs_its_sync_commit_and_wait(order):
    with pytest.raises((UseBeforeArrivalError, UninitialisedError)):
        _store_once(order, sync=False)
    with pytest.raises(ExitError, match="never committed"):
        _store_once(order, commit=False, wait=False)
    with pytest.raises(ExitError, match="wait_group.read 0 must come first"):
        _store_once(order, wait=False)


@every_order
def test_the_source_of_a_bulk_store_is_not_overwritten(order):
    with pytest.raises((OverwriteInUseError, UseBeforeArrivalError), match="a bulk store"):
        _store_once(order, overwrite=True)


@every_order
def test_waiting_for_all_but_the_last_group_frees_the_others(order):
    def write(k, late):
        k.store(k.own(0), 5)
        k.store(k.own(128), 6)
        k.fence_async()
        k.sync(32)
        with k.thread(0):
            for i in range(2):
                k.bulk_store("y", [0, i], 128 * i)
                k.bulk_commit_wait(pending=1)
            k.store(128 if late else 0, 1)
            k.bulk_commit_wait()

    for late in (False, True):
        bench = Bench()
        y = np.zeros((2, 32), np.uint32)
        matrix(bench, "y", y, box=(32, 1))
        one = kernel(lambda k, late=late: write(k, late), shared=1024, y="tensormap")
        if late:
            with pytest.raises(OverwriteInUseError):
                bench.run(one, order)
        else:
            bench.run(one, order)
            np.testing.assert_array_equal(y, [[5] * 32, [6] * 32])


def test_a_tensor_map_is_a_parameter():
    bench = Bench(arguments={"x": 5})
    with pytest.raises(LaunchError, match="x is a tensor map, got 5"):
        bench.run(kernel(lambda k: k.mov(1), x="tensormap"), Earliest())


@every_order
@pytest.mark.parametrize(
    ("size", "to", "shift", "error"),
    [(48, 16, 16, None), (40, 16, 16, MisalignedError), (48, 8, 16, MisalignedError), (48, 16, 4, MisalignedError),
     (4096, 16, 0, OutOfBoundsError)],
)  # fmt: skip
def test_linear_bulk_copies(rng, order, size, to, shift, error):
    def write(k):
        k.init_barriers({FULL: 1}, 32)
        with k.thread(0):
            k.expect(FULL, size)
            k.emit(BulkLoad(), smem(to), Address(k.pointer("x"), shift), k.mov(size), smem(FULL))
        k.await_(FULL, 0)
        with k.if_(k.setp("lt", "u32", k.special("%tid.x"), 12)):
            k.output("y", k.load(k.own(to)))

    bench = Bench()
    x = bench.input("x", rng.integers(0, 1 << 32, 64, np.uint32))
    y = bench.output("y", 12)
    one = kernel(write, shared=SHARED, x="u64", y="u64")
    if error is not None:
        with pytest.raises(error):
            bench.run(one, order)
        return
    bench.run(one, order)
    np.testing.assert_array_equal(y, x[4:16])


def test_the_address_of_a_scalar_is_no_tensor_map():
    def write(k):
        with k.thread(0):
            k.emit(BulkTensorLoad(), smem(0), k.map("n"), (k.mov(0), k.mov(0)), smem(2048))

    with pytest.raises(LaunchError, match="address of a tensor map is expected, got that of 7"):
        Bench(arguments={"n": 7}).run(kernel(write, n="u32"), Earliest())


def test_a_tensor_map_is_named_by_its_generic_address(rng):
    def write(convert):
        def body(k):
            place = k.reg("b64")
            k.emit(SymbolAddress("b64"), place, Address("x"))
            k.emit(TensorMapFetch(), Address(k.map("x") if convert else place))

        return body

    bench = Bench()
    matrix(bench, "x", rng.integers(1, 9, (ROWS, COLUMNS), np.uint32))
    bench.run(kernel(write(True), x="tensormap"), Earliest())
    with pytest.raises(
        OutOfBoundsError, match="generic address, got 0x.* of the space .param: convert it by cvta.param"
    ):
        bench.run(kernel(write(False), x="tensormap"), Earliest())


@pytest.mark.parametrize("size", [8, 1 << 20])
def test_a_bulk_copy_has_a_size_that_a_phase_can_count(rng, size):
    def write(k):
        k.init_barriers({FULL: 1}, 32)
        with k.thread(0):
            place = Address(k.ld_param("x"))
            k.emit(BulkLoad(), Address(k.base()), place, k.mov(size), Address(k.add(k.base(), FULL)))

    bench = Bench()
    bench.input("x", rng.integers(1, 9, 64, np.uint32))
    with pytest.raises(
        EmulationError, match=f"size of cp.async.bulk.* is from 0 to 1048560, a multiple of 16, got {size}"
    ):
        bench.run(kernel(write, shared=SHARED, x="u64"), Earliest())
