"""Asynchronous stores to a CTA of the cluster (st.async): results, and what must be waited for, ordered and fenced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from louver.emulator import (
    BarrierError,
    DeadlockError,
    Earliest,
    ExitError,
    Latest,
    MisalignedError,
    OutOfBoundsError,
    OverwriteInUseError,
    ProxyFenceError,
    Seeded,
    UninitialisedError,
    UseBeforeArrivalError,
)
from louver.isa.async_copy import StoreAsync
from louver.isa.bulk import BulkTensorLoad, TensorMap
from louver.isa.sync import FenceMbarrierInit, MbarrierInvalidate, WarpSync
from louver.ptx.module import Address
from support.emulated import Bench, every_order, kernel, smem
from support.removal import survey, undetected

BAR, FREE = 3072, 3080
"""Offsets of the barriers; data stands below."""
SIZE = 128
"""Bytes that a warp stores, 4 a lane."""
UNORDERED = (UseBeforeArrivalError, UninitialisedError, OverwriteInUseError)


def begin(k, *, counts=None, fence=True, sync=True):
    """Each CTA's barriers are ready, and all have started."""
    with k.thread(0):
        for barrier, count in (counts or {BAR: 1}).items():
            k.init(barrier, count)
        if fence:
            k.emit(FenceMbarrierInit())
    if sync:
        k.cluster_sync()


def other(k):
    return k.xor(k.special("%cluster_ctarank"), 1)


def at(k, offset, rank):
    """An offset in a CTA's window, as a cluster address."""
    return Address(k.map_shared(k.add(k.base(), offset), rank))


def send(k, value=None, *, rank=None, barrier=BAR, to=0):
    """Each lane of a warp stores a word to the other CTA."""
    rank = other(k) if rank is None else rank
    value = k.special("%tid.x") if value is None else value
    k.store_async(Address(k.map_shared(k.own(to), rank)), value, at(k, barrier, rank))


def expect(k, size=SIZE, barrier=BAR):
    with k.thread(0):
        k.expect(barrier, size)


def launch(write, order=None, *, cluster=2, **options: Any):
    bench = Bench()
    y = bench.output("y", 64)
    bench.run(kernel(write, cluster=cluster, y="u64", **options), order or Earliest(), grid=cluster)
    return y


def refused(error, message, write, order=None, **options: Any):
    with pytest.raises(error, match=message):
        launch(write, order, **options)


def output(k, value):
    k.output("y", value, k.mad_lo(k.special("%ctaid.x"), 32, k.special("%tid.x")))


# --- results ---------------------------------------------------------------------------------------------------------
ORDERS = (Earliest(), Latest(), *(Seeded(n) for n in range(6)))


def exchange_kernel(kind, count, turns):
    """Each warp sends `count` registers a lane to the other CTA in each turn, and adds up what it got: the words of y."""
    size = {"b32": 4, "f32": 4, "b64": 8}[kind] * count
    words = size // 4

    def write(k):
        begin(k, counts={BAR: 1, FREE: 64})
        rank, thread = k.special("%cluster_ctarank"), k.special("%tid.x")
        peer = k.xor(rank, 1)
        mine = k.mad_lo(thread, size, k.base())
        totals = [k.mov(0) for _ in range(words)]
        for turn in range(turns):
            if turn:
                k.await_(FREE, turn - 1 & 1)
            with k.thread(0):
                k.expect(BAR, 64 * size)
            index = k.mad_lo(k.mad_lo(rank, turns, turn), 64, thread)
            x = k.regs(kind, count)
            k.load_global(x, Address(k.mad_wide(index, size, k.pointer("x"))))
            k.store_async(Address(k.map_shared(mine, peer)), x, at(k, BAR, peer))
            k.await_(BAR, turn & 1)
            for word, total in enumerate(totals):
                got = k.load(k.add(mine, 4 * word))
                k.add(k.mul_lo(total, 3), got, into=total)
            k.arrive_remote(FREE, peer)
        # The peer's last arrivals here come before this CTA ends.
        k.await_(FREE, turns - 1 & 1)
        place = k.mul_lo(k.mad_lo(rank, 64, thread), words)
        for word, total in enumerate(totals):
            k.output("y", total, k.add(place, word))

    return kernel(write, threads=64, cluster=2, x="u64", y="u64")


