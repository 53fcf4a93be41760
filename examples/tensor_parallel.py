"""A sparse model on several ranks: styles of `parallelize_module`, one product for gate and up projection on each rank, and
a checkpoint of which each rank reads its own parts.

    python examples/tensor_parallel.py            a process for each GPU, or two on a CPU
    torchrun --nproc-per-node 4 examples/tensor_parallel.py
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import parallelize_module

import louver
import louver.torch
from louver.torch.parallel import ColwiseParallel, RowwiseParallel, load_


class Mlp(nn.Module):
    """A gated layer, whose gate and up projection become one product."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


PLAN = {"*.gate": ColwiseParallel(), "*.up": ColwiseParallel(), "*.down": RowwiseParallel()}


def sparse_model(width: int, inner: int, device: str) -> Any:
    """The same pruned and compressed model on every rank."""
    torch.manual_seed(0)
    model = nn.Sequential(Mlp(width, inner), Mlp(width, inner)).to(device, torch.bfloat16).requires_grad_(False)
    louver.torch.prune_(model, "2:4")
    louver.torch.compress_(model, force=True)
    return model


def run(rank: int, ranks: int, folder: str) -> None:
    device = "cuda" if torch.cuda.device_count() >= ranks else "cpu"
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    store = None if "RANK" in os.environ else dist.FileStore(str(Path(folder) / "store"), ranks)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    mesh = dist.init_device_mesh(device, (ranks,))
    width, inner, tokens = (4096, 14336, 2048) if device == "cuda" else (256, 512, 5)

    model = sparse_model(width, inner, device)
    x = torch.randn(tokens, width, generator=torch.Generator().manual_seed(1)).to(device, torch.bfloat16)
    expected = model(x)
    file = Path(folder) / "model.safetensors"
    if rank == 0:
        # A file of Louver has whole weights, for any number of ranks.
        layers = {name: each for name, each in model.named_modules() if isinstance(each, louver.torch.SparseLinear)}
        weights = {f"{name}.weight": louver.compress(each.weight.dense(), "2:4") for name, each in layers.items()}
        louver.save(file, {name: each.to("cpu") for name, each in weights.items()})
    dist.barrier()

    parallelize_module(model, mesh, PLAN)
    read = load_(model, file)
    y = model(x)
    error = float((y - expected).abs().max() / expected.abs().max())
    values: Any = model[0].down.weight.values
    if rank == 0:
        print(
            f"{ranks} ranks; down.weight.values {list(values.shape)} as {values.placements[0]}, {list(values.to_local().shape)} here"
        )
        print(f"rank 0 read {read} of {file.stat().st_size} bytes")
        print(f"greatest difference from one process, of the greatest output: {error:.4f}")
    assert error < 0.02
    dist.barrier()
    dist.destroy_process_group()
    # DTensor's caches keep the group and its threads, which may abort an interpreter that ends: this process ends before.
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ.get("TMPDIR", "/tmp"))
        return
    ranks = max(2, torch.cuda.device_count())
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, (ranks, folder), nprocs=ranks)


if __name__ == "__main__":
    main()
