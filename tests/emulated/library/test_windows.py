"""Kernels on windows, N:M@L and groups beyond a thread's registers, on the emulator: bit for bit as NumPy defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.emulator import Earliest, Order, Seeded
from louver.formats.dtypes import element_type
from louver.formats.pattern import KERNELS, Pattern
from louver.formats.rows import Windows, normal_axis
from louver.formats.select import Norm
from louver.formats.tensor import SparseTensor
from louver.library.streaming.launch import Launch
from louver.library.streaming.launches import check_into, compress_into, dense_into, prune_into, take_into
from louver.library.streaming.record import COUNTERS, KEY_BITS, NO_GROUP, Access
from louver.library.streaming.windows.record import Windowed
from louver.ptx.module import Kernel
from support.removal import survey, undetected
from support.sparse import bits_of, random_bits, same_bits
from support.streaming import POISON, Array, Device, built
from support.windows import LAYOUTS, adversarial, close_sums

Case = tuple[str, str, tuple[int, ...], str]

CASES: tuple[Case, ...] = (
    ("f16", "2:8@4", (10, 40), "rows"),
    ("f16", "4:8@16", (37, 300), "rows"),
    ("bf16", "1:4@3", (8, 33), "rows"),
    ("e4m3", "3:7@5", (13, 50), "rows"),
    ("e5m2", "2:4@8", (24, 36), "columns"),
    ("s8", "5:16@9", (20, 200), "rows"),
    ("u8", "1:2@6", (12, 27), "apart"),
    ("f32", "1:3@2", (5, 20), "rows"),
    ("f32", "8:32@40", (64, 70), "columns"),
    ("f16", "7:255@2", (3, 300), "pitched"),
    ("e4m3", "1:256@1", (2, 260), "rows"),
    ("bf16", "256:256@4", (6, 300), "columns"),
    ("s8", "16:64", (3, 200), "rows"),
    ("f16", "3:3", (4, 20), "apart"),
    ("f16", "2:8@1000000000000", (9, 24), "rows"),
    ("bf16", "2:6@16", (2, 20, 13), "rows"),
)


def stored(device: Device, s: SparseTensor, **fields: Any) -> Any:
    return device.stored(s.rows, s.size, s.pattern, s.dtype.bits, lists=s.windows.count, **fields)


def check_stored(expected: SparseTensor, held: Array, codes: Array) -> None:
    """values: bytes [rows, pitch], which stay as they were behind a row's values."""
    kept = expected.kept * expected.dtype.bytes
    own = np.ascontiguousarray(bits_of(np.ascontiguousarray(expected.values))).view(np.uint8)
    np.testing.assert_array_equal(held[:, :kept], own.reshape(len(held), -1))
    assert (held[:, kept:] == POISON).all()
    np.testing.assert_array_equal(codes, expected.indices)


def agree(
    w: Array, pattern: str, axis: int, norm: Norm, rng: np.random.Generator, out_layout: str = "rows"
) -> list[Launch]:
    """All kinds of kernels on an array, beside the host's functions."""
    device, kept, launches = Device(), Pattern.parse(pattern), list[Launch]()
    source = device.place(w)
    pruned = louver.prune(w, pattern, axis=axis, norm=norm)

    def run(launch: Launch) -> None:
        launches.append(launch)
        device.run(launch)

    out = LAYOUTS[out_layout](np.full(w.shape, 1).astype(w.dtype))
    run(prune_into(source, device.place(out, writable=True), pattern, axis=axis, norm=norm))
    assert same_bits(np.ascontiguousarray(out), pruned)

    s = louver.compress(w, pattern, axis=axis, method="magnitude")
    to, held, codes = stored(device, s, pitch=16)
    run(compress_into(source, to, pattern, axis=axis, method="magnitude"))
    check_stored(s, held, codes)

    to, held, codes = stored(device, s, pitch=16)
    codes[:] = s.indices
    run(take_into(source, to, pattern, axis=axis))
    check_stored(s, held, codes)

    negative = element_type(w.dtype).negative_zero
    if negative is not None:
        bits_of(pruned)[(bits_of(pruned) == 0) & (rng.random(w.shape) < 0.1)] = negative
    s = louver.compress(pruned, pattern, axis=axis)
    to, held, codes = stored(device, s)
    address, counters = device.counters()
    dirty = device.place(LAYOUTS[out_layout](pruned))
    run(compress_into(dirty, to, pattern, axis=axis, counters=address))
    check_stored(s, held, codes)
    assert counters.tolist() == [0, s.negative_zeros_dropped]

    out = LAYOUTS[out_layout](np.full(w.shape, 1).astype(w.dtype))
    address, counters = device.counters()
    run(dense_into(to, device.place(out, writable=True), pattern, address, axis=axis))
    assert same_bits(np.ascontiguousarray(out), s.dense()) and not counters.any()

    windows = Windows(w.shape, normal_axis(axis, w.ndim), kept)
    for exact, (array, there) in ((False, (w, source)), (True, (pruned, dirty))):
        report = louver.check(array, pattern, axis=axis, exact=exact, listed=1)
        address, counters = device.counters(len(COUNTERS) + kept.m)
        run(check_into(there, pattern, address, axis=axis, exact=exact))
        assert counters[len(COUNTERS) :].tolist() == list(report.histogram[1:])
        assert counters[COUNTERS.index("lost")] == report.negative_zeros_dropped
        key = NO_GROUP - int(counters[COUNTERS.index("listed")])
        found = [(windows.start(key >> KEY_BITS), key & (1 << KEY_BITS) - 1)] if counters[2] else []
        assert found == [(group.start, group.nonzeros) for group in report.first]
    return launches


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(("dtype", "pattern", "shape", "layout"), CASES)
def test_as_on_the_host(
    dtype: str, pattern: str, shape: tuple[int, ...], layout: str, norm: Norm, rng: np.random.Generator
) -> None:
    w = LAYOUTS[layout](random_bits(rng, shape, dtype))
    agree(w, pattern, -1, norm, rng, layout if layout == "columns" else "rows")


