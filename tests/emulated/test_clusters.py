"""Clusters: peers' barriers and memory, multicast, the end of a CTA."""

from __future__ import annotations

import numpy as np
import pytest

from louver.emulator import (
    BarrierError,
    ConvergenceError,
    DeadlockError,
    Earliest,
    ExitError,
    Order,
    OutOfBoundsError,
    OverwriteInUseError,
    Seeded,
    UninitialisedError,
    UseBeforeArrivalError,
    run,
)
from louver.isa.bulk import TensorMap
from louver.isa.memory import AtomicAdd, Load
from louver.isa.sync import ClusterArrive, ClusterWait, FenceMbarrierInit, MapShared
from louver.ptx.module import Address
from support.emulated import Bench, every_order, kernel

ROWS, COLUMNS = 8, 32
HALF = ROWS * COLUMNS * 4
FULL, EMPTY = 6144, 6144 + 64
SHARED = 8192


def ring(k, tiles, stages, *, waits=True, empty_count=64, last_sync=True, first_sync=True, mask=3):
    """Each CTA of a pair loads half of every tile for both; both consume both halves."""
    with k.thread(0):
        for stage in range(stages):
            k.init(FULL + 8 * stage, 1)
            k.init(EMPTY + 8 * stage, empty_count)
        k.emit(FenceMbarrierInit())
    if first_sync:
        k.cluster_sync()
    else:
        k.sync(64)
    rank = k.special("%cluster_ctarank")
    lane = k.and_(k.special("%tid.x"), 31)
    with k.thread(0):
        for tile in range(tiles):
            stage, parity = tile % stages, tile // stages & 1
            if waits:
                k.await_(EMPTY + 8 * stage, parity ^ 1)
            k.expect(FULL + 8 * stage, 2 * HALF)
            row = k.mad_lo(rank, ROWS, 2 * ROWS * tile)
            to = k.mad_lo(rank, HALF, k.add(k.base(), 2 * HALF * stage))
            k.bulk_load("x", [0, row], to, FULL + 8 * stage, mask=mask)
    with k.warp(1):
        for tile in range(tiles):
            stage, parity = tile % stages, tile // stages & 1
            k.await_(FULL + 8 * stage, parity)
            total = k.mov(0)
            for row in range(2 * ROWS):
                address = k.mad_lo(lane, 4, k.add(k.base(), 2 * HALF * stage + 4 * COLUMNS * row))
                k.add(total, k.mul_lo(k.load(address), row + 1), into=total)
            k.output("y", total, k.mad_lo(k.add(k.mul_lo(rank, tiles), tile), COLUMNS, lane))
            for peer in range(2):
                k.arrive_remote(EMPTY + 8 * stage, peer)
    if last_sync:
        k.cluster_sync()


def bench_of(rng, tiles):
    bench = Bench()
    x = rng.integers(0, 1 << 32, (2 * ROWS * tiles, COLUMNS), np.uint32)
    allocation = bench.memory.add("x", x, writable=False)
    bench.arguments["x"] = TensorMap(allocation.address, 4, x.shape[::-1], (4 * COLUMNS,), (COLUMNS, ROWS))
    y = bench.output("y", (2, tiles, COLUMNS))
    weights = np.arange(1, 2 * ROWS + 1, dtype=np.uint32)[:, None]
    expected = (x.reshape(tiles, 2 * ROWS, COLUMNS) * weights).sum(axis=1, dtype=np.uint32)
    return bench, y, np.stack([expected, expected])


def ring_kernel(tiles, stages, **options):
    return kernel(
        lambda k: ring(k, tiles, stages, **options), threads=64, cluster=2, shared=SHARED, x="tensormap", y="u64"
    )


@every_order
@pytest.mark.parametrize(("tiles", "stages"), [(1, 2), (5, 2), (4, 1), (6, 3)])
def test_a_multicast_ring(rng, order, tiles, stages):
    bench, y, expected = bench_of(rng, tiles)
    report = bench.run(ring_kernel(tiles, stages), order, grid=2)
    np.testing.assert_array_equal(y, expected)
    assert report.bulk_loads == 4 * tiles


