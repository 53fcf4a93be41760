"""Sparse weights in files: a state_dict has the names of Louver's own files, which safetensors reads too."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

import louver
import louver.torch
from louver.torch import SparseLinear


def network() -> nn.Sequential:
    """A model with one sparse layer, new random weights."""
    return nn.Sequential(SparseLinear(96, 160, pattern="2:4"), nn.ReLU(), nn.Linear(160, 12))


def main() -> None:
    torch.manual_seed(0)
    model, x = network(), torch.randn(3, 96)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder, "model.pt"))
        loaded = network()
        loaded.load_state_dict(torch.load(Path(folder, "model.pt"), weights_only=True))
        print(*loaded.state_dict(), sep=", ")
        assert torch.equal(loaded(x), model(x))

        # The same weight as a tensor of Louver, which needs no torch to be read.
        weight = louver.compress(model[0].weight.dense().detach(), "2:4")
        louver.save(Path(folder, "weight.safetensors"), {"0.weight": weight})
        read = louver.load(Path(folder, "weight.safetensors"))["0.weight"]
        print(read)
        y = louver.linear(x.numpy(), read, model[0].bias.detach().numpy())
        torch.testing.assert_close(torch.from_numpy(y), model[0](x))


if __name__ == "__main__":
    main()
