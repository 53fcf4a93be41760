"""mbarriers, named barriers, the order that they give, setmaxnreg."""

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
    Latest,
    MisalignedError,
    OverwriteInUseError,
    UninitialisedError,
    UseBeforeArrivalError,
)
from louver.isa.sync import (
    MapShared,
    MbarrierArrive,
    MbarrierArriveExpect,
    MbarrierInit,
    MbarrierInvalidate,
    SetMaxRegisters,
    WarpSync,
)
from louver.ptx.module import Address
from support.emulated import Bench, Probe, every_order, kernel, launch, smem

BAR = 2048
"""Offset of the barriers; data stands below."""

ARRIVE_N = MbarrierArrive(counted=True)
INVALIDATE = MbarrierInvalidate()
EXPECT = MbarrierArriveExpect()


def _expect(error, message, write, order=None, **options):
    with pytest.raises(error, match=message) as caught:
        launch(kernel(write, **options), order or Earliest())
    return caught.value


def _exchange(k, wait=True, arrive=True):
    """Warp 0 stores, warp 1 reads behind an mbarrier and answers behind another."""
    k.init_barriers({BAR: 32, BAR + 8: 32}, 64)
    lane = k.and_(k.special("%tid.x"), 31)
    mine = k.mad_lo(lane, 4, k.base())
    with k.warp(0):
        for turn in range(3):
            k.store(mine, k.mad_lo(lane, 10, turn))
            if arrive:
                k.arrive(BAR)
            if wait:
                k.await_(BAR + 8, turn & 1)
    with k.warp(1):
        total = k.mov(0)
        for turn in range(3):
            if wait:
                k.await_(BAR, turn & 1)
            other = k.load(k.mad_lo(k.xor(lane, 7), 4, k.base()))
            k.add(total, other, into=total)
            k.arrive(BAR + 8)
        k.output("y", total, lane)


@every_order
def test_mbarriers_order_two_warps(order):
    bench = Bench()
    y = bench.output("y", 32)
    bench.run(kernel(_exchange, threads=64, y="u64"), order)
    np.testing.assert_array_equal(y, 30 * (np.arange(32) ^ 7) + 3)


@every_order
def test_a_missing_wait_is_found_in_every_order(order):
    bench = Bench()
    bench.output("y", 32)
    with pytest.raises((UseBeforeArrivalError, OverwriteInUseError, UninitialisedError)):
        bench.run(kernel(lambda k: _exchange(k, wait=False), threads=64, y="u64"), order)


@every_order
def test_a_deadlock_names_each_waiting_warp_and_what_it_waits_for(order):
    bench = Bench()
    bench.output("y", 32)
    with pytest.raises(DeadlockError) as caught:
        bench.run(kernel(lambda k: _exchange(k, arrive=False), threads=64, y="u64"), order)
    message = str(caught.value)
    assert "CTA 0, warp 0" in message and "CTA 0, warp 1" in message
    assert "mbarrier.try_wait.parity.shared::cta.b64 %p" in message
    assert (
        "the phase of parity 0 of mbarrier 0xc00 of CTA 0 (phase 0: 32 of 32 arrivals and 0 bytes missing)" in message
    )


def test_a_wait_counts_for_the_threads_that_waited():
    def write(k):
        k.init_barriers({BAR: 32}, 64)
        with k.warp(0):
            k.store(k.own(0), 1)
            k.arrive(BAR)
        with k.warp(1):
            with k.lane(5):
                k.await_(BAR, 0)
            k.load(k.sub(k.own(0), 128))

    error = _expect(UseBeforeArrivalError, "last written by warp 0 of CTA 0", write, threads=64)
    assert error.place.thread == 32


def test_bar_warp_sync_shares_what_a_lane_waited_for():
    def write(k):
        k.init_barriers({BAR: 32}, 64)
        with k.warp(0):
            k.store(k.own(0), 1)
            k.arrive(BAR)
        with k.warp(1):
            with k.lane(5):
                k.await_(BAR, 0)
            k.emit(WarpSync(), 0xFFFFFFFF)
            k.load(k.sub(k.own(0), 128))

    launch(kernel(write, threads=64), Latest())


def test_reads_before_a_write_need_order_too():
    def write(k):
        k.store(k.own(0), 1)
        k.sync(64)
        with k.warp(0):
            k.load(k.add(k.own(0), 128))
        with k.warp(1):
            k.store(k.own(0), 2)

    # Whichever comes first in the run: the two are not ordered.
    _expect(UseBeforeArrivalError, "last written by warp 1 of CTA 0", write, Earliest(), threads=64)
    _expect(OverwriteInUseError, "is read by warp 0 of CTA 0", write, Latest(), threads=64)


def test_two_writes_need_order():
    def write(k):
        k.store(k.mad_lo(k.and_(k.special("%tid.x"), 31), 4, k.base()), 1)

    _expect(OverwriteInUseError, "last written by warp", write, threads=64)


def test_neighbouring_bytes_are_independent():
    def write(k):
        k.store(k.own(0), k.special("%tid.x"))
        k.load(k.own(0))

    launch(kernel(write, threads=96), Latest())


