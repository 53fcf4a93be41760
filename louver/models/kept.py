"""How much of a model's weights patterns keep: whether a weight holds a pattern, and the share of |w| that pruning keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.bitmask import PATTERN as BITMASK
from louver.formats.check import check
from louver.formats.pattern import Pattern
from louver.formats.prune import prune
from louver.formats.schema import BitmaskForm, DenseForm, SparseForm
from louver.models.roles import TensorFacts
from louver.models.scaled import Factors, numbers
from louver.models.steps import Source, regions


@dataclass(frozen=True, slots=True)
class Kept:
    """What a pattern keeps of a weight. holds: the weight keeps the pattern already.

    share: of the sum of |w| after pruning by magnitude; 1 if it holds, else of `elements` elements, the first that were read.
    """

    holds: bool
    share: float
    elements: int

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 + 1e-6:
            raise ValueError(f"a pattern keeps a share of 0 to 1 of a weight, got {self.share}")


def kept_by(source: Source, facts: TensorFacts, patterns: Sequence[Pattern]) -> Mapping[Pattern, Kept]:
    """What each pattern keeps of a weight that products contract along its axis.

    A weight that holds a pattern is read whole. Reading ends with the first piece, of some million elements, that breaks
    it: its share is of the pieces up to there. A sparse weight holds its own pattern, and is not read.
    """
    form = facts.form
    if not isinstance(form, DenseForm):
        # A mask of any places says nothing of a pattern.
        whole = isinstance(form, BitmaskForm) and form.kept is None
        held = form.pattern if isinstance(form, SparseForm) else BITMASK if whole else None
        return {each: Kept(True, 1.0, 0) for each in patterns if each == held}
    assert facts.axis is not None
    factors = None
    if facts.scale is not None:
        factors = Factors.of(source.array(facts.scale.name), facts.scale, form.shape)
    found: dict[Pattern, Kept] = {}
    for pattern in patterns:
        if form.shape[facts.axis] < pattern.m:
            continue
        elements, whole, left = 0, 0.0, 0.0
        holds = True
        with source.open(facts.name) as original:
            for region in regions(form.shape, facts.axis, pattern, by_rows=False):
                stored = numbers(region.read(*original), region.factor(factors)).astype(np.float32, copy=False)
                elements += stored.size
                whole += _magnitude(stored)
                holds = check(stored, pattern, axis=region.axis, listed=0).ok
                left += _magnitude(stored if holds else prune(stored, pattern, axis=region.axis))
                if not holds:
                    break
        found[pattern] = Kept(holds, 1.0 if holds or not whole else min(left / whole, 1.0), elements)
    return found


def _magnitude(array: NDArray[Any]) -> float:
    """The sum of the finite magnitudes."""
    return float(np.abs(array[np.isfinite(array)]).sum(dtype=np.float64))
