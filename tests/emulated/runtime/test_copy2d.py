from __future__ import annotations

import numpy as np
import pytest

from louver.emulator import Earliest, GlobalMemory, Latest, Order, run
from louver.ptx.module import Kernel
from louver.runtime.copy2d import Copying, build, groups, is_transposed
from support.removal import survey, undetected

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def copied(
    buffer: np.ndarray,
    start: int,
    shape: tuple[int, int],
    strides: tuple[int, int],
    *,
    ctas: int = 4,
    transposed: bool | None = None,
    packed: bool = False,
    order: Order | None = None,
    extra_pitch: int = 0,
    kernel: Kernel | None = None,
    entries: tuple[int, int] = (1, 0),
    alignment: int = 16,
    entry_rows: int | None = None,
) -> np.ndarray:
    """Run the kernel on a view of `buffer` (elements `start`, `shape`, `strides`): the destination's rows, pad included.

    entries: how many such views, and the elements from one to the next. entry_rows: of the destination, from one entry to the next.
    """
    size = buffer.itemsize
    rows, columns = shape
    pitch = -(-columns * size // alignment) * alignment + extra_pitch
    entry_rows = entry_rows or rows
    memory = GlobalMemory()
    source = memory.add("source", buffer, writable=False)
    count, entry_stride = entries
    out = np.full((count * entry_rows, pitch // size), UNSIGNED[size](0xEEEEEEEE & (2 ** (8 * size) - 1)))
    destination = memory.add("destination", out)
    copying = Copying(size, is_transposed(strides) if transposed is None else transposed, packed)
    row_groups, column_groups = groups(rows, columns, copying.tile, ctas)
    entry_groups = min(count, max(1, ctas // (row_groups * column_groups)))
    arguments = {
        "source": source.address + start * size,
        "destination": destination,
        "row_step": strides[0] * size,
        "column_step": strides[1] * size,
        "pitch": pitch,
        "rows": rows,
        "columns": columns,
        "row_groups": row_groups,
        "column_groups": column_groups,
        "entry_step": entry_stride * size,
        "entry_pitch": entry_rows * pitch,
        "entries": count,
        "entry_groups": entry_groups,
    }
    run(
        kernel or build(copying),
        entry_groups * row_groups * column_groups,
        arguments,
        memory=memory,
        order=order or Latest(),
    )
    return out


def check(buffer: np.ndarray, start: int, shape: tuple[int, int], strides: tuple[int, int], **how: object) -> None:
    out = copied(buffer, start, shape, strides, **how)  # type: ignore[arg-type]
    pitches = tuple(stride * buffer.itemsize for stride in strides)
    expected = np.lib.stride_tricks.as_strided(buffer[start:], shape, pitches)
    assert np.array_equal(out[:, : shape[1]], expected)
    assert (out[:, shape[1] :] == 0xEEEEEEEE & (2 ** (8 * buffer.itemsize) - 1)).all()


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(
    ("shape", "strides", "start"),
    [
        ((1, 1), (1, 1), 3),
        ((33, 65), (67, 1), 1),
        ((65, 33), (1, 71), 5),
        ((40, 37), (80, 2), 0),
        ((37, 40), (3, 150), 1),
        ((9, 70), (0, 1), 2),
        ((70, 9), (1, 0), 2),
        ((1, 100), (7, 1), 1),
        ((100, 1), (1, 7), 1),
    ],
)
def test_every_view_is_copied(
    size: int, shape: tuple[int, int], strides: tuple[int, int], start: int, rng: np.random.Generator
) -> None:
    last = start + (shape[0] - 1) * strides[0] + (shape[1] - 1) * strides[1]
    buffer = rng.integers(0, 2 ** (8 * size), last + 1, dtype=UNSIGNED[size])
    check(buffer, start, shape, strides)


@pytest.mark.parametrize("ctas", [1, 5])
@pytest.mark.parametrize("size", [1, 2])
def test_columns_are_turned_in_words(size: int, ctas: int, rng: np.random.Generator) -> None:
    buffer = rng.integers(0, 2 ** (8 * size), 3 * 200 * 160, dtype=UNSIGNED[size])
    check(buffer, 4, (196, 140), (1, 200), packed=True, ctas=ctas, extra_pitch=4)
    check(buffer, 8, (4, 4), (1, 4), packed=True, alignment=size)
    out = copied(buffer, 0, (40, 68), (1, 44), packed=True, ctas=ctas, entries=(3, 40 * 200))
    expected = np.lib.stride_tricks.as_strided(buffer, (3, 40, 68), tuple(size * step for step in (8000, 1, 44)))
    np.testing.assert_array_equal(out[:, :68], expected.reshape(-1, 68))


@pytest.mark.parametrize("ctas", [1, 5])
def test_rows_are_copied_in_words_of_16_bytes(ctas: int, rng: np.random.Generator) -> None:
    words = np.dtype((np.void, 16))
    bits = rng.integers(0, 256, (70 * 50, 16), dtype=np.uint8)
    memory, out = GlobalMemory(), np.full((70, 52 * 16), 0xEE, np.uint8)
    copying = Copying(16, transposed=False)
    row_groups, column_groups = groups(66, 45, copying.tile, ctas)
    arguments = {
        "source": memory.add("source", bits, writable=False).address + 2 * 16,
        "destination": memory.add("destination", out),
        "row_step": 50 * 16,
        "column_step": 16,
        "pitch": 52 * 16,
        "rows": 66,
        "columns": 45,
        "row_groups": row_groups,
        "column_groups": column_groups,
        "entry_step": 0,
        "entry_pitch": 66 * 52 * 16,
        "entries": 1,
        "entry_groups": 1,
    }
    run(build(copying), row_groups * column_groups, arguments, memory=memory, order=Latest())
    whole = bits.reshape(70, 50, 16)
    np.testing.assert_array_equal(out.view(words)[:66, :45], np.ascontiguousarray(whole[:66, 2:47]).view(words)[..., 0])
    assert (out[:, 45 * 16 :] == 0xEE).all() and (out[66:] == 0xEE).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_both_kernels_copy_any_strides(transposed: bool, rng: np.random.Generator) -> None:
    buffer = rng.integers(0, 2**16, 5000, dtype=np.uint16)
    check(buffer, 7, (35, 66), (70, 1), transposed=transposed)
    check(buffer, 7, (66, 35), (1, 70), transposed=transposed)


@pytest.mark.parametrize("ctas", [1, 3, 100])
@pytest.mark.parametrize("transposed", [False, True])
def test_any_number_of_ctas_covers_the_matrix(ctas: int, transposed: bool, rng: np.random.Generator) -> None:
    buffer = rng.integers(0, 2**16, 97 * 101, dtype=np.uint16)
    check(buffer, 0, (97, 100), (101, 1), ctas=ctas, transposed=transposed)


@pytest.mark.parametrize("ctas", [1, 4, 40])
@pytest.mark.parametrize(
    ("shape", "strides", "entries"),
    [
        ((35, 40), (41, 1), (5, 1500)),
        ((40, 35), (1, 41), (5, 1500)),
        ((3, 70), (280, 2), (4, 70)),
        ((70, 3), (1, 280), (4, 70)),
        ((33, 33), (40, 1), (3, 0)),
    ],
)
def test_entries_of_a_batch_follow_each_other(
    shape: tuple[int, int], strides: tuple[int, int], entries: tuple[int, int], ctas: int, rng: np.random.Generator
) -> None:
    buffer = rng.integers(0, 2**16, 8000, dtype=np.uint16)
    out = copied(buffer, 3, shape, strides, entries=entries, ctas=ctas)
    pitches = tuple(2 * stride for stride in (entries[1], *strides))
    expected = np.lib.stride_tricks.as_strided(buffer[3:], (entries[0], *shape), pitches)
    np.testing.assert_array_equal(out[:, : shape[1]], expected.reshape(-1, shape[1]))
    assert (out[:, shape[1] :] == 0xEEEE).all()


@pytest.mark.parametrize("order", [Earliest(), Latest()])
def test_wide_pitches_leave_the_bytes_between_rows(order: Order, rng: np.random.Generator) -> None:
    buffer = rng.integers(0, 2**16, 40 * 50, dtype=np.uint16)
    check(buffer, 1, (40, 49), (50, 1), extra_pitch=64, order=order)
    check(buffer, 1, (49, 39), (1, 50), extra_pitch=64, order=order)


def test_rows_may_follow_each_other_without_gaps(rng: np.random.Generator) -> None:
    for size in (1, 2, 4):
        buffer = rng.integers(0, 2 ** (8 * size), 40 * 50, dtype=UNSIGNED[size])
        check(buffer, 1, (37, 45), (50, 1), alignment=size)
        check(buffer, 1, (45, 37), (1, 50), alignment=size)


def test_entries_may_take_turns_with_others(rng: np.random.Generator) -> None:
    buffer = rng.integers(0, 2**16, 5000, dtype=np.uint16)
    out = copied(buffer, 3, (8, 30), (33, 1), entries=(5, 270), entry_rows=16).reshape(5, 16, -1)
    expected = np.lib.stride_tricks.as_strided(buffer[3:], (5, 8, 30), (540, 66, 2))
    np.testing.assert_array_equal(out[:, :8, :30], expected)
    assert (out[:, 8:] == 0xEEEE).all() and (out[:, :, 30:] == 0xEEEE).all()


@pytest.mark.parametrize("strides", [((1 << 32) + 17, 1), (1, (1 << 32) + 17)])
def test_far_addresses_are_reached(strides: tuple[int, int], rng: np.random.Generator) -> None:
    # Zeros take no memory until they are touched.
    buffer = np.zeros((1 << 32) + 100, np.uint8)
    buffer[:60] = rng.integers(1, 256, 60, dtype=np.uint8)
    buffer[-90:] = rng.integers(1, 256, 90, dtype=np.uint8)
    check(buffer, 3, (2, 40) if strides[1] == 1 else (40, 2), strides)


@pytest.mark.parametrize("packed", [False, True])
def test_every_barrier_is_needed(packed: bool, rng: np.random.Generator) -> None:
    buffer = rng.integers(0, 2**16, 100 * 70, dtype=np.uint16)
    expected = buffer.reshape(70, 100).T

    def attempt(kernel: Kernel, order: Order) -> None:
        out = copied(buffer, 0, (100, 70), (1, 100), ctas=1, kernel=kernel, order=order, packed=packed)
        assert np.array_equal(out[:, :70], expected)

    outcomes = survey(build(Copying(2, transposed=True, packed=packed)), attempt)
    assert len(outcomes) == 2
    assert not undetected(outcomes)
