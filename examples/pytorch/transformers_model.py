"""A model of Transformers: pruned, compressed, saved, and loaded by `from_pretrained`. Tiny and random here."""

from __future__ import annotations

import tempfile

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import louver.torch

# Before `from_pretrained`: Transformers knows no sparse files without it.
import louver.torch.transformers


def main() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=99, **sizes)).to(torch.bfloat16).eval()
    tokens = torch.randint(99, (1, 11))

    louver.torch.prune_(model, "2:4")
    with torch.no_grad():
        dense = model(tokens).logits
    print(louver.torch.compress_(model, force=True))  # q, k and v become one product, gate and up another
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        sparse = loaded(tokens).logits
    error = float((sparse - dense).abs().max() / dense.abs().max())
    print(f"greatest difference of logits, of the greatest: {error:.4f}")
    assert error < 0.03
    print(loaded.generate(tokens, max_new_tokens=4, do_sample=False))


if __name__ == "__main__":
    main()
