"""Texts for calibration: files of text by the folder's tokenizer, and files of token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from support.model_folders import WORDS, word_tokenizer, words

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from louver.torch.accuracy.texts import read_tokens  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tokenizer of whole words."""
    word_tokenizer(tmp_path / "model")
    return tmp_path / "model"


def test_a_text_becomes_rows_without_padding(folder: Path, tmp_path: Path) -> None:
    text = words(3, 103).split()
    path = tmp_path / "text.md"
    path.write_text(" ".join(text), encoding="utf-8")
    wanted = np.array([2 + WORDS.index(word) for word in text])
    got = read_tokens(path, folder, 10)
    assert got.dtype == torch.int64
    np.testing.assert_array_equal(got.numpy(), wanted[:100].reshape(10, 10))
    np.testing.assert_array_equal(read_tokens(path, folder, 10, 4).numpy(), wanted[:100].reshape(10, 10)[[0, 2, 5, 7]])
    with pytest.raises(
        ValueError, match=r"text\.md: a row has 104 tokens, got 103 in all: give more text, or a smaller --length"
    ):
        read_tokens(path, folder, 104)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16"])
def test_token_ids(dtype: str, tmp_path: Path, rng: np.random.Generator) -> None:
    ids = rng.integers(0, 99, (7, 25)).astype(dtype)
    np.save(tmp_path / "t.npy", ids)
    louver.save(tmp_path / "t.safetensors", {"tokens": ids})
    for name in ("t.npy", "t.safetensors"):
        got = read_tokens(tmp_path / name, tmp_path, 12)
        np.testing.assert_array_equal(got.numpy(), ids[:, :24].reshape(14, 12))
        np.testing.assert_array_equal(read_tokens(tmp_path / name, tmp_path, 25).numpy(), ids)
        with pytest.raises(ValueError, match=f"{name}: rows have at least --length 26 tokens, got 25"):
            read_tokens(tmp_path / name, tmp_path, 26)
    np.save(tmp_path / "flat.npy", ids.reshape(-1))
    np.testing.assert_array_equal(
        read_tokens(tmp_path / "flat.npy", tmp_path, 50).numpy(), ids.reshape(-1)[:150].reshape(3, 50)
    )


def test_other_files_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    np.save(tmp_path / "f.npy", rng.standard_normal((3, 8)))
    with pytest.raises(ValueError, match=r"token ids are integers with one or two axes, got float64 \[3, 8\]"):
        read_tokens(tmp_path / "f.npy", tmp_path, 4)
    louver.save(tmp_path / "two.safetensors", {"a": np.arange(9), "b": np.arange(9)})
    with pytest.raises(ValueError, match="a file of token ids has one tensor, got a, b"):
        read_tokens(tmp_path / "two.safetensors", tmp_path, 4)
    (tmp_path / "latin.txt").write_bytes("für".encode("latin-1"))
    with pytest.raises(
        ValueError, match="a text is in UTF-8, got byte 1 that is not: give token ids as .npy or .safetensors"
    ):
        read_tokens(tmp_path / "latin.txt", tmp_path, 4)
    (tmp_path / "text.txt").write_text("some words")
    with pytest.raises(ValueError, match=r"no tokenizer that Transformers loads \(.*\): give token ids as .npy"):
        read_tokens(tmp_path / "text.txt", tmp_path, 4)
    with pytest.raises(FileNotFoundError):
        read_tokens(tmp_path / "none.txt", tmp_path, 4)
