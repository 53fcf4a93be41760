"""Texts for calibration and evaluation: files of text or of token ids, as rows of tokens."""

# PyTorch's and Transformers' stubs leave many types unknown.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import louver


def read_tokens(path: Path, model: Path, length: int, rows: int | None = None) -> Tensor:
    """Token ids [rows, length] of a file: windows that follow each other, without padding.

    path: .npy or .safetensors (one tensor) of token ids, [any length] or [rows, length or more]; any other file is text
    in UTF-8. model: the folder with the tokenizer. rows: at most so many, evenly spread over the file; None: all.
    Raises ValueError for a file that is too short or holds something else, OSError if it cannot be read.
    """
    ids = _ids(path, model)
    if ids.ndim == 2 and ids.shape[1] < length:
        raise ValueError(
            f"{path}: rows have at least --length {length} tokens, got {ids.shape[1]}: give a smaller --length"
        )
    flat = ids[:, : ids.shape[1] // length * length].reshape(-1) if ids.ndim == 2 else ids
    count = len(flat) // length
    if count == 0:
        raise ValueError(
            f"{path}: a row has {length} tokens, got {len(flat)} in all: give more text, or a smaller --length"
        )
    windows = flat[: count * length].reshape(count, length)
    if rows is not None and rows < count:
        windows = windows[np.arange(rows) * count // rows]
    return torch.from_numpy(windows.astype(np.int64))


def _ids(path: Path, model: Path) -> Any:
    if path.suffix == ".npy":
        ids = np.load(path, allow_pickle=False)
    elif path.suffix == ".safetensors":
        tensors = louver.load(path)
        if len(tensors) != 1:
            raise ValueError(f"{path}: a file of token ids has one tensor, got {', '.join(tensors) or 'none'}")
        ids = np.asarray(next(iter(tensors.values())))
    else:
        return np.array(_tokenized(path, model), np.int64)
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        raise ValueError(f"{path}: token ids are integers with one or two axes, got {ids.dtype} {list(ids.shape)}")
    return ids


def _tokenized(path: Path, model: Path) -> list[int]:
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: a text is in UTF-8, got byte {error.start} that is not: give token ids as .npy or .safetensors"
        ) from error
    from transformers import AutoTokenizer

    from louver.models.evidence.running import quiet

    try:
        with quiet():
            tokenizer: Any = AutoTokenizer.from_pretrained(model, local_files_only=True)
            return tokenizer(text, add_special_tokens=False)["input_ids"]
    except Exception as error:  # Transformers raises anything for a folder without a tokenizer.
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(
            f"{model}: no tokenizer that Transformers loads ({why}): give token ids as .npy or .safetensors"
        ) from error
