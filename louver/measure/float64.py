"""Compares samples of a product's results with float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.library.numerics import Agreement, compare

SAMPLE = 32
"""Number of random tokens whose results are compared, with all their outputs."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The float64 product of tokens, given by a torch tensor of indices. values, magnitude: product and Σ|x||w|,
    [tokens, M].
    """

    tokens: Any
    values: NDArray[np.float64]
    magnitude: NDArray[np.float64]
    k: int

    def agrees(self, y: Any, out: str, accumulate: str) -> Agreement:
        """Compare with rows of y [N, M], see `beside_float64`."""
        # PyTorch cannot index 8-bit floats.
        y = y if y.element_size() > 1 else y.float()
        got, wanted = y[self.tokens].double().cpu().numpy(), self.values
        if out == "f16":
            got, wanted = in_f16_range(got), in_f16_range(wanted)
        return compare(got, wanted, self.magnitude, self.k, out, accumulate)


def sampled(torch: Any, count: int) -> Any:
    """Indices of `SAMPLE` random tokens below `count`."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    return torch.randint(count, (SAMPLE,), generator=generator, device="cuda")


def beside_float64(x: Any, weight: Any, y: Any, tokens: Any, out: str, accumulate: str, bias: Any = None) -> Agreement:
    """Compare rows `tokens` of y [N, M], written as type `out`, with x [N, K] · weightᵀ, by the library's error bound.

    All arrays are torch tensors. weight: [M, K]. bias: [M]. accumulate: as in `numerics.compare`. Beyond the range of
    f16, both infinity and the greatest number are right, because libraries differ.
    """
    return reference_of(x, weight, tokens, bias).agrees(y, out, accumulate)


def reference_of(x: Any, weight: Any, tokens: Any, bias: Any = None) -> Reference:
    """The float64 product of rows `tokens` of x [N, K] and a weight [M, K], plus a bias [M]."""
    x = x if x.element_size() > 1 else x.float()
    x, weight = x[tokens].double(), weight.double()
    reference, magnitude = x @ weight.t(), x.abs() @ weight.abs().t()
    if bias is not None:
        reference, magnitude = reference + bias.double(), magnitude + bias.double().abs()
    return Reference(tokens, reference.cpu().numpy(), magnitude.cpu().numpy(), x.shape[1])


def in_f16_range(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values clipped to the range of f16. NaN stays NaN."""
    greatest = float(np.finfo(np.float16).max)
    return np.clip(values, -greatest, greatest)