@every_order
@pytest.mark.parametrize(
    ("options", "errors"),
    [
        ({"waits": False}, (OverwriteInUseError, BarrierError)),
        ({"empty_count": 32}, (OverwriteInUseError, BarrierError, ExitError)),
        ({"empty_count": 96}, DeadlockError),
        ({"last_sync": False}, (ExitError, UseBeforeArrivalError)),
        ({"first_sync": False}, (UseBeforeArrivalError, BarrierError)),
        ({"mask": 1}, (DeadlockError, BarrierError)),
    ],
    ids=str,
)
def test_a_multicast_ring_without_its_order_is_found(rng, order, options, errors):
    bench, _, _ = bench_of(rng, 5)
    with pytest.raises(errors):
        bench.run(ring_kernel(5, 2, **options), order, grid=2)


def _launch(write, order, **options):
    return Bench().run(kernel(write, cluster=2, **options), order, grid=2)


def _peer(k, offset, rank=1):
    mapped = k.reg("b32")
    k.emit(MapShared(), mapped, k.add(k.base(), offset), rank)
    return mapped


@every_order
def test_peers_read_and_write_each_others_memory(order):
    def write(k):
        rank = k.special("%cluster_ctarank")
        lane = k.special("%tid.x")
        k.store(k.own(0), k.mad_lo(rank, 1000, lane))
        k.cluster_sync()
        mapped = k.reg("b32")
        k.emit(MapShared(), mapped, k.own(0), k.xor(rank, 1))
        value = k.load(mapped)
        k.cluster_sync()
        k.store(mapped, k.add(value, 5))
        k.cluster_sync()
        k.output("y", k.load(k.own(0)), k.mad_lo(rank, 32, lane))

    bench = Bench()
    y = bench.output("y", 64)
    bench.run(kernel(write, cluster=2, y="u64"), order, grid=2)
    np.testing.assert_array_equal(y, np.concatenate([np.arange(32) + 5, np.arange(32) + 1005]))


@every_order
def test_a_peer_must_have_started(order):
    def write(k):
        with k.thread(0), k.rank(0):
            k.load(_peer(k, 0))

    with pytest.raises(UseBeforeArrivalError, match="before that CTA has surely started"):
        _launch(write, order)


@every_order
def test_a_peer_must_not_have_ended(order):
    def write(k):
        with k.thread(0):
            k.store(0, 1)
        k.cluster_sync()
        with k.thread(0), k.rank(0):
            k.load(_peer(k, 0))

    with pytest.raises(ExitError, match="CTA 1 may end before warp 0 of CTA 0 uses its shared memory"):
        _launch(write, order)


@every_order
def test_peers_accesses_need_order(order):
    def write(k, sync):
        k.cluster_sync()
        with k.thread(0), k.rank(1):
            k.store(0, 7)
        if sync:
            k.cluster_sync()
        with k.thread(0), k.rank(0):
            k.load(_peer(k, 0))
        k.cluster_sync()

    _launch(lambda k: write(k, True), order)
    with pytest.raises((UseBeforeArrivalError, UninitialisedError, OverwriteInUseError)):
        _launch(lambda k: write(k, False), order)


def test_ranks_are_checked():
    def write(k):
        k.cluster_sync()
        k.load(_peer(k, 0, rank=2))

    with pytest.raises(OutOfBoundsError, match="rank 2 is outside the cluster of 2"):
        _launch(write, Earliest())


def test_multicast_masks_are_checked(rng):
    for mask in (0, 4):
        bench, _, _ = bench_of(rng, 1)
        with pytest.raises(BarrierError, match="names CTAs of the cluster of 2, got"):
            bench.run(ring_kernel(1, 1, mask=mask), Earliest(), grid=2)


def test_a_copy_to_a_peer_completes_on_the_peers_barrier(rng):
    def write(k):
        with k.thread(0):
            k.init(FULL, 1)
            k.emit(FenceMbarrierInit())
        k.cluster_sync()
        with k.thread(0), k.rank(0):
            k.expect(FULL, HALF)
            k.bulk_load("x", [0, 0], _peer(k, 0), FULL)
        k.cluster_sync()

    bench, _, _ = bench_of(rng, 1)
    with pytest.raises(BarrierError, match="a bulk copy to CTA 1 must complete on a barrier there"):
        bench.run(kernel(write, cluster=2, shared=SHARED, x="tensormap", y="u64"), Earliest(), grid=2)


