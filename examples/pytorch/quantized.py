"""Sparse weights in fp8: `quantize_` rounds them to e4m3, with a scale for each row; calls find a scale for each token."""

from __future__ import annotations

import torch
from torch import nn

import louver.torch


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = (
        nn.Sequential(nn.Linear(256, 384), nn.GELU(), nn.Linear(384, 256))
        .to(device, torch.bfloat16)
        .requires_grad_(False)
    )
    x = torch.randn(5, 256, device=device, dtype=torch.bfloat16)

    louver.torch.prune_(model, "2:4")
    louver.torch.compress_(model, force=True)
    before = model(x)
    print(louver.torch.quantize_(model, "e4m3"))  # or "int8"
    after = model(x)
    error = float((after - before).norm() / before.norm())
    print(f"relative difference by e4m3: {error:.3f}")
    assert error < 0.08

    louver.torch.decompress_(model)  # the rounded weights, in bf16 again
    assert type(model[0]) is nn.Linear


if __name__ == "__main__":
    main()
