"""Masks of one matrix by magnitude, by Wanda, by SparseGPT and by ADMM."""

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
from louver.torch.accuracy.masks import keep
from louver.torch.accuracy.moments import products

ROUNDING: Final = 2.0**-20
"""Pivots of a Gram matrix below this part of its mean diagonal are rounding of sums in f32."""

_RISE: Final = 10.0
_LEAST: Final = 1e-6

_BLOCK: Final = 128
"""Columns whose errors or changes reach the columns behind them in one product."""

_PENALTIES: Final = [0.1 * 500 ** (i / 15) for i in range(16)]
"""The penalties of ADMM: at 0.1 masks move freely, at 50 they rest."""

_ROUNDS: Final = 5
"""Rounds of ADMM at each penalty."""


@dataclass(frozen=True, slots=True)
class Damped:
    """H = G + shift · I for a Gram matrix G, and the upper triangular U with inverse(H) = Uᵀ U.

    gram: H, f32 [K, K]. inverse_root: U, f64 [K, K]. shift: damping times the mean of G's diagonal, or damping if that
    is zero: then no input was ever non-zero, and H treats all of them alike. raised: what was added to the damping
    asked for, until H could be factorized; 0.0 mostly.
    """

    gram: Tensor
    inverse_root: Tensor
    damping: float
    shift: float
    raised: float

    @classmethod
    def of(cls, gram: Tensor, damping: float) -> Damped:
        """Factorize in f64. Damping rises tenfold until every pivot exceeds the rounding of f32 sums."""
        scale = _scale(gram)
        used = damping
        while True:
            h, shift = damped_gram(gram.double(), used)
            # Of the reversed matrix, the lower root is the upper one of H, and its inverse is U reversed.
            lower, failed = torch.linalg.cholesky_ex(h.flip(0, 1))
            if not int(failed) and float(lower.diagonal().min()) ** 2 > ROUNDING * scale:
                break
            used = max(_RISE * used, _LEAST)
        del h
        unit = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
        root = torch.linalg.solve_triangular(lower, unit, upper=False).flip(0, 1)
        return cls(damped_gram(gram, used)[0], root, used, shift, used - damping)

    def solve(self, target: Tensor) -> Tensor:
        """target · inverse(H), f32 [R, K]: the least-squares weight without zeros."""
        return ((target.double() @ self.inverse_root.mT) @ self.inverse_root).float()


def damped_gram(gram: Tensor, damping: float) -> tuple[Tensor, float]:
    """G + shift · I in the type of G, and the shift, see `Damped`."""
    shift = damping * _scale(gram)
    h = gram.clone()
    h.diagonal().add_(shift)
    return h, shift


def _scale(gram: Tensor) -> float:
    return float(gram.diagonal().double().mean()) or 1.0


def magnitude(w: Tensor, pattern: Pattern, *, transposable: bool = False) -> Tensor:
    """The mask of the largest magnitudes of w, f32 [R, K]; vectors and blocks by the sum of squares. transposable: as
    for `keep`, here and below.
    """
    return keep(_squares(w), pattern, transposable=transposable)


def wanda(w: Tensor, gram: Tensor, pattern: Pattern, *, transposable: bool = False) -> Tensor:
    """The mask of the largest |w| ‖x‖, ‖x‖ the norm of each input over tokens (Sun et al., arXiv 2306.11695, eq. 1).

    gram: f32 [K, K], its diagonal is ‖x‖².
    """
    return keep(_squares(w) * gram.diagonal(), pattern, transposable=transposable)


def _squares(w: Tensor) -> Tensor:
    """w² in a unit near the greatest magnitude, a power of 2, so that squares of small weights do not vanish."""
    return torch.ldexp(w, -torch.frexp(w.abs().amax()).exponent).square()


def sparsegpt(
    w: Tensor, inverse_root: Tensor, pattern: Pattern, *, transposable: bool = False
) -> tuple[Tensor, Tensor]:
    """Prune from the first column to the last; what each zero loses is made up for by the columns behind it (Frantar
    and Alistarh, arXiv 2301.00774, algorithm 1).

    w: f32 [R, K]. inverse_root: U of `Damped`, [K, K]. A group's mask is chosen when its first column is reached, by
    w² / U_jj². Returns the weight, f32 with zeros, and its mask.
    """
    w, u, m = w.clone(), inverse_root.float(), pattern.m
    mask = torch.ones_like(w, dtype=torch.bool)
    width = m * max(1, _BLOCK // m)
    for start in range(0, w.shape[1], width):
        stop = min(start + width, w.shape[1])
        errors = _prune_block(
            w[:, start:stop], mask[:, start:stop], u[start:stop, start:stop], pattern, transposable=transposable
        )
        w[:, stop:] -= errors @ u[start:stop, stop:]
    return w.mul_(mask), mask


def _prune_block(w: Tensor, mask: Tensor, u: Tensor, pattern: Pattern, *, transposable: bool) -> Tensor:
    """Prune the columns of a block in place. Returns the error of each element over its U_jj, [R, columns]."""
    errors = torch.empty_like(w)
    scale = u.diagonal().reciprocal()
    for start in range(0, w.shape[1], pattern.m):
        stop = min(start + pattern.m, w.shape[1])
        kept = keep((w[:, start:stop] * scale[start:stop]).square_(), pattern, transposable=transposable)
        mask[:, start:stop] = kept
        part, error = w[:, start:stop], errors[:, start:stop]
        lost = torch.where(kept, 0.0, scale[start:stop])
        for j in range(stop - start):
            torch.mul(part[:, j], lost[:, j], out=error[:, j])
            part[:, j:].addr_(error[:, j], u[start + j, start + j : stop], alpha=-1)
        w[:, stop:].addmm_(error, u[start:stop, stop:], alpha=-1)
    return errors


def admm(
    w: Tensor, gram: Tensor, target: Tensor, pattern: Pattern, *, transposable: bool = False
) -> tuple[Tensor, Tensor]:
    """Prune by the alternating direction method of multipliers, which chooses all masks together (Meng et al., arXiv
    2406.07831, eq. 4): X minimises ‖X x − target‖² + ρ ‖X − D + U‖², D is X + U with the pattern, U gains X − D.

    w: f32 [R, K] to start from. gram: H, f32 [K, K], positive definite. target: f32 [R, K]. Columns are scaled so that
    H has a unit diagonal, and ρ grows from 0.1 to 50. Returns D, f32 with zeros, and its mask.
    """
    scale = gram.diagonal().sqrt()
    h, target = (gram / scale / scale[:, None]).double(), target / scale
    y = w * scale
    mask = keep(y.square(), pattern, transposable=transposable)
    d, u = y * mask, torch.zeros_like(y)
    before = _PENALTIES[0]
    for penalty in _PENALTIES:
        shifted = h.clone()
        shifted.diagonal().add_(penalty)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(shifted)).float()
        # U is the multiplier over ρ.
        u.mul_(before / penalty)
        before = penalty
        for _ in range(_ROUNDS):
            # TF32 rounds X by 2⁻¹¹, which turns few choices.
            with products(w.device, tf32=True):
                y = torch.addmm(u, d.sub_(u).mul_(penalty).add_(target), inverse)
            mask = keep(y.square(), pattern, transposable=transposable)
            d = y * mask
            u = y.sub_(d)
    return d / scale, mask


MOST_SETS: Final = 128
"""Most sets of kept elements of a group that a swap compares."""

CONVERGED: Final = 2.0**-46
"""A row is solved when the square of its gradient is this part of the first one: the gradient is f32's rounding."""


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
