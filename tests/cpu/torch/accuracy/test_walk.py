"""The walk: what each layer is pruned by, in which order, and what stays as it is."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

import louver
import louver.torch
from support.tiny_models import KINDS, ids, result, tiny

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.torch.accuracy import streams  # noqa: E402
from louver.torch.accuracy.calibrate import Options, calibrate  # noqa: E402
from louver.torch.accuracy.matrix import Method  # noqa: E402
from louver.torch.accuracy.moments import Moments  # noqa: E402

nn = torch.nn
FULL = {"method": "sparsegpt", "correct": True, "reconstruct": 30}


def inputs(model: Any, name: str, tokens: Any) -> Any:
    """What a layer is given, by a hook of PyTorch's own: [tokens, K]."""
    kept: list[Any] = []
    handle = model.get_submodule(name).register_forward_pre_hook(lambda module, args: kept.append(args[0]))
    result(torch, model, tokens)
    handle.remove()
    return torch.cat([x.reshape(-1, x.shape[-1]) for x in kept])


def by_wanda(w: Any, x: Any) -> Any:
    """2:4 by |w| · ‖x‖, written another way: in each group of four the two best."""
    score = (w.double().abs() * x.double().norm(dim=0)).unflatten(1, (-1, 4))
    worst = score.argsort(dim=-1, stable=True)[..., :2]
    return w.unflatten(1, (-1, 4)).scatter(-1, worst, 0).flatten(1)


@pytest.mark.parametrize("kind", KINDS)
def test_better_methods_lose_less(kind: str) -> None:
    model = tiny(torch, transformers, kind)
    with torch.no_grad():
        # Features of a real model differ in size; where they do not, Wanda is no better than magnitude.
        for name, parameter in model.named_parameters():
            if "norm" in name.lower() or "ln_" in name:
                parameter.mul_(torch.randn_like(parameter).exp())
    calibration, test = ids(torch, 96), ids(torch, 32, seed=2)
    dense = result(torch, model, test)
    losses: list[float] = []
    for options in ({}, {"method": "wanda"}, FULL):
        pruned = copy.deepcopy(model)
        # Magnitude by the walk too: so it prunes the same layers.
        report = louver.torch.prune_(pruned, calibration=calibration, **options)
        assert {row.done for row in report} <= {"pruned", "dense"} and not report.warnings
        for row in report.changed:
            weight = pruned.get_parameter(row.name if "experts" in row.name else f"{row.name}.weight").detach()
            turned = kind == "gpt2"
            for matrix in weight if weight.dim() == 3 else weight.t()[None] if turned else weight[None]:
                assert louver.check(matrix.contiguous().numpy(), "2:4").ok
        losses.append(float((result(torch, pruned, test) - dense).norm() / dense.norm()))
    magnitude, wanda, best = losses
    assert best < 0.9 * wanda and wanda < 0.97 * magnitude, losses


def test_a_layer_is_pruned_by_what_it_is_given_after_those_before_it() -> None:
    model, tokens = tiny(torch, transformers, "llama"), ids(torch, 12)
    dense, pruned = copy.deepcopy(model), model
    louver.torch.prune_(pruned, method="wanda", calibration=tokens, held_out=ids(torch, 4, seed=3))
    # The pruned model, up to a layer, gives this layer its calibrated inputs: the layer itself comes later.
    for name in [n for n, m in dense.named_modules() if type(m) is nn.Linear and n != "lm_head"]:
        expected = by_wanda(dense.get_submodule(name).weight, inputs(pruned, name, tokens))
        assert torch.equal(pruned.get_submodule(name).weight, expected), name


def test_turned_weights_are_pruned_along_their_inputs() -> None:
    model, tokens = tiny(torch, transformers, "gpt2"), ids(torch, 12)
    dense = copy.deepcopy(model)
    louver.torch.prune_(model, method="wanda", calibration=tokens, held_out=ids(torch, 4, seed=3))
    for name in ("transformer.h.0.attn.c_attn", "transformer.h.1.mlp.c_proj"):
        expected = by_wanda(dense.get_submodule(name).weight.t(), inputs(model, name, tokens))
        assert torch.equal(model.get_submodule(name).weight.t(), expected), name


