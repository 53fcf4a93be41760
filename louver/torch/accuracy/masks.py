"""Which elements a pattern keeps, by what each is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.nn import functional

import louver
from louver.formats.pattern import Pattern
from louver.runtime.arrays import view

if TYPE_CHECKING:
    from louver.torch.layers import Layer

_COMPARED: Final = 8
"""Largest group whose elements are compared in pairs."""


LEAST: Final = 2.0**-100
"""The least worth of an element of a transposable mask. Smaller ones are as good as none, and equal."""


def keep(score: Tensor, pattern: Pattern, *, transposable: bool = False) -> Tensor:
    """The mask of the elements of greatest worth that `pattern` keeps along the columns of a matrix.

    score: floating [R, K] without NaN, what keeping each element is worth; a vector is worth the sum of its elements.
    transposable: the mask keeps 2:4 along the rows too. Each 4 × 4 block then takes the one of its 90 masks whose
        elements are worth most together (`louver.formats.select`).
    Returns bool [R, K], on the same device. Ties go to the lowest index.

    For a score of w² the choice is that of `louver.prune(w, pattern)`, except between vectors whose norms differ by
    the rounding of a sum. A last group that is cut off keeps up to N too, and a last window has fewer rows.
    """
    rows, size = score.shape
    if score.numel() == 0:
        return torch.zeros_like(score, dtype=torch.bool)
    if transposable:
        return louver.prune(score.float().clamp(min=LEAST), pattern, transposable=True) != 0
    height = min(pattern.length, rows)
    if tail := -size % pattern.m:
        score = functional.pad(score, (0, tail), value=-torch.inf)
    if tail := -rows % height:
        score = functional.pad(score, (0, 0, 0, tail))
    tiles = score.view(-1, height, score.shape[1] // pattern.m, pattern.m)
    kept: Tensor | None = None
    for level in pattern.levels:
        worth = tiles.sum(1, keepdim=True) if level.length > 1 else tiles
        kept = _largest(worth if kept is None else worth.masked_fill(~kept, -torch.inf), level.n).expand_as(tiles)
    assert kept is not None
    return kept.reshape(score.shape)[:rows, :size].contiguous()


def _largest(worth: Tensor, n: int) -> Tensor:
    """True for the `n` largest along the last axis, of equal values the lowest index."""
    m = worth.shape[-1]
    if m > _COMPARED:
        order = worth.sort(dim=-1, descending=True, stable=True).indices
        return torch.zeros_like(worth, dtype=torch.bool).scatter_(-1, order[..., :n], True)
    # Every element of a group against every other, [M, M, …]: a GPU sorts short groups twenty times slower.
    planes = worth.movedim(-1, 0).contiguous()
    holds = planes[:, None] >= planes
    behind = torch.ones(m, m, dtype=torch.bool, device=worth.device).triu(1).view(m, m, *[1] * (worth.ndim - 1))
    wins = torch.where(behind, holds, ~holds.transpose(0, 1)).sum(1, dtype=torch.uint8)
    return (wins >= m - n).movedim(0, -1)


def keeps(weight: Tensor, pattern: Pattern, axis: int = -1) -> bool:
    """Whether a weight keeps a pattern along an axis."""
    return louver.check(weight if weight.is_cuda else view(weight).to_numpy(), pattern, axis=axis).ok


def kept_pattern(layer: Layer, patterns: Sequence[str | Pattern] | Mapping[str, Any]) -> Pattern | None:
    """The first of some patterns, or the one that is given for a layer, if its weight keeps it."""
    wanted = [patterns.get(layer.name)] if isinstance(patterns, Mapping) else patterns
    found = (Pattern.parse(each) for each in wanted if each is not None)
    return next((each for each in found if keeps(layer.weight.detach(), each)), None)
