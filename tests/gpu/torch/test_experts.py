"""Experts in stacks, checks in one pass, and loading weight by weight, on a GPU."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from support.torch_weights import close


@pytest.fixture
def layer(torch: Any) -> Any:
    """A layer of 8 experts of Mixtral, smaller, pruned."""
    transformers = pytest.importorskip("transformers")
    import louver.torch

    torch.manual_seed(41)
    config = transformers.MixtralConfig(hidden_size=512, intermediate_size=768, num_local_experts=8)
    config._experts_implementation = "grouped_mm"
    with torch.device("cuda"):
        made = transformers.models.mixtral.modeling_mixtral.MixtralExperts(config)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    whole = torch.nn.ModuleDict({"experts": made.bfloat16().eval().requires_grad_(False)})
    louver.torch.prune_(whole)
    return whole


def call(torch: Any, tokens: int) -> tuple[Any, Any, Any]:
    """The last expert has no token."""
    x = torch.randn(tokens, 512, device="cuda").bfloat16()
    weights, index = torch.rand(tokens, 7, device="cuda").topk(2)
    return x, index, weights.bfloat16()


@pytest.mark.parametrize("to", ["bf16", "e4m3", "int8"])
def test_products_of_few_and_many_tokens(torch: Any, layer: Any, to: str) -> None:
    import louver.torch

    calls = [call(torch, tokens) for tokens in (1, 3, 16, 64, 65, 700)]
    expected = [layer.experts(*each) for each in calls]
    louver.torch.compress_(layer, force=True)
    if to != "bf16":
        louver.torch.quantize_(layer, to)
    for each, wanted in zip(calls, expected, strict=True):
        close(torch, layer.experts(*each), wanted, 0.02 if to == "bf16" else 0.08)
    assert louver.torch.verify(layer) == {}


def test_swapped_where_measured_faster(torch: Any, layer: Any) -> None:
    import louver.torch

    report = louver.torch.compress_(layer, tokens=(1, 512))
    for row in report:
        assert row.dense_us.keys() == {1, 512}, str(report)
        relative = sum(row.sparse_us[n] / row.dense_us[n] for n in (1, 512)) / 2
        assert (row.done == "sparse") == (relative < 1), str(report)


@pytest.mark.parametrize("tokens", [1, 16, 100])
def test_a_prepared_layer_is_captured(torch: Any, layer: Any, tokens: int) -> None:
    import louver.torch

    louver.torch.compress_(layer, force=True)
    assert louver.torch.prepare(layer, tokens) == 2
    arguments = call(torch, tokens)
    expected = layer.experts(*arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer.experts(*arguments)
    graph.replay()
    close(torch, y, expected, 0.01)
    for held, other in zip(arguments, call(torch, tokens), strict=True):
        held.copy_(other)
    graph.replay()
    close(torch, y, layer.experts(*arguments), 0.01)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_in_one_graph(torch: Any, layer: Any, mode: str) -> None:
    import louver.torch

    louver.torch.compress_(layer, force=True)
    louver.torch.prepare(layer, (16, 48))
    torch._dynamo.reset()
    compiled = torch.compile(layer.experts, fullgraph=True, mode=mode)
    for tokens in (16, 16, 16, 48):
        arguments = call(torch, tokens)
        close(torch, compiled(*arguments).clone(), layer.experts(*arguments), 0.02)


def test_gradients(torch: Any, layer: Any) -> None:
    import louver.torch

    x, index, weights = call(torch, 33)
    x.requires_grad_()
    layer.experts.down_proj.requires_grad_()
    layer.experts(x, index, weights).float().square().sum().backward()
    expected, dense = x.grad.clone(), layer.experts.down_proj.grad
    x.grad = None
    louver.torch.compress_(layer, force=True)
    layer.experts(x, index, weights).float().square().sum().backward()
    close(torch, x.grad, expected, 0.03)
    stack = layer.experts.down_proj
    kept = torch.stack([torch.ops.louver.take(g, i) for g, i in zip(dense, stack.indices, strict=True)])
    close(torch, stack.values.grad, kept, 0.03)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("pattern", ["2:4", "1:2", "1:4", "2:8@V16"])
def test_weights_are_checked_in_one_pass(torch: Any, dtype: str, pattern: str) -> None:
    import louver
    from louver.formats.pattern import Pattern
    from louver.torch.held import offending

    found = Pattern.parse(pattern)
    weights = [
        torch.randn(shape, device="cuda").to(getattr(torch, dtype)) for shape in ((48, 64), (3, 32, 40), (16, 96))
    ]
    weights[1] = weights[1].mT.contiguous().mT
    weights[2] = louver.prune(weights[2], pattern)
    reports = [louver.check(w, pattern) for w in weights]
    assert offending(weights, found) == [(report.offending, report.groups) for report in reports]
    assert reports[0].offending and not reports[2].offending


def test_a_dense_checkpoint_is_loaded_in_the_memory_of_the_sparse_one(torch: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    import louver.torch
    from louver.torch.transformers import LouverConfig

    torch.manual_seed(42)
    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=8
    )
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).bfloat16().eval()
    louver.torch.prune_(model)
    model.save_pretrained(tmp_path)
    ids = torch.arange(40, device="cuda")[None]
    expected, dense = model(ids).logits, sum(each.nbytes for each in model.parameters())
    del model
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, device_map="cuda", quantization_config=LouverConfig(force=True)
    )
    peak, sparse = torch.cuda.max_memory_allocated() - before, sum(each.nbytes for each in loaded.parameters())
    assert sparse < 0.6 * dense, (sparse, dense)
    # The metadata that the kernels read, a gated pair while it is joined, and the largest dense weight.
    assert peak < sparse + dense / 16 + 3 * 2816 * 1024 * 2 < 0.8 * dense, (peak, sparse, dense)
    close(torch, loaded(ids).logits, expected, 0.05)
