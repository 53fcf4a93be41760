"""A small model trained with masks that are chosen anew, then with fixed ones: forward and gradient of x are sparse."""

from __future__ import annotations

import torch
from torch import nn

import louver.torch
from louver.torch import SparseLinear


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, inner, tokens = (1024, 4096, 4096) if device == "cuda" else (32, 64, 128)
    model = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)).to(device, torch.bfloat16)
    target = torch.randn(width, width, device=device, dtype=torch.bfloat16) / width**0.5

    def step(optimizer: torch.optim.Optimizer) -> float:
        x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
        loss = (model(x) - x @ target).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    # All values train; every 5 steps each layer is pruned anew, along both axes.
    masks = louver.torch.mask_(model, "2:4", every=5, transposable=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    first = step(optimizer)
    for _ in range(20):
        loss = step(optimizer)
        masks.step()
    print(f"masks that move: loss {first:.3f}, then {loss:.3f}")

    # Now only kept values have gradients and optimizer states.
    masks.settle_()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-3)
    for _ in range(10):
        last = step(optimizer)
    print(f"fixed masks: loss {last:.3f}")
    layers = [layer for layer in model if isinstance(layer, SparseLinear)]
    kept = sum(layer.weight.values.numel() for layer in layers)
    states = sum(optimizer.state[layer.weight.values]["exp_avg"].numel() for layer in layers)
    print(f"{len(layers)} layers with sparse gradients of x, {kept:,} kept values, {states:,} in each state of AdamW")
    assert last < first and states == kept and all(layer.weight.is_transposable for layer in layers)


if __name__ == "__main__":
    main()
