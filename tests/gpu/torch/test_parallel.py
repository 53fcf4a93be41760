"""Sparse models on two GPUs (NCCL) equal those of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this needs two GPUs")

from support import parallel_ranks as ranks  # noqa: E402
from support.parallel_ranks import Attention, Mlp, sparse, step, tokens  # noqa: E402

NAMES = (
    "columns.odd",
    "columns.even",
    "rows.even",
    "mlp",
    "attention",
    "e4m3 first",
    "already",
    "load mlp",
    "verify",
    "packed",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: Any) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    return ranks.start(2, folder, "cuda", NAMES)


@pytest.mark.parametrize(("name", "rows", "columns"), [("odd", 25, 64), ("even", 72, 64)])
def test_rows(found: Any, name: str, rows: int, columns: int) -> None:
    made = sparse(torch.nn.Linear, columns, rows).cuda()
    for rank in found:
        close(torch, rank[f"columns.{name}"]["y"], made(tokens(columns).cuda()).cpu(), 0.005)
        assert torch.equal(rank[f"columns.{name}"]["dense"], made[0].weight.dense().cpu())


def test_columns(found: Any) -> None:
    made = sparse(torch.nn.Linear, 192, 40).cuda()
    for rank in found:
        close(torch, rank["rows.even"]["y"], made(tokens(192).cuda()).cpu(), 0.01)


@pytest.mark.parametrize(("name", "kind"), [("mlp", Mlp), ("attention", Attention), ("already", Mlp)])
def test_blocks(found: Any, name: str, kind: Any) -> None:
    expected = step(sparse(kind, True).cuda(), tokens().cuda())
    for rank in found:
        for key in ("y", "x"):
            close(torch, rank[name][key], expected[key].cpu(), 0.02)
        if name != "already":
            close(torch, rank[name]["inference"], expected["y"].cpu(), 0.02)


def test_quantized(found: Any) -> None:
    made = sparse(Mlp).cuda()
    louver.torch.quantize_(made)
    with torch.no_grad():
        expected = made(tokens().cuda()).cpu()
    for rank in found:
        close(torch, rank["e4m3 first"]["inference"], expected, 0.06)


def test_packed(found: Any) -> None:
    expected = sparse(Attention).cuda()(tokens().cuda()).detach().cpu()
    assert all(close(torch, rank["packed"]["y"], expected, 0.02) is None for rank in found)


def test_loaded_parts(found: Any) -> None:
    expected = sparse(Mlp, True).cuda()(tokens().cuda()).detach().cpu()
    for rank in found:
        close(torch, rank["load mlp"]["y"], expected, 0.02)
        assert rank["load mlp"]["read"] == rank["load mlp"]["held"]


def test_what_products_read_is_compared(found: Any) -> None:
    assert all(rank["verify"] == {"verify": {}, "transposable": False} for rank in found)
