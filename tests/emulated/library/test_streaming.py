"""Streaming kernels on the emulator, bit for bit as NumPy defines them. Layouts are of the dense array: see `LAYOUTS`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import louver
from louver.emulator import Earliest, Order, Seeded
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.isa.metadata import metadata_rows, prepack
from louver.library.streaming.launch import Launch
from louver.library.streaming.launches import (
    check_into,
    compress_both_into,
    compress_into,
    dense_into,
    prepack_into,
    prune_into,
    take_into,
    turn_into,
)
from louver.library.streaming.record import COUNTERS, KEY_BITS, NO_GROUP, WHOLE_INDICES, Access, Layout, Streaming
from louver.ptx.module import Kernel
from support.removal import survey, undetected
from support.sparse import bits_of, random_bits, same_bits
from support.streaming import POISON, Array, Device, built

LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": lambda w: w,
    "columns": lambda w: np.ascontiguousarray(w.T).T,
    "apart": lambda w: np.repeat(np.pad(w, ((0, 0), (1, 2))), 2, axis=1)[:, 2:-4:2],
    "pitched": lambda w: np.pad(w, ((0, 0), (16, 16)))[:, 16:-16],
}
"""Rows or columns without gaps, elements and rows with gaps, rows with gaps of whole 16 bytes."""

Case = tuple[str, str, tuple[int, int], str]

CASES: tuple[Case, ...] = (
    ("f16", "2:4", (70, 272), "rows"),
    ("f16", "2:4", (20, 71), "rows"),
    ("bf16", "2:4", (72, 90), "columns"),
    ("bf16", "2:4", (9, 96), "pitched"),
    ("e4m3", "2:4", (6, 304), "rows"),
    ("e5m2", "2:4", (80, 40), "columns"),
    ("e5m2", "2:4", (5, 33), "apart"),
    ("s8", "2:4", (17, 272), "rows"),
    ("u8", "2:4", (6, 50), "rows"),
    ("f32", "1:2", (6, 144), "rows"),
    ("f32", "1:2", (9, 37), "columns"),
    ("f32", "2:4", (8, 30), "columns"),
    ("f16", "1:2", (6, 70), "rows"),
    ("e4m3", "1:2", (6, 44), "rows"),
    ("f16", "3:7", (7, 60), "rows"),
    ("s8", "6:8", (7, 100), "rows"),
    ("f32", "1:16", (5, 70), "rows"),
)


def raw(array: Array) -> Array:
    return np.ascontiguousarray(bits_of(array)).view(np.uint8)


def check_stored(expected: SparseTensor, held: Array, codes: Array) -> None:
    """values: bytes [rows, pitch], which stay as they were behind a row's next 16 bytes."""
    kept = expected.kept * expected.dtype.bytes
    np.testing.assert_array_equal(held[:, :kept], raw(expected.values).reshape(len(held), -1))
    assert (held[:, -(-kept // 16) * 16 :] == POISON).all()
    np.testing.assert_array_equal(codes, expected.indices)


def metadata(s: SparseTensor, layout: Layout) -> np.ndarray:
    """The metadata of the matrices of `s`, one after the other, as bytes."""
    m, k = s.shape[-2:]
    element = "tf32" if s.dtype.bits == 32 else s.dtype
    parts = [
        metadata_rows(entry, m, k, element) if layout == "rows" else prepack(entry, m, k, element)
        for entry in np.split(s.indices, s.rows // m)
    ]
    return np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])


@pytest.mark.parametrize(("dtype", "pattern", "shape", "layout"), CASES)
def test_pruned(dtype: str, pattern: str, shape: tuple[int, int], layout: str, rng: np.random.Generator) -> None:
    w, device = LAYOUTS[layout](random_bits(rng, shape, dtype)), Device()
    out = LAYOUTS[layout](np.full_like(w, 1, order="C"))
    device.run(prune_into(device.place(w), device.place(out, writable=True), pattern))
    assert same_bits(np.ascontiguousarray(out), louver.prune(w, pattern))


@pytest.mark.parametrize(("dtype", "pattern", "shape", "layout"), CASES)
def test_compressed(dtype: str, pattern: str, shape: tuple[int, int], layout: str, rng: np.random.Generator) -> None:
    kept, device = Pattern.parse(pattern), Device()
    pruned = louver.prune(random_bits(rng, shape, dtype), pattern)
    negative = element_type(dtype).negative_zero
    if negative is not None:
        bits_of(pruned)[(bits_of(pruned) == 0) & (rng.random(shape) < 0.1)] = negative
    w = LAYOUTS[layout](pruned)
    expected = louver.compress(w, pattern)
    to, held, codes = device.stored(*shape, kept, element_type(dtype).bits, pitch=16)
    address, counters = device.counters()
    device.run(compress_into(device.place(w), to, pattern, counters=address))
    check_stored(expected, held, codes)
    assert counters.tolist() == [0, expected.negative_zeros_dropped]


@pytest.mark.parametrize(
    ("case", "words"), list(zip(CASES[:10], (*["words"] * 7, "rows", "words", "words"), strict=True)), ids=str
)
def test_pruned_and_prepacked_on_the_way(case: Case, words: Layout, rng: np.random.Generator) -> None:
    dtype, pattern, shape, layout = case
    w, device = LAYOUTS[layout](random_bits(rng, shape, dtype)), Device()
    expected = louver.compress(w, pattern, method="magnitude")
    packed = metadata(expected, words)
    to, held, codes = device.stored(*shape, expected.pattern, expected.dtype.bits)
    address, data = device.poisoned(packed.nbytes)
    device.run(compress_into(device.place(w), to, pattern, method="magnitude", words=(words, address)))
    check_stored(expected, held, codes)
    np.testing.assert_array_equal(data, packed)


@pytest.mark.parametrize(("dtype", "pattern", "shape", "layout"), CASES)
def test_taken(dtype: str, pattern: str, shape: tuple[int, int], layout: str, rng: np.random.Generator) -> None:
    w, device = LAYOUTS[layout](random_bits(rng, shape, dtype)), Device()
    s = louver.compress(w, pattern, method="magnitude")
    to, held, codes = device.stored(*shape, s.pattern, s.dtype.bits, pitch=16)
    codes[...] = s.indices
    device.run(take_into(device.place(w), to, pattern))
    check_stored(s, held, codes)


@pytest.mark.parametrize("words", ["words", "rows"])
@pytest.mark.parametrize(
    "case",
    [
        ("f16", "2:4", (70, 320), "rows"),
        ("bf16", "2:4", (9, 64), "columns"),
        ("s8", "2:4", (70, 384), "rows"),
        ("e4m3", "2:4", (40, 128), "columns"),
        ("f32", "1:2", (66, 160), "rows"),
    ],
    ids=str,
)
def test_threads_of_a_row_write_their_indices_together(case: Case, words: Layout, rng: np.random.Generator) -> None:
    dtype, pattern, shape, layout = case
    w, device = LAYOUTS[layout](random_bits(rng, shape, dtype)), Device()
    expected = louver.compress(w, pattern, method="magnitude")
    packed = metadata(expected, words)
    for offset in (0, 4):
        to, held, codes = device.stored(*shape, expected.pattern, expected.dtype.bits, offset=offset)
        address, data = device.poisoned(packed.nbytes)
        launch = compress_into(device.place(w), to, pattern, method="magnitude", words=(words, address))
        assert isinstance(launch.record, Streaming) and (launch.record.indices == WHOLE_INDICES) is (offset == 0)
        device.run(launch)
        check_stored(expected, held, codes)
        np.testing.assert_array_equal(data, packed)


@pytest.mark.parametrize(("dtype", "pattern"), [("f16", "2:4"), ("s8", "2:4"), ("e4m3", "3:8"), ("f32", "1:2")])
def test_groups_that_break_the_pattern_are_seen(dtype: str, pattern: str, rng: np.random.Generator) -> None:
    w = louver.prune(random_bits(rng, (70, 96), dtype), pattern)
    bits_of(w)[66, 88:96] = 1
    device = Device()
    to, _, _ = device.stored(70, 96, Pattern.parse(pattern), element_type(dtype).bits)
    address, counters = device.counters()
    device.run(compress_into(device.place(w), to, pattern, counters=address))
    assert counters[0] == 1, "one thread has seen it"


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("dtype", "pattern", "shape", "layout"), [CASES[i] for i in (0, 2, 4, 7, 9, 14)])
def test_checked(
    dtype: str, pattern: str, shape: tuple[int, int], layout: str, exact: bool, rng: np.random.Generator
) -> None:
    kept, device = Pattern.parse(pattern), Device()
    w = louver.prune(random_bits(rng, shape, dtype), pattern)
    for place in ((0, 0), (3, 9), (3, 16)):
        bits_of(w)[place[0], place[1] : place[1] + kept.m] = 1
    w = LAYOUTS[layout](w)
    report = louver.check(w, pattern, exact=exact, listed=3)
    source, groups = device.place(w), kept.groups(shape[1])
    start = 0
    for expected in report.first:
        address, counters = device.counters(len(COUNTERS) + kept.m)
        device.run(check_into(source, pattern, address, exact=exact, listed_from=start))
        assert counters[len(COUNTERS) :].tolist() == list(report.histogram[1:])
        assert counters[1] == report.negative_zeros_dropped
        number = NO_GROUP - int(counters[2])
        row, column = expected.start
        assert number == (row * groups + column // kept.m) << KEY_BITS | expected.nonzeros
        start = (number >> KEY_BITS) + 1


@pytest.mark.parametrize(("dtype", "pattern", "shape", "layout"), CASES)
def test_expanded(dtype: str, pattern: str, shape: tuple[int, int], layout: str, rng: np.random.Generator) -> None:
    s = louver.compress(random_bits(rng, shape, dtype), pattern, method="magnitude")
    device = Device()
    stored, held, codes = device.stored(*shape, s.pattern, s.dtype.bits, pitch=32)
    held[:, : s.kept * s.dtype.bytes], codes[:] = raw(s.values).reshape(len(held), -1), s.indices
    out = LAYOUTS[layout](np.full(shape, 1, s.dtype.numpy))
    address, counters = device.counters()
    launch = dense_into(stored, device.place(out, writable=True), pattern, address)
    device.run(launch)
    assert same_bits(np.ascontiguousarray(out), s.dense()) and not counters.any()
    for illegal in (0, 0xFF, *([0x40 if s.indices[0, -1] != 0x40 else 0x8] if s.pattern == Pattern(1, 2) else [])):
        codes[:] = s.indices
        codes[-1, -1] = illegal
        counters[:] = 0
        device.run(launch)
        assert bool(counters[0]) == (not legal(s, codes)), "as NumPy says"


def legal(s: SparseTensor, indices: Array) -> bool:
    try:
        SparseTensor(s.pattern, s.dtype, s.shape, s.axis, s.values, indices.copy()).dense()
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("layout", ["words", "rows"])
@pytest.mark.parametrize(("dtype", "shape"), [("f16", (2, 20, 271)), ("s8", (2, 70, 44)), ("f32", (1, 66, 37))])
def test_prepacked(dtype: str, shape: tuple[int, int, int], layout: Layout, rng: np.random.Generator) -> None:
    pattern = "1:2" if dtype == "f32" else "2:4"
    s = louver.compress(random_bits(rng, shape, dtype), pattern, method="magnitude")
    packed, device = metadata(s, layout), Device()
    natural, _, codes = device.stored(s.rows, s.size, s.pattern, s.dtype.bits, offset=1)
    codes[:] = s.indices
    address, data = device.poisoned(packed.nbytes)
    at, counters = device.counters()
    launch = prepack_into(natural.indices, shape, dtype, (layout, address), at)
    device.run(launch)
    np.testing.assert_array_equal(data, packed)
    assert not counters.any()
    codes[5, 1] = 0x40
    device.run(launch)
    assert counters[0]


@pytest.mark.parametrize("offset", [2, 8])
def test_arrays_that_are_not_aligned(offset: int, rng: np.random.Generator) -> None:
    shape = (9, 40)
    w, device = random_bits(rng, shape, "f16"), Device()
    expected = louver.compress(w, "2:4", method="magnitude")
    to, held, codes = device.stored(*shape, expected.pattern, 16, offset=offset + 1)
    launch = compress_into(device.place(w, offset=offset), to, "2:4", method="magnitude")
    assert launch.record is not None and (launch.record.source, launch.record.indices) == (Access(offset), 1)
    device.run(launch)
    check_stored(expected, held, codes)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 5, 40), -1), ((2, 20, 16), 1), ((20, 3, 8), 0), ((2, 2, 14, 8), 2), ((90,), 0), ((4, 1), 0)],
)
def test_batches_and_any_axis(shape: tuple[int, ...], axis: int, rng: np.random.Generator) -> None:
    w, device = random_bits(rng, shape, "f16"), Device()
    expected = louver.compress(w, "2:4", axis=axis, method="magnitude")
    to, held, codes = device.stored(expected.rows, expected.size, expected.pattern, 16)
    source = device.place(w)
    device.run(compress_into(source, to, "2:4", axis=axis, method="magnitude"))
    check_stored(expected, held, codes)
    out = np.ones_like(w)
    device.run(prune_into(source, device.place(out, writable=True), "2:4", axis=axis))
    assert same_bits(out, expected.dense())


