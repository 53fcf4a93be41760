"""Lanes, masks, branches, loops, parameters."""

from __future__ import annotations

import numpy as np
import pytest

from louver.emulator import (
    ConvergenceError,
    Earliest,
    EmulationError,
    GlobalMemory,
    LaunchError,
    LimitError,
    MisalignedError,
    OutOfBoundsError,
    OverwriteInUseError,
    UninitialisedError,
    run,
)
from louver.isa.memory import AtomicAdd, Load, Store
from louver.isa.move import ShuffleIndex
from louver.isa.wgmma import WgmmaFence
from louver.ptx.module import Address
from support.emulated import RESULT, VALUE, Bench, Probe, every_order, kernel, launch


@every_order
def test_lanes_take_their_own_branches_and_loop_counts(order):
    def write(k):
        tid = k.special("%tid.x")
        total = k.mov(0)
        count = k.mov(0)
        with k.if_(k.setp("lt", "u32", k.and_(tid, 3), 3)), k.loop() as loop:
            k.add(total, count, into=total)
            k.add(count, 1, into=count)
            loop.repeat_if(k.setp("lt", "u32", count, k.and_(tid, 15)))
        with k.if_(k.setp("lt", "u32", k.and_(tid, 3), 3), negated=True):
            k.add(total, 1000, into=total)
        k.output("y", total)

    bench = Bench()
    y = bench.output("y", 72)
    bench.run(kernel(write, threads=72, y="u64"), order)
    i = np.arange(72)
    rounds = np.maximum(i % 16, 1)
    np.testing.assert_array_equal(y, np.where(i % 4 < 3, rounds * (rounds - 1) // 2, 1000))


@every_order
def test_guards_and_partial_writes_keep_the_other_lanes(order):
    def write(k):
        tid = k.special("%tid.x")
        value = k.mul_lo(tid, 7)
        with k.if_(k.setp("ge", "u32", tid, 20)):
            k.mov(5, into=value)
        k.output("y", value)

    bench = Bench()
    y = bench.output("y", 32)
    bench.run(kernel(write, y="u64"), order)
    np.testing.assert_array_equal(y, np.where(np.arange(32) < 20, np.arange(32) * 7, 5))


def test_special_registers_and_scalar_parameters():
    def write(k):
        where = k.mad_lo(k.special("%ctaid.x"), 32, k.special("%tid.x"))
        value = k.mad_lo(
            k.special("%nctaid.x"), 1000, k.mad_lo(k.special("%cluster_ctarank"), 100, k.special("%laneid"))
        )
        k.output("y", k.add(value, k.ld_param("n")), where)

    bench = Bench()
    bench.arguments["n"] = 10_000
    y = bench.output("y", 6 * 32)
    report = bench.run(kernel(write, cluster=2, y="u64", n="u32"), Earliest(), grid=6)
    i = np.arange(6 * 32)
    np.testing.assert_array_equal(y, 16_000 + (i // 32 % 2) * 100 + i % 32)
    assert report.instructions["ld.param.u32"] == 6


def _expect(error, message, write, **options):
    with pytest.raises(error, match=message) as caught:
        launch(kernel(write, **options), Earliest())
    return caught.value


def test_the_place_names_instruction_cta_warp_and_thread():
    def write(k):
        with k.thread(37):
            k.emit(Store("shared", "b32"), Address("smem", 0x4000), k.mov(1))

    error = _expect(OutOfBoundsError, "outside the window of CTA 0", write, threads=64)
    place = error.place
    assert (place.cta, place.warp, place.thread) == (0, 1, 37)
    assert place.instruction.startswith("st.shared.b32 [smem+16384]")
    assert place.position == 4
    assert "CTA 0, warp 1, thread 37, instruction 4: st.shared.b32" in str(error)


def test_the_first_kilobyte_of_the_window_belongs_to_the_system():
    def write(k):
        k.emit(Store("shared", "b32"), Address("smem", -16), k.mov(1))

    _expect(OutOfBoundsError, "shared bytes 0x3f0", write)


def test_misaligned_shared_accesses_name_the_thread():
    def write(k):
        address = k.add(k.base(), k.selp(2, 0, k.setp("eq", "u32", k.special("%tid.x"), 9)))
        k.store(address, 1)

    error = _expect(MisalignedError, "multiple of 4, got shared address 0x402", write)
    assert error.place.thread == 9


def test_stray_global_accesses_are_found():
    def write(k):
        k.output("y", k.mov(1))

    bench = Bench()
    bench.output("y", 31)
    with pytest.raises(OutOfBoundsError, match="outside y .124 bytes.: 0 bytes past the end"):
        bench.run(kernel(write, y="u64"), Earliest())


def test_unwritten_shared_memory_is_found():
    def write(k):
        with k.thread(3):
            k.store(8, 1)
        k.load(k.own(0))

    error = _expect(UninitialisedError, "shared byte 0x400 .* is read but was never written", write)
    assert error.place.thread == 0


def test_unwritten_global_memory_is_found():
    def write(k):
        value = k.reg("b32")
        k.emit(Load("global", "b32"), value, Address(k.pointer("y"), 8))

    bench = Bench()
    bench.output("y", 31)
    with pytest.raises(UninitialisedError, match="byte 8 of y"):
        bench.run(kernel(write, y="u64"), Earliest())


def test_unwritten_registers_are_found():
    _expect(UninitialisedError, r"%r\d+ is read but was never written", lambda k: k.add(k.reg("b32"), k.reg("b32")))

    def guard(k):
        with k.if_(k.reg("pred")):
            k.mov(1)

    _expect(UninitialisedError, r"predicate %p\d+ is read", guard)


def test_aligned_instructions_need_the_whole_warp():
    def write(k):
        with k.thread(4):
            k.emit(WgmmaFence())

    _expect(ConvergenceError, "wgmma.fence.sync.aligned is .aligned, but only 1 of the warp's 32 threads", write)


def test_a_last_warp_with_fewer_threads_is_whole():
    def write(k):
        k.emit(WgmmaFence())
        k.output("y", k.special("%laneid"))

    bench = Bench()
    y = bench.output("y", 40)
    bench.run(kernel(write, threads=40, y="u64"), Earliest())
    np.testing.assert_array_equal(y, np.arange(40) % 32)


def test_a_uniform_branch_must_be_uniform():
    def write(k):
        with k.if_(k.setp("lt", "u32", k.special("%tid.x"), 4), uniform=True):
            k.mov(1)

    _expect(ConvergenceError, "marked uniform", write)


def test_a_shuffle_reads_lanes_that_take_part():
    def write(k):
        one = k.special("%tid.x")
        result = k.shuffle(one, k.xor(one, 5))
        k.output("y", result)

    bench = Bench()
    y = bench.output("y", 32)
    bench.run(kernel(write, y="u64"), Earliest())
    np.testing.assert_array_equal(y, np.arange(32) ^ 5)
    shuffle = ShuffleIndex()
    probe = Probe("shfl", lambda w, a, b: (w.shuffle(a, b),), (VALUE, VALUE), (RESULT,))
    assert not probe.aligned and shuffle.aligned

    def partial(k):
        tid = k.special("%tid.x")
        with k.if_(k.setp("lt", "u32", tid, 8)):
            k.emit(probe, k.reg("b32"), tid, k.xor(tid, 8))

    _expect(ConvergenceError, "reads lane 8, which does not take part", partial)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "takes the arguments"),
        ({"n": 1, "m": 2}, "takes the arguments"),
        ({"n": 1 << 32}, "n is u32, got"),
        ({"n": 1.5}, "n is u32, got 1.5"),
    ],
)
def test_arguments_are_checked(arguments, message):
    bench = Bench(arguments=arguments)
    with pytest.raises(LaunchError, match=message):
        bench.run(kernel(lambda k: k.ld_param("n"), n="u32"), Earliest())


@pytest.mark.parametrize(
    ("options", "grid", "message"),
    [
        ({"cluster": 2}, 3, "multiple of the cluster size 2, got 3"),
        ({"threads": 1056}, 1, "1 to 1024 threads, got 1056"),
        ({"shared": 240 * 1024}, 1, "bytes of shared memory, got 245760"),
        ({"cluster": 9}, 9, "1 to 8 CTAs, got 9"),
        ({}, 0, "got 0"),
    ],
)
def test_launches_are_checked(options, grid, message):
    with pytest.raises(LaunchError, match=message):
        Bench().run(kernel(lambda k: k.mov(1), **options), Earliest(), grid)


def test_endless_loops_are_given_up(monkeypatch):
    monkeypatch.setattr("louver.emulator.emulate.INSTRUCTION_LIMIT", 5000)

    def write(k):
        with k.loop() as loop:
            loop.repeat_if(k.setp("eq", "u32", k.mov(1), 1))

    _expect(LimitError, "does not end", write)


def test_a_run_stops_after_the_most_steps():
    def write(k):
        with k.loop() as loop:
            loop.repeat_if(k.setp("eq", "u32", k.mov(1), 1))

    report = run(kernel(write), 1, {}, memory=GlobalMemory(), most_steps=100)
    assert 100 < report.instructions.total() < 10_000


def test_unknown_special_registers():
    probe = Probe("clock", lambda w: (w.special("%clock"),), (), (RESULT,))
    _expect(LaunchError, "%clock is not modelled", lambda k: k.emit(probe, k.reg("b32")))


def test_an_instructions_own_complaint_gets_a_place():
    def complain(warp):
        raise ValueError("codes are legal from 1 to 9, got 0")

    error = _expect(EmulationError, "codes are legal from 1 to 9, got 0", lambda k: k.emit(Probe("odd", complain)))
    assert error.place.instruction == "odd;"


@every_order
def test_two_warps_must_not_write_the_same_global_byte(order):
    def write(k):
        k.output("y", k.add(k.special("%tid.x"), 1), k.and_(k.special("%tid.x"), 31))

    bench = Bench()
    bench.output("y", 32)
    with pytest.raises(OverwriteInUseError, match="y are written again by warp . of CTA 0, but warp . of CTA 0 wrote"):
        bench.run(kernel(write, threads=64, y="u64"), order)


def test_two_ctas_must_not_write_the_same_global_byte():
    bench = Bench()
    bench.output("y", 32)
    with pytest.raises(OverwriteInUseError, match="32 bytes of y"):
        bench.run(kernel(lambda k: k.output("y", k.add(k.special("%ctaid.x"), 1)), y="u64"), Earliest(), grid=2)


@every_order
def test_two_warps_may_write_the_same_value_to_a_global_byte(order):
    """Users' rows that wrap (`% M`) are computed and stored twice."""
    bench = Bench()
    y = bench.output("y", 32)
    write = kernel(lambda k: k.output("y", k.mov(3), k.and_(k.special("%tid.x"), 31)), threads=64, y="u64")
    bench.run(write, order, grid=2)
    assert (np.asarray(y).view(np.uint32) == 3).all()


@every_order
def test_ordered_warps_may_rewrite_and_read_global_bytes(order):
    def write(k):
        slot = k.and_(k.special("%tid.x"), 31)
        with k.warp(0):
            k.output("y", k.mov(1), slot)
        k.sync(64)
        with k.warp(1):
            k.output("y", k.mul_lo(slot, 3), slot)
        k.sync(64)
        with k.warp(0):
            value = k.reg("b32")
            k.emit(Load("global", "b32"), value, Address(k.mad_wide(slot, 4, k.pointer("y"))))
            k.output("z", value, slot)

    bench = Bench()
    y, z = bench.output("y", 32), bench.output("z", 32)
    bench.run(kernel(write, threads=64, y="u64", z="u64"), order)
    np.testing.assert_array_equal(y, np.arange(32) * 3)
    np.testing.assert_array_equal(z, y)


@every_order
def test_atomics_add_in_lane_order(order):
    def write(k):
        old = k.reg("b32")
        k.emit(AtomicAdd("u32", returns=True), old, Address(k.pointer("sum")), k.mov(3))
        k.output("y", old)

    bench = Bench()
    total = np.array([100], np.uint32)
    bench.arguments["sum"] = bench.memory.add("sum", total)
    y = bench.output("y", 64)
    bench.run(kernel(write, threads=64, y="u64", sum="u64"), order)
    assert total[0] == 100 + 64 * 3
    assert sorted(y.tolist()) == [100 + 3 * i for i in range(64)]
    assert np.all(np.diff(y[:32].astype(int)) == 3)
