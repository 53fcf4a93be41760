"""Gated pairs and quantized weights on a GPU: equal to their definitions, compiled, captured."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from support.torch_weights import close


@pytest.fixture
def mlp(torch: Any) -> Any:
    nn = torch.nn

    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up = nn.Linear(1024, 2816, bias=False), nn.Linear(1024, 2816, bias=False)
            self.down, self.act = nn.Linear(2816, 1024, bias=False), nn.SiLU()

        def forward(self, x: Any) -> Any:
            return self.down(self.act(self.gate(x)) * self.up(x))

    import louver.torch

    torch.manual_seed(41)
    made = nn.Sequential(Mlp(), Mlp()).bfloat16().cuda().eval().requires_grad_(False)
    louver.torch.prune_(made)
    return made


def tokens(torch: Any, n: int) -> Any:
    return torch.randn(n, 1024, device="cuda").bfloat16()


def test_a_gated_block_is_one_product(torch: Any, mlp: Any) -> None:
    import louver.torch
    from louver.torch.blocks import JoinedBlock

    x = tokens(torch, 40)
    expected = mlp(x)
    louver.torch.compress_(mlp, force=True)
    assert isinstance(mlp[0], JoinedBlock)
    close(torch, mlp(x), expected, 0.03)
    assert louver.torch.verify(mlp) == {}
    close(torch, mlp[0].up(x), torch.nn.functional.linear(x, mlp[0].up.weight.dense()), 0.02)
    louver.torch.decompress_(mlp)
    assert torch.equal(mlp(x), expected)


@pytest.mark.parametrize("to", ["e4m3", "int8"])
def test_quantized_blocks(torch: Any, mlp: Any, to: str) -> None:
    import louver.torch

    x = tokens(torch, 40)
    louver.torch.compress_(mlp, force=True)
    expected = mlp(x).float()
    louver.torch.quantize_(mlp, to)
    assert float((mlp(x).float() - expected).norm() / expected.norm()) < 0.15
    close(torch, mlp(x[0]), mlp(x[:1])[0], 0.01)
    assert louver.torch.verify(mlp) == {}
    louver.torch.decompress_(mlp)
    assert float((mlp(x).float() - expected).norm() / expected.norm()) < 0.1


@pytest.mark.parametrize("quantized", [False, True])
def test_prepared_blocks_are_captured(torch: Any, mlp: Any, quantized: bool) -> None:
    import louver.torch

    louver.torch.compress_(mlp, force=True)
    if quantized:
        louver.torch.quantize_(mlp)
    assert louver.torch.prepare(mlp, (16,)) == 6
    x = tokens(torch, 16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = mlp(x)
    graph.replay()
    assert torch.equal(y, mlp(x))
    x.mul_(0.5)
    graph.replay()
    assert torch.equal(y, mlp(x))


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_in_one_graph(torch: Any, mlp: Any, mode: str, quantized: bool) -> None:
    import louver.torch

    louver.torch.compress_(mlp, force=True)
    if quantized:
        louver.torch.quantize_(mlp)
    torch._dynamo.reset()
    compiled = torch.compile(mlp, fullgraph=True, mode=mode)
    for n in (16, 16, 16, 48):
        x = tokens(torch, n)
        close(torch, compiled(x).clone(), mlp(x), 0.08 if quantized else 0.03)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize("shape", [(5, 1024), (3, 7, 14336), (2, 100), (1, 1), (17, 4097)])
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32"])
def test_the_kernel_of_token_scales_is_its_definition(torch: Any, dtype: str, shape: Any, kind: str) -> None:
    from louver.torch.tokens import quantized_rows, quantized_tokens

    x = (torch.randn(shape, device="cuda") * torch.rand(*shape[:-1], 1, device="cuda") * 100).to(getattr(torch, kind))
    x[0] = 0
    x[-1, ..., -1] = float("nan") if len(shape) == 3 else 3
    for given in (
        x,
        x.repeat(1, *([1] * (len(shape) - 2)), 2)[..., : shape[-1]],
        x.transpose(0, -1) if len(shape) == 2 else x,
    ):
        mine = quantized_tokens(given, getattr(torch, dtype))
        wanted = quantized_rows(given, getattr(torch, dtype))
        for a, b in zip(mine, wanted, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype and same(torch, a, b, mine[1])


def same(torch: Any, a: Any, b: Any, scale: Any) -> bool:
    """Whether all elements are equal; those of a token whose scale is NaN say nothing in int8."""
    whole = ~scale.isnan()
    return torch.equal(a.float()[whole], b.float()[whole]) and torch.equal(
        scale.isnan(), (b if b.dtype == torch.float32 else scale).isnan()
    )


def test_gradients_of_a_fused_and_a_quantized_block(torch: Any, mlp: Any) -> None:
    import louver.torch

    dense = copy.deepcopy(mlp)
    louver.torch.compress_(mlp, force=True)
    grads = []
    x = tokens(torch, 64)
    for step, model in enumerate((dense, mlp, mlp)):
        if step == 2:
            louver.torch.quantize_(mlp)
        leaf = x.clone().requires_grad_()
        model(leaf).float().square().sum().backward()
        grads.append(leaf.grad.float())
    for each, most in zip(grads[1:], (0.03, 0.25), strict=True):
        assert float((each - grads[0]).norm() / grads[0].norm()) < most
