from __future__ import annotations

import numpy as np
import pytest

from louver.isa.fragments import Fragment, accumulator, operand_a, walk
from louver.isa.metadata import MAPS, PAIR_CODES, PAIRED_8, PAIRED_16, SINGLE_32, MetadataMap
from louver.isa.wgmma import FLOAT_N, INTEGER_N
from support.warpgroup import contributing

FRAGMENTS = [
    *(accumulator(n, d) for n in FLOAT_N for d in ("f32", "f16")),
    *(accumulator(n, "s32") for n in INTEGER_N),
    *(operand_a(bits) for bits in (8, 16, 32)),
]


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda f: f.name)
def test_fragments_are_bijections_and_move_data_both_ways(fragment, rng):
    rows, columns = fragment.coordinates()
    assert rows.shape == columns.shape == (fragment.registers, fragment.packed, 128)
    assert np.unique(rows * 1000 + columns).size == rows.size == 64 * fragment.columns
    storage = np.dtype(f"u{fragment.bits // 8}")
    matrix = rng.integers(0, 1 << fragment.bits, (64, fragment.columns)).astype(storage)
    registers = fragment.gather(matrix)
    assert registers.shape == (fragment.registers, 128) and registers.dtype == np.uint32
    assert np.array_equal(fragment.scatter(registers), matrix)
    # One element by hand: the last part of the last register of thread 77.
    part = int(registers[-1, 77]) >> (fragment.bits * (fragment.packed - 1))
    assert part == matrix[rows[-1, -1, 77], columns[-1, -1, 77]]


def place(fragment: Fragment, register: int, part: int, thread: int) -> tuple[int, int]:
    rows, columns = fragment.coordinates()
    return int(rows[register, part, thread]), int(columns[register, part, thread])


def test_accumulators_lie_as_the_ptx_isa_draws_them():
    d = accumulator(64, "f32")
    assert place(d, 0, 0, 0) == (0, 0)
    assert place(d, 1, 0, 3) == (0, 7)
    assert place(d, 2, 0, 4) == (9, 0)
    assert place(d, 3, 0, 31) == (15, 7)
    assert place(d, 4, 0, 0) == (0, 8)
    assert place(d, 31, 0, 127) == (63, 63)
    half = accumulator(64, "f16")
    assert place(half, 0, 1, 0) == (0, 1)
    assert place(half, 1, 0, 33) == (24, 2)


@pytest.mark.parametrize("fragment", [accumulator(24, "f32"), accumulator(16, "f16")], ids=str)
def test_every_thread_holds_the_same_offsets(fragment: Fragment) -> None:
    rows, columns = (each.reshape(-1, fragment.threads) for each in fragment.coordinates())
    for (row, column), number in fragment.offsets().items():
        assert (rows[number] - rows[0] == row).all() and (columns[number] - columns[0] == column).all()
    assert len(fragment.offsets()) == len(rows)


def test_operand_a_lies_as_the_ptx_isa_draws_it():
    assert place(operand_a(16), 0, 1, 1) == (0, 3)
    assert place(operand_a(16), 1, 0, 4) == (9, 0)
    assert place(operand_a(16), 2, 0, 0) == (0, 8)
    assert place(operand_a(16), 3, 1, 127) == (63, 15)
    assert place(operand_a(8), 0, 3, 1) == (0, 7)
    assert place(operand_a(8), 2, 0, 0) == (0, 16)
    assert place(operand_a(32), 1, 0, 0) == (8, 0)
    assert place(operand_a(32), 2, 0, 3) == (0, 7)


def test_walk_repeats_the_last_step():
    rows, columns = walk(((0, 1), (8, 0), (0, 8)), 16)
    assert rows.tolist() == [0, 0, 8, 8] * 4
    assert columns.tolist() == [0, 1, 0, 1, 8, 9, 8, 9, 16, 17, 16, 17, 24, 25, 24, 25]