@pytest.mark.parametrize("implementation", ["grouped_mm", "eager"])
def test_experts_in_a_stack_are_pruned_by_the_tokens_that_reach_them(implementation: str) -> None:
    model, tokens = tiny(torch, transformers, "qwen2_moe"), ids(torch, 12)
    model.config._experts_implementation = implementation
    dense = copy.deepcopy(model)
    report = louver.torch.prune_(model, method="wanda", calibration=tokens, held_out=ids(torch, 4, seed=3))
    assert report["model.layers.0.mlp.experts.gate_up_proj"].tokens == tokens.numel() * 2
    experts = model.model.layers[1].mlp.experts
    given: list[Any] = []
    handle = experts.register_forward_pre_hook(lambda module, args: given.append(args))
    result(torch, model, tokens)
    handle.remove()
    for expert in range(4):
        x = torch.cat([hidden[(chosen == expert).any(1)] for hidden, chosen, _ in given])
        expected = by_wanda(dense.model.layers[1].mlp.experts.gate_up_proj[expert], x)
        assert torch.equal(experts.gate_up_proj[expert], expected)
        gate, up = (x @ experts.gate_up_proj[expert].T).chunk(2, -1)
        hidden = nn.functional.silu(gate) * up
        assert torch.equal(
            experts.down_proj[expert], by_wanda(dense.model.layers[1].mlp.experts.down_proj[expert], hidden)
        )


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return self.down(torch.relu(self.up(x)))


class Mixture(nn.Module):
    """Experts as modules. The last one gets no token, the one before it few."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(4))

    def forward(self, x: Any) -> Any:
        flat = x.reshape(-1, 8)
        chosen = (flat[:, 0] > 0).long()
        chosen[flat[:, 0] > 2.2] = 2
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                out.index_add_(0, rows, expert(flat[rows]))
        return x + out.view(x.shape)


def test_experts_with_few_tokens_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    monkeypatch.setattr(streams, "TOKENS", 40)
    model = nn.Sequential(Mixture(), Mixture())
    dense = copy.deepcopy(model)
    rows = torch.randn(24, 10, 8)
    report = louver.torch.prune_(model, method="sparsegpt", correct=True, calibration=rows, held_out=rows[:4])
    few, none = report["0.experts.2.up"], report["0.experts.3.down"]
    assert few.tokens == int((rows[..., 0] > 2.2).sum()) and 0 < few.tokens < 8
    assert few.warnings == ("under 8 tokens: by wanda alone",) and none.tokens == 0
    assert few.reason == "by sparsegpt, correct=True; under 8 tokens: by wanda alone"
    assert none.warnings == ("under 16 tokens: by magnitude alone",) and none.error is None
    assert "0.experts.2.up: under 8 tokens: by wanda alone" in report.warnings
    # A choice that no topk makes cannot be repeated: behind the first block, the dense model sends other rows.
    assert report["0.experts.0.up"].reason == "by sparsegpt, correct=True"
    assert report["1.experts.0.up"].reason == "by sparsegpt"
    assert report["1.experts.0.up"].warnings == ("not corrected: the dense model gives it other rows",)
    assert report["0.experts.0.up"].tokens == int((rows[..., 0] <= 0).sum())
    x = rows.reshape(-1, 8)[rows.reshape(-1, 8)[:, 0] > 2.2]
    assert torch.equal(model[0].experts[2].up.weight, by_wanda(dense[0].experts[2].up.weight, x))
    last = model[0].experts[3].down.weight
    assert torch.equal(last, louver.prune(dense[0].experts[3].down.weight.detach(), "2:4"))


def test_experts_are_corrected_by_the_tokens_that_the_pruned_model_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = tiny(torch, transformers, "qwen2_moe"), ids(torch, 12)
    dense, kept = copy.deepcopy(model), []
    add = Moments.add
    monkeypatch.setattr(Moments, "add", lambda self, x, d=None: (kept.append((x, d)), add(self, x, d))[1])
    louver.torch.prune_(model, calibration=tokens, held_out=tokens[:1], **FULL)
    given: list[Any] = []
    for each in (model, dense):
        experts = each.model.layers[1].mlp.experts
        handle = experts.register_forward_pre_hook(lambda module, args: given.append(args))
        result(torch, each, tokens)
        handle.remove()
    (hidden, chosen, _), (dense_hidden, dense_chosen, _) = given
    assert not torch.equal(chosen.sort().values, dense_chosen.sort().values), "routes differ, or nothing is shown"
    for expert in range(4):
        at = (chosen == expert).any(1).nonzero()[:, 0]
        at = at[hidden[at, 0].argsort()]
        orders = [(x, d, x[:, 0].argsort()) for x, d in kept if len(x) == len(at) and x.dim() == 2]
        pair = next(d[order] for x, d, order in orders if torch.allclose(x[order], hidden[at], atol=1e-4))
        torch.testing.assert_close(pair, dense_hidden[at], atol=1e-4, rtol=1e-3)


def test_batches_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = tiny(torch, transformers, "llama"), ids(torch, 24)
    whole, parts = copy.deepcopy(model), copy.deepcopy(model)
    louver.torch.prune_(whole, calibration=tokens, **FULL)
    monkeypatch.setattr(streams, "TOKENS", 100)
    louver.torch.prune_(parts, calibration=tokens, **FULL)
    for a, b in zip(whole.model.layers[0].parameters(), parts.model.layers[0].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-4)


def test_the_dense_stream_is_the_dense_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """`correct` pairs each layer's inputs in the pruned model with those in the untouched one."""
    model, tokens = tiny(torch, transformers, "llama"), ids(torch, 8)
    dense = copy.deepcopy(model)
    pairs: list[Any] = []
    add = Moments.add
    monkeypatch.setattr(Moments, "add", lambda self, x, d=None: (pairs.append((x, d)), add(self, x, d))[1])
    louver.torch.prune_(model, calibration=tokens, held_out=tokens[:1], **FULL)
    wanted = [inputs(dense, f"model.layers.1.{name}", tokens) for name in ("self_attn.o_proj", "mlp.down_proj")]
    got = [inputs(model, f"model.layers.1.{name}", tokens) for name in ("self_attn.o_proj", "mlp.down_proj")]
    for mine, other in zip(got, wanted, strict=True):
        x, d = next(
            pair
            for pair in pairs
            if pair[0].numel() == mine.numel() and torch.allclose(pair[0].reshape(mine.shape), mine)
        )
        torch.testing.assert_close(x.reshape(mine.shape), mine)
        torch.testing.assert_close(d.reshape(other.shape), other)


