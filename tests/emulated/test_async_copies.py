"""Asynchronous copies of single threads (cp.async): results, and what must be waited for, synchronised and fenced."""

from __future__ import annotations

import numpy as np
import pytest

from louver.emulator import (
    Earliest,
    ExitError,
    Latest,
    MisalignedError,
    OutOfBoundsError,
    OverwriteInUseError,
    ProxyFenceError,
    UninitialisedError,
    UseBeforeArrivalError,
)
from louver.isa.async_copy import AsyncArrive, AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.bulk import TensorMap
from louver.isa.memory import Load, Store
from louver.isa.sync import MapShared, WarpSync
from louver.ptx.module import Address
from support.emulated import Bench, every_order, kernel
from support.removal import survey, undetected

SLOT = 16
UNORDERED = (UseBeforeArrivalError, UninitialisedError)


def slot(k, stage=0, threads=32, of=None):
    """Shared address of a thread's 16 bytes in a stage."""
    thread = k.special("%tid.x") if of is None else of
    return Address(k.mad_lo(thread, SLOT, k.base()), SLOT * threads * stage)


def source(k, index=None, name="x", offset=0):
    """Global address of 16 bytes, by default the thread's."""
    index = k.special("%tid.x") if index is None else index
    return Address(k.mad_wide(index, SLOT, k.pointer(name)), offset)


def copy(k, to, start, ignore=None, **guard):
    k.emit(AsyncCopy(), to, start, k.mov(0, kind="pred") if ignore is None else ignore, **guard)


def commit(k):
    k.emit(AsyncCommit())


def wait(k, pending=0):
    k.emit(AsyncWait(pending))


def read(k, place, index=None):
    """Four words of shared memory to y, by default as the thread's."""
    words = tuple(k.regs("b32", 4))
    k.emit(Load("shared", "b32", 4), words, place)
    k.emit(Store("global", "b32", 4), source(k, index, "y"), words)


def launch(write, order, *, x=None, rows=None, threads=32, **options):
    """Run a kernel on x, rows of 16 bytes, by default one a thread; gives x and what it left in y [rows, 4]."""
    bench = Bench()
    if x is None:
        x = np.random.default_rng(7).integers(0, 1 << 32, (threads, 4), np.uint32)
    bench.input("x", x)
    y = bench.output("y", (rows or threads, 4))
    bench.run(kernel(write, threads=threads, x="u64", y="u64", **options), order)
    return x, y


# --- other threads' reads --------------------------------------------------------------------------------------------
def exchange(k, *, steps, threads=64, distance=32):
    """Every thread copies 16 bytes and reads those of the thread that is `distance` away; steps: what comes between."""
    does = {"commit": commit, "wait": wait, "barrier": lambda k: k.sync(threads)}
    does["warp"] = lambda k: k.emit(WarpSync(), -1)
    copy(k, slot(k), source(k))
    for step in steps:
        does[step](k)
    read(k, slot(k, of=k.xor(k.special("%tid.x"), distance)))


@every_order
def test_a_wait_and_then_a_barrier_show_the_copy_to_other_warps(order):
    x, y = launch(lambda k: exchange(k, steps=["commit", "wait", "barrier"]), order, threads=64)
    np.testing.assert_array_equal(y, x[np.arange(64) ^ 32])


@every_order
@pytest.mark.parametrize(
    "steps",
    [["barrier"], ["commit", "barrier"], ["wait", "barrier"], ["wait", "barrier", "commit"],
     ["commit", "barrier", "wait"], ["commit", "wait"], ["commit", "wait", "warp"]],
    ids="-".join,
)  # fmt: skip
def test_without_the_wait_or_the_barrier_after_it_other_warps_do_not_see_the_copy(order, steps):
    with pytest.raises(UNORDERED):
        launch(lambda k: exchange(k, steps=steps), order, threads=64)


@every_order
def test_the_report_names_the_copy(order):
    with pytest.raises(UseBeforeArrivalError) as caught:
        launch(lambda k: exchange(k, steps=["commit", "barrier"]), order, threads=64)
    assert "was last written by an asynchronous copy (cp.async) of warp" in str(caught.value)
    assert caught.value.place.instruction.startswith("ld.shared.v4.b32")


