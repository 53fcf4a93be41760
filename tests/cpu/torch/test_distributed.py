"""Sparse layers under PyTorch's wrappers for several processes, here with one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
