"""A PyTorch model, pruned and compressed by one call each: equal outputs, 9/16 of the weights' memory."""

from __future__ import annotations

import torch
from torch import nn

import louver.torch


class Mlp(nn.Module):
    """A gated layer, whose gate and up projection become one product."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, inner, tokens = (4096, 14336, 2048) if device == "cuda" else (96, 160, 7)
    model = nn.Sequential(Mlp(width, inner), Mlp(width, inner)).to(device, torch.bfloat16).requires_grad_(False)
    x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)

    louver.torch.prune_(model, "2:4")  # by magnitude; any other method that leaves zeros may replace it
    dense = model(x)
    # A GPU swaps what measures faster. A CPU, where sparse products are slow, swaps only if it must.
    print(louver.torch.compress_(model, tokens=tokens, force=device == "cpu"))
    sparse = model(x)
    error = float((sparse - dense).abs().max() / dense.abs().max())
    print(f"greatest difference, of the greatest output: {error:.4f}")
    assert error < 0.02


if __name__ == "__main__":
    main()