@every_order
def test_a_wait_counts_for_the_thread_that_waited_alone(order):
    x, y = launch(lambda k: exchange(k, steps=["commit", "wait"], distance=0), order)
    np.testing.assert_array_equal(y, x)
    x, y = launch(lambda k: exchange(k, steps=["commit", "wait", "warp"], distance=5), order)
    np.testing.assert_array_equal(y, x[np.arange(32) ^ 5])
    with pytest.raises(UseBeforeArrivalError):
        launch(lambda k: exchange(k, steps=["commit", "wait"], distance=5), order)
    with pytest.raises(UseBeforeArrivalError):
        launch(lambda k: exchange(k, steps=["commit", "warp", "wait"], distance=5), order)


@every_order
def test_some_lanes_wait(order):
    """The others' copies are neither complete nor theirs to read."""

    def write(k, all_read):
        low = k.setp("lt", "u32", k.special("%tid.x"), 16)
        copy(k, slot(k), source(k))
        with k.if_(low):
            commit(k)
            wait(k)
            if not all_read:
                read(k, slot(k))
        if all_read:
            read(k, slot(k))
        commit(k)
        wait(k)

    x, y = launch(lambda k: write(k, all_read=False), order)
    np.testing.assert_array_equal(y[:16], x[:16])
    with pytest.raises(UseBeforeArrivalError) as caught:
        launch(lambda k: write(k, all_read=True), order)
    assert caught.value.place.thread == 16


# --- groups ----------------------------------------------------------------------------------------------------------
def groups(k, *, pending, stage, empty=0, unfinished=False):
    """Three groups of one copy a thread, then empty ones; reads a stage after a wait."""
    for at in range(3):
        copy(k, slot(k, at), source(k, offset=SLOT * 32 * at))
        if at < 2 or not unfinished:
            commit(k)
    for _ in range(empty):
        commit(k)
    wait(k, pending)
    read(k, slot(k, stage))
    commit(k)
    wait(k)


@every_order
@pytest.mark.parametrize(
    "options,complete",
    [({"pending": 0}, 3), ({"pending": 1}, 2), ({"pending": 2}, 1), ({"pending": 3}, 0), ({"pending": 9}, 0),
     ({"pending": 2, "empty": 1}, 2), ({"pending": 2, "empty": 2}, 3), ({"pending": 0, "unfinished": True}, 2),
     ({"pending": 1, "unfinished": True}, 1)],
    ids=str,
)  # fmt: skip
def test_a_wait_leaves_the_newest_groups(order, options, complete, rng):
    x = rng.integers(0, 1 << 32, (96, 4), np.uint32)
    for stage in range(3):
        if stage < complete:
            _, y = launch(lambda k, stage=stage: groups(k, stage=stage, **options), order, x=x, rows=32)
            np.testing.assert_array_equal(y, x[32 * stage : 32 * stage + 32])
        else:
            with pytest.raises(UseBeforeArrivalError):
                launch(lambda k, stage=stage: groups(k, stage=stage, **options), order, x=x, rows=32)


STEPS, STAGES = 5, 3


def pipeline(k, *, last_barrier=True):
    """Two warps copy rows into a ring ahead of their use, and read each other's, step by step."""
    tid = k.special("%tid.x")
    step, ahead = k.mov(0), k.mov(0)
    place, to = k.base(), k.base()
    size, end = SLOT * 64, k.add(k.base(), SLOT * 64 * STAGES)

    def turn(register):
        k.add(register, size, into=register)
        wrapped = k.setp("eq", "u32", register, end)
        k.selp(k.base(), register, wrapped, into=register)

    def start():
        row = k.mad_lo(ahead, 64, tid)
        behind = k.setp("ge", "u32", ahead, STEPS)
        copy(k, Address(k.mad_lo(tid, SLOT, to)), source(k, row), behind)
        commit(k)
        k.add(ahead, 1, into=ahead)
        turn(to)

    for _ in range(STAGES - 1):
        start()
    with k.loop() as loop:
        wait(k, STAGES - 2)
        k.sync(64)
        read(k, Address(k.mad_lo(k.xor(tid, 32), SLOT, place)), k.mad_lo(step, 64, tid))
        turn(place)
        start()
        k.add(step, 1, into=step)
        loop.repeat_if(k.setp("lt", "u32", step, STEPS))
    wait(k)


def run_pipeline(one, order):
    x = np.random.default_rng(3).integers(0, 1 << 32, (64 * STEPS, 4), np.uint32)
    bench = Bench()
    bench.input("x", x)
    y = bench.output("y", x.shape)
    bench.run(one, order)
    np.testing.assert_array_equal(y.reshape(STEPS, 64, 4), x.reshape(STEPS, 64, 4)[:, np.arange(64) ^ 32])


