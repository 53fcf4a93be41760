"""LoRA adapters of PEFT beside sparse weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
peft: Any = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.filterwarnings("ignore:louver computes by the reference path"),
    pytest.mark.filterwarnings("error:Unsupported layer type"),
]

from louver.torch.blocks import JoinedBlock  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.peft import SparseLora, lora  # noqa: E402

nn = torch.nn
WIDTH, INNER = 48, 72
NAMES = ("gate_proj", "up_proj", "down_proj")


class Block(nn.Module):
    """A gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def model(*, compress: bool = True) -> Any:
    torch.manual_seed(31)
    made = nn.Sequential(Block(), Block()).bfloat16()
    louver.torch.prune_(made)
    if compress:
        louver.torch.compress_(made, force=True)
    return made


def config(names: tuple[str, ...] = NAMES, **options: Any) -> Any:
    return peft.LoraConfig(**{"target_modules": list(names), "r": 4, "init_lora_weights": False, **options})


def tokens(seed: int = 5) -> Any:
    return torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(seed)).bfloat16()


def adapted(names: tuple[str, ...] = NAMES) -> tuple[Any, Any]:
    """A sparse model and a dense one of equal values, with equal adapters."""
    sparse = peft.get_peft_model(model(), lora(config(names)))
    dense = peft.get_peft_model(model(compress=False), config(names))
    state = {name: each for name, each in sparse.state_dict().items() if "lora_" in name}
    assert len(state) == 4 * len(names)
    dense.load_state_dict(state, strict=False)
    return sparse, dense


@pytest.mark.parametrize("names", [NAMES, ("up_proj",), ("gate_proj",), ("down_proj",)], ids=" ".join)
def test_outputs_and_gradients_are_those_beside_a_dense_weight(names: tuple[str, ...]) -> None:
    sparse, dense = adapted(names)
    blocks = [each for each in sparse.modules() if isinstance(each, JoinedBlock)]
    assert len(blocks) == 2
    assert sum(isinstance(each, SparseLora) for each in sparse.modules()) == 2 * len(names)
    x = tokens()
    outputs = [each(x) for each in (sparse, dense)]
    close(torch, *outputs, 0.03)
    for each in outputs:
        each.float().square().mean().backward()
    gradients = [{n: p.grad for n, p in each.named_parameters() if p.requires_grad} for each in (sparse, dense)]
    assert gradients[0].keys() == gradients[1].keys() and all("lora_" in name for name in gradients[0])
    for name, mine in gradients[0].items():
        close(torch, mine, gradients[1][name], 0.05)


def test_training_changes_the_adapter_alone() -> None:
    made, _ = adapted()
    before = {name: each.clone() for name, each in made.state_dict().items()}
    optimizer = torch.optim.AdamW([each for each in made.parameters() if each.requires_grad], lr=0.01)
    x, seen = tokens(), []
    for _ in range(4):
        loss = made(x).float().square().mean()
        seen.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert seen[-1] < seen[0]
    changed = {name for name, each in made.state_dict().items() if not torch.equal(each, before[name])}
    assert changed == {name for name in before if "lora_" in name}
    assert louver.torch.verify(made) == {}


def test_an_adapter_is_saved_and_loaded(tmp_path: Path) -> None:
    made, _ = adapted()
    made.save_pretrained(tmp_path)
    found = lora(peft.LoraConfig.from_pretrained(tmp_path))
    loaded = peft.PeftModel.from_pretrained(model(), tmp_path, config=found)
    assert torch.equal(loaded(tokens()), made(tokens()))


def test_without_the_configuration_peft_refuses_the_class() -> None:
    with pytest.raises(ValueError, match=r"Target module SparseLinear\((.|\n)* is not supported"):
        peft.get_peft_model(model(), config(("down_proj",)))


def test_disabled_and_removed_adapters_leave_the_sparse_model() -> None:
    expected, (made, _) = model()(tokens()), adapted()
    with made.disable_adapter():
        close(torch, made(tokens()), expected, 0.02)
    base = made.unload()
    assert sum(isinstance(each, SparseLinear) for each in base.modules()) == 6
    assert torch.equal(base(tokens()), expected)


