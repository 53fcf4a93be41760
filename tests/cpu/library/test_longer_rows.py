"""Sparse tensors as longer rows, of several of their own each."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.library.longer_rows import LongerRows, has_longer_rows


@pytest.mark.parametrize(
    ("shape", "dtype", "size", "has"),
    [
        ((18, 64), np.float16, 192, True),
        ((6, 3, 64), np.float16, 64 * 9, True),
        ((18, 64), np.float16, 64, False),
        ((18, 64), np.float16, 256, False),
        ((18, 64), np.float16, 100, False),
        ((18, 40), np.float16, 120, False),
        ((18, 16), np.int8, 48, False),
        ((18, 32), np.int8, 96, True),
        ((18, 0), np.float16, 96, False),
        ((18, 66), np.float16, 198, False),
    ],
)
def test_rows_without_gaps_follow_one_another(shape: tuple[int, ...], dtype: type, size: int, has: bool) -> None:
    """Rows of 40 f16 keep 40 bytes, and have a pitch of 48. Those of 66 end in half a group."""
    s = louver.compress(np.zeros(shape, dtype), "2:4")
    assert has_longer_rows(s, size) is has
    if not has:
        with pytest.raises(ValueError, match=f"got {size}"):
            s.derived.of(LongerRows).of(s, size)


@pytest.mark.parametrize("pattern", ["2:4@4", "4:2:8"])
def test_rows_that_share_indices_stay(rng: np.random.Generator, pattern: str) -> None:
    dense = louver.prune(rng.standard_normal((32, 64)).astype(np.float16), pattern)
    assert not has_longer_rows(louver.compress(dense, pattern), 128)


def test_columns_stay(rng: np.random.Generator) -> None:
    dense = louver.prune(rng.standard_normal((64, 32)).astype(np.float16), "2:4", axis=0)
    assert not has_longer_rows(louver.compress(dense, "2:4", axis=0), 128)


@pytest.mark.parametrize(("pattern", "dtype"), [("2:4", np.float16), ("1:2", np.float32), ("1:4", np.int8)])
def test_a_view_is_the_tensor_and_follows_its_values(rng: np.random.Generator, pattern: str, dtype: type) -> None:
    dense = louver.prune((rng.standard_normal((12, 3, 64)) * 40).astype(dtype), pattern)
    s = louver.compress(dense, pattern)
    longer = s.derived.of(LongerRows).of(s, 192)
    assert longer.shape == (12, 192)
    assert s.derived.of(LongerRows).of(s, 192) is longer
    np.testing.assert_array_equal(longer.dense(), dense.reshape(12, 192))
    longer.validate()
    s.update_((rng.standard_normal(s.values.shape) * 40).astype(dtype))
    np.testing.assert_array_equal(longer.dense(), s.dense().reshape(12, 192))
