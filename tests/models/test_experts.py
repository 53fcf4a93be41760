"""Experts in stacks: sparse, saved as Transformers divides them, loaded, quantized, trained and compiled."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path", "ignore::DeprecationWarning")

from safetensors import safe_open  # noqa: E402

from louver.torch.stacks import (  # noqa: E402
    SparseExperts,
    SparseStack,
)
from louver.torch.transformers import LouverConfig  # noqa: E402
from support.architectures.judge import smallest  # noqa: E402

KINDS = ("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "nemotron_h", "llama4_text")
"""Gated; with a gate apart; [experts, in, out] with biases and interleaved gates; without gates; another layout."""


def logits(model: Any) -> Any:
    ids = torch.arange(14).reshape(2, 7) * 5 % 47 + 1
    return model(input_ids=ids).logits


def stacks(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, SparseStack)]


def pruned(kind: str) -> Any:
    torch.manual_seed(31)
    model = smallest(kind).eval()
    louver.torch.prune_(model)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind: str, tmp_path: Path) -> None:
    model = pruned(kind)
    dense = {name: each.clone() for name, each in model.state_dict().items()}
    with torch.no_grad():
        expected = logits(model)
    report = louver.torch.compress_(model, force=True)
    made = stacks(model)
    if kind == "llama4_text":
        assert not made, "its experts have one implementation alone"
        return
    assert made and {row.name for row in report.changed} >= {
        name for name, module in model.named_modules() if isinstance(module, SparseStack)
    }
    with torch.no_grad():
        actual = logits(model)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert louver.torch.verify(model) == {}
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    loaded = type(model).from_pretrained(tmp_path)
    kept = model.state_dict()
    assert all(torch.equal(each, kept[name]) for name, each in loaded.state_dict().items())
    # Equal weights at other addresses: a matrix product of the CPU may add in another order.
    with torch.no_grad():
        torch.testing.assert_close(logits(loaded), actual, rtol=0, atol=1e-6 * float(actual.abs().max()))
    assert len(stacks(loaded)) == len(made)
    louver.torch.decompress_(loaded)
    assert not any(isinstance(module, SparseExperts) for module in loaded.modules())
    state = loaded.state_dict()
    assert set(state) == set(dense) and all(torch.equal(state[name], each) for name, each in dense.items())


@pytest.mark.parametrize("kind", ["mixtral", "gpt_oss"])
def test_a_dense_checkpoint_is_compressed_stack_by_stack(kind: str, tmp_path: Path) -> None:
    model = pruned(kind)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, quantization_config=LouverConfig(force=True))
    louver.torch.compress_(model, force=True)
    assert len(stacks(loaded)) == len(stacks(model)) > 0
    with torch.no_grad():
        assert torch.equal(logits(loaded), logits(model))


def test_files_hold_each_expert_as_transformers_names_it(tmp_path: Path) -> None:
    model = pruned("mixtral")
    w = model.model.layers[0].mlp.experts.down_proj.detach().clone()
    louver.torch.compress_(model, force=True)
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        name = "model.layers.0.block_sparse_moe.experts.1.w2.weight"
        values, indices = (file.get_tensor(f"{name}.{part}") for part in ("values", "indices"))
    assert torch.equal(torch.ops.louver.dense(values, indices, w.shape[2]), w[1])


@pytest.fixture
def layer() -> Any:
    """A layer of 4 experts, in bf16 and pruned, each token to 2 of them."""
    torch.manual_seed(32)
    config = transformers.MixtralConfig(
        hidden_size=64, intermediate_size=96, num_local_experts=4, num_experts_per_tok=2
    )
    config._experts_implementation = "eager"
    made = transformers.models.mixtral.modeling_mixtral.MixtralExperts(config).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    whole = torch.nn.ModuleDict({"experts": made, "after": torch.nn.Linear(64, 64)})
    louver.torch.prune_(whole)
    return whole


def call(tokens: int = 9) -> tuple[Any, Any, Any]:
    """The last expert has no token."""
    generator = torch.Generator().manual_seed(33)
    x = torch.randn(tokens, 64, generator=generator)
    index = torch.rand(tokens, 3, generator=generator).topk(2).indices
    return x, index, torch.rand(tokens, 2, generator=generator)


@pytest.mark.parametrize("to", ["e4m3", "int8"])
def test_quantized(layer: Any, to: str) -> None:
    expected = layer.experts(*call())
    layer.bfloat16()
    louver.torch.compress_(layer, force=True)
    report = louver.torch.quantize_(layer, to)
    stack = layer.experts.down_proj
    assert report["experts.down_proj"].done == "quantized" and stack.scale.shape == (4, 64)
    x, index, weights = call()
    y = layer.experts(x.bfloat16(), index, weights)
    assert y.dtype == torch.bfloat16
    close(torch, y, expected, 0.06)
    assert louver.torch.verify(layer) == {}
    state = copy.deepcopy(layer.state_dict())
    assert "experts.gate_up_proj.scale" in state
    layer.half().load_state_dict(state)
    assert stack.values.itemsize == 1 and stack.scale.dtype == torch.float32
    louver.torch.decompress_(layer)
    assert layer.experts.down_proj.dtype == torch.bfloat16


def test_gradients_are_those_of_dense_weights(layer: Any) -> None:
    x, index, weights = call()
    found = []
    for sparse in (False, True):
        if sparse:
            louver.torch.compress_(layer, force=True)
        for tensor in (x, weights):
            tensor.grad = None
            tensor.requires_grad_()
        layer.experts(x, index, weights).square().sum().backward()
        found.append([x.grad.clone(), weights.grad.clone()])
        w = layer.experts.gate_up_proj
        grad = w.values.grad if sparse else w.grad
        found[-1].append(grad)
    stack = layer.experts.gate_up_proj
    kept = torch.stack([torch.ops.louver.take(g, i) for g, i in zip(found[0][2], stack.indices, strict=True)])
    assert not bool(kept[3].any())
    for actual, expected in zip(found[1], [*found[0][:2], kept], strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_gradient_of_x_of_quantized_weights(layer: Any) -> None:
    louver.torch.compress_(layer.bfloat16(), force=True)
    louver.torch.quantize_(layer)
    x, index, weights = call()
    x = x.bfloat16().requires_grad_()
    layer.experts(x, index, weights).float().square().sum().backward()
    assert bool(x.grad.isfinite().all()) and bool(x.grad.any())


@pytest.mark.parametrize("tokens", [1, 9])
def test_compiled_in_one_graph(layer: Any, tokens: int) -> None:
    louver.torch.compress_(layer, force=True)
    with torch.no_grad():
        expected = layer.experts(*call(tokens))
        compiled = torch.compile(layer.experts, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(*call(tokens)), expected)


def test_the_operator_keeps_the_rules_of_pytorch(layer: Any) -> None:
    louver.torch.compress_(layer, force=True)
    stack = layer.experts.down_proj
    x = torch.randn(7, 96, requires_grad=True)
    ends = torch.tensor([2, 2, 6, 7])
    torch.library.opcheck(torch.ops.louver.grouped.default, (x, stack.values, stack.indices, ends, 4))


def test_rows_past_the_last_end_are_zero(layer: Any) -> None:
    louver.torch.compress_(layer, force=True)
    stack = layer.experts.down_proj
    y = stack.multiply(torch.randn(7, 96), torch.tensor([2, 2, 4, 5]), 7)
    assert bool(y[:5].all(1).all()) and not bool(y[5:].any())
    assert stack.multiply(torch.randn(0, 96), torch.zeros(4, dtype=torch.int64), 0).shape == (0, 64)


def test_copies_and_pickles(layer: Any) -> None:
    louver.torch.compress_(layer, force=True)
    expected = layer.experts(*call())
    for made in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(made.experts) is type(layer.experts) and torch.equal(made.experts(*call()), expected)
    with torch.no_grad():
        layer.experts.down_proj.values.mul_(2)
    assert torch.equal(layer.experts(*call()), 2 * expected)
    assert torch.equal(made.experts(*call()), expected)


def test_what_follows_a_write(layer: Any) -> None:
    louver.torch.compress_(layer, force=True)
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.experts.down_proj.values.mul_(-1)
    expected = layer.experts(*call())
    layer.load_state_dict(other.state_dict())
    assert torch.equal(layer.experts(*call()), -expected)
    layer.experts.down_proj.values.data.mul_(2)
    assert list(louver.torch.verify(layer)) == ["experts.down_proj"]
    layer.experts.down_proj.refresh_()
    assert louver.torch.verify(layer) == {} and torch.equal(layer.experts(*call()), -2 * expected)


def test_hooks_that_bring_the_weights(layer: Any) -> None:
    """As those of accelerate do for weights that a device_map offloads."""
    louver.torch.compress_(layer, force=True)
    expected = layer.experts(*call())
    stack = layer.experts.down_proj
    kept = dict(stack._parameters)

    def bring(module: Any, *_: Any) -> None:
        module._parameters.update(kept)

    def take_away(module: Any, *_: Any) -> None:
        for name in ("values", "indices"):
            module._parameters[name] = torch.nn.Parameter(kept[name].to("meta"), False)

    take_away(stack)
    stack.register_forward_pre_hook(bring)
    stack.register_forward_hook(take_away)
    assert torch.equal(layer.experts(*call()), expected) and stack.values.is_meta


def test_refused_layers_say_why(layer: Any) -> None:
    hooked = copy.deepcopy(layer)
    hooked.experts.register_forward_hook(lambda *_: None)
    report = louver.torch.prune_(hooked)
    assert report["experts.down_proj"].reason == "it has hooks: attach them after the swap"
    hooked = copy.deepcopy(layer)
    hooked.experts._is_expert_parallel = True
    assert louver.torch.prune_(hooked)["experts.down_proj"].reason == "its experts are divided among devices"
    reason = louver.torch.prune_(layer, "2:8@V40")["experts.down_proj"].reason
    assert reason == "64 rows of an expert are no multiple of 40, as 2:8@V40 needs"


@pytest.mark.parametrize("pattern", ["2:8@V16", "1:4"])
def test_other_patterns(layer: Any, pattern: str) -> None:
    louver.torch.prune_(layer, pattern)
    expected = layer.experts(*call())
    louver.torch.compress_(layer, patterns=(pattern,), force=True)
    assert layer.experts.down_proj.pattern == pattern
    close(torch, layer.experts(*call()), expected, 1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": (96,)}, r"x must be \[rows, K\], sorted by entry, got shape \[96\]"),
        ({"ends": (1, 4)}, r"ends \[entries\], got shapes \[4, 64, 48\], \[4, 64, 12\] and \[1, 4\]"),
        ({"ends": (3,)}, "are those of the same entries, got 4, 4 and 3"),
        ({"x": (7, 88)}, r"2:4 of 88 columns keeps 44 values of a row, got values of shape \[64, 48\]"),
    ],
)
def test_arrays_that_do_not_fit(layer: Any, change: dict[str, Any], message: str) -> None:
    louver.torch.compress_(layer, force=True)
    stack = layer.experts.down_proj
    x = torch.randn(change.get("x", (7, 96)))
    ends = torch.full(change.get("ends", (4,)), 7)
    with pytest.raises(ValueError, match=message):
        torch.ops.louver.grouped(x, stack.values, stack.indices, ends, 7)


def test_compressed_in_two_calls() -> None:
    model = pruned("mixtral")
    with torch.no_grad():
        expected = logits(model)
        louver.torch.compress_(model, skip=("*.experts.down_proj", "*.self_attn.*"), force=True)
        between = logits(model)
        assert len(stacks(model)) == 4
        louver.torch.compress_(model, force=True)
        assert len(stacks(model)) == 8
        for actual in (between, logits(model)):
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
