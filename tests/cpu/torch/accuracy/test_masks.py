"""Masks of every pattern: the choice of `louver.prune`, and legal for `louver.check`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.pattern import Pattern

torch: Any = pytest.importorskip("torch")

from louver.torch.accuracy.masks import keep  # noqa: E402

PATTERNS = [
    "2:4",
    "1:2",
    "4:8",
    "6:8",
    "3:5",
    "1:16",
    "5:256",
    "4:4",
    "2:4@3",
    "4:8@32",
    "2:8@16",
    "1:2@7",
    "3:5@100000000000000000",
    "2:8@V8",
    "2:5@V3",
    "2:16@V32",
    "2:8@V100000000000000000",
]
SHAPES = [(1, 1), (5, 16), (7, 13), (33, 35), (64, 64), (3, 257)]


@pytest.mark.parametrize("text", PATTERNS)
@pytest.mark.parametrize("shape", SHAPES)
def test_squares_keep_what_prune_keeps(text: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    # Sums of squares of small integers are exact, and often equal.
    for w in (rng.standard_normal(shape), rng.integers(-3, 4, shape)):
        w = w.astype(np.float32)
        mask = keep(torch.from_numpy(w).square(), Pattern.parse(text)).numpy()
        assert mask.dtype == np.bool_ and mask.shape == shape
        assert np.array_equal(w * mask, louver.prune(w, text))
        assert louver.check(np.where(mask, 1 + abs(w), 0).astype(np.float32), text)


@pytest.mark.parametrize("text", PATTERNS)
def test_every_group_keeps_n(text: str, rng: np.random.Generator) -> None:
    pattern = Pattern.parse(text)
    mask = keep(torch.from_numpy(rng.random((40, 4 * pattern.m))), pattern)
    assert (mask.view(40, -1, pattern.m).sum(-1) == pattern.n).all()


def test_transposable_blocks_take_the_best_of_90_masks(rng: np.random.Generator) -> None:
    rows = list(itertools.combinations(range(4), 2))
    masks = np.zeros((6**4, 4, 4), bool)
    for mask, chosen in zip(masks, itertools.product(rows, repeat=4), strict=True):
        for row, columns in enumerate(chosen):
            mask[row, list(columns)] = True
    masks = masks[(masks.sum(1) == 2).all(1)]
    assert len(masks) == 90
    score = rng.random((24, 40)).astype(np.float32)
    score[rng.random(score.shape) < 0.3] = 0
    mask = keep(torch.from_numpy(score), Pattern(2, 4), transposable=True).numpy()
    blocks, kept = (x.reshape(6, 4, 10, 4).transpose(0, 2, 1, 3).reshape(-1, 4, 4) for x in (score, mask))
    assert (kept.sum(1) == 2).all() and (kept.sum(2) == 2).all()
    best = np.einsum("brc,mrc->bm", blocks.astype(np.float64), masks).max(1)
    np.testing.assert_allclose((blocks * kept).sum((1, 2), dtype=np.float64), best, rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (6, 36)])
def test_transposable_masks_of_any_size(shape: tuple[int, int], rng: np.random.Generator) -> None:
    mask = keep(torch.from_numpy(rng.random(shape)), Pattern(2, 4), transposable=True)
    assert mask.shape == shape and mask.any()
    for axis in (0, 1):
        assert louver.check(mask.float().numpy(), "2:4", axis=axis).ok


def test_nothing_to_keep() -> None:
    assert keep(torch.zeros(0, 8), Pattern(2, 4)).shape == (0, 8)
    assert keep(torch.zeros(8, 0), Pattern(2, 4)).shape == (8, 0)