def pipeline_kernel():
    return kernel(pipeline, threads=64, shared=SLOT * 64 * STAGES, x="u64", y="u64")


@every_order
def test_a_ring_of_stages_ahead(order):
    """Sources past the end are ignored, so that they may lie outside of x."""
    run_pipeline(pipeline_kernel(), order)


@every_order
def test_every_removal_from_the_ring_is_detected(order):
    outcomes = survey(pipeline_kernel(), run_pipeline, [order])
    texts = [outcome.removal.what for outcome in outcomes]
    for piece in ("cp.async.commit_group", "cp.async.wait_group 1", "one group of cp.async.wait_group 1", "bar"):
        assert any(piece in text for text in texts), piece
    assert [str(removal) for removal in undetected(outcomes)] == []


# --- what is written, and when ---------------------------------------------------------------------------------------
@every_order
def test_ignored_sources_give_zeros_and_other_lanes_keep_what_was_there(order):
    def write(k):
        tid = k.special("%tid.x")
        k.emit(Store("shared", "b32", 4), slot(k), (k.mov(7),) * 4)
        ignored = k.setp("ge", "u32", tid, 20)
        copy(k, slot(k), source(k), ignored, guard=k.setp("lt", "u32", tid, 25))
        commit(k)
        wait(k)
        read(k, slot(k))

    x = np.random.default_rng(1).integers(0, 1 << 32, (20, 4), np.uint32)
    _, y = launch(write, order, x=x, rows=32)
    np.testing.assert_array_equal(y, np.concatenate([x, np.full((5, 4), 0), np.full((7, 4), 7)]))


@pytest.mark.parametrize("order,new", [(Earliest(), False), (Latest(), True)], ids=str)
def test_the_source_is_read_when_the_copy_is_done(order, new):
    def write(k):
        k.emit(Store("global", "b32", 4), source(k, name="y"), (k.mov(1),) * 4)
        copy(k, slot(k), source(k, name="y"))
        commit(k)
        k.emit(Store("global", "b32", 4), source(k, name="y"), (k.mov(2),) * 4)
        wait(k)
        read(k, slot(k))

    _, y = launch(write, order)
    assert (y == (2 if new else 1)).all()


@every_order
@pytest.mark.parametrize("what", ["a copy", "a store", "a load", "a copy of another lane"])
def test_bytes_under_way_belong_to_the_copy(order, what):
    def write(k):
        copy(k, slot(k), source(k))
        commit(k)
        if what == "a copy":
            copy(k, slot(k), source(k))
        elif what == "a store":
            k.emit(Store("shared", "b32"), slot(k), k.mov(1))
        elif what == "a load":
            read(k, slot(k))
        else:
            wait(k)
            copy(k, slot(k, of=k.xor(k.special("%tid.x"), 1)), source(k))
        commit(k)
        wait(k)

    with pytest.raises(UseBeforeArrivalError if what == "a load" else OverwriteInUseError) as caught:
        launch(write, order)
    assert "an asynchronous copy (cp.async) of warp 0" in str(caught.value)


@every_order
def test_lanes_do_not_copy_to_the_same_bytes(order):
    def write(k):
        copy(k, slot(k, of=k.shr(k.special("%tid.x"), 1)), source(k))
        commit(k)
        wait(k)

    with pytest.raises(OverwriteInUseError, match="written by an asynchronous copy of several lanes at once"):
        launch(write, order)


@every_order
def test_what_another_warp_still_reads_is_not_copied_over(order):
    def write(k, barrier):
        exchange(k, steps=["commit", "wait", "barrier"])
        if barrier:
            k.sync(64)
        copy(k, slot(k), source(k))
        commit(k)
        wait(k)

    launch(lambda k: write(k, True), order, threads=64)
    with pytest.raises((OverwriteInUseError, UseBeforeArrivalError)):
        launch(lambda k: write(k, False), order, threads=64)


# --- the end of a thread ---------------------------------------------------------------------------------------------
@every_order
@pytest.mark.parametrize(
    "steps,error",
    [([], "never committed"), (["wait"], "never committed"), (["commit"], "cp.async.wait_group 0 must come first")],
    ids=str,
)
def test_a_thread_waits_for_its_copies_before_it_ends(order, steps, error):
    def write(k):
        copy(k, slot(k), source(k), guard=k.setp("eq", "u32", k.special("%tid.x"), 9))
        for step in steps:
            (commit if step == "commit" else wait)(k)

    with pytest.raises(ExitError, match=error) as caught:
        launch(write, order)
    assert caught.value.place.thread == 9


