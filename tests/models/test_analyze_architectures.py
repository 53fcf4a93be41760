"""`louver.models.analyze` on tiny random models of every architecture that Transformers builds by one rule.

`benchmarks/judge_architectures.py` judges all that it can build, and writes the record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

transformers: Any = pytest.importorskip("transformers", reason="needs transformers and torch: make test-models")

from louver.models.analyze import analyze  # noqa: E402
from louver.models.roles import Evidence, Role  # noqa: E402
from support.architectures.judge import smallest, truths, verdicts  # noqa: E402

KINDS = (
    "llama", "gpt2", "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "gemma3", "phi3", "mamba", "bloom", "t5", "bart", "bert",
    "switch_transformers", "jetmoe", "xlnet", "whisper", "vit", "clip", "wav2vec2", "rwkv", "gpt_bigcode", "llava", "segformer",
    "deepseek_v2", "qwen2_vl", "llama4_text", "phimoe", "mamba2", "jamba", "falcon", "dinov2", "siglip", "parakeet_rnnt", "inkling_text",
)  # fmt: skip
"""One or two architectures of each family."""


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("kind", KINDS)
def test_decisions(kind: str, tmp_path: Path) -> None:
    model = smallest(kind)
    model.save_pretrained(tmp_path)
    truth = truths(model, tmp_path)
    with_model, without = verdicts(tmp_path, truth)
    assert with_model.weights and with_model.by_model == with_model.weights, with_model.notes
    assert not with_model.pruned and not with_model.left, with_model
    assert not without.pruned, without


def test_experts_apart_in_shards_under_other_names(tmp_path: Path) -> None:
    """Qwen MoE saves experts apart. The names of the model's state, a base model and many small files are read too."""
    import torch
    from safetensors.torch import save_file

    model = smallest("qwen3_moe")
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    apart = analyze(tmp_path / "shards")
    experts = [each for name, each in apart.tensors.items() if ".experts." in name]
    assert all(each.prune and each.axis == 1 and each.evidence is Evidence.MODEL for each in experts)
    assert {len(each.form.shape) for each in experts} == {2} and not apart.notes

    model.config.save_pretrained(tmp_path / "state")
    state = {name: tensor.detach().clone().to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    save_file(state, tmp_path / "state" / "model.safetensors")
    fused = analyze(tmp_path / "state")
    experts = [each for name, each in fused.tensors.items() if ".experts." in name]
    assert all(each.prune and each.axis == 2 and len(each.form.shape) == 3 for each in experts) and experts

    model.base_model.save_pretrained(tmp_path / "base")
    config = (tmp_path / "shards" / "config.json").read_bytes()
    (tmp_path / "base" / "config.json").write_bytes(config)
    base = analyze(tmp_path / "base")
    assert {each.evidence for each in base.pruned} == {Evidence.MODEL}
    assert len(base.pruned) == len(apart.pruned)


def test_released_gpt_oss_is_packed(tmp_path: Path, rng: Any) -> None:
    """Experts in MXFP4, as released: blocks and scales in bytes. Attention is pruned, experts are left and named."""
    import torch
    from safetensors.torch import save_file

    model = smallest("gpt_oss")
    state: dict[str, Any] = {}
    for name, tensor in model.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, contracted, out = tensor.shape
            state[f"{name}_blocks"] = torch.from_numpy(
                rng.integers(0, 255, (experts, out, -(-contracted // 32), 16), "u1")
            )
            state[f"{name}_scales"] = torch.from_numpy(
                rng.integers(110, 130, (experts, out, -(-contracted // 32)), "u1")
            )
        else:
            state[name] = tensor.detach().clone().to(torch.bfloat16)
    model.config.quantization_config = {"quant_method": "mxfp4"}
    model.config.save_pretrained(tmp_path)
    save_file(state, tmp_path / "model.safetensors")
    for evidence in (tuple(Evidence), tuple(kind for kind in Evidence if kind is not Evidence.MODEL)):
        facts = analyze(tmp_path, evidence=evidence)
        roles = {name: each.role for name, each in facts.tensors.items()}
        assert all(role is Role.PACKED for name, role in roles.items() if name.endswith("_blocks"))
        assert all(role is Role.SCALE for name, role in roles.items() if name.endswith("_scales"))
        assert all(role is Role.BIAS for name, role in roles.items() if name.endswith("proj_bias"))
        assert facts.pruned and all("self_attn" in each.name for each in facts.pruned)


def test_ties_of_the_model(tmp_path: Path) -> None:
    model = smallest("t5")
    model.save_pretrained(tmp_path)
    facts = analyze(tmp_path)
    assert facts.tensors["shared.weight"].role is Role.EMBEDDING and not facts.tensors["shared.weight"].prune


def test_nothing_is_left_changed(tmp_path: Path) -> None:
    import logging
    import warnings

    import huggingface_hub.constants as hub
    import torch

    smallest("llama").save_pretrained(tmp_path)
    before = sorted(tmp_path.iterdir())

    def state() -> tuple[object, ...]:
        return (
            torch.random.get_rng_state().sum().item(), torch.get_default_dtype(), torch.is_grad_enabled(), hub.HF_HUB_OFFLINE,
            logging.root.manager.disable, len(warnings.filters), transformers.utils.logging.get_verbosity(),
        )  # fmt: skip

    first = state()
    analyze(tmp_path)
    assert state() == first and sorted(tmp_path.iterdir()) == before


def test_an_unknown_architecture_is_a_note(tmp_path: Path) -> None:
    smallest("llama").save_pretrained(tmp_path)
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"model_type": "llama"', '"model_type": "mystery"'))
    facts = analyze(tmp_path)
    assert "does not know the architecture 'mystery'" in facts.notes[0]
    assert facts.pruned and {each.evidence for each in facts.pruned} == {Evidence.NAMES}


def test_all_layers_and_directions_of_recurrent_modules() -> None:
    import torch
    from torch import nn
    from torch._subclasses.fake_tensor import FakeTensorMode

    from louver.models.evidence.lineage import Watch

    modules: list[Any] = [
        nn.LSTM(5, 7, num_layers=2, bidirectional=True, batch_first=True),
        nn.LSTM(5, 7, num_layers=3, bias=False),
        nn.LSTM(5, 7, num_layers=2, proj_size=3),
        nn.GRU(5, 7, num_layers=2, bidirectional=True),
        nn.RNN(5, 7, num_layers=2),
    ]
    for module in modules:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            watch = Watch()
            for name, parameter in list(module.named_parameters()):
                setattr(module, name, nn.Parameter(torch.empty(parameter.shape)))
                watch.name(getattr(module, name), name)
            data = torch.empty(2, 3, 5)
            watch.feed(data)
            with watch:
                module(data)
        for name, parameter in module.named_parameters():
            wanted = {frozenset((1,))} if parameter.dim() == 2 else set()
            assert watch.uses[name].contracted == wanted, (name, watch.uses[name])
            assert parameter.dim() == 2 or watch.uses[name].kinds == {"bias"}, name


def test_tied_ends_that_are_stored_apart(tmp_path: Path) -> None:
    """Transformers ties them only if they are equal, and so does `analyze`."""
    from safetensors.torch import save_file

    model = smallest("llama")
    model.config.tie_word_embeddings = True
    table = model.get_input_embeddings().weight.detach().clone()
    for name, head in (("equal", table.clone()), ("apart", table * 2)):
        model.config.save_pretrained(tmp_path / name)
        state = {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}
        save_file(state | {"lm_head.weight": head}, tmp_path / name / "model.safetensors")
    equal, apart = analyze(tmp_path / "equal"), analyze(tmp_path / "apart")
    assert equal.tensors["lm_head.weight"].ties == ("model.embed_tokens.weight",) and not equal.notes
    assert equal.tensors["lm_head.weight"].role is Role.EMBEDDING
    assert not apart.tensors["lm_head.weight"].ties and apart.tensors["lm_head.weight"].role is Role.HEAD
    assert (
        apart.tensors["model.embed_tokens.weight"].role is Role.EMBEDDING
        and "their stored bytes differ" in apart.notes[0]
    )
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "apart")
    assert loaded.lm_head.weight is not loaded.model.embed_tokens.weight