def exchange(kind, count, turns, order, rng, made=None):
    words = {"b32": 1, "f32": 1, "b64": 2}[kind] * count
    x = rng.integers(0, 1 << 32, (2, turns, 64, words), np.uint32)
    bench = Bench()
    bench.input("x", x)
    y = bench.output("y", (2, 64, words))
    bench.run(made or exchange_kernel(kind, count, turns), order, grid=2)
    expected = np.zeros((2, 64, words), np.uint32)
    for turn in range(turns):
        expected = expected * np.uint32(3) + x[::-1, turn]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(("kind", "count"), [("b32", 1), ("f32", 2), ("b64", 1), ("b64", 2), ("f32", 4)])
def test_two_ctas_send_registers_to_each_other(rng, order, kind, count):
    exchange(kind, count, 3, order, rng)


def test_each_removed_wait_or_arrival_is_found():
    made = exchange_kernel("f32", 4, 3)
    outcomes = survey(made, lambda changed, order: exchange("f32", 4, 3, order, np.random.default_rng(3), changed))
    assert outcomes and not undetected(outcomes)


@every_order
def test_a_cta_stores_to_itself_by_mapa(order):
    def write(k):
        begin(k)
        expect(k)
        send(k, rank=k.special("%cluster_ctarank"))
        k.await_(BAR, 0)
        output(k, k.load(k.own(0)))

    np.testing.assert_array_equal(launch(write, order), np.arange(64) % 32)


@every_order
def test_bytes_may_complete_before_they_are_expected(order):
    """Arrivals are pending, so the phase stays open: the number of missing bytes is negative meanwhile."""

    def write(k):
        begin(k)
        send(k)
        k.cluster_sync()
        expect(k)
        k.await_(BAR, 0)
        output(k, k.load(k.own(0)))

    np.testing.assert_array_equal(launch(write, order), np.arange(64) % 32)


@every_order
def test_who_waited_needs_no_cluster_barrier_before_the_end(order):
    """A CTA that has its bytes may end, and so may one whose stores are under way: they come from registers."""

    def write(k):
        begin(k)
        expect(k)
        send(k)
        k.await_(BAR, 0)
        k.load(k.own(0))

    launch(write, order)


@every_order
def test_a_barrier_whose_stores_were_waited_for_may_go(order):
    def write(k, wait):
        begin(k)
        expect(k)
        send(k)
        if wait:
            k.await_(BAR, 0)
        with k.thread(0):
            k.emit(MbarrierInvalidate(), smem(BAR))

    launch(lambda k: write(k, True), order)
    refused((BarrierError, OverwriteInUseError), "invalidated", lambda k: write(k, False), order)


# --- addresses -------------------------------------------------------------------------------------------------------
def pair(address, barrier, value=None):
    """One thread of CTA 0 stores a register, or several; both addresses are made by the test."""

    def write(k):
        begin(k)
        with k.thread(0), k.rank(0):
            k.store_async(address(k), k.mov(7) if value is None else value(k), barrier(k))
        k.cluster_sync()

    return write


def to_peer(offset):
    return lambda k: at(k, offset, 1)


@pytest.mark.parametrize(
    ("address", "barrier", "error", "message"),
    [
        (
            to_peer(0),
            lambda k: at(k, BAR, 0),
            BarrierError,
            "to CTA 1 must complete on a barrier there, got .* of CTA 0",
        ),
        (lambda k: smem(0), to_peer(BAR), OutOfBoundsError, "which mapa makes, got the shared::cta address 0x400"),
        (to_peer(0), lambda k: smem(BAR), OutOfBoundsError, "which mapa makes, got the shared::cta mbarrier 0x1000"),
        (to_peer(2), to_peer(BAR), MisalignedError, "a 4-byte access needs a multiple of 4"),
        (to_peer(0), to_peer(BAR + 4), MisalignedError, "an mbarrier is aligned to 8 bytes"),
        (to_peer(4096), to_peer(BAR), OutOfBoundsError, "outside the window of CTA 1"),
        (to_peer(0), to_peer(FREE), BarrierError, "no initialised mbarrier at shared address .* of CTA 1"),
        (to_peer(BAR), to_peer(BAR), BarrierError, "belongs to an mbarrier and is overwritten"),
        (lambda k: at(k, 0, 2), to_peer(BAR), OutOfBoundsError, "rank 2 is outside the cluster of 2"),
        (to_peer(0), lambda k: at(k, BAR, 2), OutOfBoundsError, "rank 2 is outside the cluster of 2"),
    ],
)
def test_addresses_are_checked(address, barrier, error, message):
    refused(error, message, pair(address, barrier))