def test_fragments_refuse_what_is_no_bijection(rng):
    good = accumulator(8, "f32")
    with pytest.raises(ValueError, match="do not visit each of 64 x 8"):
        Fragment("twice", 8, 32, good.thread, ((0, 1), (4, 0)))
    with pytest.raises(ValueError, match="do not visit"):
        Fragment("outside", 8, 32, good.thread, ((0, 1), (64, 0)))
    with pytest.raises(ValueError, match="whole registers"):
        Fragment("odd", 3, 32, good.thread, good.element)
    with pytest.raises(ValueError, match=r"holds \[64, 8\] of uint32, got \[64, 8\] of float32"):
        good.gather(np.zeros((64, 8), np.float32))
    with pytest.raises(ValueError, match=r"got uint32 \[4, 32\]"):
        good.scatter(np.zeros((4, 32), np.uint32))


@pytest.mark.parametrize("layout", MAPS.values(), ids=lambda m: m.name)
def test_metadata_words_are_bijections_of_the_codes(layout, rng):
    codes = rng.choice(layout.legal, (64, 16)).astype(np.uint8)
    words = layout.pack(codes)
    assert words.shape == (128,) and words.dtype == np.uint32
    for selector in range(layout.selectors):
        part = codes[:, selector * layout.groups : (selector + 1) * layout.groups]
        assert np.array_equal(layout.unpack(words, selector), part)
        # A product must not depend on the threads that do not contribute.
        others = np.where(contributing(layout, selector), words, np.uint32(0))
        assert np.array_equal(layout.unpack(others, selector), part)
        assert contributing(layout, selector).sum() == 128 // layout.selectors


@pytest.mark.parametrize(
    ("layout", "row", "group", "thread", "low_bit"),
    [
        (PAIRED_16, 0, 0, 0, 0),
        (PAIRED_16, 8, 3, 0, 28),
        (PAIRED_16, 1, 4, 5, 0),
        (PAIRED_16, 8, 8, 2, 16),
        (PAIRED_16, 63, 15, 127, 28),
        (PAIRED_8, 0, 7, 0, 28),
        (PAIRED_8, 8, 0, 1, 0),
        (PAIRED_8, 1, 12, 6, 16),
        (PAIRED_8, 16, 0, 32, 0),
        (SINGLE_32, 8, 1, 0, 20),
        (SINGLE_32, 2, 13, 11, 4),
    ],
    ids=str,
)
def test_metadata_lies_as_the_ptx_isa_draws_it(layout, row, group, thread, low_bit):
    codes = np.full((64, 16), 0x4, np.uint8)
    codes[row, group] = 0xE
    (changed,) = np.flatnonzero(layout.pack(codes) != 0x44444444)
    assert changed == thread
    assert layout.pack(codes)[thread] >> low_bit & 15 == 0xE


def test_columns_of_stored_values():
    assert PAIRED_16.columns_of(np.array([[0x4, 0xE, 0x8]], np.uint8)).tolist() == [[0, 1, 6, 7, 8, 10]]
    assert SINGLE_32.columns_of(np.array([[0x4, 0xE]], np.uint8)).tolist() == [[0, 3]]
    assert [PAIRED_8.columns_of(np.array([[code]], np.uint8)).tolist()[0] for code in PAIR_CODES] == [
        [0, 1],
        [0, 2],
        [1, 2],
        [0, 3],
        [1, 3],
        [2, 3],
    ]


def test_metadata_refuses_what_is_not_legal():
    codes = np.full((64, 16), 0x4, np.uint8)
    with pytest.raises(ValueError, match=r"\[64, 16\] codes, got \[64, 8\]"):
        PAIRED_16.pack(codes[:, :8])
    codes[5, 6] = 0
    with pytest.raises(ValueError, match="got 0x0 at row 5, group 6"):
        PAIRED_16.pack(codes)
    with pytest.raises(ValueError, match="has 1 selectors, counted from 0, got 1"):
        PAIRED_8.unpack(np.zeros(128, np.uint32), 1)
    with pytest.raises(ValueError, match="do not visit"):
        MetadataMap("twice", 4, PAIR_CODES, 1, PAIRED_16.thread, PAIRED_8.code)
