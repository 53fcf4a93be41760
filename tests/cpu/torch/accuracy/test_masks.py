"""Masks of every pattern: the choice of `louver.prune`, and legal for `louver.check`."""

from __future__ import annotations

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


def test_nothing_to_keep() -> None:
    assert keep(torch.zeros(0, 8), Pattern(2, 4)).shape == (0, 8)
    assert keep(torch.zeros(8, 0), Pattern(2, 4)).shape == (8, 0)
