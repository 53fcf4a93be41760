"""The demo's sentences: embedded by the stored weights, and by weights pruned to several patterns, one by calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from louver.cli.commands.demo_encoder import Encoder, NoEncoderError, Observed, read_encoder, tokenize
from louver.cli.commands.notes import track
from louver.formats.pattern import Pattern
from louver.formats.prune import prune
from louver.formats.schema import Tensor
from louver.formats.tensor import SparseTensor
from louver.measure.report.sentences import F32, SentenceRow, sentence_row

PATTERN = Pattern(2, 4)
"""The pattern of products."""

PATTERNS = tuple(map(Pattern.parse, ("6:8", "4:8", "2:4", "1:2", "1:4")))
"""In order of increasing loss: 3/4 of the weights stay, 1/2 with decreasing choice, 1/4."""

CALIBRATED = f"{PATTERN}, Wanda"
"""The weights that a calibration chose: Wanda (arXiv 2306.11695) takes no longer than the sentences, and needs only NumPy."""

CALIBRATION = "README.md"
"""The text beside the weights that calibrates them. Its language is that of the model's users."""

LEAST = 40
"""Characters of a line that calibrates: shorter ones are marks and headings."""

SEPARATOR = " | "


@dataclass(frozen=True, slots=True)
class Embedded:
    """Rows and embeddings [2·n, width] by the names of the weights, the stored weights first."""

    rows: Mapping[str, SentenceRow]
    embeddings: Mapping[str, F32]

    @property
    def stored(self) -> SentenceRow:
        return next(iter(self.rows.values()))


def sentences() -> list[str]:
    """The sentences: first the left ones of the file's lines, then their paraphrases."""
    text = files("louver.cli.commands").joinpath("demo_sentences.txt").read_text(encoding="utf-8")
    pairs = [line.split(SEPARATOR) for line in text.splitlines()]
    return [left for left, _ in pairs] + [right for _, right in pairs]


def embed_sentences(source: Path, tensors: Mapping[str, Tensor], sparse: Mapping[str, SparseTensor]) -> Embedded:
    """Embed the sentences by each set of weights.

    source: the file of `tensors`, next to `config.json` and `tokenizer.json`. sparse: the pruned weights by name.
    Raises NoEncoderError if the weights are no sentence encoder, or if none of its layers is pruned.
    """
    encoder = read_encoder(source.with_name("config.json"), tensors)
    tokens = tokenize(source.with_name("tokenizer.json"), sentences(), encoder.config)
    layers = {name: weight for name, weight in sparse.items() if name in encoder.layers}
    if not layers:
        raise NoEncoderError("no layer of the encoder is pruned: select its weights by --include and --exclude")
    rows: dict[str, SentenceRow] = {}
    embeddings: dict[str, F32] = {}
    squares = input_squares(encoder, source)
    work = weight_sets(encoder, layers, squares)
    for name, kept, weights in track(work, "embedding sentences", 2 + len(PATTERNS) + bool(squares)):
        embeddings[name] = replace(encoder, tensors={**encoder.tensors, **weights}).embed(tokens)
        rows[name] = sentence_row(name, kept, embeddings[name], next(iter(embeddings.values())))
    return Embedded(rows, embeddings)


def input_squares(encoder: Encoder, source: Path) -> Mapping[str, F32]:
    """The sum of squares of each layer's inputs over `CALIBRATION`, by the weight's name; none without such a text."""
    text = source.with_name(CALIBRATION)
    lines = text.read_text(encoding="utf-8", errors="replace").splitlines() if text.is_file() else []
    lines = [line for line in lines if len(line) >= LEAST]
    if not lines:
        return {}
    observed = Observed(encoder.config, encoder.tensors)
    observed.embed(tokenize(source.with_name("tokenizer.json"), lines, encoder.config))
    return observed.squares


def weight_sets(
    encoder: Encoder, sparse: Mapping[str, SparseTensor], squares: Mapping[str, F32]
) -> Iterator[tuple[str, float, Mapping[str, Tensor]]]:
    """Name, kept fraction and replaced weights of each set: as stored, converted, and pruned to each pattern.

    sparse: weights of `PATTERN`. Weights of other patterns, and calibrated ones, are dense with zeros. squares: of the
    inputs, by the weight's name; if there are any, the last set is chosen by them.
    """
    yield "stored", 1.0, {}
    element = next(iter(sparse.values())).dtype
    dense = {name: np.asarray(encoder.tensors[name]).astype(element.numpy) for name in sparse}
    yield f"dense {element}", 1.0, dense
    for pattern in PATTERNS:
        pruned = sparse if pattern == PATTERN else {name: prune(weight, pattern) for name, weight in dense.items()}
        yield str(pattern), pattern.n / pattern.m, pruned
    if squares:
        # Wanda's score is |w| times the norm of the input.
        scores = {name: np.abs(weight).astype(np.float32) * np.sqrt(squares[name]) for name, weight in dense.items()}
        chosen = {name: np.where(prune(score, PATTERN) != 0, dense[name], 0) for name, score in scores.items()}
        yield CALIBRATED, PATTERN.n / PATTERN.m, {n: w.astype(element.numpy) for n, w in chosen.items()}