def test_vectors_are_aligned_to_all_their_bytes():
    write = pair(to_peer(8), to_peer(BAR), lambda k: [k.mov(i) for i in range(4)])
    refused(MisalignedError, "a 16-byte access needs a multiple of 16", write)


def test_lanes_that_store_to_the_same_bytes():
    def write(k):
        begin(k)
        with k.rank(0):
            k.store_async(at(k, 0, 1), k.special("%tid.x"), at(k, BAR, 1))

    refused(OverwriteInUseError, "written by an asynchronous store of several lanes at once", write)


def test_types_are_checked():
    with pytest.raises(ValueError, match="registers of 32 or 64 bits, got b16"):
        StoreAsync("b16")
    with pytest.raises(ValueError, match=r"at most 16 bytes a lane, got 4 × b64"):
        StoreAsync("b64", 4)
    with pytest.raises(ValueError, match="got 1 × pred"):
        StoreAsync("pred")


# --- order -----------------------------------------------------------------------------------------------------------
@every_order
def test_a_read_before_the_wait_is_found(order):
    def write(k, steps):
        begin(k)
        expect(k)
        send(k)
        for step in steps:
            if step == "wait":
                k.await_(BAR, 0)
            elif step == "lane":
                with k.lane(3):
                    k.await_(BAR, 0)
            else:
                k.emit(WarpSync(), -1) if step == "warp" else k.cluster_sync()
        k.load(k.own(0))
        k.await_(BAR, 0)

    for steps in (["wait"], ["lane", "warp"]):
        launch(lambda k, steps=steps: write(k, steps), order)
    # A cluster barrier orders what the threads did, not what they started.
    for steps in ([], ["cluster"], ["lane"]):
        refused(UNORDERED, None, lambda k, steps=steps: write(k, steps), order)


@every_order
def test_the_thread_itself_must_wait(order):
    """Its later accesses are not ordered behind its store."""

    def write(k, touch):
        begin(k)
        expect(k)
        send(k, rank=k.special("%cluster_ctarank"))
        touch(k)
        k.await_(BAR, 0)

    refused(
        UseBeforeArrivalError,
        "last written by an asynchronous store",
        lambda k: write(k, lambda k: k.load(k.own(0))),
        order,
    )
    refused(
        OverwriteInUseError,
        "last written by an asynchronous store",
        lambda k: write(k, lambda k: k.store(k.own(0), 1)),
        order,
    )
    refused(
        OverwriteInUseError,
        "last written by an asynchronous store",
        lambda k: write(k, lambda k: send(k, rank=k.special("%cluster_ctarank"))),
        order,
    )


@every_order
def test_a_wait_for_another_phase_is_found(order):
    """The bytes of phase 1 are read behind a wait for phase 0."""

    def write(k, wait):
        begin(k)
        expect(k)
        send(k)
        k.await_(BAR, 0)
        k.cluster_sync()
        expect(k)
        send(k, to=SIZE)
        if wait:
            k.await_(BAR, 1)
        k.load(k.own(SIZE))
        k.await_(BAR, 1)

    launch(lambda k: write(k, True), order)
    refused(UNORDERED, None, lambda k: write(k, False), order)


@every_order
@pytest.mark.parametrize("use", ["load", "store"])
def test_bytes_that_others_use_are_not_overwritten(order, use):
    def write(k, sync):
        begin(k)
        k.store(k.own(0), 1)
        if use == "load":
            k.load(k.own(0))
        if sync:
            k.cluster_sync()
        expect(k)
        send(k)
        k.await_(BAR, 0)

    launch(lambda k: write(k, True), order)
    refused(UNORDERED, None, lambda k: write(k, False), order)


