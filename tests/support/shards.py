"""Sharded checkpoints of random weights, and what folders hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import louver


def sharded(folder: Path, shards: Mapping[str, Mapping[str, np.ndarray[Any, Any]]]) -> Path:
    """A folder with files of tensors, an index, and two other files."""
    folder.mkdir(parents=True)
    weight_map: dict[str, str] = {}
    for file, tensors in shards.items():
        louver.save(folder / file, dict(tensors), {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "config.json").write_text(json.dumps({"model_type": "none-such"}))
    return folder


def layers(folder: Path, seed: int, count: int = 5, rows: int = 203, columns: int = 512) -> Path:
    """A file a layer: two weights of odd sizes and a norm."""
    rng = np.random.default_rng(seed)
    return sharded(
        folder,
        {
            f"{layer}.safetensors": {
                f"layers.{layer}.q_proj.weight": rng.standard_normal((rows, columns)).astype(np.float16),
                f"layers.{layer}.o_proj.weight": rng.standard_normal((rows // 2, columns)).astype(np.float16),
                f"layers.{layer}.norm.weight": rng.standard_normal(columns).astype(np.float32),
            }
            for layer in range(count)
        },
    )


def scattered(folder: Path, seed: int) -> Path:
    """Weights in e4m3 whose scales are in another file, stacked experts, and a file without a weight."""
    rng = np.random.default_rng(seed)
    weights = {f"{at}.q_proj.weight": rng.standard_normal((37, 64)).astype(np.float32) for at in range(3)}
    scales = {f"{name}_scale": np.abs(array).max(1, keepdims=True) / 448 for name, array in weights.items()}
    quantized = {
        name: (array / scales[f"{name}_scale"]).astype(ml_dtypes.float8_e4m3fn) for name, array in weights.items()
    }
    experts = {
        "1.mlp.experts.gate_up_proj": rng.standard_normal((3, 64, 48)).astype(np.float16),
        "1.mlp.experts.down_proj": rng.standard_normal((3, 24, 64)).astype(np.float16),
    }
    *others, last = quantized.items()
    return sharded(
        folder,
        {
            "a.safetensors": dict(others),
            "b.safetensors": scales,
            "c.safetensors": {**experts, **dict([last]), "norm.weight": rng.standard_normal(64).astype(np.float32)},
        },
    )


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of all files, hidden ones too."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
