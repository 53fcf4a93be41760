"""No time without a right result: samples of a product against float64."""

from __future__ import annotations

from typing import Any

from louver.bench.operands import Operands
from louver.kernels.numerics import Agreement, compare

SAMPLE = 32
"""Tokens whose results are compared, drawn at random; all of their outputs are."""


def verify(torch: Any, operands: Operands, index: int, y: Any, seed: int = 0) -> Agreement:
    """Compare a sample of `y` [N, M] with the float64 product of weight `index`, by the library's error bound."""
    problem = operands.problem
    generator = torch.Generator(device="cuda").manual_seed(seed)
    tokens = torch.randint(problem.n, (SAMPLE,), generator=generator, device="cuda")
    x, weight = operands.x[tokens].double(), operands.dense[index].double()
    reference = x @ weight.t()
    magnitude = x.abs() @ weight.abs().t()
    got = y[tokens].float().cpu().numpy()
    return compare(got, reference.cpu().numpy(), magnitude.cpu().numpy(), problem.k, problem.dtype)
