"""Gate, up projection and activation of experts as one product: proved, and the same in files, copies and gradients."""

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

from louver.torch.stacks import GatedStack, SparseStack  # noqa: E402

REASON = "it keeps 2:4; swapped without timing; one product with its activation"


def layer(act: str = "silu") -> Any:
    torch.manual_seed(34)
    config = transformers.MixtralConfig(hidden_size=64, intermediate_size=40, num_local_experts=4, hidden_act=act)
    config._experts_implementation = "eager"
    made = transformers.models.mixtral.modeling_mixtral.MixtralExperts(config).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    whole = torch.nn.ModuleDict({"experts": made.bfloat16()})
    louver.torch.prune_(whole)
    return whole


def call(tokens: int = 9) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(35)
    x = torch.randn(tokens, 64, generator=generator).bfloat16()
    index = torch.rand(tokens, 3, generator=generator).topk(2).indices
    return x, index, torch.rand(tokens, 2, generator=generator).bfloat16()


@pytest.mark.parametrize("act", ["silu", "gelu", "gelu_pytorch_tanh", "relu"])
def test_there_and_back(act: str) -> None:
    whole = layer(act)
    dense = {name: each.clone() for name, each in whole.state_dict().items()}
    with torch.no_grad():
        expected = whole.experts(*call())
        report = louver.torch.compress_(whole, force=True)
        assert report["experts.gate_up_proj"].reason == REASON
        assert type(whole.experts.gate_up_proj) is GatedStack
        close(torch, whole.experts(*call()), expected, 0.02)
        assert louver.torch.verify(whole) == {}
    assert torch.equal(whole.experts.gate_up_proj.dense(), dense["experts.gate_up_proj"])
    louver.torch.decompress_(whole)
    assert all(torch.equal(each, dense[name]) for name, each in whole.state_dict().items())


def test_a_state_dict_has_the_rows_in_order() -> None:
    whole, apart = layer(), layer()
    louver.torch.compress_(whole, force=True)
    w = apart.experts.gate_up_proj.detach()
    state = whole.state_dict()
    values, indices = (state[f"experts.gate_up_proj.{part}"] for part in ("values", "indices"))
    assert torch.equal(torch.ops.louver.dense(values[2], indices[2], 64), w[2])
    other = copy.deepcopy(whole)
    with torch.no_grad():
        expected = whole.experts(*call())
        other.experts.gate_up_proj.values.mul_(-1)
        assert not torch.equal(other.experts(*call()), expected)
        other.load_state_dict(state)
        assert torch.equal(other.experts(*call()), expected)
        other.experts.gate_up_proj.values.mul_(-1)
        other.experts.gate_up_proj.copy_(SparseStack.of(w, "2:4"))
        assert torch.equal(other.experts(*call()), expected)
        other.experts.gate_up_proj.values.mul_(-1)
        other.experts.gate_up_proj.copy_(whole.experts.gate_up_proj)
        assert torch.equal(pickle.loads(pickle.dumps(other)).experts(*call()), expected)
    with pytest.raises(RuntimeError, match=r"size mismatch for experts.gate_up_proj.values"):
        whole.load_state_dict({**state, "experts.gate_up_proj.values": values[:, :72]})


@pytest.mark.parametrize("to", ["e4m3", "int8"])
def test_quantized(to: str) -> None:
    whole, apart = layer(), layer()
    with torch.no_grad():
        expected = whole.experts(*call())
        louver.torch.compress_(whole, force=True)
        louver.torch.quantize_(whole, to)
        actual = whole.experts(*call())
        close(torch, actual, expected, 0.08)
        # The same weights, apart: scales are those of rows in order.
        apart.experts.gate_up_proj.copy_(whole.experts.gate_up_proj.dense())
        assert torch.equal(whole.state_dict()["experts.gate_up_proj.scale"], whole.experts.gate_up_proj.scale)
        close(torch, actual, apart.experts(*call()), 0.05)
    x = call()[0].requires_grad_()
    whole.experts(x, *call()[1:]).float().square().sum().backward()
    assert bool(x.grad.any())


