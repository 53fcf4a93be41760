"""A tiny Llama as a GGUF file, packed with tiny texts as `benchmarks/accuracy_prepare.py` packs SmolLM2."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import accuracy_prepare as prepare
import gguf
import numpy as np
import torch
import transformers

WIDTH, INNER, HEADS, KEYS, BLOCKS, VOCABULARY = 64, 96, 4, 2, 2, 40
LENGTHS = {
    "articles": 70,
    "news": 64,
    "pydoc": 64,
    "other_articles": 64,
    "other_documents": 64,
    "calibration_articles": 640,
    "calibration_documents": 640,
}
"""Tokens of each text."""


def a_model() -> Any:
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEYS,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.2 + (parameter.ndim == 1))
    return model


def write_gguf(path: Path, model: Any) -> None:
    """A GGUF file of a model, as llama.cpp converts it: rows of q and k in pairs of rotated channels."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_license("apache-2.0")
    for name, value in (
        ("embedding_length", WIDTH),
        ("feed_forward_length", INNER),
        ("block_count", BLOCKS),
        ("context_length", 64),
    ):
        writer.add_uint32(f"llama.{name}", value)
    writer.add_uint32("llama.attention.head_count", HEADS)
    writer.add_uint32("llama.attention.head_count_kv", KEYS)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("llama.rope.freq_base", 1e4)
    letters = [chr(97 + i) for i in range(26)]
    tokens = [
        "<|endoftext|>",
        "<|begin|>",
        "<|end|>",
        *letters,
        "th",
        "he",
        "the",
        *"0123",
        *(f"~{i}" for i in range(4)),
    ]
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (VOCABULARY - 3))
    writer.add_token_merges(["t h", "th e", "h e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = {long: short for short, long in prepare.NAMES.items()}
    for name, parameter in model.named_parameters():
        part = name.removeprefix("model.layers.").split(".", 1) if ".layers." in name else None
        long = part[1].removesuffix(".weight") if part else name.removesuffix(".weight")
        w = parameter.detach().numpy()
        heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": KEYS}.get(long)
        if heads:
            w = w.reshape(heads, 2, -1, WIDTH).swapaxes(1, 2).reshape(w.shape)
        writer.add_tensor(f"blk.{part[0]}.{names[long]}.weight" if part else f"{names[long]}.weight", w)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def pack(folder: Path) -> Any:
    """Write the parts into a folder. Returns the model."""
    model = a_model()
    write_gguf(folder / "m.gguf", model)
    packer = prepare.Packer(2)
    index = prepare.pack_model(folder / "m.gguf", packer)
    index["texts"] = {}
    for seed, (name, length) in enumerate(LENGTHS.items()):
        ids = np.arange(length) if name == "articles" else np.random.default_rng(seed).integers(3, VOCABULARY, length)
        data = (ids % VOCABULARY).astype(np.uint16).tobytes()
        digest = hashlib.sha256(data).hexdigest()
        index["texts"][name] = {"tokens": length, "sha256": digest, "piece": packer.put(data)}
    packer.write(folder, index)
    return model
