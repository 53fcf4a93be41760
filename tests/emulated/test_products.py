"""Warpgroup products on the emulator: results, and the rules of wgmma."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from louver.emulator import (
    ConvergenceError,
    DeadlockError,
    Earliest,
    EmulationError,
    ExitError,
    Latest,
    OutOfBoundsError,
    OverwriteInUseError,
    ProxyFenceError,
    RegisterHazardError,
    UninitialisedError,
    UseBeforeArrivalError,
)
from louver.isa.bulk import TensorMap
from louver.isa.memory import Load, Store
from louver.isa.swizzle import Swizzle, SwizzledTile, describe
from louver.isa.sync import SetMaxRegisters
from louver.isa.wgmma import Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait
from louver.ptx.module import Address
from support.emulated import Bench, Probe, every_order, kernel
from support.warpgroup import shared_image

N = 16
DENSE = Wgmma(N, "f16", "f16", "f32", sparse=False)
A_TILE = SwizzledTile("k", 64, 32, Swizzle(32))
B_TILE = SwizzledTile("k", N, 32, Swizzle(32))
A_AT, B_AT = 0, 2048
BARRIER = 4096
WINDOW = 1024
"""Where the window's dynamic part starts."""


def descriptors(k, shift=0):
    a = k.mov(describe(A_TILE, WINDOW + A_AT + shift).encode(), kind="b64")
    b = k.mov(describe(B_TILE, WINDOW + B_AT + shift).encode(), kind="b64")
    return a, b