@pytest.mark.parametrize(
    ("ops", "error", "message"),
    [
        ([ClusterArrive()], None, ""),
        ([ClusterArrive(), ClusterArrive()], BarrierError, "arrives twice at the cluster barrier"),
        ([ClusterWait()], BarrierError, "waits at the cluster barrier without having arrived"),
    ],
    ids=str,
)
def test_the_cluster_barrier_is_used_in_turns(ops, error, message):
    def write(k):
        for op in ops:
            k.emit(op)

    if error is None:
        _launch(write, Earliest())
    else:
        with pytest.raises(error, match=message):
            _launch(write, Earliest())


@every_order
def test_a_warp_that_does_not_come_to_the_cluster_barrier(order):
    with pytest.raises(DeadlockError, match=r"the cluster barrier \(warp 0 of CTA 1, warp 1 of CTA 1 missing\)"):
        _launch(_stuck, order, threads=64)


def _stuck(k):
    with k.rank(0):
        k.cluster_sync()
    with k.rank(1):
        with k.thread(0):
            k.init(FULL - 4096, 1)
        k.sync(64)
        k.await_(FULL - 4096, 0)


@every_order
def test_warps_that_have_ended_are_not_waited_for(order):
    def write(k):
        with k.rank(0):
            k.cluster_sync()

    _launch(write, order)


def test_part_of_a_warp_does_not_arrive():
    def write(k):
        with k.thread(0):
            k.emit(ClusterArrive())

    with pytest.raises(ConvergenceError, match="all lanes of a warp must arrive together"):
        _launch(write, Earliest())


@every_order
def test_every_cluster_of_a_grid_runs(order):
    def write(k):
        value = k.mad_lo(k.special("%ctaid.x"), 2, k.special("%cluster_ctarank"))
        k.cluster_sync()
        k.output("y", value, k.mad_lo(k.special("%ctaid.x"), 32, k.special("%tid.x")))

    bench = Bench()
    y = bench.output("y", 6 * 32)
    bench.run(kernel(write, cluster=2, y="u64"), order, grid=6)
    cta = np.arange(6 * 32) // 32
    np.testing.assert_array_equal(y, 2 * cta + cta % 2)


def test_a_load_through_a_peers_address_counts_its_own_window_too():
    def write(k):
        k.store(k.own(0), k.special("%tid.x"))
        mapped = k.reg("b32")
        k.emit(MapShared(), mapped, k.own(0), k.special("%cluster_ctarank"))
        value = k.reg("b32")
        k.emit(Load("shared", "b32"), value, Address(mapped))
        k.output("y", value, k.mad_lo(k.special("%ctaid.x"), 32, k.special("%tid.x")))

    bench = Bench()
    y = bench.output("y", 64)
    bench.run(kernel(write, cluster=2, y="u64"), Earliest(), grid=2)
    np.testing.assert_array_equal(y, np.arange(64) % 32)


@pytest.mark.parametrize("seed", range(3))
def test_a_seeded_order_interleaves_clusters(seed: int) -> None:
    """Each of four CTAs draws fifty numbers; those of others come between, which no order by CTAs gives."""

    def write(k):
        first = k.mul_lo(k.special("%ctaid.x"), 50)
        with k.thread(0):
            for draw in range(50):
                drawn = k.reg("b32")
                k.emit(AtomicAdd("u32", returns=True), drawn, Address(k.ld_param("count")), 1)
                k.output("y", drawn, k.add(first, draw))

    def drawn(order: Order) -> np.ndarray:
        bench = Bench()
        bench.arguments["count"] = bench.memory.add("count", np.zeros(1, np.uint32))
        y = bench.output("y", (4, 50))
        run(kernel(write, count="u64", y="u64"), 4, bench.arguments, memory=bench.memory, order=order)
        assert sorted(y.ravel()) == list(range(200))
        return y

    assert (np.diff(drawn(Earliest()), axis=1) == 1).all()
    assert (np.diff(drawn(Seeded(seed)), axis=1) > 1).any()
    np.testing.assert_array_equal(drawn(Seeded(seed)), drawn(Seeded(seed)))
