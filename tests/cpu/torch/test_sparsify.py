"""`louver.sparsify` of PyTorch's tensors on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

import louver

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_as_torch_computes(dtype: str) -> None:
    x = torch.randn(19, 72).to(getattr(torch, dtype))
    s = louver.sparsify(x, activation="relu2")
    dense = s.dense()
    assert isinstance(dense, torch.Tensor) and dense.dtype == x.dtype
    squares = torch.relu(x.float()).square().to(x.dtype)
    assert torch.equal(dense[dense != 0], squares[dense != 0])
    kept = torch.topk(squares.view(19, 18, 4).float(), 2).values.sum(-1)
    assert torch.equal(dense.view(19, 18, 4).float().sum(-1), kept)
    w = torch.randn(24, 72).to(x.dtype)
    y = louver.matmul(s, w.t())
    torch.testing.assert_close(y.float(), dense.float() @ w.float().t(), rtol=2e-2, atol=2e-2)


def test_row_scales_are_written_and_taken_by_the_product() -> None:
    x, w, scales = torch.randn(19, 72).half(), torch.randn(24, 72).to(torch.float8_e4m3fn), torch.empty(19)
    s = louver.sparsify(x, activation="relu2", dtype=torch.float8_e4m3fn, row_scales=scales)
    torch.testing.assert_close(scales, torch.relu(x.float()).square().amax(1) / 448, rtol=1e-6, atol=0)
    y = louver.matmul(s, w.t(), scale=scales)
    expected = (s.dense().float() * scales[:, None]) @ w.float().t()
    torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=2e-2)
    before = s.dense().float().clone()
    assert louver.sparsify(-x, out=s, activation="relu2", scale=torch.tensor([0.5])) is s
    assert not torch.equal(s.dense().float(), before)


def test_gradients_are_refused() -> None:
    x = torch.randn(8, 16, dtype=torch.float16, requires_grad=True)
    assert louver.sparsify(x).shape == (8, 16), "a leaf is data"
    with pytest.raises(ValueError, match="give its detach"):
        louver.sparsify(x * 2)