@every_order
def test_named_barriers_order_their_warps_alone(order):
    def write(k):
        with k.warp(0):
            k.store(k.own(0), k.special("%tid.x"))
            k.sync(96, index=2)
        with k.warp(1):
            k.store(k.own(0), k.special("%tid.x"))
            k.sync(96, index=2)
        with k.warp(2):
            k.sync(96, index=2)
            k.output("y", k.load(k.sub(k.own(0), 256)), k.and_(k.special("%tid.x"), 31))

    bench = Bench()
    y = bench.output("y", 32)
    bench.run(kernel(write, threads=128, y="u64"), order)
    np.testing.assert_array_equal(y, np.arange(32))


def test_named_barriers_are_checked():
    def call(index, threads):
        return lambda k: k.emit(Probe("bar", lambda w: w.barrier_sync(index, threads)))

    _expect(BarrierError, "barriers are 0 to 15, got 16", call(16, 32))
    _expect(BarrierError, "whole warps of the CTA's 32 threads, got 40", call(1, 40))
    _expect(BarrierError, "whole warps of the CTA's 32 threads, got 64", call(1, 64))

    def disagree(k):
        with k.warp(0):
            k.sync(64)
        with k.warp(1):
            k.sync(96)

    _expect(BarrierError, "named barrier 0 waits for 64 threads, but warp 1 of CTA 0 names 96", disagree, threads=96)


def test_a_named_barrier_that_never_completes_is_a_deadlock():
    def write(k):
        with k.warp(0):
            k.sync(64, index=3)

    _expect(DeadlockError, r"named barrier 3 \(32 of 64 threads: warp 0 of CTA 0\)", write, threads=64)


def test_barriers_must_be_initialised():
    def write(k):
        with k.thread(0):
            k.arrive(BAR)

    _expect(BarrierError, "no initialised mbarrier at shared address 0xc00 of CTA 0", write)


def test_initialisation_must_be_ordered_before_use():
    def write(k):
        with k.thread(0):
            k.init(BAR, 1)
        with k.thread(32):
            k.arrive(BAR)

    _expect(BarrierError, "its initialisation by warp 0 of CTA 0 is not ordered before", write, threads=64)


def test_barriers_are_initialised_once():
    def write(k):
        with k.thread(0):
            k.init(BAR, 1)
            k.init(BAR, 1)

    _expect(BarrierError, "mbarrier 0xc00 of CTA 0 is initialised already; mbarrier.inval must come first", write)


@every_order
def test_an_invalidated_barrier_makes_room(order):
    def write(k):
        with k.thread(0):
            k.init(BAR, 2)
            k.emit(ARRIVE_N, smem(BAR), k.mov(2))
            k.emit(INVALIDATE, smem(BAR))
            k.init(BAR, 1)
            k.arrive(BAR)
            k.emit(INVALIDATE, smem(BAR))
            k.store(BAR, 9)

    launch(kernel(write), order)


def test_invalidation_is_checked():
    def half_way(k):
        with k.thread(0):
            k.init(BAR, 2)
            k.arrive(BAR)
            k.emit(INVALIDATE, smem(BAR))

    _expect(BarrierError, "invalidated while a phase is in progress", half_way)

    def in_use(k):
        k.init_barriers({BAR: 1}, 64)
        with k.thread(32):
            k.arrive(BAR)
        with k.thread(0):
            k.emit(INVALIDATE, smem(BAR))

    _expect(OverwriteInUseError, "other threads' uses are not ordered before", in_use, Earliest(), threads=64)

    def used_afterwards(k):
        with k.thread(0):
            k.init(BAR, 1)
            k.emit(INVALIDATE, smem(BAR))
            k.arrive(BAR)

    _expect(BarrierError, "no initialised mbarrier", used_afterwards)


def test_a_barriers_bytes_are_not_data():
    def write(k):
        with k.thread(0):
            k.init(BAR, 1)
            k.store(BAR + 4, 1)

    _expect(BarrierError, "belongs to an mbarrier and is overwritten", write)

    def read(k):
        with k.thread(0):
            k.init(BAR, 1)
            k.load(BAR + 4)

    _expect(BarrierError, "belongs to an mbarrier and is read", read)


def test_barriers_are_aligned_and_local():
    def write(k):
        with k.thread(0):
            k.init(BAR + 4, 1)

    _expect(MisalignedError, "aligned to 8 bytes, got 0xc04", write)


def test_too_many_arrivals():
    def write(k):
        k.init_barriers({BAR: 31}, 32)
        k.arrive(BAR)

    _expect(BarrierError, "32 arrivals on mbarrier 0xc00 .*: the phase takes at most 31 more", write)


def test_counts_have_limits():
    def zero(k):
        with k.thread(0):
            k.emit(MbarrierInit(), smem(BAR), k.mov(0))

    _expect(EmulationError, "count of mbarrier.init.* is from 1 to 1048575, got 0", zero)

    def bytes_(k):
        with k.thread(0):
            k.init(BAR, 3)
            k.emit(EXPECT, smem(BAR), k.mov(1 << 19))
            k.emit(EXPECT, smem(BAR), k.mov(1 << 19))

    _expect(BarrierError, "transaction count of .* leaves its range of ±1048575 bytes", bytes_)


