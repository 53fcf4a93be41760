"""The demo's sentences: embedded by the stored weights, and by weights pruned to several patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from louver.cli.commands.demo_encoder import Encoder, NoEncoderError, read_encoder, tokenize
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
    work = weight_sets(encoder, layers)
    for name, kept, weights in track(work, "embedding sentences", 2 + len(PATTERNS)):
        embeddings[name] = replace(encoder, tensors={**encoder.tensors, **weights}).embed(tokens)
        rows[name] = sentence_row(name, kept, embeddings[name], next(iter(embeddings.values())))
    return Embedded(rows, embeddings)


def weight_sets(
    encoder: Encoder, sparse: Mapping[str, SparseTensor]
) -> Iterator[tuple[str, float, Mapping[str, Tensor]]]:
    """Name, kept fraction and replaced weights of each set: as stored, converted, and pruned to each pattern.

    sparse: weights of `PATTERN`. Weights of other patterns are dense with zeros.
    """
    yield "stored", 1.0, {}
    element = next(iter(sparse.values())).dtype
    dense = {name: np.asarray(encoder.tensors[name]).astype(element.numpy) for name in sparse}
    yield f"dense {element}", 1.0, dense
    for pattern in PATTERNS:
        pruned = sparse if pattern == PATTERN else {name: prune(weight, pattern) for name, weight in dense.items()}
        yield str(pattern), pattern.n / pattern.m, pruned
