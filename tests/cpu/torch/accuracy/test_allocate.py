"""`allocate`: the least harm at a budget of zeros or of time, against every other choice on small problems."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import numpy as np
import pytest

import louver
import louver.torch

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.advice.formats import Format  # noqa: E402
from louver.advice.rates import (  # noqa: E402
    known,
    predicted,
)
from louver.torch.accuracy.allocate import LayerTimes, speedup  # noqa: E402
from louver.torch.accuracy.allocation import Option, choose  # noqa: E402
from louver.torch.accuracy.text import evaluate, generate_tokens  # noqa: E402


def llama(**more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.1, **more,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def sensitive() -> tuple[Any, Any]:
    """A model whose predictions hang on its last block, and text of it."""
    model = llama()
    with torch.no_grad():
        for block in model.model.layers[:2]:
            block.self_attn.o_proj.weight.mul_(0.05)
            block.mlp.down_proj.weight.mul_(0.05)
    return model, generate_tokens(model, 32, 32, seed=3)


def fake_times(monkeypatch: Any, relative: dict[str, float]) -> None:
    """Times of products without a GPU. relative: of sparse over dense time by pattern."""

    def of(self: Any, layer: Any, pattern: Any) -> Any:
        dense = {n: float(layer.weight.numel() * n) for n in self._tokens}
        return dense, {n: time * relative[str(pattern)] for n, time in dense.items()}

    monkeypatch.setattr(LayerTimes, "of", of)


def pruned_kl(model: Any, text: Any, per_layer: Any) -> float:
    pruned = copy.deepcopy(model)
    louver.torch.prune_(pruned, per_layer=per_layer, method="sparsegpt", reconstruct=15, calibration=text)
    found = evaluate(pruned, text, model).kl
    assert found is not None
    return found


def test_sensitive_layers_stay_dense(sensitive: Any) -> None:
    model, text = sensitive
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = louver.torch.allocate(model, "30%", calibration=text, patterns=("2:4",))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(pattern is None for name, pattern in found.items() if "layers.2" in name)
    assert len(found) == 22 and found["lm_head"] is None
    assert 0.3 <= found.zeros <= 1 / 3 and found.speedup is None
    # It beats an allocation that ignores what harms: the last layers of the model up to the same zeros.
    blind, zeros, total = {}, 0.0, sum(a * b for a, b in (layer.shape for layer in found.layers[:-1]))
    for layer in reversed(found.layers[:-1]):
        blind[layer.name] = "2:4" if zeros < found.zeros * total else None
        zeros += layer.shape[0] * layer.shape[1] / 2 if blind[layer.name] else 0
    assert pruned_kl(model, text, found) < 0.3 * pruned_kl(model, text, blind)


def test_prune_takes_an_allocation(sensitive: Any) -> None:
    model, text = sensitive
    found = louver.torch.allocate(model, "30%", calibration=text, patterns=("2:4", "4:8@16"))
    pruned = copy.deepcopy(model)
    louver.torch.prune_(pruned, per_layer=found, method="wanda", calibration=text)
    zeros, size = 0, 0
    for name, pattern in found.items():
        if name == "lm_head":
            continue
        w = pruned.get_submodule(name).weight.detach()
        zeros, size = zeros + int((w == 0).sum()), size + w.numel()
        if pattern is None:
            assert torch.equal(w, model.get_submodule(name).weight)
        else:
            assert louver.check(w.numpy(), pattern).ok
    assert zeros / size == pytest.approx(found.zeros)
    assert json.loads(found.json())["layers"][0]["name"] == "model.layers.0.self_attn.q_proj"
    assert "30%: 3" in str(found) and "if harms add up" in str(found)
    with pytest.raises(KeyError, match="'nothing' is no layer of the allocation"):
        found["nothing"]


def test_a_budget_of_time(sensitive: Any, monkeypatch: Any) -> None:
    fake_times(monkeypatch, {"2:4": 0.6, "4:8@16": 1.2, "1:4": 0.4})
    model, text = sensitive
    found = louver.torch.allocate(model, "1.2x", calibration=text, patterns=("2:4", "4:8@16", "1:4"), tokens=(1, 7))
    assert found.speedup is not None and 1.2 <= found.speedup < 1.5 and not found.measured and found.tokens == (1, 7)
    # What is slower than dense is not even tried.
    assert all("4:8@16" not in layer.kl and layer.pattern != "4:8@16" for layer in found.layers)
    size = {layer.name: layer.shape[0] * layer.shape[1] for layer in found.layers if layer.kl}
    relative = {"2:4": 0.6, "1:4": 0.4, None: 1.0}
    time = sum(size[name] * relative[pattern] for name, pattern in found.items() if name in size) / sum(size.values())
    assert 1 / time == pytest.approx(found.speedup)
    assert speedup(model, found, (1, 7)) == pytest.approx(found.speedup)
    assert "× as fast at 1, 7 tokens (predicted for an H200)" in str(found)
    with pytest.raises(ValueError, match="within reach of the patterns, at most 2.50x, got 2.6x: ask for less"):
        louver.torch.allocate(model, "2.6x", calibration=text, patterns=("2:4", "1:4"))
    with pytest.raises(ValueError, match="no pattern is faster than dense, got 4:8@16: try other patterns"):
        louver.torch.allocate(model, "1.1x", calibration=text, patterns=("4:8@16",))


def test_the_speed_of_given_patterns() -> None:
    model = llama()
    every = dict.fromkeys([name for name in found_linear(model) if name != "lm_head"], "2:4")
    layers = [model.get_submodule(name).weight.shape for name in every]
    device = known()["NVIDIA H200"]
    formats = (Format("bf16"), Format("bf16", "2:4"))
    times = [[predicted(f, m, n, k, device).us for m, k in layers] for n in (16, 2048) for f in formats]
    relative = (sum(times[1]) / sum(times[0]) + sum(times[3]) / sum(times[2])) / 2
    assert speedup(model, every) == pytest.approx(1 / relative)
    assert speedup(model, {**every, **dict.fromkeys(list(every)[1:])}) == pytest.approx(1, abs=0.1)
    with pytest.raises(ValueError, match="linear layers that may be pruned, got 'lm_head'"):
        speedup(model, {"lm_head": "2:4"})


def found_linear(model: Any) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]


def test_time_counts_where_a_pattern_gains_nothing_there(sensitive: Any, monkeypatch: Any) -> None:
    """By sensitivity alone the cheap layers are pruned, which are those where nothing is gained."""
    model, text = sensitive

    def of(self: Any, layer: Any, pattern: Any) -> Any:
        dense = {n: float(layer.weight.numel()) for n in self._tokens}
        share = 0.98 if "self_attn" in layer.name else 0.5
        return dense, {n: time * share for n, time in dense.items()}

    monkeypatch.setattr(LayerTimes, "of", of)
    found = louver.torch.allocate(model, "1.25x", calibration=text, patterns=("2:4",))
    assert found.speedup is not None and found.speedup >= 1.25
    assert all(layer.pattern is None for layer in found.layers if "self_attn" in layer.name)


def test_experts_and_skipped_layers_are_named_and_stay_dense() -> None:
    torch.manual_seed(5)
    config = transformers.Qwen2MoeConfig(
        vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    )  # fmt: skip
    model = transformers.Qwen2MoeForCausalLM(config).eval()
    text = torch.randint(99, (12, 24))
    found = louver.torch.allocate(model, "20%", calibration=text, patterns=("2:4",), skip=("*.q_proj",))
    assert {name for name, pattern in found.items() if pattern} and found["model.layers.0.self_attn.q_proj"] is None
    stacks = [name for name, p in model.named_parameters() if p.ndim == 3]
    assert all(found[name] is None for name in stacks)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    louver.torch.prune_(model, per_layer=found, method="wanda", calibration=text)
    for name, value in model.state_dict().items():
        pattern = found.get(name.removesuffix(".weight"))
        assert torch.equal(value, before[name]) == (pattern is None), name


@pytest.mark.parametrize("seed", range(8))
def test_the_choice_is_near_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = []
    for _ in range(6):
        kl, cost = np.sort(rng.random(3) ** 3), np.sort(rng.random(3))[::-1]
        groups.append([Option(None, 0.0, 1.0), *(Option(str(at), kl[at], cost[at]) for at in range(3))])
    limit = 3.5
    found = choose(groups, limit)
    assert sum(option.cost for option in found) <= limit + 1e-9
    fits = [each for each in itertools.product(*groups) if sum(option.cost for option in each) <= limit]
    best = min(sum(option.kl for option in each) for each in fits)
    assert sum(option.kl for option in found) <= best + max(option.kl for each in groups for option in each) / 2
    assert choose(groups, 6.0) == [options[0] for options in groups]
    with pytest.raises(ValueError, match="costs of 0.001 are allowed"):
        choose(groups, 0.001)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": "1.3"}, 'a budget is zeros, as in "35%", or a speed over 1, as in "1.3x", got \'1.3\''),
        ({"budget": "0.9x"}, "got '0.9x'"),
        ({"budget": "100%"}, "got '100%'"),
        ({"budget": 0.35}, "got 0.35"),
        ({"tokens": ()}, r"tokens are positive numbers, at least one, got \(\)"),
        ({"patterns": ()}, "chooses among patterns, got none"),
        ({"patterns": ("1:2",)}, "no pattern is multiplied by GPUs in the weights' types, got 1:2"),
        ({"budget": "60%", "patterns": ("2:4",)}, "at most 50.0%, got 60%: ask for less"),
        ({"skip": ("*",)}, "no pattern is multiplied"),
    ],
)
def test_bad_arguments(change: Any, message: str) -> None:
    model = llama()
    text = torch.randint(99, (4, 16))
    arguments: Any = {"budget": "30%", "calibration": text, **change}
    with pytest.raises(ValueError, match=message):
        louver.torch.allocate(model, **arguments)


def test_nan_is_named_by_its_layer() -> None:
    model = llama()
    with torch.no_grad():
        model.model.layers[1].self_attn.v_proj.weight[3, 4] = torch.nan
    with pytest.raises(ArithmeticError, match="model.layers.1.self_attn.v_proj: the weight has NaN"):
        louver.torch.allocate(model, "30%", calibration=torch.randint(99, (4, 16)), patterns=("2:4",))
