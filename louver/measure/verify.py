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
    """Compare a sample of `y` [N, M] with the float64 product of weight `index`, see `beside_float64`."""
    problem = operands.problem
    tokens, accumulate = sampled(torch, problem.n), accumulation(problem.dtype, problem.accumulate)
    return beside_float64(operands.x, operands.dense[index], y, tokens, problem.out, accumulate)


def sampled(torch: Any, count: int) -> Any:
    """Numbers of `SAMPLE` tokens of so many."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    return torch.randint(count, (SAMPLE,), generator=generator, device="cuda")


def beside_float64(x: Any, weight: Any, y: Any, tokens: Any, out: str, accumulate: str, bias: Any = None) -> Agreement:
    """Compare rows `tokens` of y [N, M], which was written as `out`, with those of x [N, K] times a weight [M, K], by the library's error
    bound. All are torch tensors.

    accumulate: as in `numerics.compare`. bias: [M]. Beyond the range of an f16 result, infinity and the greatest number are both right:
    libraries differ.
    """
    # PyTorch indexes no 8-bit floats.
    x, y = (each if each.element_size() > 1 else each.float() for each in (x, y))
    x, weight = x[tokens].double(), weight.double()
    reference, magnitude = x @ weight.t(), x.abs() @ weight.abs().t()
    if bias is not None:
        reference, magnitude = reference + bias.double(), magnitude + bias.double().abs()
    got, wanted, size = (part.cpu().numpy() for part in (y[tokens].double(), reference, magnitude))
    if out == "f16":
        got, wanted = in_f16_range(got), in_f16_range(wanted)
    return compare(got, wanted, size, x.shape[1], out, accumulate)


def in_f16_range(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values clipped to the range of f16; NaN stays."""
    greatest = float(np.finfo(np.float16).max)
    return np.clip(values, -greatest, greatest)