@every_order
def test_a_peer_must_have_started(order):
    def write(k):
        begin(k, sync=False)
        with k.rank(0):
            send(k)

    refused(UseBeforeArrivalError, "before that CTA has surely started", write, order)


@every_order
def test_initialised_barriers_are_fenced(order):
    def write(k):
        begin(k, fence=False)
        expect(k)
        send(k)
        k.await_(BAR, 0)

    refused(BarrierError, "an asynchronous store completes on .* not followed by fence.mbarrier_init", write, order)


@every_order
@pytest.mark.parametrize("size", [SIZE, 0])
def test_a_cta_does_not_end_before_stores_to_it(order, size):
    """Nobody waits, whether the bytes were expected or not."""

    def write(k):
        begin(k)
        with k.rank(0):
            send(k)
        with k.rank(1):
            if size:
                expect(k)

    refused(
        ExitError,
        "waited for the last bulk copies or asynchronous stores|may end before an asynchronous store|the middle of a phase",
        write,
        order,
    )


@pytest.mark.parametrize("order", [Latest(), Seeded(1), Seeded(2)], ids=str)
def test_bytes_complete_in_the_phase_that_expects_them(order):
    """Nothing expects the bytes, so that the phase may be complete before they are."""

    def write(k):
        begin(k)
        with k.rank(0):
            send(k)
        k.cluster_sync()
        with k.rank(1):
            expect(k, size=0)
            k.await_(BAR, 0)

    refused((BarrierError, DeadlockError), "issued in phase 0 .* completes in phase 1|bytes missing", write, order)


@every_order
def test_too_few_bytes_are_a_deadlock(order):
    def write(k):
        begin(k)
        expect(k, size=SIZE + 4)
        send(k)
        k.await_(BAR, 0)

    refused(DeadlockError, "0 of 1 arrivals and 4 bytes missing", write, order)


# --- the async proxy -------------------------------------------------------------------------------------------------
BOX = 256
"""Bytes of a box of 2 rows, of which a warp stores the first."""


def forward(k, *, fence, load=False):
    """CTA 1 copies the bytes on in bulk, or copies others over them, by a thread of another warp than the one that waits."""
    begin(k, counts={BAR: 1, FREE: 1})
    with k.rank(0), k.warp(0):
        send(k, rank=1)
        send(k, rank=1, to=SIZE)
    with k.rank(1):
        with k.thread(0):
            k.expect(BAR, BOX)
        with k.warp(0):
            k.await_(BAR, 0)
            if fence == "waiter":
                k.fence_async()
        with k.warp(1):
            if fence == "others":
                k.fence_async()
        k.sync(64)
        with k.thread(32):
            if fence == "issuer":
                k.fence_async()
            if load:
                k.expect(FREE, BOX)
                k.emit(BulkTensorLoad(), smem(0), k.map("x"), (k.mov(0), k.mov(0)), smem(FREE))
                k.await_(FREE, 0)
            else:
                k.bulk_store("x", [0, 0], 0)
                k.bulk_commit_wait()


def forwarded(order, **options):
    bench = Bench()
    x = np.zeros((2, 32), np.uint32)
    allocation = bench.memory.add("x", x)
    bench.arguments["x"] = TensorMap(allocation.address, 4, (32, 2), (128,), (32, 2))
    bench.run(kernel(lambda k: forward(k, **options), threads=64, cluster=2, x="tensormap"), order, grid=2)
    return x


@every_order
@pytest.mark.parametrize("fence", ["waiter", "issuer"])
def test_bulk_copies_touch_the_bytes_behind_a_fence(order, fence):
    np.testing.assert_array_equal(forwarded(order, fence=fence), np.tile(np.arange(32), (2, 1)))
    forwarded(order, fence=fence, load=True)


@every_order
@pytest.mark.parametrize("load", [False, True])
@pytest.mark.parametrize("fence", ["", "others"])
def test_bulk_copies_need_a_fence_behind_the_wait(order, load, fence):
    with pytest.raises(ProxyFenceError, match="stored by an asynchronous store .* a thread that has waited"):
        forwarded(order, fence=fence, load=load)
