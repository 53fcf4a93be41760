"""Blocks of sums of products on CUDA cores."""

import numpy as np
import pytest

from louver.isa.fma_block import WIDTHS, FmaBlock


@pytest.mark.parametrize("n", WIDTHS)
def test_each_sum_is_held_once(n):
    fragment = FmaBlock(n).d_fragment
    matrix = np.random.default_rng(n).integers(0, 2**32, (64, n), np.uint32)
    registers = fragment.gather(matrix)
    assert registers.shape == (n // 2, 128) and np.array_equal(fragment.scatter(registers), matrix)
    assert sorted(registers.reshape(-1)) == sorted(matrix.reshape(-1))


def test_a_lane_holds_four_columns_and_both_rows_of_a_gated_pair():
    rows, columns = (each[:, 0] for each in FmaBlock(128).d_fragment.coordinates())
    assert set(zip(rows[:, 3], columns[:, 3], strict=True)) == {
        (row, column) for row in (4, 5, 6, 7, 12, 13, 14, 15) for column in (4, 5, 6, 7, 68, 69, 70, 71)
    }
    assert rows[:, 35].min() == 20


@pytest.mark.parametrize("n", [0, 8, 96, 320])
def test_widths_that_lanes_do_not_share_out_are_refused(n):
    with pytest.raises(ValueError, match=f"have 16, 32, 64, 128 columns, got {n}"):
        FmaBlock(n)
