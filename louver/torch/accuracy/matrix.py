"""One matrix: a method, its refinements, and the error of the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import torch
from torch import Tensor

from louver.formats.dtypes import check_switch
from louver.formats.pattern import Pattern
from louver.formats.prune import check_transposable
from louver.torch.accuracy.methods import (
    Damped,
    admm,
    check_swaps,
    damped_gram,
    magnitude,
    reconstruct,
    sparsegpt,
    swaps,
    wanda,
)
from louver.torch.accuracy.moments import Moments, products

METHODS: Final = ("magnitude", "wanda", "sparsegpt", "admm")

DAMPINGS: Final = (0.001, 0.01, 0.1, 0.3, 1.0)
"""Dampings of values that held-out moments choose among."""

DAMPING: Final = 0.1
"""The damping of values without held-out moments."""

SELECTION: Final = 0.03
"""The damping that chooses masks. More would hide how inputs depend on each other; from 0.01 to 0.1 masks are as good."""

SAMPLE: Final = 512
"""Rows that choose the damping of values."""

_STEPS: Final = 30
"""Steps of conjugate gradients that choose it."""


@dataclass(frozen=True, slots=True)
class Method:
    """How to prune a matrix.

    name: "magnitude", "wanda", "sparsegpt" or "admm".
    correct: aim at the dense model's outputs from the pruned model's inputs; needs `Moments` with dense inputs.
    reconstruct: steps of conjugate gradients on the kept values.
    swaps: sweeps in which every group takes its best elements given the others.
    damping: added to the Gram matrix, in units of its mean diagonal. None: 0.03 to choose masks; for refined values that
        of `DAMPINGS` with the least error on held-out moments (the geometric mean over texts), or 0.1 without them.
    transposable: masks keep 2:4 along the rows too, see `check`.
    Raises ValueError for other values.
    """

    name: str = "magnitude"
    correct: bool = False
    reconstruct: int = 0
    swaps: int = 0
    damping: float | None = None
    transposable: bool = False

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise ValueError(f"a method is one of {', '.join(METHODS)}, got {self.name!r}")
        for what in ("reconstruct", "swaps"):
            count: object = getattr(self, what)
            if type(count) is not int or count < 0:
                raise ValueError(f"{what} is a number of rounds, 0 or more, got {count!r}")
        if self.damping is not None and not 0 <= self.damping < float("inf"):
            raise ValueError(f"damping is 0 or more, or None, got {self.damping!r}")
        check_switch("transposable", self.transposable)
        if self.transposable and self.swaps:
            raise ValueError(
                f"swaps choose masks along the rows alone, got swaps={self.swaps} and transposable=True: leave one out"
            )
        if self.correct and not self.solves:
            raise ValueError(
                f'correct=True changes values, which {self.name} alone leaves: use method="sparsegpt" or reconstruct=30'
            )

    def __str__(self) -> str:
        """The name and what differs from the defaults, as in "sparsegpt, correct=True, reconstruct=30"."""
        given = {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
        return ", ".join([self.name, *(f"{name}={value}" for name, value in given.items() if name != "name")])

    def check(self, pattern: Pattern) -> None:
        """Raises ValueError for a pattern that the method does not prune to."""
        if self.swaps:
            check_swaps(pattern)
        if self.transposable:
            check_transposable(pattern, 2, 1)

    @property
    def solves(self) -> bool:
        """Whether values change, by a Gram matrix that is damped."""
        return self.name in ("sparsegpt", "admm") or self.refines

    @property
    def refines(self) -> bool:
        """Whether values are computed again once the masks are chosen."""
        return self.reconstruct > 0 or self.swaps > 0

    @property
    def calibrated(self) -> bool:
        """Whether `Moments` are needed."""
        return self.name != "magnitude" or self.solves


@dataclass(frozen=True, slots=True)
class Pruned:
    """A pruned matrix.

    weight: f32 [R, K] with zeros. mask: bool [R, K], the elements that the pattern keeps.
    damping: what values were computed with, None without a Gram matrix. raised: how much of it was added because the Gram matrix could
    not be factorized.
    error: ‖W₀ x_dense − W x‖² / ‖W₀ x_dense‖² over the held-out tokens (the geometric mean over texts), or the
        calibration's; None without moments.
    silent: inputs that were 0 for every token. Damping stands for what they may be elsewhere; Wanda prunes their weights
    first. Those that are kept do not change.
    """

    weight: Tensor
    mask: Tensor
    damping: float | None
    raised: float
    error: float | None
    silent: int


def prune_matrix(
    w: Tensor, pattern: Pattern, method: Method, moments: Moments | None = None, held_out: Sequence[Moments] = ()
) -> Pruned:
    """Prune a weight [R, K] of any floating type along K.

    moments: of the calibration's inputs; held_out: of other texts, which choose the damping and measure the error.
    `w` is not changed. Raises ArithmeticError for NaN or infinity in moments or weight, ValueError for moments that do
    not fit.
    """
    _check(w, pattern, method, moments, held_out)
    with products(w.device):
        w = w.float()
        if not bool(w.isfinite().all()):
            raise ArithmeticError("the weight has NaN or infinity: repair it, or skip the layer")
        return _prune(w, pattern, method, moments, held_out)


def _check(w: Tensor, pattern: Pattern, method: Method, moments: Moments | None, held_out: Sequence[Moments]) -> None:
    if w.ndim != 2 or not w.is_floating_point() or w.numel() == 0:
        raise ValueError(f"a weight is a floating matrix [R, K] with elements, got {w.dtype} {list(w.shape)}")
    method.check(pattern)
    if moments is None and method.calibrated:
        raise ValueError(f"{method} needs moments of the inputs: give a calibration")
    for each in (moments, *held_out):
        if each is None:
            continue
        if each.features != w.shape[1]:
            raise ValueError(f"moments of {w.shape[1]} features are needed, got {each.features}")
        if method.correct and not each.dense:
            raise ValueError("correct=True needs moments with the dense model's inputs: make them with dense=True")
        each.check()


def _prune(w: Tensor, pattern: Pattern, method: Method, moments: Moments | None, held_out: Sequence[Moments]) -> Pruned:
    judges = held_out or ([] if moments is None else [moments])
    gram = None if moments is None else moments.gram
    silent = 0 if gram is None else int((gram.diagonal() == 0).sum())
    if moments is None or gram is None or not method.solves:
        mask = _chosen(w, gram, pattern, method)
        weight = w * mask
        return Pruned(weight, mask, None, 0.0, mean_error(w, weight, judges) if judges else None, silent)
    cross = moments.cross if method.correct else gram
    damped = Damped.of(gram, SELECTION if method.damping is None else method.damping)
    # Damping pulls towards the dense weight.
    target = torch.addmm(w, w, cross, beta=damped.shift)
    start = damped.solve(target) if method.correct else w
    if method.name == "sparsegpt":
        weight, mask = sparsegpt(start, damped.inverse_root, pattern, transposable=method.transposable)
    elif method.name == "admm":
        weight, mask = admm(start, damped.gram, target, pattern, transposable=method.transposable)
    else:
        mask = _chosen(w, gram, pattern, method)
        weight = w * mask
    damping = damped.damping
    if method.refines:
        if method.damping is None:
            damping = _best(w, weight, mask, gram, cross, held_out) if held_out else DAMPING
        h, shift = damped_gram(gram, damping)
        target = torch.addmm(w, w, cross, beta=shift)
        weight = reconstruct(weight, mask, h, target, method.reconstruct)
        for _ in range(method.swaps):
            weight, mask = swaps(weight, mask, h, target, pattern)
            weight = reconstruct(weight, mask, h, target, method.reconstruct)
    return Pruned(weight, mask, damping, damped.raised, mean_error(w, weight, judges), silent)


def _chosen(w: Tensor, gram: Tensor | None, pattern: Pattern, method: Method) -> Tensor:
    """The mask by the weight, and by its inputs' norms if the method asks for them."""
    if gram is None or method.name == "magnitude":
        return magnitude(w, pattern, transposable=method.transposable)
    return wanda(w, gram, pattern, transposable=method.transposable)


