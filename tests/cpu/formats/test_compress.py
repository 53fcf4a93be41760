from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import louver
from support.sparse import SPARSE_TYPES, bits_of, random_bits, same_bits, slow_compressed
from support.work import calls

PATTERNS = [(2, 4), (1, 2), (6, 8), (1, 16), (3, 5)]
PLACES = [((5, 16), -1), ((7, 13), 1), ((13, 6), 0), ((3, 9, 5), 1), ((2, 3, 2, 11), -1), ((10,), 0), ((3, 1), 1)]


def natural_bytes(kept: list[list[int]], rows: int, n: int, m: int) -> np.ndarray:
    """The index bytes of groups' kept elements, by the words of docs/format.md."""
    if (n, m) not in ((2, 4), (1, 2)):
        return np.array(kept, np.uint8).reshape(rows, -1)
    codes = [k[0] | k[1] << 2 if m == 4 else (0x4, 0xE)[k[0]] for k in kept]
    groups = len(codes) // rows
    lines = [codes[r * groups : (r + 1) * groups] + [4] * (groups % 2) for r in range(rows)]
    return np.array([[a | b << 4 for a, b in zip(line[0::2], line[1::2], strict=True)] for line in lines], np.uint8)


@pytest.mark.parametrize("dtype", SPARSE_TYPES)
@pytest.mark.parametrize(("n", "m"), PATTERNS)
def test_values_and_indices_in_natural_order(dtype: str, n: int, m: int, rng: np.random.Generator) -> None:
    for shape, axis in PLACES:
        w = louver.prune(random_bits(rng, shape, dtype), f"{n}:{m}", axis=axis)
        s = louver.compress(w, f"{n}:{m}", axis=axis)
        expected = slow_compressed(w, n, m, axis)
        assert bits_of(s.values).ravel().tolist() == [b for _, bits in expected for b in bits]
        assert np.array_equal(s.indices, natural_bytes([kept for kept, _ in expected], s.rows, n, m))
        s.validate()


@pytest.mark.parametrize("dtype", SPARSE_TYPES)
@pytest.mark.parametrize(("n", "m"), PATTERNS)
def test_dense_gives_every_bit_back(dtype: str, n: int, m: int, rng: np.random.Generator) -> None:
    for shape, axis in PLACES:
        w = louver.prune(random_bits(rng, shape, dtype), f"{n}:{m}", axis=axis)
        s = louver.compress(w, f"{n}:{m}", axis=axis)
        back = s.dense()
        assert back.shape == shape and back.dtype == w.dtype and back.flags.c_contiguous
        changed = bits_of(back) != bits_of(w)
        assert np.count_nonzero(changed) == s.negative_zeros_dropped
        assert not back[changed].astype(np.float32).any() and not np.signbit(back[changed].astype(np.float32)).any()


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_shape_axis_pattern_and_type(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=4), label="shape"))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1), label="axis")
    m = data.draw(st.integers(2, 40), label="M")
    pattern = louver.Pattern(data.draw(st.integers(1, m - 1), label="N"), m)
    dtype = data.draw(st.sampled_from(SPARSE_TYPES), label="dtype")
    rng = np.random.default_rng(data.draw(st.integers(0, 1000), label="seed"))
    w = louver.prune(random_bits(rng, shape, dtype), pattern, axis=axis)
    s = louver.compress(w, pattern, axis=axis)
    s.validate()
    report = louver.check(w, pattern, axis=axis)
    assert report.ok and report.negative_zeros_dropped == s.negative_zeros_dropped
    again = louver.compress(s.dense(), pattern, axis=axis)
    assert again.negative_zeros_dropped == 0
    assert same_bits(again.dense(), s.dense())
    assert np.count_nonzero(bits_of(s.dense()) != bits_of(w)) == s.negative_zeros_dropped


def test_many_blocks(rng: np.random.Generator) -> None:
    w = louver.prune(rng.standard_normal((3, 401, 515), np.float32), "2:4", axis=1)
    s = louver.compress(w, "2:4", axis=1)
    assert (s.rows, s.groups, s.kept) == (3 * 515, 101, 202)
    assert same_bits(s.dense(), w)


def test_negative_zero_takes_a_free_slot_and_is_counted_otherwise() -> None:
    w = np.array([[1, -0.0, 2, -0.0], [1, -0.0, 0, -0.0], [0, -0.0, 0, 5], [-0.0, -0.0, -0.0, 0]], np.float16)
    s = louver.compress(w, "2:4")
    assert s.negative_zeros_dropped == 2 + 1 + 0 + 1
    expected = np.array([[1, 0, 2, 0], [1, -0.0, 0, 0], [0, -0.0, 0, 5], [-0.0, -0.0, 0, 0]], np.float16)
    assert same_bits(s.dense(), expected)


def test_a_masked_checkpoint_is_not_refused(rng: np.random.Generator) -> None:
    w = rng.standard_normal((16, 64), np.float32)
    masked = w * (louver.prune(w, "2:4") != 0)
    s = louver.compress(masked, "2:4")
    assert s.negative_zeros_dropped == np.count_nonzero((masked == 0) & np.signbit(masked)) > 0
    assert np.array_equal(s.dense(), masked)


def test_a_bad_group_is_named() -> None:
    w = np.zeros((2, 3, 9), np.float16)
    w[0, 2, 0:2] = 1
    w[1, 1, 4:7] = [3, np.nan, -1]
    w[1, 2, 0:4] = 1
    with pytest.raises(ValueError, match=r"2:4 allows 2 .* got 3 in the group at \[1, 1, 4\]: prune first"):
        louver.compress(w, "2:4")
    with pytest.raises(ValueError, match=r"along axis 0, got 4 in the group at \[0, 1, 2\]"):
        louver.compress(np.moveaxis(w[:, :, :4], 2, 0), "2:4", axis=0)


def test_a_bad_group_beyond_the_first_block(rng: np.random.Generator) -> None:
    w = louver.prune(rng.standard_normal((900, 1000), np.float32), "2:4")
    w[777, 996:] = 1
    with pytest.raises(ValueError, match=r"got 4 in the group at \[777, 996\]"):
        louver.compress(w, "2:4")


def test_refusals() -> None:
    with pytest.raises(ValueError, match="an element type is one of f16"):
        louver.compress(np.ones((4, 4), np.int32), "2:4")
    with pytest.raises(ValueError, match="got a scalar"):
        louver.compress(1.0, "2:4")


def test_calls_are_for_blocks_of_rows(rng: np.random.Generator) -> None:
    w = rng.standard_normal((4096, 1024), np.float32).astype(np.float16)
    pruned = louver.prune(w, "2:4")
    s = louver.compress(pruned, "2:4")
    steps = {
        "prune": lambda: louver.prune(w, "2:4"),
        "check": lambda: louver.check(pruned, "2:4"),
        "compress": lambda: louver.compress(pruned, "2:4"),
        "dense": s.dense,
    }
    counts = {name: calls(step) for name, step in steps.items()}
    assert all(count < 2 * len(w) for count in counts.values()), counts


def test_pruned_on_the_way(rng: np.random.Generator) -> None:
    w = random_bits(rng, (5, 22), "f16")
    at_once, first = louver.compress(w, "2:4", method="magnitude"), louver.compress(louver.prune(w, "2:4"), "2:4")
    assert same_bits(at_once.values, first.values) and same_bits(at_once.indices, first.indices)
    with pytest.raises(ValueError, match="has the method \"magnitude\", got 'wanda'"):
        louver.compress(w, "2:4", method="wanda")  # type: ignore[arg-type]
