"""Folders of tiny random models, as Transformers writes them, also quantized to e4m3 with scales."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import louver
from support.tiny_models import tiny


def saved(torch: Any, transformers: Any, path: Path, kind: str, dtype: str = "bfloat16", **changes: Any) -> Path:
    """A folder with a model in shards of a few tensors."""
    model = tiny(torch, transformers, kind, **changes).to(getattr(torch, dtype))
    model.save_pretrained(path, max_shard_size="20KB")
    return path


def tokens_file(torch: Any, path: Path, rows: int = 24, length: int = 24, seed: int = 1) -> Path:
    """A file of random token ids."""
    from support.tiny_models import ids

    np.save(path, ids(torch, rows, length, seed).numpy())
    return path


WORDS = [f"w{number}" for number in range(40)]


def word_tokenizer(path: Path) -> None:
    """Write a tokenizer of whole words to a folder. By itself it adds a token that begins a text."""
    import tokenizers
    import transformers

    ids = {word: at for at, word in enumerate(["?", "^", *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, "?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing("^ $A", special_tokens=[("^", 1)])
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?", bos_token="^").save_pretrained(path)


def words(seed: int, count: int) -> str:
    """A text of random words that the tokenizer knows. Their ids are 2 more than their numbers."""
    return " ".join(np.random.default_rng(seed).choice(WORDS, count))


def quantized(torch: Any, path: Path, out: Path, block: tuple[int, int] | None, scale_type: str = "float32") -> Path:
    """A folder with the blocks' weights of another one in e4m3. block: with one scale each; None: one for each row."""
    out.mkdir()
    config = json.loads((path / "config.json").read_text())
    if block is not None:
        config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": list(block)}
    (out / "config.json").write_text(json.dumps(config))
    tensors: dict[str, Any] = {}
    for name, array in louver.load(path).items():
        tensor = torch.from_numpy(np.asarray(array).astype(np.float32))
        if ".layers." not in name or tensor.dim() != 2:
            tensors[name] = tensor.to(torch.bfloat16)
            continue
        high, wide = block or (1, tensor.shape[1])
        scales = torch.stack([c.abs().amax() for r in tensor.split(high) for c in r.split(wide, 1)]) / 448
        scales = scales.reshape(-(-tensor.shape[0] // high), -(-tensor.shape[1] // wide))
        if scale_type == "float8_e8m0fnu":
            scales = torch.exp2(torch.ceil(torch.log2(scales)))
        scales = scales.to(getattr(torch, scale_type))
        spread = scales.float().repeat_interleave(high, 0).repeat_interleave(wide, 1)
        spread = spread[: tensor.shape[0], : tensor.shape[1]]
        tensors[name] = (tensor / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv" if block else f"{name}_scale"] = scales
    louver.save(out / "model.safetensors", tensors, {"format": "pt"})
    return out
