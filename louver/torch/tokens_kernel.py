"""The kernel of `louver.torch.tokens`, in Triton: a program for each token reads it once."""

# Triton's functions have no types.
# pyright: basic, reportMissingImports=false, reportCallIssue=false, reportOperatorIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _tokens(x, y, scales, size, row, factor, least, WIDTH: tl.constexpr, ROUND: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    mask = columns < size
    v = tl.load(x + token * row + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(v), 0) * factor, least)
    # The maximum of Triton passes over NaN.
    scale = tl.where(tl.max((v != v).to(tl.int32), 0) > 0, float("nan"), scale)
    v = tl.div_rn(v, scale)
    if ROUND:
        # The sum has no bits below 1, so the addition rounds to nearest, ties to even.
        v = (v + 12582912.0) - 12582912.0
    tl.store(y + token * size + columns, v.to(y.dtype.element_ty), mask=mask)
    tl.store(scales + token, scale)


def quantized_tokens(x: Tensor, dtype: torch.dtype, factor: float, least: float) -> tuple[Tensor, Tensor]:
    """See `louver.torch.tokens.quantized_tokens`."""
    size = x.shape[-1]
    flat = x.reshape(-1, size)
    if flat.stride(1) != 1:
        flat = flat.contiguous()
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    scales = torch.empty(x.shape[:-1] or (1,), dtype=torch.float32, device=x.device)
    width = triton.next_power_of_2(size)
    # Triton compiles anew for a stride of 1, which a single token may have.
    row = flat.stride(0) if flat.shape[0] > 1 else size
    with torch.cuda.device(x.device):
        _tokens[(flat.shape[0],)](
            flat, y, scales, size, row, factor, least, width, dtype == torch.int8,
            num_warps=min(16, max(1, width // 1024)),
        )  # fmt: skip
    return y, scales