def test_nan_names_the_layer_and_changes_nothing_of_its_block() -> None:
    model = tiny(torch, transformers, "llama")
    with torch.no_grad():
        model.model.layers[1].post_attention_layernorm.weight[3] = math.nan
    before = copy.deepcopy(model.model.layers[1].state_dict())
    with pytest.raises(ArithmeticError, match=r"^model\.layers\.1\.mlp\.gate_proj: the inputs have NaN"):
        louver.torch.prune_(model, calibration=ids(torch, 8), method="wanda")
    after = model.model.layers[1].state_dict()
    assert all(torch.equal(x, after[name]) or name.startswith("post") for name, x in before.items())
    assert louver.check(model.model.layers[0].mlp.up_proj.weight.detach().numpy(), "2:4").ok


def test_skipped_layers_stay_dense_and_pass_the_stream_on() -> None:
    model, tokens = tiny(torch, transformers, "llama"), ids(torch, 12)
    dense = copy.deepcopy(model)
    report = louver.torch.prune_(
        model,
        method="wanda",
        calibration=tokens,
        held_out=tokens[:2],
        skip=("*.o_proj", "model.layers.0.mlp.*"),
        per_layer={"model.layers.1.self_attn.q_proj": None, "model.layers.1.mlp.down_proj": "4:8"},
    )
    assert report["model.layers.0.mlp.up_proj"].reason == "skipped by 'model.layers.0.mlp.*'"
    assert report["model.layers.1.self_attn.q_proj"].reason == "per_layer leaves it dense"
    assert torch.equal(model.model.layers[1].self_attn.o_proj.weight, dense.model.layers[1].self_attn.o_proj.weight)
    name = "model.layers.1.mlp.down_proj"
    assert report[name].pattern == "4:8"
    assert louver.check(model.get_submodule(name).weight.detach().numpy(), "4:8").ok
    up = "model.layers.1.mlp.up_proj"
    expected = by_wanda(dense.get_submodule(up).weight, inputs(model, up, tokens))
    assert torch.equal(model.get_submodule(up).weight, expected)


def test_layers_outside_of_blocks_and_unused_ones_say_so() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return x + self.used(x)

    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(Unused(), Unused()))
    report = louver.torch.prune_(model, method="wanda", calibration=torch.randn(16, 8), held_out=torch.randn(4, 8))
    assert report["0"].reason == "outside of '1': prune it by magnitude"
    assert report["1.1.spare"].reason == "its block never multiplied by it in PyTorch"
    assert [row.name for row in report.changed] == ["1.0.used", "1.1.used"]


