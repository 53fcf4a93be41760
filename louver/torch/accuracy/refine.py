"""Better values, and better masks, of a pruned matrix: both lower ‖W x − target‖² over the calibration's tokens."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from louver.formats.pattern import Pattern

MOST_SETS: Final = 128
"""Most sets of kept elements of a group that a swap compares."""

CONVERGED: Final = 2.0**-46
"""A row is solved when the square of its gradient is this part of the first one: the gradient is f32's rounding."""

_BLOCK: Final = 128
"""Columns whose changes reach the columns behind them in one product."""


def reconstruct(w: Tensor, mask: Tensor, gram: Tensor, target: Tensor, steps: int) -> Tensor:
    """The kept values that solve (W H − target) ⊙ mask = 0, by `steps` of conjugate gradients from w.

    w, target: f32 [R, K]; mask: bool [R, K]; gram: H, f32 [K, K], positive definite. Each row has its own support and
    its own step; all rows share a product with H. The diagonal of H preconditions. The error never rises.
    """
    inverse = gram.diagonal().reciprocal()
    w = w * mask
    residual = (target - w @ gram) * mask
    direction = residual * inverse
    energy = (residual * direction).sum(1, keepdim=True)
    converged = energy * CONVERGED
    for _ in range(steps):
        image = (direction @ gram) * mask
        # What rounding leaves of a converged row has no direction: the row rests.
        going = energy > converged
        step = torch.where(going, energy / (direction * image).sum(1, keepdim=True), 0.0)
        w.addcmul_(step, direction)
        residual.addcmul_(step, image, value=-1)
        scaled = residual * inverse
        before, energy = energy, (residual * scaled).sum(1, keepdim=True)
        direction = scaled.addcmul_(torch.where(going, energy / before, 0.0), direction)
    return w


def check_swaps(pattern: Pattern) -> None:
    """Raises ValueError for a pattern without swaps."""
    if len(pattern.levels) > 1:
        raise ValueError(
            f"swaps compare the sets of one level, got {pattern}: its rows choose among vectors, leave swaps out"
        )
    if (sets := math.comb(pattern.m, pattern.n)) > MOST_SETS:
        raise ValueError(
            f"swaps compare up to {MOST_SETS} sets of kept elements, got {sets:,} for {pattern}: leave swaps out"
        )


@dataclass(frozen=True, slots=True)
class _Sets:
    """The sets S of elements that a group may keep. members: bool [sets, M]."""

    members: Tensor

    @classmethod
    def of(cls, pattern: Pattern, device: torch.device) -> _Sets:
        chosen = torch.tensor(list(itertools.combinations(range(pattern.m), pattern.n)), device=device)
        empty = torch.zeros(len(chosen), pattern.m, dtype=torch.bool, device=device)
        return cls(empty.scatter_(1, chosen, True))

    def inverses(self, gram: Tensor) -> Tensor:
        """The inverses of H's parts at S × S, 0 elsewhere: f32 [groups, M, sets · M] for the H of columns in groups."""
        m = self.members.shape[1]
        own = gram.unflatten(0, (-1, m)).unflatten(2, (-1, m)).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        both = self.members[:, :, None] & self.members[:, None, :]
        rest = torch.diag_embed((~self.members).double())
        inverse = torch.linalg.inv(torch.where(both, own[:, None].double(), rest))
        return torch.where(both, inverse, 0.0).float().transpose(1, 2).flatten(2)


def swaps(w: Tensor, mask: Tensor, gram: Tensor, target: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """One sweep over the groups: each takes the set of kept elements, and their values, that are best given the others.

    Arguments as for `reconstruct`; the window of a vector chooses one set for all its rows. The error never rises,
    since the present set is among those compared. Returns weight and mask. Raises ValueError for V:N:M, and for groups
    of more than 128 sets.
    """
    check_swaps(pattern)
    rows, size = w.shape
    height, m = min(pattern.length, rows), pattern.m
    # Elements added to fill groups and windows have no gradient, so that no set gains by them.
    more, below = -size % m, -rows % height
    w = functional.pad(w * mask, (0, more, 0, below))
    slope = functional.pad(w[:rows, :size] @ gram - target, (0, more, 0, below))
    if more:
        filled = torch.eye(size + more, device=gram.device)
        filled[:size, :size] = gram
        gram = filled
    sets, mask = _Sets.of(pattern, w.device), torch.ones_like(w, dtype=torch.bool)
    width = m * max(1, _BLOCK // m)
    for start in range(0, w.shape[1], width):
        stop = min(start + width, w.shape[1])
        inside = gram[start:stop, start:stop]
        before = w[:, start:stop].clone()
        _sweep_block(w[:, start:stop], mask[:, start:stop], inside, slope[:, start:stop], sets, height)
        slope[:, stop:].addmm_(w[:, start:stop] - before, gram[start:stop, stop:])
    return w[:rows, :size].contiguous(), mask[:rows, :size].contiguous()


def _sweep_block(w: Tensor, mask: Tensor, gram: Tensor, slope: Tensor, sets: _Sets, height: int) -> None:
    """Improve the groups of a block of columns in place. slope: W H − target there, kept true."""
    m, inverses = sets.members.shape[1], sets.inverses(gram)
    for start in range(0, w.shape[1], m):
        here = slice(start, start + m)
        alone = w[:, here] @ gram[here, here] - slope[:, here]
        values = (alone @ inverses[start // m]).unflatten(1, (-1, m))
        gain = torch.einsum("rsm,rm->rs", values, alone)
        best = gain.unflatten(0, (-1, height)).sum(1).argmax(1).repeat_interleave(height)
        new = values[torch.arange(len(best), device=w.device), best]
        slope.addmm_(new - w[:, here], gram[here])
        w[:, here], mask[:, here] = new, sets.members[best]
