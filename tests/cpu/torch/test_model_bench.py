"""The stack that `louver bench model` times: its dense forms and its sparse one compute the same."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.cli.commands.model import bench_model  # noqa: E402
from louver.measure.model.run import Wanted, held_bytes  # noqa: E402
from louver.measure.model.stack import Shape, Stack, angles_of, join_by_hand_  # noqa: E402
from louver.torch.blocks import JoinedBlock  # noqa: E402

SHAPE = Shape(width=64, inner=96, heads=4, key_heads=2, head=16, blocks=2, vocabulary=50)


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    # No compiler is needed here.
    with torch.compiler.set_stance("force_eager"):
        yield


def outputs(stack: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 5, 64, generator=generator).bfloat16()
    caches = [tuple(torch.randn(2, 2, 7, 16, generator=generator).bfloat16() for _ in range(2)) for _ in range(2)]
    with torch.no_grad():
        whole = stack(x, angles_of(torch.arange(5), 16), [None] * 2)
        return [whole, stack(x[:, :1], angles_of(torch.tensor([6]), 16), caches)]


def test_all_forms_compute_the_same() -> None:
    torch.manual_seed(3)
    stack = Stack(SHAPE, 2, head=True).bfloat16().eval().requires_grad_(False)
    louver.torch.prune_(stack, skip=("head",))
    expected = outputs(stack)
    assert [list(each.shape) for each in expected] == [[2, 50], [2, 50]]
    by_hand = outputs(join_by_hand_(copy.deepcopy(stack), scaled=False))
    louver.torch.compress_(stack, force=True)
    groups = [block.plan.groups for block in stack.modules() if isinstance(block, JoinedBlock)]
    assert groups == [(("k_proj", "q_proj", "v_proj"),), (("gate", "up"),)] * 2
    for found in (by_hand, outputs(stack)):
        for mine, wanted in zip(found, expected, strict=True):
            close(torch, mine, wanted, 0.03)
    weights = sum(each.numel() * 2 for name, each in stack.named_parameters() if name.endswith("values"))
    assert held_bytes(stack) >= weights * 1.125


def test_bad_text(tmp_path: Path) -> None:
    more = {"head": False, "modes": "eager", "budget": None}
    with pytest.raises(ValueError, match="--prefill takes sequences x tokens, such as 8x2048, got '8'"):
        bench_model(1, tmp_path, prefill="8", decode="1", **more)
    with pytest.raises(ValueError, match="numbers of sequences and tokens are whole, got '1, x'"):
        bench_model(1, tmp_path, prefill="8x16", decode="1,x", **more)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match='modes are "eager" and "compiled", got fast'):
        Wanted(1, False, (1, 8), (1,), ("fast",))
    with pytest.raises(ValueError, match="numbers of blocks, sequences and tokens are positive, got Wanted"):
        Wanted(1, False, (0, 8), (1,), ("eager",))