class Shared(nn.Module):
    def __init__(self, common: Any) -> None:
        super().__init__()
        self.own, self.common = nn.Linear(8, 8), common

    def forward(self, x: Any) -> Any:
        return x + self.common(torch.relu(self.own(x)))


def test_a_layer_that_two_blocks_have_stays() -> None:
    common = nn.Linear(8, 8)
    model = nn.Sequential(Shared(common), Shared(common))
    report = louver.torch.prune_(model, method="wanda", calibration=torch.randn(16, 8), held_out=torch.randn(4, 8))
    assert report["0.common"].reason == "it runs in 0 and 1"


class Writing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return x.add_(self.layer(x))


def test_blocks_that_write_their_inputs_are_refused() -> None:
    model = nn.Sequential(Writing(), Writing())
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="a block leaves its inputs as they are, got 0 that writes them"):
        louver.torch.prune_(model, method="wanda", calibration=torch.randn(16, 8))
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


class OneByOne:
    """Blocks on `meta` in the model, made of a kept state one at a time."""

    def __init__(self, model: Any, chain: Any, state: dict[str, Any]) -> None:
        self.model, self.chain, self.state, self.resident, self.most = model, chain, state, 0, 0

    def load(self, index: int) -> Any:
        name = self.chain.names[index]
        block = self.model.get_submodule(name)
        if any(p.is_meta for p in block.parameters()):
            self.resident += 1
            self.most = max(self.most, self.resident)
            block.to_empty(device="cpu")
            block.load_state_dict(
                {key.removeprefix(f"{name}."): x for key, x in self.state.items() if key.startswith(f"{name}.")}
            )
        return block

    def store(self, index: int, block: Any) -> None:
        self.resident -= 1
        self.state |= {f"{self.chain.names[index]}.{key}": x.clone() for key, x in block.state_dict().items()}
        block.to("meta")


def test_blocks_may_come_one_at_a_time() -> None:
    model, tokens = tiny(torch, transformers, "llama", num_hidden_layers=3), ids(torch, 12)
    streamed = copy.deepcopy(model)
    louver.torch.prune_(model, calibration=tokens, held_out=tokens[:2], tune=3, **FULL)
    state = {key: x.clone() for key, x in streamed.state_dict().items()}
    streamed.model.layers.to("meta")
    sources: list[OneByOne] = []

    def source(chain: Any) -> OneByOne:
        sources.append(OneByOne(streamed, chain, state))
        return sources[-1]

    options = Options(louver.Pattern(2, 4), Method("sparsegpt", correct=True, reconstruct=30), tune=3)
    report = calibrate(
        streamed, options, {"calibration": tokens}, {"held_out": tokens[:2]}, source=source, device=torch.device("cpu")
    )
    assert (
        len(report.changed) == 21
        and sources[0].most == 1
        and all(p.is_meta for p in streamed.model.layers.parameters())
    )
    assert all(torch.equal(x, state[key]) for key, x in model.state_dict().items())


def test_a_block_goes_back_also_after_an_error() -> None:
    model, tokens = tiny(torch, transformers, "llama"), ids(torch, 4)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[2, 3] = math.inf
    state = {key: x.clone() for key, x in model.state_dict().items()}
    model.model.layers.to("meta")
    sources: list[OneByOne] = []

    def source(chain: Any) -> OneByOne:
        sources.append(OneByOne(model, chain, state))
        return sources[-1]

    options = Options(louver.Pattern(2, 4), Method("wanda"))
    with pytest.raises(ArithmeticError, match=r"^model\.layers\.1\.mlp\.down_proj: the weight has NaN or infinity"):
        calibrate(model, options, {"calibration": tokens}, {}, source=source, device=torch.device("cpu"))
    assert sources[0].resident == 0 and all(p.is_meta for p in model.model.layers.parameters())


def test_one_chain_comes_one_block_at_a_time() -> None:
    model = tiny(torch, transformers, "t5")
    with pytest.raises(ValueError, match="got 'encoder.block' and 'decoder.block': load the model into memory"):
        calibrate(
            model,
            Options(louver.Pattern(2, 4), Method("wanda")),
            {"calibration": ids(torch, 4)},
            {},
            source=lambda chain: OneByOne(model, chain, {}),
            device=torch.device("cpu"),
        )