def _best(w: Tensor, weight: Tensor, mask: Tensor, gram: Tensor, cross: Tensor, held_out: Sequence[Moments]) -> float:
    """The damping whose reconstruction has the least error on held-out texts. A sample of rows tells: all share H."""
    every = max(1, len(w) // SAMPLE)
    w, weight, mask = w[::every], weight[::every], mask[::every]

    def error(damping: float) -> float:
        h, shift = damped_gram(gram, damping)
        return mean_error(w, reconstruct(weight, mask, h, torch.addmm(w, w, cross, beta=shift), _STEPS), held_out)

    return min(DAMPINGS, key=error)


def mean_error(w: Tensor, weight: Tensor, texts: Sequence[Moments]) -> float:
    """The geometric mean of `relative_error` over texts, at least one."""
    return math.prod(relative_error(w, weight, moments) for moments in texts) ** (1 / len(texts))


def relative_error(w: Tensor, weight: Tensor, moments: Moments) -> float:
    """‖W₀ d − W x‖² / ‖W₀ d‖² over the tokens of moments: W₀ is w, W is weight, d the dense model's inputs."""
    change = weight - w
    gram, cross, dense_gram = moments.gram, moments.cross, moments.dense_gram
    norm = _form(w, dense_gram, w)
    error = _form(change, gram, change)
    if moments.dense:
        drift = dense_gram - cross - cross.mT + gram
        error += _form(w, drift, w) - 2 * _form(w, cross - gram, change)
    return max(error, 0.0) / norm if norm > 0 else 0.0


def _form(a: Tensor, middle: Tensor, b: Tensor) -> float:
    """The trace of a · middle · bᵀ."""
    return float(((a @ middle) * b).sum(dtype=torch.float64))
