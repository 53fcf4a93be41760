"""Dependent launches: memory that grids before one may still use is touched after `griddepcontrol.wait`, and by whom."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from louver.emulator import EarlierGridError, Earliest, ExitError, GlobalMemory, Latest, Order, run
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.bulk import BulkLoad, TensorMap
from louver.isa.memory import AtomicAdd, Load, Store
from louver.isa.sync import GridWait, LaunchDependents
from louver.ptx.module import Address
from support.emulated import Probe, Sketch, every_order, kernel, smem

BARRIER, DATA = 0, 128
BYTES = 256


def launched(write: Callable[[Sketch], None], order: Order, *, threads: int = 32, dependent: bool = True) -> None:
    """Run a kernel of x and m, a tensor map of it, which grids before this one may write, and w, which they do not."""
    memory = GlobalMemory()
    x = memory.add("x", np.arange(BYTES // 4, dtype=np.uint32))
    w = memory.add("w", np.arange(BYTES // 4, dtype=np.uint32), writable=False, settled=True)
    given = {"x": x, "w": w, "m": TensorMap(x.address, 4, (32, 2), (128,), (32, 2))}
    made = kernel(write, threads=threads, x="u64", w="u64", m="tensormap")
    run(made, 1, given, memory=memory, order=order, dependent=dependent)


def wait(k: Sketch) -> None:
    k.emit(GridWait())


def load(k: Sketch, name: str = "x", *, read_only: bool = False) -> None:
    k.emit(Load("global", "b32", read_only=read_only), k.reg("b32"), Address(k.pointer(name)))


def bulk_load(k: Sketch, name: str | None = None) -> None:
    """Into shared memory, linear or tiled, waited for."""
    k.init_barriers({BARRIER: 1}, 32)
    with k.thread(0):
        k.expect(BARRIER, BYTES)
        if name is None:
            k.bulk_load("m", [0, 0], DATA, BARRIER)
        else:
            k.emit(BulkLoad(), smem(DATA), Address(k.pointer(name)), BYTES, smem(BARRIER))
    k.await_(BARRIER, 0)


def bulk_store(k: Sketch) -> None:
    k.store(k.own(DATA), k.mov(1))
    k.store(k.add(k.own(DATA), BYTES // 2), k.mov(1))
    k.fence_async()
    k.sync(32)
    with k.thread(0):
        k.bulk_store("m", [0, 0], DATA)
        k.bulk_commit_wait()


def async_copy(k: Sketch) -> None:
    k.emit(
        AsyncCopy(),
        Address(k.mad_lo(k.special("%tid.x"), 16, k.add(k.base(), DATA))),
        Address(k.pointer("x")),
        k.mov(0, kind="pred"),
    )
    k.emit(AsyncCommit())
    k.emit(AsyncWait(0))


ACCESSES: dict[str, Callable[[Sketch], None]] = {
    "ld.global.b32": load,
    "st.global.b32": lambda k: k.emit(Store("global", "b32"), Address(k.pointer("x")), k.mov(1)),
    "red.global": lambda k: k.emit(AtomicAdd("u32"), Address(k.pointer("x")), k.mov(1)),
    "cp.async.bulk.tensor.2d.shared": bulk_load,
    "cp.async.bulk.shared": lambda k: bulk_load(k, "x"),
    "cp.async.bulk.tensor.2d.global": bulk_store,
    "cp.async.c": async_copy,
}


@pytest.mark.parametrize("name", ACCESSES)
@every_order
def test_every_access_comes_after_the_wait(name: str, order: Order) -> None:
    def early(k: Sketch) -> None:
        ACCESSES[name](k)
        wait(k)

    def late(k: Sketch) -> None:
        wait(k)
        ACCESSES[name](k)

    with pytest.raises(
        EarlierGridError, match=rf"(?s)x is accessed while grids before this one may still use it.*: {name}"
    ):
        launched(early, order)
    launched(late, order)
    # A launch that waits for the ones before it may do so at any time.
    launched(early, order, dependent=False)


@pytest.mark.parametrize("access", [load, bulk_load])
@every_order
def test_settled_memory_is_read_at_once(access: Callable[[Sketch, str], None], order: Order) -> None:
    def write(k: Sketch) -> None:
        access(k, "w")
        wait(k)

    launched(write, order)


@every_order
def test_a_barrier_passes_on_what_one_thread_has_waited_for(order: Order) -> None:
    """A named barrier to the other warp; an mbarrier to whoever waits for it."""

    def named(k: Sketch) -> None:
        with k.warp(0):
            wait(k)
        k.sync(64)
        load(k)

    def counted(k: Sketch) -> None:
        k.init_barriers({BARRIER: 1}, 64)
        with k.thread(0):
            wait(k)
            k.arrive(BARRIER)
        with k.warp(1):
            k.await_(BARRIER, 0)
            load(k)

    launched(named, order, threads=64)
    launched(counted, order, threads=64)


@every_order
def test_a_wait_counts_for_the_threads_that_waited(order: Order) -> None:
    def other_warp(k: Sketch) -> None:
        with k.warp(0):
            wait(k)
        with k.warp(1):
            load(k)

    def other_lanes(k: Sketch) -> None:
        with k.thread(0):
            wait(k)
        load(k)

    def arrived_before(k: Sketch) -> None:
        k.init_barriers({BARRIER: 1}, 64)
        with k.thread(0):
            k.arrive(BARRIER)
            wait(k)
        with k.warp(1):
            k.await_(BARRIER, 0)
            load(k)

    for write, threads, thread in ((other_warp, 64, 32), (other_lanes, 32, 1), (arrived_before, 64, 32)):
        with pytest.raises(EarlierGridError, match=f"thread {thread}, instruction"):
            launched(write, order, threads=threads)


def test_read_only_loads_are_for_settled_memory() -> None:
    """The assembler may move them before the wait, and a cache may hold what was there before."""

    def write(k: Sketch, name: str) -> None:
        wait(k)
        load(k, name, read_only=True)

    launched(lambda k: write(k, "w"), Latest())
    with pytest.raises(EarlierGridError, match="x is loaded by ld.global.nc, but grids before this one may write it"):
        launched(lambda k: write(k, "x"), Latest())
    launched(lambda k: write(k, "x"), Latest(), dependent=False)


@every_order
def test_a_cta_waits_before_it_ends(order: Order) -> None:
    """So that whoever waits for this grid knows that the ones before it have ended too."""
    with pytest.raises(
        ExitError, match=r"CTA 0 of a dependent launch ends, but no thread of it has executed griddepcontrol\.wait"
    ):
        launched(lambda k: load(k, "w"), order)
    launched(lambda k: load(k, "w"), order, dependent=False)


def test_grids_end_as_late_as_the_order_lets_them() -> None:
    """Under `Latest` all that may go on without them has gone on before."""
    order: list[int] = []

    def write(k: Sketch) -> None:
        for warp in (0, 1):
            with k.warp(warp):
                if warp == 0:
                    wait(k)
                k.emit(Probe("log", lambda _, warp=warp: order.append(warp)))
        k.sync(64)

    launched(write, Earliest(), threads=64)
    launched(write, Latest(), threads=64)
    assert order == [0, 1, 1, 0]


def test_dependents_may_be_launched_at_any_time_and_more_than_once() -> None:
    def write(k: Sketch) -> None:
        k.emit(LaunchDependents())
        wait(k)
        with k.thread(0):
            k.emit(LaunchDependents())
        wait(k)
        load(k)

    launched(write, Latest())