# --- addresses -------------------------------------------------------------------------------------------------------
@every_order
@pytest.mark.parametrize(
    "size,to,start,ignored,error,text",
    [(16, 8, 0, False, MisalignedError, "multiple of 16, got shared address 0x408"),
     (16, 0, 8, False, MisalignedError, "multiple of 16, got global address 0x70.*8"),
     (16, 0, 8, True, MisalignedError, "multiple of 16, got global address"),
     (16, 8, 0, True, MisalignedError, "multiple of 16, got shared address"),
     (16, 4096, 0, True, OutOfBoundsError, "outside the window"),
     (16, 0, 512, False, OutOfBoundsError, "outside x .512 bytes.: 0 bytes past the end"),
     (16, 0, 512, True, None, ""),
     (8, 8, 8, False, None, ""),
     (8, 0, 4, False, MisalignedError, "multiple of 8, got global address"),
     (4, 4, 12, False, None, ""),
     (4, 2, 0, False, MisalignedError, "multiple of 4, got shared address")],
)  # fmt: skip
def test_addresses(order, size, to, start, ignored, error, text):
    def write(k):
        k.emit(
            AsyncCopy(size),
            Address(slot(k).base, to),
            source(k, offset=start),
            k.setp("eq", "u32", k.mov(int(ignored)), 1),
            guard=k.setp("eq", "u32", k.special("%tid.x"), 0),
        )
        commit(k)
        wait(k)

    if error is None:
        launch(write, order)
        return
    with pytest.raises(error, match=text) as caught:
        launch(write, order)
    assert caught.value.place.instruction.startswith(f"@%p1 cp.async.{'cg' if size == 16 else 'ca'}.shared.global")


@every_order
def test_sources_are_initialised_and_ordered(order):
    def write(k, *, store=None):
        if store is not None:
            with k.warp(store):
                k.emit(Store("global", "b32", 4), source(k, k.xor(k.special("%tid.x"), 32), "y"), (k.mov(1),) * 4)
        copy(k, slot(k), source(k, name="y"), guard=k.setp("lt", "u32", k.special("%tid.x"), 32))
        commit(k)
        wait(k)

    with pytest.raises(UninitialisedError, match="of y is read but was never written"):
        launch(write, order, threads=64)
    with pytest.raises((UseBeforeArrivalError, UninitialisedError), match="y"):
        launch(lambda k: write(k, store=1), order, threads=64)


def test_a_peer_s_shared_memory_is_no_destination():
    def write(k):
        k.cluster_sync()
        mapped = k.reg("b32")
        k.emit(MapShared(), mapped, k.base(), 1)
        copy(k, Address(mapped), source(k), guard=k.setp("eq", "u32", k.special("%tid.x"), 3))
        commit(k)
        wait(k)

    bench = Bench()
    bench.input("x", np.zeros((32, 4), np.uint32))
    with pytest.raises(OutOfBoundsError, match="the executing CTA's shared memory, got a peer's") as caught:
        bench.run(kernel(write, cluster=2, x="u64"), Earliest(), grid=2)
    assert caught.value.place.thread == 3


# --- the async proxy -------------------------------------------------------------------------------------------------
def sent(k, *, fence):
    """Threads copy a tile, one thread sends it on by a bulk store."""
    copy(k, Address(k.mad_lo(k.special("%tid.x"), SLOT, k.base())), source(k))
    commit(k)
    if fence == "before the wait":
        k.fence_async()
    wait(k)
    if fence == "after the wait":
        k.fence_async()
    if fence == "of some lanes":
        with k.if_(k.setp("lt", "u32", k.special("%tid.x"), 40)):
            k.fence_async()
    k.sync(64)
    if fence == "after the barrier":
        k.fence_async()
    with k.thread(0):
        k.bulk_store("y", [0, 0], 0)
        k.bulk_commit_wait()


