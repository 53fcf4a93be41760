"""Which layers of Transformers' models become one product, and that outputs and gradients stay those of layers apart."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path", "ignore::DeprecationWarning")

from louver.torch.blocks import JoinedBlock, separate_  # noqa: E402

QKV = ("k_proj", "q_proj", "v_proj")
GATED = ("gate_proj", "up_proj")
DECODER = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
ENCODER = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip
BOTH = {"vocab_size": 99, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip

MODELS: dict[str, tuple[str, dict[str, Any], set[tuple[str, ...]]]] = {
    "llama": ("LlamaForCausalLM", DECODER, {QKV, GATED}),
    "mistral": ("MistralForCausalLM", DECODER, {QKV, GATED}),
    "qwen2": ("Qwen2ForCausalLM", DECODER, {QKV, GATED}),
    "qwen3": ("Qwen3ForCausalLM", DECODER, {QKV, GATED}),
    "gemma": ("GemmaForCausalLM", DECODER, {QKV, GATED}),
    "gemma3": ("Gemma3ForCausalLM", DECODER, {QKV, GATED}),
    # Phi 3 and GPT-NeoX have one layer for q, k and v.
    "phi3": ("Phi3ForCausalLM", DECODER, set()),
    "gpt_neox": ("GPTNeoXForCausalLM", ENCODER, set()),
    "bert": ("BertForMaskedLM", ENCODER, {("key", "query", "value")}),
    "opt": ("OPTForCausalLM", {**ENCODER, "ffn_dim": 96, "word_embed_proj_dim": 64}, {QKV}),
    # Keys and values may be those of another sentence than the queries.
    "t5": ("T5ForConditionalGeneration", {"vocab_size": 99, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4,
            "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu"}, {("k", "v"), ("wi_0", "wi_1")}),
    "bart": ("BartForConditionalGeneration", BOTH, {("k_proj", "v_proj")}),
    "whisper": ("WhisperForConditionalGeneration", {**BOTH, "num_mel_bins": 8, "max_source_positions": 16,
                 "max_target_positions": 64}, {("k_proj", "v_proj")}),
}  # fmt: skip
"""The class, the configuration, and the groups of layers that become one product."""


def made(name: str) -> Any:
    torch.manual_seed(41)
    kind, options, _ = MODELS[name]
    cls = getattr(transformers, kind)
    model = cls(cls.config_class(**options)).eval()
    with torch.no_grad():
        # Biases of new models are zeros, and hide mistakes.
        for each in model.parameters():
            if each.dim() == 1:
                each.add_(0.1 * torch.randn(each.shape))
    return model


def inputs(model: Any) -> dict[str, Any]:
    ids = torch.arange(1, 19).reshape(2, 9) * 5 % 99
    if model.config.model_type == "whisper":
        return {
            "input_features": torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(2)),
            "decoder_input_ids": ids,
        }
    return {"input_ids": ids, **({"decoder_input_ids": ids.flip(0)} if model.config.is_encoder_decoder else {})}


def groups(model: Any) -> set[tuple[str, ...]]:
    return {names for module in model.modules() if isinstance(module, JoinedBlock) for names in module.plan.groups}


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients(name: str) -> None:
    model = made(name)
    louver.torch.prune_(model, "1:2")
    given = inputs(model)
    expected = model(**given).logits
    report = louver.torch.compress_(model, patterns=("1:2",), force=True)
    assert groups(model) == MODELS[name][2]
    assert not [row for row in report if "not joined" in row.reason or "not a gated" in row.reason], str(report)
    plain = copy.deepcopy(model)
    separate_(plain)
    # Products of f32 round both operands to tf32, which makes more of differences in the order of sums.
    close(torch, model(**given).logits, expected, 0.01)
    close(torch, model(**given).logits, plain(**given).logits, 2e-3)
    for each in (model, plain):
        each.train()
        # Dropout draws the same numbers.
        torch.manual_seed(7)
        each(**given).logits.square().mean().backward()
    mine, theirs = gradients(model), gradients(plain)
    assert mine.keys() == theirs.keys()
    # Some gradients, such as of a bias of keys, are only rounding.
    largest = max(float(each.abs().max()) for each in theirs.values())
    for key, wanted in theirs.items():
        torch.testing.assert_close(mine[key], wanted, rtol=0, atol=2e-3 * largest, msg=key)


def gradients(model: Any) -> dict[str, Any]:
    """The gradients of all values and biases, by the names of a state_dict."""
    found = {key: each.grad for key, each in model.named_parameters() if each.grad is not None}
    for key, module in model.named_modules():
        if isinstance(module, JoinedBlock):
            for group, names in enumerate(module.plan.groups):
                joint = module._modules[f"louver_joined_{group}"]
                grad = found.pop(f"{key}.louver_joined_{group}.values")
                for part, child in enumerate(names):
                    rows = joint.rows(grad, part)
                    found[f"{key}.{child}.weight.values"] = rows.reshape(-1, rows.shape[-1])
    return found


@pytest.mark.parametrize("name", ["llama", "qwen3", "t5", "whisper", "bart"])
def test_generated_tokens(name: str) -> None:
    model = made(name)
    louver.torch.prune_(model, "1:2")
    given = {key: each for key, each in inputs(model).items() if "decoder" not in key}
    options = {"max_new_tokens": 6, "do_sample": False, "min_new_tokens": 6}
    expected = model.generate(**given, **options)
    louver.torch.compress_(model, patterns=("1:2",), force=True)
    assert torch.equal(model.generate(**given, **options), expected)
