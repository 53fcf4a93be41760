"""Scales of tokens: x in 8 bits with a scale for each token, in one pass over x."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any, Final

import torch
from torch import Tensor

LARGEST: Final = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}
"""The greatest magnitude of each type that weights are quantized to."""

LEAST: Final = 1e-12
"""The least scale: a row of zeros has a scale too."""


def quantized_tokens(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x [..., K] in 8 bits, and f32 scales [...] of its tokens, with x ≈ quantized · scale; the greatest magnitude of
    a token is the greatest of the type. The scale of a token with NaN is NaN. x without leading axes is one token.

    On a GPU it is one kernel of Triton where Triton is installed; a compiler sees operations of PyTorch, and fuses them.
    """
    if x.is_cuda and not torch.compiler.is_compiling() and x.shape[-1] <= _WIDEST and x.numel() and _triton():
        kernel: Any = importlib.import_module("louver.torch.tokens_kernel")
        return kernel.quantized_tokens(x.detach(), dtype, 1 / LARGEST[dtype], LEAST)
    return quantized_rows(x, dtype)


_WIDEST: Final = 65536


@functools.cache
def _triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def quantized_rows(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same by operations of PyTorch."""
    wide = x.float()
    # PyTorch divides by a number in one way on a CPU, and in another on a GPU; all multiply alike.
    scale = (wide.abs().amax(-1) * (1 / LARGEST[dtype])).clamp_min(LEAST)
    divided = wide / scale[..., None]
    if not dtype.is_floating_point:
        divided = divided.round()
    return divided.to(dtype), scale if x.dim() > 1 else scale.reshape(1)