@every_order
@pytest.mark.parametrize(
    "fence", ["after the wait", "before the wait", "of some lanes", "after the barrier", None], ids=str
)
def test_bulk_copies_see_it_after_a_fence_that_follows_the_wait(order, fence, rng):
    bench = Bench()
    x = bench.input("x", rng.integers(0, 1 << 32, (64, 4), np.uint32))
    y = np.zeros((8, 32), np.uint32)
    bench.arguments["y"] = TensorMap(bench.memory.add("y", y).address, 4, (32, 8), (128,), (32, 8))
    one = kernel(lambda k: sent(k, fence=fence), threads=64, shared=1024, x="u64", y="tensormap")
    if fence == "after the wait":
        bench.run(one, order)
        np.testing.assert_array_equal(y.reshape(64, 4), x)
        return
    with pytest.raises(ProxyFenceError, match="fence.proxy.async after its wait for the copy") as caught:
        bench.run(one, order)
    assert "stored by an asynchronous copy (cp.async) of warp" in str(caught.value)
    assert f"of CTA 0, lane {8 if fence == 'of some lanes' else 0} and is touched by a bulk store" in str(caught.value)


# --- arrivals at an mbarrier ------------------------------------------------------------------------------------------
BAR = 2048


def arrival(k):
    """The thread's copies so far arrive at the barrier when they are complete."""
    k.emit(AsyncArrive(), Address(k.base(), BAR))


def behind_a_barrier(k, *, arrives=True, late=False):
    """Warp 0 copies and its copies arrive; warp 1 reads them behind the barrier. late: one more copy follows the arrival."""
    k.init_barriers({BAR: 32}, 64)
    thread = k.and_(k.special("%tid.x"), 31)
    with k.warp(0):
        if not late:
            copy(k, slot(k), source(k))
        if arrives:
            arrival(k)
        if late:
            copy(k, slot(k), source(k))
        commit(k)
        wait(k)
    with k.warp(1):
        if arrives:
            k.await_(BAR, 0)
        read(k, slot(k, of=k.xor(thread, 5)), thread)


@every_order
def test_copies_arrive_when_they_are_complete(order):
    x, y = launch(behind_a_barrier, order, threads=64, rows=32, x=None, shared=4096)
    np.testing.assert_array_equal(y, x[np.arange(32) ^ 5])
    for changed in ({"arrives": False}, {"late": True}):
        with pytest.raises(UNORDERED):
            launch(lambda k, changed=changed: behind_a_barrier(k, **changed), order, threads=64, rows=32, shared=4096)


@every_order
def test_an_arrival_is_no_wait_and_no_group(order):
    """The thread itself must wait before it reads, and before it ends; groups are what commits make."""

    def write(k, *, waits):
        k.init_barriers({BAR: 32}, 32)
        copy(k, slot(k), source(k))
        arrival(k)
        commit(k)
        commit(k)
        wait(k, waits)
        read(k, slot(k))
        wait(k)

    x, y = launch(lambda k: write(k, waits=1), order, shared=4096)
    np.testing.assert_array_equal(y, x)
    with pytest.raises(UseBeforeArrivalError):
        launch(lambda k: write(k, waits=2), order, shared=4096)

    def leave(k):
        k.init_barriers({BAR: 32}, 32)
        copy(k, slot(k), source(k))
        arrival(k)

    with pytest.raises(ExitError, match="never committed"):
        launch(leave, order, shared=4096)


# --- parts of a copy --------------------------------------------------------------------------------------------------
@every_order
def test_zeros_follow_the_bytes_that_are_read(order):
    """Lane i reads i bytes, 16 at most; the others need not be in memory."""

    def write(k):
        tid = k.special("%tid.x")
        k.emit(AsyncCopy(partial=True), slot(k), source(k, k.sub(16, k.min(tid, 16))), k.min(tid, 16))
        commit(k)
        wait(k)
        read(k, slot(k))

    x = np.random.default_rng(1).integers(0, 1 << 32, (16, 4), np.uint32)
    _, y = launch(write, order, x=x, rows=32)
    expected = np.zeros((32, 16), np.uint8)
    for lane in range(32):
        size = min(lane, 16)
        row = x.view(np.uint8).reshape(16, 16)[16 - size] if size else 0
        expected[lane] = np.where(np.arange(16) < size, row, 0)
    np.testing.assert_array_equal(y.view(np.uint8).reshape(32, 16), expected)


def test_no_more_is_read_than_is_copied():
    def write(k):
        k.emit(AsyncCopy(8, partial=True), slot(k), source(k), k.mov(9))
        commit(k)
        wait(k)

    with pytest.raises(OutOfBoundsError, match="a copy of 8 bytes reads as many at most, got 9"):
        launch(write, Earliest())
