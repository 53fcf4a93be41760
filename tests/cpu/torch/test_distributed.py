"""Sparse layers under PyTorch's wrappers for several processes, here with one process."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore:louver computes by the reference path"),
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed"),
]

from louver.torch.linear import SparseLinear  # noqa: E402

SIZE, ROWS = 48, 24


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    torch.manual_seed(17)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def train(model: Any, dense: Any) -> None:
    """Some steps, each with the product of the present values. dense: gives the dense weight and the bias of the layer."""
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.05)
    x, seen = torch.randn(5, SIZE), []
    for _ in range(3):
        y = model(x)
        weight, bias = dense()
        close(torch, y, x @ weight.t() + bias, 1e-4)
        seen.append(float(y.detach().square().mean()))
        optimizer.zero_grad()
        y.square().mean().backward()
        optimizer.step()
    assert seen[-1] < seen[0]


def test_ddp(group: None) -> None:
    layer = SparseLinear(SIZE, ROWS)
    train(
        torch.nn.parallel.DistributedDataParallel(layer), lambda: (layer.weight.dense().detach(), layer.bias.detach())
    )


def test_fsdp2(group: None) -> None:
    if torch.__version__.startswith("2.6"):
        pytest.skip("FSDP2 of PyTorch 2.6 shards no integers")
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    layer = SparseLinear(SIZE, ROWS)
    start = {name: each.clone() for name, each in layer.state_dict().items()}
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    fsdp.fully_shard(layer, mesh=mesh)

    def dense() -> tuple[Any, Any]:
        # Between forward and backward passes the outermost module holds whole parameters.
        parts = (layer.weight.values.detach(), layer.weight.indices.detach(), layer.bias.detach())
        values, indices, bias = (each.full_tensor() if hasattr(each, "full_tensor") else each for each in parts)
        return torch.ops.louver.dense(values, indices, SIZE), bias

    assert torch.equal(dense()[0], torch.ops.louver.dense(start["weight.values"], start["weight.indices"], SIZE))
    train(layer, dense)


def block() -> Any:
    """A sparse block whose q, k and v are one product."""

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = torch.nn.Linear(SIZE, SIZE), torch.nn.Linear(SIZE, ROWS, bias=False)
            self.v, self.o = torch.nn.Linear(SIZE, ROWS), torch.nn.Linear(SIZE + 2 * ROWS, SIZE)

        def forward(self, x: Any) -> Any:
            q, k, v = self.q(x), self.k(x), self.v(x)
            return self.o(torch.cat([q * q, torch.sin(k), v], -1))

    made = torch.nn.Sequential(Attention())
    louver.torch.prune_(made)
    louver.torch.compress_(made, force=True)
    assert made[0].plan.groups == (("k", "q", "v"),)
    return made[0]


@pytest.mark.parametrize("how", ["ddp", "fsdp2"])
def test_joined_layers(group: None, how: str) -> None:
    if how == "fsdp2" and torch.__version__.startswith("2.6"):
        pytest.skip("FSDP2 of PyTorch 2.6 shards no integers")
    made = block()
    plain = copy.deepcopy(made)
    if how == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(made)
    else:
        fsdp = pytest.importorskip("torch.distributed.fsdp")
        wrapped = made
        fsdp.fully_shard(wrapped, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
    x = torch.randn(5, SIZE)
    for each in (wrapped, plain):
        optimizer = torch.optim.SGD([p for p in each.parameters() if p.requires_grad], lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            each(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(wrapped(x), plain(x))
    for name, wanted in plain.named_parameters():
        mine = made.get_parameter(name)
        mine = mine.full_tensor() if hasattr(mine, "full_tensor") else mine
        torch.testing.assert_close(mine, wanted, msg=name)