@pytest.mark.sampled(7, every=2)
@pytest.mark.parametrize("seed", range(16))
def test_random_patterns(seed: int) -> None:
    """Any pattern, type, shape, axis and layout, on data with ties, infinities, NaN and zeros of both signs."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 257)) if rng.random() < 0.3 else int(rng.integers(2, 20))
    pattern = f"{rng.integers(1, m + 1)}:{m}@{rng.integers(2, 40)}"
    shape = tuple(int(size) for size in rng.integers(1, 12 if m > 40 else 40, rng.integers(1, 4)))
    dtype = str(rng.choice(KERNELS["prune and compress"]["N:M@L"]))
    names = [name for name in LAYOUTS if len(shape) > 1 or name == "rows"]
    w = LAYOUTS[str(rng.choice(names))](adversarial(rng, shape, dtype))
    axis = int(rng.integers(-len(shape), len(shape)))
    agree(w, pattern, axis, "l1" if seed % 2 else "l2", rng)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "e5m2", "s8"])
def test_sums_are_added_in_the_order_of_the_rows(dtype: str, norm: Norm, rng: np.random.Generator) -> None:
    w = close_sums(rng, (64, 64), dtype)
    pruned = louver.prune(w, "8:16@64", norm=norm)
    if dtype == "f32":
        assert not same_bits(pruned[::-1], louver.prune(np.ascontiguousarray(w[::-1]), "8:16@64", norm=norm))
    for layout in ("rows", "columns", "apart"):
        device, source, out = Device(), LAYOUTS[layout](w), np.ones_like(w)
        device.run(prune_into(device.place(source), device.place(out, writable=True), "8:16@64", norm=norm))
        assert same_bits(out, pruned)


def test_sums_keep_subnormal_numbers_and_overflow_to_infinity(rng: np.random.Generator) -> None:
    w = np.zeros((8, 8), np.float32)
    w[:, 0], w[0, 1], w[:, 2], w[0, 3] = 1e-42, 1e-41, 3e38, np.inf
    w[0, 4], w[:, 5], w[:, 6] = np.nan, 1e-41, 2e-22
    for norm in ("l1", "l2"):
        for n in range(1, 8):
            device, out = Device(), np.ones_like(w)
            device.run(prune_into(device.place(w), device.place(out, writable=True), f"{n}:8@8", norm=norm))
            assert same_bits(out, louver.prune(w, f"{n}:8@8", norm=norm))


@pytest.mark.parametrize("fill", [0.0, -0.0, 1.0, np.nan])
def test_ties_go_to_the_lowest_index(fill: float, rng: np.random.Generator) -> None:
    w = np.full((6, 50), fill, np.float16)
    for pattern in ("2:8@4", "20:40"):
        agree(w, pattern, -1, "l2", rng)


@pytest.mark.parametrize(
    ("source", "out", "accesses"),
    [
        ("rows", "rows", (Access(4), Access(4))),
        ("columns", "columns", (Access(16, columns=True),) * 2),
        ("columns", "rows", (Access(16, columns=True), Access(2))),
        ("rows", "columns", (Access(2), Access(16, columns=True))),
        ("apart", "rows", (Access(2), Access(2))),
    ],
)
def test_how_arrays_are_reached(
    source: str, out: str, accesses: tuple[Access, Access], rng: np.random.Generator
) -> None:
    launches = agree(LAYOUTS[source](random_bits(rng, (32, 48), "f16")), "2:8@16", -1, "l2", rng, out)
    record = launches[0].record
    assert isinstance(record, Windowed) and (record.source, record.out) == accesses


@pytest.mark.parametrize("pattern", ["2:8@4", "1:2@4", "3:4@4", "20:100@4", "5:20"])
def test_illegal_indices_are_seen(pattern: str, rng: np.random.Generator) -> None:
    s = louver.compress(random_bits(rng, (6, 50), "f16"), pattern, method="magnitude")
    device = Device()
    to, held, codes = stored(device, s)
    held[:, : s.kept * 2] = np.ascontiguousarray(s.values).view(np.uint8)
    out, (address, counters) = np.ones(s.shape, s.dtype.numpy), device.counters()
    launch = dense_into(to, device.place(out, writable=True), pattern, address)
    for _ in range(20):
        codes[:] = s.indices
        row, byte = rng.integers(len(codes)), rng.integers(codes.shape[1])
        codes[row, byte if rng.random() < 0.7 else -1] = rng.integers(256)
        counters[:] = 0
        device.run(launch)
        try:
            expected = SparseTensor(s.pattern, s.dtype, s.shape, s.axis, s.values, codes.copy()).dense()
        except ValueError:
            assert counters[0]
        else:
            assert not counters[0] and same_bits(out, expected)


def test_groups_that_break_the_pattern_are_seen(rng: np.random.Generator) -> None:
    w = louver.prune(random_bits(rng, (20, 96), "bf16"), "3:8@4")
    w[17, 88:92] = 1
    device, s = Device(), louver.compress(np.zeros_like(w), "3:8@4")
    address, counters = device.counters()
    device.run(compress_into(device.place(w), stored(device, s)[0], "3:8@4", counters=address))
    assert counters[0] >= 1


@pytest.mark.parametrize("order", [Earliest(), Seeded(1)], ids=str)
def test_any_order_of_warps(order: Order, rng: np.random.Generator) -> None:
    w, device = random_bits(rng, (40, 600), "f16"), Device()
    out = np.ones_like(w)
    device.run(prune_into(device.place(w), device.place(out, writable=True), "2:8@8"), order=order)
    assert same_bits(out, louver.prune(w, "2:8@8"))


@pytest.mark.parametrize(("kind", "barriers"), [("prune", 2), ("check", 3), ("compress", 3), ("dense", 2), ("take", 2)])
def test_every_barrier_is_needed(kind: str, barriers: int, rng: np.random.Generator) -> None:
    pattern, shape = "5:12@2", (24, 252)
    w = random_bits(rng, shape, "f16")
    pruned, s = louver.prune(w, pattern), louver.compress(w, pattern, method="magnitude")
    report = louver.check(w, pattern)

    def attempt(kernel: Kernel | None, order: Order) -> Launch:
        device = Device()
        to, held, codes = stored(device, s)
        out, (address, counters) = np.ones_like(w), device.counters(len(COUNTERS) + 12)
        source, there = device.place(w), device.place(out, writable=True)
        if kind == "prune":
            launch = prune_into(source, there, pattern)
        elif kind == "check":
            launch = check_into(source, pattern, address)
        elif kind == "compress":
            launch = compress_into(source, to, pattern, method="magnitude")
        elif kind == "take":
            codes[:] = s.indices
            launch = take_into(source, to, pattern)
        else:
            held[:, : s.kept * 2] = np.ascontiguousarray(s.values).view(np.uint8)
            codes[:] = s.indices
            launch = dense_into(to, there, pattern, address)
        device.run(launch, order=order, kernel=kernel)
        if kind == "check":
            assert counters[len(COUNTERS) :].tolist() == list(report.histogram[1:])
        elif kind in ("compress", "take"):
            check_stored(s, held, codes)
        else:
            assert same_bits(out, pruned) and not counters.any()
        return launch

    record = attempt(None, Earliest()).record
    assert record is not None
    outcomes = survey(built(record), attempt)
    assert len(outcomes) == barriers and not undetected(outcomes)
