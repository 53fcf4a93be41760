"""One of two processes that train a sparse model together: `python -m support.torch_ranks WRAPPER RANK FOLDER`."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import louver.torch

SIZE, INNER, ROWS, STEPS, TOKENS = 48, 64, 25, 3, 6


class Gated(nn.Module):
    """A block whose gate and up projection become one product."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(SIZE, INNER, bias=False), nn.Linear(SIZE, INNER, bias=False)
        self.down = nn.Linear(INNER, SIZE)

    def forward(self, x: Any) -> Any:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def model() -> Any:
    """The same model in every process."""
    torch.manual_seed(23)
    made = nn.Sequential(Gated(), nn.Linear(SIZE, ROWS), nn.GELU(), nn.Linear(ROWS, 16, bias=False)).bfloat16()
    louver.torch.prune_(made[:1])
    louver.torch.prune_(made[1:], transposable=True)
    louver.torch.compress_(made, force=True)
    return made


def tokens() -> Any:
    """The tokens of all processes."""
    return torch.randn(TOKENS, SIZE, generator=torch.Generator().manual_seed(4)).bfloat16()


def train(made: Any, x: Any) -> list[Any]:
    """Some steps on tokens x. Returns the outputs before each step, and after the last one."""
    optimizer = torch.optim.SGD([each for each in made.parameters() if each.requires_grad], lr=20.0)
    seen: list[Any] = []
    for _ in range(STEPS):
        y = made(x)
        seen.append(y.detach().clone())
        optimizer.zero_grad()
        y.float().square().mean().backward()
        optimizer.step()
    return [*seen, made(x).detach().clone()]


def main(wrapper: str, rank: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    store = torch.distributed.FileStore(str(folder / "store"), 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    made, mine = model(), tokens()[rank * TOKENS // 2 : (rank + 1) * TOKENS // 2]
    if wrapper == "ddp":
        wrapped = nn.parallel.DistributedDataParallel(made)
        outputs = train(wrapped, mine)
        state = made.state_dict()
    else:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        from torch.distributed.fsdp import fully_shard

        mesh = torch.distributed.init_device_mesh("cpu", (2,))
        for layer in (made[0], made[1], made[3], made):
            fully_shard(layer, mesh=mesh)
        outputs = train(made, mine)
        state = get_model_state_dict(made, options=StateDictOptions(full_state_dict=True))
    torch.save({"outputs": outputs, "state": state}, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    # DTensor keeps the group and its threads, which may abort an interpreter that ends.
    os._exit(0)
