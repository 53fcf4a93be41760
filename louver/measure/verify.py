"""Checks a product before it is timed: samples of its results against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.library.numerics import Agreement, accumulation, compare
from louver.measure.operands import Operands

SAMPLE = 32
"""Tokens whose results are compared, drawn at random; all of their outputs are."""


def verify(torch: Any, operands: Operands, index: int, y: Any) -> Agreement:
    """Compare a sample of `y` [N, M] with the float64 product of weight `index`, by the library's error bound.

    Beyond the range of an f16 result, infinity and the greatest number are both right: libraries differ.
    """
    problem = operands.problem
    generator = torch.Generator(device="cuda").manual_seed(0)
    tokens = torch.randint(problem.n, (SAMPLE,), generator=generator, device="cuda")
    # Converted first: PyTorch indexes no 8-bit floats.
    x, weight = operands.x.float()[tokens].double(), operands.dense[index].double()
    reference = (x @ weight.t()).cpu().numpy()
    magnitude = (x.abs() @ weight.abs().t()).cpu().numpy()
    got = y[tokens].double().cpu().numpy()
    if problem.out == "f16":
        got, reference = in_f16_range(got), in_f16_range(reference)
    accumulate = accumulation(problem.dtype, problem.accumulate)
    return compare(got, reference, magnitude, problem.k, problem.out, accumulate)


def in_f16_range(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values clipped to the range of f16; NaN stays."""
    greatest = float(np.finfo(np.float16).max)
    return np.clip(values, -greatest, greatest)