def test_a_phase_half_way_at_the_end_is_found():
    def write(k):
        with k.thread(0):
            k.init(BAR, 2)
            k.arrive(BAR)

    _expect(ExitError, r"ends in the middle of a phase of mbarrier 0xc00 of CTA 0 \(phase 0: 1 of 2", write)


def test_the_latest_order_lets_try_wait_fail_once():
    def write(k):
        k.init_barriers({BAR: 32}, 32)
        k.arrive(BAR)
        k.await_(BAR, 0)

    counts = [launch(kernel(write), order).instructions for order in (Earliest(), Latest())]
    name = "mbarrier.try_wait.parity.shared::cta.b64"
    assert [c[name] for c in counts] == [1, 2]


def _registers(k, dec, inc):
    with k.warpgroup(0):
        if dec:
            k.emit(SetMaxRegisters("dec", dec))
    for group in (1, 2):
        with k.warpgroup(group):
            k.emit(SetMaxRegisters("inc", inc))


@every_order
def test_registers_move_between_warpgroups(order):
    launch(kernel(lambda k: _registers(k, 40, 232), threads=384), order)


@every_order
def test_registers_that_nobody_gives_back_are_a_deadlock(order):
    with pytest.raises(DeadlockError, match=r"registers for setmaxnreg 232 \(168 held per thread"):
        launch(kernel(lambda k: _registers(k, None, 232), threads=384), order)
    with pytest.raises(DeadlockError, match="registers for setmaxnreg 240"):
        launch(kernel(lambda k: _registers(k, 40, 240), threads=384), order)


def test_setmaxnreg_is_checked():
    def call(count, increase):
        return lambda k: k.emit(Probe("setmaxnreg", lambda w: w.set_max_registers(count, increase)))

    _expect(BarrierError, "multiple of 8 from 24 to 256, got 36", call(36, False), threads=384)
    _expect(BarrierError, "setmaxnreg.inc to 40 is below the 168 registers held", call(40, True), threads=384)
    _expect(BarrierError, "setmaxnreg.dec to 240 is above the 168 registers held", call(240, False), threads=384)

    def part(k):
        with k.warp(1):
            k.emit(SetMaxRegisters("dec", 40))

    _expect(ConvergenceError, "must be executed by all warps of a warpgroup: warps 0 to 3", part, threads=384)


def test_remote_waits_and_inits_are_refused():
    def init(k):
        k.cluster_sync()
        with k.thread(0), k.rank(0):
            mapped = k.reg("b32")
            k.emit(MapShared(), mapped, k.base(), 1)
            k.emit(MbarrierInit(), Address(mapped), 1)

    with pytest.raises(BarrierError, match=r"mbarrier.init needs a barrier of the executing CTA"):
        Bench().run(kernel(init, cluster=2), Earliest(), 2)

    def wait(k):
        with k.thread(0):
            k.init(BAR, 1)
        k.cluster_sync()
        with k.thread(0), k.rank(0):
            mapped = k.reg("b32")
            k.emit(MapShared(), mapped, k.add(k.base(), BAR), 1)
            k.await_(mapped, 0)

    with pytest.raises(BarrierError, match="only barriers of the executing CTA can be waited for"):
        Bench().run(kernel(wait, cluster=2), Earliest(), 2)


@pytest.mark.parametrize("parity", [2, 3, 0xFFFF_FFFF])
def test_a_phase_has_the_parity_0_or_1(parity):
    def write(k):
        k.init_barriers({BAR: 1}, 32)
        k.await_(BAR, k.mov(parity))

    _expect(EmulationError, f"parity of mbarrier.try_wait.* is from 0 to 1, got {parity}", write)
    with pytest.raises(ValueError, match="operand parity is from 0 to 1, got 2"):
        kernel(lambda k: k.await_(BAR, 2))


def test_a_count_of_arrivals_fits_a_phase():
    for count in (0, 1 << 20):
        message = f"count of mbarrier.init.* is from 1 to 1048575, got {count}"
        _expect(EmulationError, message, lambda k, count=count: k.emit(MbarrierInit(), Address(k.base()), k.mov(count)))


@pytest.mark.parametrize("mask", [0, 1, 0x7FFF_FFFF])
def test_the_mask_of_a_warp_s_barrier_names_the_lanes_that_execute_it(mask):
    error = _expect(
        ConvergenceError,
        f"names the lanes that execute it, 0xffffffff, got {mask:#010x}",
        lambda k: k.emit(WarpSync(), mask),
    )
    assert error.place is not None and error.place.thread == 0


def test_lanes_in_a_branch_name_themselves():
    def write(mask):
        def body(k):
            with k.if_(k.setp("lt", "u32", k.and_(k.special("%tid.x"), 31), 8)):
                k.emit(WarpSync(), mask)

        return body

    launch(kernel(write(0xFF)), Earliest())
    _expect(ConvergenceError, "0x000000ff, got 0xffffffff", write(-1))
