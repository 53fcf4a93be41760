from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.formats.check import LISTED, Group
from support.sparse import SPARSE_TYPES, bits_of, random_bits, slow_compressed, slow_groups

PLACES = [((5, 16), -1), ((7, 13), 1), ((13, 6), 0), ((3, 9, 5), 1), ((10,), 0)]


def nonzeros(w: np.ndarray, where: tuple[tuple[int, ...], ...]) -> int:
    return sum(float(w[at]) != 0 for at in where)


@pytest.mark.parametrize("dtype", SPARSE_TYPES)
@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 2), (6, 8), (3, 5)])
@pytest.mark.parametrize("exact", [False, True])
def test_every_figure_of_the_report(dtype: str, n: int, m: int, exact: bool, rng: np.random.Generator) -> None:
    for shape, axis in PLACES:
        w = random_bits(rng, shape, dtype)
        report = louver.check(w, f"{n}:{m}", axis=axis, exact=exact)
        found = [Group(g.start, nonzeros(w, g.where)) for g in slow_groups(shape, axis, m)]
        bad = [g for g in found if (g.nonzeros != n if exact else g.nonzeros > n)]
        assert report.groups == len(found)
        assert report.offending == len(bad)
        assert report.ok == bool(report) == (not bad)
        assert report.first == tuple(bad[:LISTED])
        assert report.histogram == tuple(sum(g.nonzeros == i for g in found) for i in range(m + 1))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "e5m2", "f32"])
def test_negative_zeros_that_find_no_slot(dtype: str, rng: np.random.Generator) -> None:
    w = louver.prune(random_bits(rng, (40, 27), dtype), "2:4")
    w[rng.random(w.shape) < 0.3] = -0.0
    stored = sum(int(b) == 1 << (8 * w.itemsize - 1) for _, bits in slow_compressed(w, 2, 4, 1) for b in bits)
    all_of_them = np.count_nonzero(bits_of(w) == 1 << (8 * w.itemsize - 1))
    assert louver.check(w, "2:4").negative_zeros_dropped == all_of_them - stored > 0


def test_negative_zeros_of_offending_groups_are_not_counted() -> None:
    assert louver.check(np.array([1, 2, 3, -0.0], np.float16), "2:4").negative_zeros_dropped == 0


def test_exact_counts_the_filling_of_a_cut_group_as_zeros() -> None:
    w = np.array([1, 1, 0, 0, 1], np.float16)
    assert louver.check(w, "2:4").ok
    assert louver.check(w, "2:4", exact=True).first == (Group((4,), 1),)


def test_coordinates_over_many_blocks(rng: np.random.Generator) -> None:
    w = np.zeros((3, 700, 400), np.float16)
    for at in [(0, 699, 396), (2, 0, 0), (2, 413, 200)]:
        w[at[0], at[1], at[2] : at[2] + 4] = rng.random(4) + 1
    assert [g.start for g in louver.check(w, "2:4").first] == [(0, 699, 396), (2, 0, 0), (2, 413, 200)]
    turned = louver.check(np.moveaxis(w, 2, 0), "2:4", axis=0)
    assert [g.start for g in turned.first] == [(396, 0, 699), (0, 2, 0), (200, 2, 413)]


def test_the_report_as_text() -> None:
    w = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], np.float16)
    assert str(louver.check(w, "2:4")) == "2:4 fails in 1 of 2 groups; first: [1, 0] has 3"
    assert str(louver.check(w, "3:4")) == "3:4 holds in all 2 groups"
    assert str(louver.check(w, "3:4", exact=True)) == "exactly 3:4 fails in 1 of 2 groups; first: [0, 0] has 2"


def test_a_group_of_256_counts_all_of_them() -> None:
    report = louver.check(np.ones(256, np.uint8), "255:256")
    assert report.first == (Group((0,), 256),)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="got 1"):
        louver.check(np.ones(4, np.float16), "2:4", axis=1)


@pytest.mark.parametrize("listed", [0, 3, 20])
def test_as_many_groups_are_listed_as_asked_for(listed: int, rng: np.random.Generator) -> None:
    array = rng.standard_normal((5, 12)).astype(np.float32)
    report, full = louver.check(array, "2:4", listed=listed), louver.check(array, "2:4", listed=15)
    assert report.first == full.first[:listed] and report.offending == full.offending == len(full.first) == 15
    assert report.histogram == full.histogram
