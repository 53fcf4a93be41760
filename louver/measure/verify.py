"""Checks a sample of a product's results against float64 before the product is timed."""

from __future__ import annotations

from typing import Any

from louver.library.numerics import Agreement, accumulation
from louver.measure.operands import Operands, reference_of, sampled


def verify(torch: Any, operands: Operands, index: int, y: Any) -> Agreement:
    """Compare a sample of `y` [N, M] with the float64 product of weight `index`. The operands keep that product."""
    problem, known = operands.problem, operands.references
    if index not in known:
        known[index] = reference_of(operands.x, operands.dense[index], sampled(torch, problem.n))
    return known[index].agrees(y, problem.out, accumulation(problem.dtype, problem.accumulate))
