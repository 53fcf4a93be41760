"""Models on a GPU: swapped where that is faster, compiled, captured, trained."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from support.torch_weights import close


@pytest.fixture
def stack(torch: Any) -> Any:
    """Two blocks of a model as Llama has them, without attention between tokens."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width: int, inner: int) -> None:
            super().__init__()
            self.norm = nn.RMSNorm(width)
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
            self.down = nn.Linear(inner, width, bias=False)

        def forward(self, x: Any) -> Any:
            x = x + self.o(self.q(self.norm(x)))
            y = self.norm(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    torch.manual_seed(15)
    return nn.Sequential(Block(2048, 5632), Block(2048, 5632)).bfloat16().cuda().eval().requires_grad_(False)


def tokens(torch: Any, n: int) -> Any:
    return torch.randn(n, 2048, device="cuda").bfloat16()


def test_prune_compress_run_and_back(torch: Any, stack: Any) -> None:
    import louver.torch

    louver.torch.prune_(stack)
    x = tokens(torch, 64)
    expected = stack(x)
    dense = {name: each.clone() for name, each in stack.state_dict().items()}
    report = louver.torch.compress_(stack, tokens=(1, 2048), force=True)
    assert len(report.changed) == 10
    close(torch, stack(x), expected, 0.05)
    assert louver.torch.verify(stack) == {}
    louver.torch.decompress_(stack)
    assert all(torch.equal(each, dense[name]) for name, each in stack.state_dict().items())


def test_layers_are_swapped_by_measurement(torch: Any, stack: Any) -> None:
    import louver.torch

    louver.torch.prune_(stack)
    report = louver.torch.compress_(stack, tokens=(2048,))
    assert all(row.dense_us.keys() == {2048} for row in report)
    for row in report:
        assert (row.done == "sparse") == (row.sparse_us[2048] < row.dense_us[2048]), str(report)
    assert report["0.gate"].done == "sparse", str(report)


def test_memory_peaks_at_the_dense_model_and_one_weight(torch: Any, stack: Any) -> None:
    import louver.torch

    louver.torch.prune_(stack)
    stack(tokens(torch, 64))  # cuBLAS keeps a workspace from its first call on.
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    weights = sum(each.nbytes for name, each in stack.named_parameters() if name.endswith("weight"))
    torch.cuda.reset_peak_memory_stats()
    louver.torch.compress_(stack, force=True)
    largest = 2048 * 5632 * 2
    assert torch.cuda.max_memory_allocated() - before < 2 * largest
    # Values and indices are 0.5625 of a dense weight; the metadata that kernels read are as large as the indices.
    assert torch.cuda.memory_allocated() - (before - weights) < 0.64 * weights


def test_a_prepared_model_is_captured(torch: Any, stack: Any) -> None:
    import louver.torch

    louver.torch.prune_(stack)
    louver.torch.compress_(stack, force=True)
    assert louver.torch.prepare(stack, (16,)) == 10
    x = tokens(torch, 16)
    # One call makes the handles of PyTorch's own libraries.
    expected = stack(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = stack(x)
    graph.replay()
    assert torch.equal(y, expected)
    stack[0].gate.weight.values.mul_(2)
    graph.replay()
    assert torch.equal(y, stack(x)) and not torch.equal(y, expected)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_in_one_graph(torch: Any, stack: Any, mode: str) -> None:
    import louver.torch

    louver.torch.prune_(stack)
    louver.torch.compress_(stack, force=True)
    torch._dynamo.reset()
    compiled = torch.compile(stack, fullgraph=True, mode=mode)
    for n in (16, 16, 16, 48, 80):
        x = tokens(torch, n)
        close(torch, compiled(x).clone(), stack(x), 0.05)


def test_training_lowers_the_loss(torch: Any, stack: Any) -> None:
    import louver.torch

    louver.torch.prune_(stack)
    louver.torch.compress_(stack, force=True)
    for name, parameter in stack.named_parameters():
        parameter.requires_grad_("indices" not in name)
    optimizer = torch.optim.AdamW([each for each in stack.parameters() if each.requires_grad], lr=1e-4, fused=True)
    x, wanted = tokens(torch, 256), tokens(torch, 256)
    losses = []
    for _ in range(8):
        loss = (stack(x) - wanted).float().square().mean()
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0], losses
    assert louver.torch.verify(stack) == {}


def test_the_subclass_and_semi_structured_tensors(torch: Any) -> None:
    from louver.torch import SparseTensor

    s = SparseTensor.of(torch.randn(256, 512, device="cuda").half(), prune=True)
    x = torch.randn(64, 512, device="cuda").half()
    layer = torch.nn.Linear(512, 256, bias=False)
    layer.weight = torch.nn.Parameter(s, requires_grad=False)
    close(torch, layer(x), x.float() @ s.to_dense().float().t())
    other = s.to_sparse_semi_structured()
    assert torch.equal(SparseTensor.of(other).to_dense(), s.to_dense())
    assert s.cpu().device.type == "cpu" and torch.equal(s.cpu().to("cuda"), s)