def test_entries_have_metadata_of_their_own(rng: np.random.Generator) -> None:
    w, device = np.swapaxes(random_bits(rng, (3, 64, 70), "f16"), 1, 2), Device()
    expected = louver.compress(w, "2:4", method="magnitude")
    to, held, codes = device.stored(expected.rows, expected.size, expected.pattern, 16)
    packed = metadata(expected, "words")
    address, data = device.poisoned(packed.nbytes)
    device.run(compress_into(device.place(w), to, "2:4", method="magnitude", words=("words", address)))
    check_stored(expected, held, codes)
    np.testing.assert_array_equal(data, packed)


# --- transposable masks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "shape", "layout"),
    [
        ("f16", (262, 72), "rows"),
        ("bf16", (7, 130), "columns"),
        ("e4m3", (12, 96), "rows"),
        ("s8", (9, 70), "apart"),
        ("f32", (131, 66), "rows"),
        ("f16", (3, 10, 12), "rows"),
    ],
)
def test_pruned_by_blocks(dtype: str, shape: tuple[int, ...], layout: str, rng: np.random.Generator) -> None:
    w, device = LAYOUTS[layout](random_bits(rng, shape, dtype)), Device()
    out = np.ones(shape, w.dtype)
    device.run(prune_into(device.place(w), device.place(out, writable=True), "2:4", transposable=True))
    assert same_bits(out, louver.prune(w, "2:4", transposable=True))


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("f16", (262, 72)), ("bf16", (2, 5, 70)), ("e5m2", (12, 96)), ("u8", (33, 66)), ("f32", (131, 20))],
)
def test_both_orientations(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    check_both(random_bits(rng, shape, dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8", "f32"])
def test_both_orientations_of_few_zeros(dtype: str, layout: str, rng: np.random.Generator) -> None:
    """Squares without zeros, some with one, with -0.0, or with an infinity or a NaN. All are equal in some."""
    element, shape = element_type(dtype), (264, 80)
    w = (rng.standard_normal(shape) * 20).astype(element.numpy)
    bits_of(w)[bits_of(w) & element.magnitude_mask == 0] = 1
    w[:16, 8:24] = 1
    special = [0] if element.negative_zero is None else [0, element.negative_zero, element.largest_magnitude]
    for number in [*special, element.magnitude_mask]:
        bits_of(w)[rng.random(shape) < 0.004] = number
    check_both(LAYOUTS[layout](w))


def check_both(w: Array) -> None:
    device, found = Device(), []
    for s in louver.compress_both(w):
        found.append((s, *device.stored(s.rows, s.size, s.pattern, s.dtype.bits, pitch=16)))
    device.run(compress_both_into(device.place(w), found[0][1], found[1][1]))
    for s, _, held, codes in found:
        check_stored(s, held, codes)


def transposable(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> tuple[SparseTensor, SparseTensor]:
    """A matrix whose mask is transposable, and its transpose, with random bits at all kept places."""
    mask = louver.prune((1 + rng.random(shape)).astype(np.float32), "2:4", transposable=True) != 0
    places = [louver.compress(some.astype(np.uint8), "2:4", method="magnitude") for some in (mask, mask.T)]
    w = np.where(mask, bits_of(random_bits(rng, shape, dtype)), 0).astype(bits_of(random_bits(rng, (1,), dtype)).dtype)
    found: list[SparseTensor] = []
    for s, dense in zip(places, (w, w.T), strict=True):
        filled = np.pad(dense, ((0, 0), (0, -dense.shape[1] % 4))).reshape(len(dense), -1, 4)
        codes = np.stack([s.indices & 15, s.indices >> 4], -1).reshape(len(dense), -1)[:, : filled.shape[1], None]
        kept = np.take_along_axis(filled, np.concatenate([codes & 3, codes >> 2], -1).astype(np.int64), -1)
        values = np.ascontiguousarray(kept.reshape(len(dense), -1)).view(element_type(dtype).numpy)
        found.append(SparseTensor(s.pattern, element_type(dtype), dense.shape, 1, values, s.indices))
    return found[0], found[1]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "s8", "f32"])
@pytest.mark.parametrize("shape", [(264, 80), (8, 8), (23, 44), (3, 4), (257, 132), (40, 200)])
def test_turned(dtype: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    s, expected = transposable(rng, shape, dtype)
    device = Device()
    to, values, indices = device.stored(*shape, s.pattern, s.dtype.bits, pitch=16)
    values[:, : s.kept * s.dtype.bytes] = raw(s.values).reshape(len(values), -1)
    indices[...] = s.indices
    turned, held, codes = device.stored(*shape[::-1], s.pattern, s.dtype.bits, pitch=16)
    codes[...] = expected.indices
    device.run(turn_into(to, shape, dtype, turned))
    check_stored(expected, held, codes)


def test_every_barrier_of_turned_values_is_needed(rng: np.random.Generator) -> None:
    s, expected = transposable(rng, (520, 24), "f16")

    def attempt(kernel: Kernel | None, order: Order) -> Launch:
        device = Device()
        to, values, indices = device.stored(520, 24, s.pattern, 16)
        values[:, : 2 * s.kept], indices[...] = raw(s.values).reshape(len(values), -1), s.indices
        turned, held, codes = device.stored(24, 520, s.pattern, 16)
        codes[...] = expected.indices
        launch = turn_into(to, (520, 24), "f16", turned)
        device.run(launch, order=order, kernel=kernel)
        check_stored(expected, held, codes)
        return launch

    record = attempt(None, Earliest()).record
    assert record is not None
    outcomes = survey(built(record), attempt)
    assert len(outcomes) == 2 and not undetected(outcomes)


# --- order ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [Earliest(), Seeded(1)], ids=str)
def test_any_order_of_warps(order: Order, rng: np.random.Generator) -> None:
    w, device = LAYOUTS["columns"](random_bits(rng, (200, 40), "f16")), Device()
    out = LAYOUTS["columns"](np.ones_like(w, order="C"))
    launch = prune_into(device.place(w), device.place(out, writable=True), "2:4")
    assert launch.record is not None and launch.record.source == Access(16, columns=True) == launch.record.out
    device.run(launch, order=order)
    assert same_bits(np.ascontiguousarray(out), louver.prune(w, "2:4"))


@pytest.mark.parametrize(
    ("source", "out", "barriers"), [("columns", "columns", 2), ("columns", "rows", 2), ("rows", "columns", 2)]
)
def test_every_barrier_of_a_turned_tile_is_needed(
    source: str, out: str, barriers: int, rng: np.random.Generator
) -> None:
    w = LAYOUTS[source](random_bits(rng, (136, 16), "f16"))
    expected = louver.prune(w, "2:4")

    def attempt(kernel: Kernel | None, order: Order) -> Launch:
        device, written = Device(), LAYOUTS[out](np.ones_like(w, order="C"))
        launch = prune_into(device.place(w), device.place(written, writable=True), "2:4")
        device.run(launch, order=order, kernel=kernel)
        assert same_bits(np.ascontiguousarray(written), expected)
        return launch

    record = attempt(None, Earliest()).record
    assert record is not None
    outcomes = survey(built(record), attempt)
    assert len(outcomes) == barriers and not undetected(outcomes)


def test_every_barrier_of_both_orientations_is_needed(rng: np.random.Generator) -> None:
    w = random_bits(rng, (264, 24), "f16")
    expected = louver.compress_both(w)

    def attempt(kernel: Kernel | None, order: Order) -> Launch:
        device = Device()
        found = [(s, *device.stored(s.rows, s.size, s.pattern, 16)) for s in expected]
        launch = compress_both_into(device.place(w), found[0][1], found[1][1])
        device.run(launch, order=order, kernel=kernel)
        for s, _, held, codes in found:
            check_stored(s, held, codes)
        return launch

    record = attempt(None, Earliest()).record
    assert record is not None
    outcomes = survey(built(record), attempt)
    assert len(outcomes) == 2 and not undetected(outcomes)
