"""q, k and v as one product on a GPU: equal to layers apart, timed as one, captured, compiled, quantized."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from support.torch_weights import close

WIDTH, HEAD = 1024, 64


@pytest.fixture
def blocks(torch: Any) -> Any:
    """Two pruned blocks of attention with biases, which keys do not have."""
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
            self.k, self.v = nn.Linear(WIDTH, 256, bias=False), nn.Linear(WIDTH, 256)

        def forward(self, x: Any) -> Any:
            heads = (*x.shape[:-1], -1, HEAD)
            q, k = self.q(x).view(heads).transpose(1, 2), self.k(x).view(heads).transpose(1, 2)
            v = self.v(x).view(heads).transpose(1, 2)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return x + self.o(y.transpose(1, 2).reshape(x.shape))

    import louver.torch

    torch.manual_seed(51)
    made = nn.Sequential(Attention(), Attention()).bfloat16().cuda().eval().requires_grad_(False)
    louver.torch.prune_(made)
    return made


def tokens(torch: Any, n: int) -> Any:
    return torch.randn(3, n, WIDTH, device="cuda").bfloat16()


@pytest.mark.parametrize("n", [1, 7, 300])
def test_equal_to_layers_apart(torch: Any, blocks: Any, n: int) -> None:
    import copy

    import louver.torch
    from louver.torch.blocks import separate_

    x = tokens(torch, n)
    expected = blocks(x)
    louver.torch.compress_(blocks, force=True)
    assert blocks[0].plan.groups == (("k", "q", "v"),)
    plain = copy.deepcopy(blocks)
    separate_(plain)
    close(torch, blocks(x), expected, 0.05)
    close(torch, blocks(x), plain(x), 0.02)
    for name in "qkv":
        close(torch, getattr(blocks[0], name)(x), getattr(plain[0], name)(x), 0.02)
    with torch.inference_mode():
        close(torch, blocks(x), expected, 0.05)
    assert louver.torch.verify(blocks) == {}
    louver.torch.quantize_(blocks, "e4m3")
    louver.torch.quantize_(plain, "e4m3")
    close(torch, blocks(x), plain(x), 0.05)
    for name in "qkv":
        close(torch, getattr(blocks[0], name)(x), getattr(plain[0], name)(x), 0.02)


def test_swapped_all_or_none_by_one_time(torch: Any, blocks: Any) -> None:
    import louver.torch

    report = louver.torch.compress_(blocks, tokens=(16, 1024))
    for block in "01":
        rows = [report[f"{block}.{name}"] for name in "qkv"]
        assert len({(row.done, row.dense_us[16], row.sparse_us[16]) for row in rows}) == 1, str(report)
        assert all("as one product of 3" in row.reason for row in rows), str(report)
    print(report)


def test_captured_after_prepare(torch: Any, blocks: Any) -> None:
    import louver.torch

    louver.torch.compress_(blocks, force=True)
    assert louver.torch.prepare(blocks, (48,)) == 8
    x = tokens(torch, 16)
    expected = blocks(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = blocks(x)
    graph.replay()
    assert torch.equal(y, expected)
    blocks[0].v.weight.values.mul_(2)
    graph.replay()
    assert torch.equal(y, blocks(x)) and not torch.equal(y, expected)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(torch: Any, blocks: Any, mode: str) -> None:
    import louver.torch

    louver.torch.compress_(blocks, force=True)
    torch._dynamo.reset()
    compiled = torch.compile(blocks, fullgraph=True, mode=mode)
    for n in (16, 16, 16, 48, 80):
        x = tokens(torch, n)
        close(torch, compiled(x).clone(), blocks(x), 0.05)


def test_products_of_a_compiled_block(torch: Any, blocks: Any) -> None:
    import louver.torch

    louver.torch.compress_(blocks, force=True)
    torch._dynamo.reset()
    run = importlib.import_module("torch._inductor.utils").run_and_get_code
    _, (code, *others) = run(torch.compile(blocks[0], fullgraph=True), tokens(torch, 16))
    assert not others and code.count("torch.ops.louver.linear.default.launch(") == 2, code


def test_training(torch: Any, blocks: Any) -> None:
    import copy

    import louver.torch
    from louver.torch.blocks import separate_

    for name, each in blocks.named_parameters():
        each.requires_grad_("bias" in name or "weight" in name)
    louver.torch.compress_(blocks, force=True)
    plain = copy.deepcopy(blocks)
    separate_(plain)
    x, wanted = tokens(torch, 64), tokens(torch, 64)
    for each in (blocks, plain):
        optimizer = torch.optim.SGD([p for p in each.parameters() if p.requires_grad], lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            (each(x) - wanted).float().square().mean().backward()
            optimizer.step()
    for name, mine in blocks.state_dict().items():
        close(torch, mine, plain.state_dict()[name], 0.02)
    close(torch, blocks(x), plain(x), 0.02)