def test_gradients_are_those_of_dense_weights() -> None:
    found = []
    for sparse in (False, True):
        whole = layer().float()
        if sparse:
            # Without a gated product in f32, the fused layer is made in bf16.
            whole = layer()
            louver.torch.compress_(whole, force=True)
            assert type(whole.experts.gate_up_proj) is GatedStack
            whole.float()
        x, index, weights = call()
        x = x.float().requires_grad_()
        whole.experts(x, index, weights.float()).square().sum().backward()
        found.append((x.grad, whole.experts.gate_up_proj))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-3, atol=1e-4)
    stack, dense = found[1][1], found[0][1]
    turned = copy.deepcopy(stack)
    with torch.no_grad():
        turned.values.copy_(stack.values.grad)
    grad = torch.where(stack.dense() != 0, dense.grad, 0)
    torch.testing.assert_close(turned.dense().detach(), grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("tokens", [1, 9])
def test_compiled_in_one_graph(tokens: int) -> None:
    whole = layer()
    louver.torch.compress_(whole, force=True)
    with torch.no_grad():
        expected = whole.experts(*call(tokens))
        compiled = torch.compile(whole.experts, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(*call(tokens)), expected)


def test_saved_and_loaded_by_transformers(tmp_path: Path) -> None:
    torch.manual_seed(36)
    config = transformers.Qwen3MoeConfig(
        vocab_size=50, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48,
    )  # fmt: skip
    model = transformers.Qwen3MoeForCausalLM(config).bfloat16().eval()
    louver.torch.prune_(model)
    louver.torch.compress_(model, force=True)
    assert sum(type(module) is GatedStack for module in model.modules()) == 2
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        expected = model(ids).logits
        for change in (lambda _: None, louver.torch.quantize_):
            change(model)
            expected = model(ids).logits
            model.save_pretrained(tmp_path, max_shard_size="60KB")
            loaded = type(model).from_pretrained(tmp_path)
            assert sum(type(module) is GatedStack for module in loaded.modules()) == 2
            # The angles of positions are f32 in a loaded model.
            close(torch, loaded(ids).logits, expected, 0.05)
            state = model.state_dict()
            assert all(torch.equal(each, state[name]) for name, each in loaded.state_dict().items())


def test_what_is_not_proved_stays_two_steps() -> None:
    whole = layer()
    kind = type(whole.experts)

    def clamped(self: Any, y: Any) -> Any:
        return kind._apply_gate(self, y).clamp(-1)

    def swapped(self: Any, y: Any) -> Any:
        up, gate = y.chunk(2, -1)
        return self.act_fn(gate) * up

    def fails(self: Any, y: Any) -> Any:
        return float(y.sum())

    for gate in (clamped, swapped):
        whole = layer()
        whole.experts.__class__ = type("Other", (kind,), {"_apply_gate": gate})
        assert not_fused(whole) == "its gate is not act(gate) · up"
    whole = layer()
    whole.experts.__class__ = type("Broken", (kind,), {"_apply_gate": fails})
    assert not_fused(whole).startswith("its gate cannot be traced (")
    assert not_fused(layer("tanh")) == "Louver has no activation aten.tanh.default"


def not_fused(whole: Any) -> str:
    with torch.no_grad():
        report = louver.torch.compress_(whole, force=True)
    assert type(whole.experts.gate_up_proj) is SparseStack
    return report["experts.gate_up_proj"].reason.partition("; not a gated product: ")[2]


def test_the_operator_has_no_gradients_of_gated_products() -> None:
    whole = layer()
    louver.torch.compress_(whole, force=True)
    with pytest.raises(
        RuntimeError, match="gated products of a stack have no gradients, got operands that require grad"
    ):
        whole.experts.gate_up_proj.gated(call()[0].requires_grad_(), torch.tensor([1, 2, 3, 9]), 9)
