"""Tiny random models of Transformers, with weights large enough that pruning shows."""

from __future__ import annotations

from typing import Any

VOCABULARY = 99
KINDS = ("llama", "qwen2_moe", "gpt2", "bert")

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def tiny(torch: Any, transformers: Any, kind: str, **changes: Any) -> Any:
    """A model in evaluation mode, f32, with weights that are four times the usual ones, and biases."""
    torch.manual_seed(7)
    model = _made(transformers, kind, changes).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.2)
    return model


def _made(tf: Any, kind: str, changes: dict[str, Any]) -> Any:
    sizes = {**_SIZES, **changes}
    if kind == "llama":
        return tf.LlamaForCausalLM(tf.LlamaConfig(**sizes))
    if kind == "qwen2_moe":
        experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        return tf.Qwen2MoeForCausalLM(
            tf.Qwen2MoeConfig(
                **{**sizes, "num_key_value_heads": 2, "shared_expert_intermediate_size": 32, **experts, **changes}
            )
        )
    if kind == "gemma3":
        types = ["sliding_attention", "full_attention"]
        config = tf.Gemma3TextConfig(**sizes, num_key_value_heads=2, head_dim=8, layer_types=types, sliding_window=4)
        return tf.Gemma3ForCausalLM(config)
    if kind == "gpt2":
        ends = {"bos_token_id": 0, "eos_token_id": 0}
        return tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, **ends))
    if kind == "mixtral":
        more = {"num_key_value_heads": 2, "num_local_experts": 4, **changes}
        return tf.MixtralForCausalLM(tf.MixtralConfig(**{**sizes, **more}))
    if kind == "phi3":
        return tf.Phi3ForCausalLM(tf.Phi3Config(**sizes, num_key_value_heads=2, pad_token_id=0))
    if kind == "bert":
        return tf.BertModel(tf.BertConfig(**sizes))
    if kind == "t5":
        return tf.T5ForConditionalGeneration(
            tf.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
        )
    assert kind == "albert", kind
    return tf.AlbertModel(tf.AlbertConfig(**sizes, embedding_size=16))


def ids(torch: Any, rows: int, length: int = 24, seed: int = 1) -> Any:
    """Random token ids."""
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def result(torch: Any, model: Any, tokens: Any) -> Any:
    """What a model gives for tokens: logits, or the last hidden state."""
    more = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        made = model(tokens, **more)
    return made.logits if hasattr(made, "logits") else made.last_hidden_state
