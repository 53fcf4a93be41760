"""SmolLM2 and the texts of `benchmarks/accuracy.py`, as `benchmarks/accuracy_prepare.py` packed them.

    python benchmarks/accuracy_data.py PARTS... MODEL_DIR

writes the model and its tokenizer as a folder that Transformers loads. Needs torch, transformers and tokenizers.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

INDEX: Final = "index.json"
CODECS: Final[Mapping[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]]] = {
    "zlib": (lambda data: zlib.compress(data, 9), zlib.decompress),
    "bz2": (bz2.compress, bz2.decompress),
}
BLOCK: Final = {"Q4_1": 20, "Q8_0": 34}
"""Bytes of a block of 32 values."""

SCALES: Final = {"Q4_1": 4, "Q8_0": 2}
"""Bytes of a block's scale, and of its least value in Q4_1. They lie apart from the others here, because they repeat more."""


def dequantized(kind: str, scales: bytes, values: bytes, shape: Sequence[int]) -> NDArray[np.float32]:
    """A tensor of GGUF as f32. kind: F32 (then all is in `values`), Q8_0 or Q4_1."""
    if kind == "F32":
        return np.frombuffer(values, np.float32).reshape(shape)
    scale = np.frombuffer(scales, np.float16).astype(np.float32).reshape(-1, SCALES[kind] // 2)
    raw = np.frombuffer(values, np.uint8).reshape(len(scale), -1)
    if kind == "Q8_0":
        found = raw.view(np.int8) * scale
    else:
        # The first 16 values of a block are low halves of its bytes.
        found = np.concatenate([raw & 15, raw >> 4], 1) * scale[:, :1] + scale[:, 1:]
    return found.reshape(shape)


def halves(w: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a projection in the order of Transformers: GGUF has the two channels of a rotation next to each other."""
    return w.reshape(heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The packed model and texts. Every part is checked against its hash."""

    index: Mapping[str, Any]
    parts: tuple[bytes, ...]

    @classmethod
    def read(cls, folders: Sequence[Path]) -> Prepared:
        """folders: where the parts are, in any order. Raises FileNotFoundError, and ValueError for a damaged part."""
        index = json.loads(_found(folders, INDEX).read_bytes())
        parts: list[bytes] = []
        for each in index["parts"]:
            path = _found(folders, each["file"])
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != each["sha256"]:
                raise ValueError(f"{path} is damaged or of another preparation: its SHA-256 is not that of {INDEX}")
            parts.append(data)
        return cls(index, tuple(parts))

    def piece(self, at: Mapping[str, Any]) -> bytes:
        data = self.parts[at["part"]][at["offset"] : at["offset"] + at["bytes"]]
        return CODECS[at["codec"]][1](data)

    def tokens(self, name: str) -> NDArray[np.int64]:
        """The tokens of a text, [count]."""
        return np.frombuffer(self.piece(self.index["texts"][name]["piece"]), np.uint16).astype(np.int64)

    def windows(self, name: str, length: int, most: int | None = None) -> Any:
        """A text in rows that do not overlap, a LongTensor [rows, length]."""
        import torch

        tokens = self.tokens(name)
        rows = len(tokens) // length
        return torch.from_numpy(tokens[: rows * length].reshape(rows, length)[:most].copy())

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """The dequantized weights by Transformers' names."""
        found: dict[str, NDArray[np.float32]] = {}
        for each in self.index["tensors"]:
            scales = self.piece(each["scales"]) if each["scales"] else b""
            w = dequantized(each["kind"], scales, self.piece(each["values"]), each["shape"])
            found[each["name"]] = halves(w, each["heads"]) if each["heads"] else w
        return found

    def model(self) -> Any:
        """`LlamaForCausalLM` in f32 on the CPU, with these weights."""
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        with torch.device("meta"):
            model = LlamaForCausalLM(LlamaConfig(**self.index["config"]))
        state = {name: torch.from_numpy(w.copy()) for name, w in self.weights().items()}
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        model.load_state_dict(state, assign=True)
        model.tie_weights()
        # Rotary frequencies are no weights: a module built with memory computes them.
        model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
        return model.eval()

    def tokenizer(self) -> Any:
        from tokenizers import Tokenizer
        from transformers import PreTrainedTokenizerFast

        made = Tokenizer.from_str(self.piece(self.index["tokenizer"]).decode())
        special = self.index["special"]
        return PreTrainedTokenizerFast(tokenizer_object=made, **special)


def _found(folders: Sequence[Path], name: str) -> Path:
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"{name} is in none of {', '.join(map(str, folders))}: see accuracy_prepare.py")


def main() -> None:
    *folders, out = map(Path, sys.argv[1:])
    prepared = Prepared.read(folders)
    prepared.model().save_pretrained(out)
    prepared.tokenizer().save_pretrained(out)
    print(f"{out}: {prepared.index['model']}, {prepared.index['licence']}")


if __name__ == "__main__":
    main()