def fill(k, *, fence=True, rows=N):
    """Copy the images of A and of the first rows of B (pointers `a`, `b`) into shared memory by ordinary stores."""
    tid = k.and_(k.special("%tid.x"), 127)
    for name, at, size in (("a", A_AT, 2048), ("b", B_AT, rows * 32)):
        for word in range(0, size // 4, 128):
            value = k.reg("b32")
            place = k.add(tid, word)
            with k.if_(k.setp("lt", "u32", place, size // 4)):
                k.emit(Load("global", "b32"), value, Address(k.mad_wide(place, 4, k.pointer(name))))
                k.store(k.mad_lo(place, 4, k.add(k.base(), at)), value)
    if fence:
        k.fence_async()
    k.sync(128)


def accumulators(k, clear=True):
    registers = k.regs("f32", N // 2)
    if clear:
        for register in registers:
            k.mov(0.0, into=register)
    return tuple(registers)


def store_all(k, registers, count=N // 2):
    """Thread t's accumulator i goes to y[t, i], of the first ones."""
    thread = k.and_(k.special("%tid.x"), 127)
    base = k.mad_wide(thread, 4 * len(registers), k.pointer("y"))
    for i, register in enumerate(registers[:count]):
        k.emit(Store("global", "f32"), Address(base, 4 * i), register)


class Setup:
    """Random small integers, so that float32 sums are exact."""

    def __init__(self, rng):
        self.a = rng.integers(-8, 9, (64, 16)).astype(np.float16)
        self.b = rng.integers(-8, 9, (N, 16)).astype(np.float16)
        self.bench = Bench()
        self.bench.input("a", shared_image(A_TILE, self.a.view(np.uint8)))
        self.bench.input("b", shared_image(B_TILE, self.b.view(np.uint8)))
        self.y = self.bench.output("y", (128, N // 2), np.uint32)

    def result(self):
        return DENSE.d_fragment.scatter(np.ascontiguousarray(self.y.T)).view(np.float32)

    def expected(self):
        return self.a.astype(np.float32) @ self.b.astype(np.float32).T

    def run(self, write, order, threads=128, **options):
        one = kernel(write, threads=threads, shared=16384, a="u64", b="u64", y="u64", **options)
        return self.bench.run(one, order)


def product(
    k,
    *,
    fence=True,
    commit=True,
    wait=True,
    times=1,
    clear=True,
    scale=True,
    between=None,
    again_fence=False,
    op=DENSE,
    refill=None,
    rows=N,
    shift=0,
    stored=N // 2,
):
    fill(k, rows=rows)
    if refill is not None:
        refill(k)
    d = accumulators(k, clear)
    a, b = descriptors(k, shift)
    always = k.setp("eq", "u32", 1 if scale else 0, k.mov(1))
    if fence:
        k.emit(WgmmaFence())
    for turn in range(times):
        if turn and between is not None:
            between(k, d)
        if turn and again_fence:
            k.emit(WgmmaFence())
        k.emit(op, d, a, b, always)
    if commit:
        k.emit(WgmmaCommit())
    if wait:
        k.emit(WgmmaWait(0))
    store_all(k, d, stored)


@every_order
@pytest.mark.parametrize("times", [1, 3])
def test_a_product(rng, order, times):
    setup = Setup(rng)
    report = setup.run(lambda k: product(k, times=times), order)
    np.testing.assert_array_equal(setup.result(), times * setup.expected())
    assert report.products == times


@every_order
def test_scale_d_false_ignores_the_accumulators(rng, order):
    setup = Setup(rng)
    setup.run(lambda k: product(k, clear=False, scale=False), order)
    np.testing.assert_array_equal(setup.result(), setup.expected())


def _expect(rng, error, message, write, order=None, **options):
    setup = Setup(rng)
    with pytest.raises(error, match=message) as caught:
        setup.run(write, order or Earliest(), **options)
    return caught.value


@every_order
def test_columns_of_b_that_were_never_written_must_not_reach_a_result(rng, order):
    message = r"of y \(\d+ such bytes\) depends on columns of B .* never written"
    _expect(rng, UninitialisedError, message, lambda k: product(k, rows=11), order)


@every_order
def test_other_columns_are_those_of_the_product(rng, order):
    setup = Setup(rng)
    setup.run(lambda k: product(k, rows=8, stored=4), order)
    assert np.array_equal(setup.result()[:, :8], setup.expected()[:, :8])


@every_order
def test_unwritten_rows_of_a_are_found(rng, order):
    _expect(
        rng, UninitialisedError, "is read by wgmma 1 .* but was never written", lambda k: product(k, shift=1024), order
    )


@every_order
def test_unwritten_accumulators_are_found(rng, order):
    error = _expect(
        rng, UninitialisedError, "reads accumulators that were never written", lambda k: product(k, clear=False), order
    )
    assert error.place.instruction.startswith(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%f0, %f1, %f2, %f3, …}"
    )


@every_order
def test_the_first_product_needs_a_fence(rng, order):
    _expect(rng, RegisterHazardError, "must come before the first wgmma", lambda k: product(k, fence=False), order)


@every_order
def test_products_must_be_committed_and_waited_for(rng, order):
    for options in ({"commit": False}, {"wait": False}, {"commit": False, "wait": False}):
        error = _expect(
            rng,
            RegisterHazardError,
            "register %f0 is an accumulator of wgmma 1",
            lambda k, options=options: product(k, **options),
            order,
        )
        assert error.place.instruction.startswith("st.global.f32")


@every_order
def test_a_product_nobody_waits_for_is_found_at_the_end(rng, order):
    def write(k):
        fill(k)
        d = accumulators(k)
        a, b = descriptors(k)
        k.emit(WgmmaFence())
        k.emit(DENSE, d, a, b, k.setp("eq", "u32", k.mov(1), 1))
        k.emit(WgmmaCommit())

    _expect(rng, ExitError, "ends with 1 wgmma that it has not waited for", write, order)


def _settle_and_touch(k, d):
    k.emit(WgmmaCommit())
    k.emit(WgmmaWait(0))
    k.mov(1.0, into=d[3])


@every_order
def test_registers_touched_between_products_need_a_fence(rng, order):
    _expect(
        rng,
        RegisterHazardError,
        "register %f3 was used by other instructions since the last wgmma.fence",
        lambda k: product(k, times=2, between=_settle_and_touch),
        order,
    )
    setup = Setup(rng)
    setup.run(lambda k: product(k, times=2, between=_settle_and_touch, again_fence=True), order)
    expected = setup.expected() * 2
    raw = DENSE.d_fragment.gather(expected.view(np.uint32)).view(np.float32)
    raw[3] = raw[3] / 2 + 1
    np.testing.assert_array_equal(setup.y.T.view(np.float32), raw)


@every_order
def test_accumulators_in_flight_are_not_touched(rng, order):
    _expect(
        rng,
        RegisterHazardError,
        "register %f2 is an accumulator of wgmma 1",
        lambda k: product(k, times=2, between=lambda k, d: k.mov(1.0, into=d[2])),
        order,
    )


@every_order
def test_accumulators_in_flight_keep_their_places(rng, order):
    def write(k):
        fill(k)
        d = accumulators(k)
        a, b = descriptors(k)
        always = k.setp("eq", "u32", k.mov(1), 1)
        k.emit(WgmmaFence())
        k.emit(DENSE, d, a, b, always)
        k.emit(DENSE, d[::-1], a, b, always)

    _expect(rng, RegisterHazardError, "of the unfinished wgmma 1 at another place or of another shape", write, order)


def test_accumulators_of_another_shape_need_a_fence(rng):
    def write(k):
        fill(k)
        d = accumulators(k)
        a, b = descriptors(k)
        always = k.setp("eq", "u32", k.mov(1), 1)
        k.emit(WgmmaFence())
        k.emit(DENSE, d, a, b, always)
        k.emit(WgmmaCommit())
        k.emit(WgmmaWait(0))
        k.emit(replace(DENSE, n=8), d[:4], a, b, always)

    _expect(rng, RegisterHazardError, "was an accumulator of shape m64n16 f32, now m64n8 f32", write)


@every_order
def test_stored_operands_need_the_proxy_fence_and_the_barrier(rng, order):
    def no_fence(k):
        fill(k, fence=False)
        _multiply(k)

    _expect(rng, ProxyFenceError, "is touched by wgmma 1 of warpgroup 0 of CTA 0", no_fence, order)

    def no_sync(k):
        _fill_alone(k)
        _multiply(k)

    _expect(rng, UseBeforeArrivalError, "last written by warp", no_sync, order)


@every_order
@pytest.mark.parametrize("fences", ["all", "one", "", "early"])
def test_operands_stored_asynchronously_need_the_proxy_fence_behind_the_wait(rng, order, fences):
    """All that multiply wait, and fence; or one thread does before a barrier."""

    def refill(k):
        k.init_barriers({BARRIER: 1}, 128)
        with k.thread(0):
            k.expect(BARRIER, 2048)
        for word in range(4):
            place = k.own(A_AT + 512 * word)
            value = k.load(place)
            k.store_async(Address(k.map_shared(place, 0)), value, Address(k.map_shared(k.add(k.base(), BARRIER), 0)))
        if fences == "early":
            k.fence_async()
        k.await_(BARRIER, 0)
        if fences == "all":
            k.fence_async()
        with k.thread(77):
            if fences == "one":
                k.fence_async()
        k.sync(128)

    setup = Setup(rng)
    if fences in ("all", "one"):
        setup.run(lambda k: product(k, refill=refill), order)
        np.testing.assert_array_equal(setup.result(), setup.expected())
    else:
        with pytest.raises(ProxyFenceError, match="by an asynchronous store .* is touched by wgmma 1"):
            setup.run(lambda k: product(k, refill=refill), order)


def _fill_alone(k):
    """As `fill`, with the fence but no barrier."""
    k.store(k.own(A_AT), 0)
    for i in range(1, 5):
        k.store(k.own(A_AT + 512 * i), 0)
    k.fence_async()


def _multiply(k, shift=0, a_steps=None):
    d = accumulators(k)
    a, b = descriptors(k, shift)
    if a_steps is not None:
        a = k.add(a, a_steps)
    k.emit(WgmmaFence())
    k.emit(DENSE, d, a, b, k.setp("eq", "u32", k.mov(1), 1))
    k.emit(WgmmaCommit())
    k.emit(WgmmaWait(0))


@every_order
def test_operands_are_not_overwritten_while_products_read_them(rng, order):
    def write(k, wait, sync):
        fill(k)
        d = accumulators(k)
        a, b = descriptors(k)
        k.emit(WgmmaFence())
        k.emit(DENSE, d, a, b, k.setp("eq", "u32", k.mov(1), 1))
        k.emit(WgmmaCommit())
        if wait:
            k.emit(WgmmaWait(0))
        if sync:
            k.sync(128)
        k.store(k.own(0), 1)
        k.emit(WgmmaWait(0))

    _expect(rng, OverwriteInUseError, "is read by the wgmma of warp . of CTA 0", lambda k: write(k, False, True), order)
    # A warp's own wait covers its own part only.
    _expect(rng, OverwriteInUseError, "is read by the wgmma of warp . of CTA 0", lambda k: write(k, True, False), order)
    Setup(rng).run(lambda k: write(k, True, True), order)


@every_order
def test_waiting_for_all_but_one_group_frees_the_first_only(rng, order):
    def write(k, overwrite):
        fill(k)
        first, second = accumulators(k), accumulators(k)
        a, b = descriptors(k)
        always = k.setp("eq", "u32", k.mov(1), 1)
        k.emit(WgmmaFence())
        k.emit(DENSE, first, a, b, always)
        k.emit(WgmmaCommit())
        k.emit(DENSE, second, a, b, always)
        k.emit(WgmmaCommit())
        k.emit(WgmmaWait(1))
        k.mov(1.0, into=(second if overwrite else first)[0])
        k.emit(WgmmaWait(0))

    Setup(rng).run(lambda k: write(k, False), order)
    _expect(rng, RegisterHazardError, "accumulator of wgmma 2", lambda k: write(k, True), order)


@every_order
def test_all_four_warps_issue_a_product(rng, order):
    def three(k):
        fill(k)
        with k.if_(k.setp("lt", "u32", k.shr(k.special("%tid.x"), 5), 3), uniform=True):
            _multiply(k)

    _expect(rng, DeadlockError, r"wgmma 1 of warpgroup 0 of CTA 0 \(not issued by warp 3 of CTA 0\)", three, order)

    def different(k):
        fill(k)
        with k.warp(2):
            _multiply(k)
        with k.if_(k.setp("ne", "u32", k.shr(k.special("%tid.x"), 5), 2), uniform=True):
            _multiply(k)

    _expect(rng, ConvergenceError, "issue different products as number 1", different, order)

    def descriptors_differ(k):
        fill(k)
        _multiply(k, a_steps=k.mul_wide(k.shr(k.special("%tid.x"), 6), 1))

    _expect(rng, ConvergenceError, "a-desc must be the same in all threads of the warpgroup", descriptors_differ, order)


def test_a_warpgroup_has_four_warps(rng):
    def write(k):
        with k.warpgroup(1):
            _multiply(k)

    _expect(rng, ConvergenceError, "warpgroup 1 of CTA 0 has 2 warps", write, threads=192)


def test_operands_lie_inside_the_window(rng):
    _expect(rng, OutOfBoundsError, "outside the window of CTA 0", lambda k: _multiply(k, shift=16384))


@every_order
def test_a_product_fits_the_registers_held(rng, order):
    wide = Wgmma(96, "f16", "f16", "f32", sparse=False)

    def write(k):
        k.emit(SetMaxRegisters("dec", 40))
        d = k.regs("f32", 48)
        k.emit(WgmmaFence())
        a, b = descriptors(k)
        k.emit(wide, tuple(d), a, b, k.setp("ne", "u32", k.mov(1), 1))

    _expect(rng, RegisterHazardError, "needs 48 registers a thread, but the warp holds 40", write, order)


SPARSE = Wgmma(N, "f16", "f16", "f32", sparse=True, a_source="registers")


def _sparse(k, *, word=0x44444444, touch=None):
    fill(k)
    d = accumulators(k)
    fragment = tuple(k.mov(0x3C003C00) for _ in range(4))
    words = k.mov(word)
    b = k.mov(describe(SwizzledTile("k", N, 64, Swizzle(64)), WINDOW + A_AT).encode(), kind="b64")
    k.emit(WgmmaFence())
    k.emit(SPARSE, d, fragment, b, words, k.setp("eq", "u32", k.mov(1), 1))
    if touch == "fragment":
        k.mov(1, into=fragment[2])
    if touch == "metadata":
        k.mov(1, into=words)
    k.emit(WgmmaCommit())
    k.emit(WgmmaWait(0))
    if touch == "later":
        k.mov(1, into=words)
        k.mov(1, into=fragment[2])
    store_all(k, d)


@every_order
def test_fragments_and_metadata_stay_until_the_product_is_done(rng, order):
    for touch in ("fragment", "metadata"):
        _expect(
            rng,
            RegisterHazardError,
            "is overwritten, but wgmma 1",
            lambda k, touch=touch: _sparse(k, touch=touch),
            order,
        )
    setup = Setup(rng)
    setup.run(lambda k: _sparse(k, touch="later"), order)
    lines = np.frombuffer(setup.bench.arguments["a"].data[: N * 64].tobytes(), np.uint8)
    stored = SwizzledTile("k", N, 64, Swizzle(64))
    at = stored.offset(*np.indices((N, 64)))
    b = np.ascontiguousarray(lines[at]).view(np.float16).astype(np.float32)
    # Code 0x4 keeps elements 0 and 1 of each group of four.
    kept = b.reshape(N, 8, 4)[:, :, :2].sum(axis=(1, 2))
    np.testing.assert_array_equal(setup.result(), np.broadcast_to(kept, (64, N)))


@every_order
def test_illegal_metadata_names_the_product(rng, order):
    error = _expect(rng, EmulationError, "wgmma 1 of warpgroup 0|code", lambda k: _sparse(k, word=0), order)
    assert error.place.instruction.startswith("wgmma.mma_async.sp")


@every_order
def test_touching_the_fragment_before_needs_a_fence(rng, order):
    def write(k):
        fill(k)
        d = accumulators(k)
        fragment = tuple(k.mov(0x3C003C00) for _ in range(4))
        words = k.mov(0x44444444)
        b = k.mov(describe(SwizzledTile("k", N, 64, Swizzle(64)), WINDOW + A_AT).encode(), kind="b64")
        k.emit(WgmmaFence())
        k.mov(7, into=words)
        k.mov(0x3C003C00, into=fragment[1])
        k.emit(SPARSE, d, fragment, b, words, k.setp("eq", "u32", k.mov(1), 1))

    _expect(
        rng,
        RegisterHazardError,
        r"register %r\d+ was used by other instructions since the last wgmma.fence",
        write,
        order,
    )


def test_a_wait_without_products_passes():
    def write(k):
        k.emit(WgmmaCommit())
        k.emit(WgmmaWait(0))
        k.emit(Probe("wait", lambda w: w.wgmma_wait(3)))

    Bench().run(kernel(write, threads=128), Latest())


def _two_rounds(k, pending):
    """One stage, filled twice by bulk copies; `pending` products may be unfinished when it is released."""
    full, empty = 8192, 8192 + 8
    k.init_barriers({full: 1, empty: 4}, 256)
    with k.thread(128):
        for turn in range(2):
            if turn:
                k.await_(empty, 0)
            k.expect(full, 2048 + N * 32)
            k.bulk_load("a", [0, 0], A_AT, full)
            k.bulk_load("b", [0, 0], B_AT, full)
    with k.warpgroup(0):
        d = accumulators(k)
        a, b = descriptors(k)
        always = k.setp("eq", "u32", k.mov(1), 1)
        k.emit(WgmmaFence())
        for turn in range(2):
            k.await_(full, turn)
            k.emit(DENSE, d, a, b, always)
            k.emit(WgmmaCommit())
            k.emit(WgmmaWait(0 if turn else pending))
            if not turn:
                with k.lane(0):
                    k.arrive(empty)
        store_all(k, d)


@every_order
def test_a_stage_is_released_only_after_its_product_is_done(rng, order):
    for pending in (0, 1):
        setup = Setup(rng)
        memory, bench = setup.bench.memory, setup.bench
        for name, array in (("a", setup.a), ("b", setup.b)):
            array = memory.add(name, np.ascontiguousarray(array), writable=False)
            bench.arguments[name] = TensorMap(
                array.address, 2, (16, len(array.array)), (32,), (16, len(array.array)), 32
            )
        two = kernel(
            lambda k, pending=pending: _two_rounds(k, pending),
            threads=256,
            shared=16384,
            a="tensormap",
            b="tensormap",
            y="u64",
        )
        if pending:
            with pytest.raises(OverwriteInUseError, match="is read by the wgmma of warp . of CTA 0"):
                bench.run(two, order)
        else:
            bench.run(two, order)
            np.testing.assert_array_equal(setup.result(), 2 * setup.expected())
