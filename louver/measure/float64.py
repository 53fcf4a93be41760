"""Compares samples of a product's results with float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.library.numerics import Agreement, compare

SAMPLE = 32
"""Tokens whose results are compared, drawn at random; all of their outputs are."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The float64 product of a sample of tokens. tokens: torch tensor of their numbers. values, magnitude: [tokens, M], and Σ|x||w|."""

    tokens: Any
    values: NDArray[np.float64]
    magnitude: NDArray[np.float64]
    k: int

    def agrees(self, y: Any, out: str, accumulate: str) -> Agreement:
        """Compare with rows of y [N, M], see `beside_float64`."""
        # PyTorch indexes no 8-bit floats.
        y = y if y.element_size() > 1 else y.float()
        got, wanted = y[self.tokens].double().cpu().numpy(), self.values
        if out == "f16":
            got, wanted = in_f16_range(got), in_f16_range(wanted)
        return compare(got, wanted, self.magnitude, self.k, out, accumulate)


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
    """Values clipped to the range of f16; NaN stays."""
    greatest = float(np.finfo(np.float16).max)
    return np.clip(values, -greatest, greatest)
