"""A sparse tensor on a device whose rows a kernel reads several at a time as one: its memory as it is, also after an update."""

from __future__ import annotations

import pytest
import torch

import louver
from support.triton.longer_rows import product


@pytest.mark.parametrize("shape", [(40, 6, 64), (240, 64), (40, 3, 2, 64)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_reads_rows_of_any_shape(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    m, n, k = 48, 40, 384
    torch.manual_seed(0)
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    s = louver.compress(louver.prune(torch.randn(n, k, device="cuda", dtype=dtype), "2:4").reshape(shape), "2:4")
    assert s.device == 0
    kernel = louver.jit(product)
    for _ in range(2):
        y = torch.full((m, n), torch.nan, device="cuda")
        kernel[1, 1](x, s, y, m, n, k, k, BM=128, BN=128, BK=64)
        wanted = x.double() @ s.dense().reshape(n, k).double().T
        torch.testing.assert_close(y.double(), wanted, rtol=1e-3, atol=1e-2)
        s.update_(torch.randn(s.values.shape, device="cuda", dtype=dtype))
