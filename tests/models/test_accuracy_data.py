"""What `benchmarks/accuracy_prepare.py` packs is what GGUF holds, and what Transformers computes with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")
gguf: Any = pytest.importorskip("gguf")
pytest.importorskip("transformers")

import accuracy_prepare as prepare  # noqa: E402
from accuracy_data import Prepared, dequantized  # noqa: E402

from support import packed_model  # noqa: E402
from support.examples import load  # noqa: E402
from support.packed_model import VOCABULARY  # noqa: E402


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "F32"])
def test_dequantizes_as_the_gguf_package(kind: str) -> None:
    w = np.random.default_rng(5).normal(size=(6, 64)).astype(np.float32)
    kinds = gguf.GGMLQuantizationType[kind]
    raw = gguf.quants.quantize(w, kinds)
    data = np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
    scales = b""
    if kind != "F32":
        blocks = data.reshape(-1, prepare.BLOCK[kind])
        scales, data = blocks[:, : prepare.SCALES[kind]].tobytes(), blocks[:, prepare.SCALES[kind] :]
    found = dequantized(kind, scales, data.tobytes(), w.shape)
    np.testing.assert_allclose(found, gguf.quants.dequantize(raw, kinds), rtol=1e-6, atol=1e-7)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model, and the folder of its parts."""
    folder = tmp_path_factory.mktemp("packed")
    return packed_model.pack(folder), folder


def test_the_packed_model_computes_what_the_model_does(packed: tuple[Any, Path]) -> None:
    model, folder = packed
    made = Prepared.read([folder / "acc1", folder / "acc0"]).model()
    tokens = torch.randint(VOCABULARY, (2, 17), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(made(tokens).logits, model(tokens).logits)
    assert made.lm_head.weight is made.model.embed_tokens.weight
    assert (made.config.bos_token_id, made.config.eos_token_id) == (1, 2)


def test_windows_do_not_overlap_and_drop_the_rest(packed: tuple[Any, Path]) -> None:
    prepared = Prepared.read([packed[1] / "acc0", packed[1] / "acc1"])
    rows = prepared.windows("articles", 32)
    assert rows.shape == (2, 32) and rows.dtype == torch.int64
    assert rows.flatten().tolist() == [i % VOCABULARY for i in range(64)]
    assert prepared.windows("articles", 32, 1).shape == (1, 32)


def test_the_tokenizer_merges_and_splits_digits(packed: tuple[Any, Path]) -> None:
    made = Prepared.read([packed[1] / "acc0", packed[1] / "acc1"]).tokenizer()
    assert made.convert_ids_to_tokens(made.encode("the<|end|>he12")) == ["the", "<|end|>", "he", "1", "2"]
    assert (made.bos_token, made.eos_token) == ("<|begin|>", "<|end|>")


def test_a_damaged_or_missing_part_is_told(packed: tuple[Any, Path], tmp_path: Path) -> None:
    folder = packed[1]
    with pytest.raises(FileNotFoundError, match=r"part1.bin is in none of .*acc0: see accuracy_prepare.py"):
        Prepared.read([folder / "acc0"])
    data = bytearray((folder / "acc1" / "part1.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "part1.bin").write_bytes(data)
    with pytest.raises(ValueError, match="part1.bin is damaged or of another preparation"):
        Prepared.read([tmp_path, folder / "acc0"])


def test_parts_are_of_nearly_equal_size(packed: tuple[Any, Path]) -> None:
    index = json.loads((packed[1] / "acc0" / "index.json").read_text())
    sizes = [each["bytes"] for each in index["parts"]]
    assert max(sizes) - min(sizes) < 0.2 * sum(sizes)


def test_texts_that_share_a_run_with_a_result_are_left_out() -> None:
    result = "".join(f"sentence {i} of the text that counts. " for i in range(40))
    copied = "begins otherwise, " + result[100:260] + " and ends otherwise"
    other = "".join(f"words {i} of another page. " for i in range(40))
    assert prepare.apart([copied, other, result], [result]) == [other]


def test_the_example_prunes_a_folder_of_transformers(
    packed: tuple[Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = Prepared.read([packed[1] / "acc0", packed[1] / "acc1"])
    prepared.model().save_pretrained(tmp_path / "model")
    prepared.tokenizer().save_pretrained(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("the heat of the earth 0123 " * 60)
    example: Any = load("language_model", monkeypatch)
    more = ["--text", str(text), "--calibration", str(text), "--length", "24", "--tokens", "3", "--minutes", "0.01"]
    example.main([str(tmp_path / "model"), *more])
    out = capsys.readouterr().out
    for title in ("dense", "2:4 by magnitude", "2:4 by SparseGPT, ", "distilled for 0.01 minutes"):
        assert f"\n{title}" in out
    assert out.count("tokens a second") == 4