@pytest.mark.parametrize("safe", [False, True])
def test_merging_is_refused_and_changes_nothing(safe: bool) -> None:
    made, _ = adapted()
    before = made(tokens())
    with pytest.raises(RuntimeError, match=r"an adapter is not merged into a sparse weight(.|\n)*decompress_\(model\)"):
        made.merge_and_unload(safe_merge=safe)
    with pytest.raises(RuntimeError, match="an adapter is not merged"):
        made.merge_adapter()
    assert torch.equal(made(tokens()), before)


def test_a_decompressed_model_merges() -> None:
    made, _ = adapted()
    expected = made(tokens())
    louver.torch.decompress_(made)
    merged = made.merge_and_unload()
    assert not any(isinstance(each, SparseLinear | SparseLora) for each in merged.modules())
    close(torch, merged(tokens()), expected, 0.03)


@pytest.mark.parametrize("kind", ["e4m3", "int8"])
def test_quantized_weights_have_adapters_of_the_type_of_x(kind: str) -> None:
    made = model()
    louver.torch.quantize_(made, kind)
    expected = made(tokens())
    made = peft.get_peft_model(made, lora(config(init_lora_weights=True)), autocast_adapter_dtype=False)
    assert {each.dtype for each in made.parameters() if each.requires_grad} == {torch.bfloat16}
    close(torch, made(tokens()), expected, 0.02)
    made(tokens()).float().square().mean().backward()
    assert all(each.grad is not None for each in made.parameters() if each.requires_grad)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_modules": "all-linear"}, 'names of layers, got "all-linear", which finds no sparse ones'),
        ({"init_lora_weights": "pissa"}, "start with init_lora_weights True, False or \"gaussian\", got 'pissa'"),
        ({"use_dora": True}, "are plain LoRA, got use_dora: leave it out"),
    ],
)
def test_what_reads_the_weight_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lora(config(**options))


def test_another_interface_of_peft_is_named() -> None:
    with pytest.raises(
        ImportError, match="needs LoraConfig._register_custom_module, which PEFT 0.17 to 0.21 have, got"
    ):
        lora(object())


def test_a_model_with_adapters_keeps_its_dense_layers() -> None:
    made = peft.get_peft_model(model(compress=False), config(("down_proj",)))
    before = {name: each.clone() for name, each in made.state_dict().items() if "lora_" in name}
    for report in (louver.torch.prune_(made), louver.torch.compress_(made, force=True)):
        reasons = {
            row.name.split(".", 4)[-1]: row.reason for row in report if row.name.startswith("base_model.model.0.")
        }
        assert reasons["base_layer"] == "an adapter of PEFT reads the weight itself: attach it after the swap"
        assert reasons["lora_A.default"] == "it belongs to an adapter of PEFT"
        assert len(reasons) == 5
    assert all(torch.equal(made.state_dict()[name], each) for name, each in before.items())
    made.merge_and_unload()


def test_a_model_of_transformers(tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    import louver.torch.transformers

    torch.manual_seed(12)
    sizes = {"vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_attention_heads=4))
    louver.torch.prune_(made)
    louver.torch.compress_(made, force=True)
    made.save_pretrained(tmp_path / "base")
    load = transformers.AutoModelForCausalLM.from_pretrained
    sparse = peft.get_peft_model(load(tmp_path / "base"), lora(config(("q_proj", "v_proj", "up_proj"))))
    names = {name for name, each in sparse.named_parameters() if each.requires_grad}
    assert len(names) == 12 and all("lora_" in name for name in names)
    ids = torch.arange(11)[None]
    sparse(ids, labels=ids).loss.backward()
    assert all(each.grad.abs().sum() > 0 for each in sparse.parameters() if each.requires_grad)
    sparse.save_pretrained(tmp_path / "adapter")
    found = lora(peft.LoraConfig.from_pretrained(tmp_path / "adapter"))
    again = peft.PeftModel.from_pretrained(load(tmp_path / "base"), tmp_path / "adapter", config=found)
    assert torch.equal(again(ids).logits, sparse(ids).logits)
