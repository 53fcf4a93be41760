"""Compares sentence embeddings by pruned weights with embeddings by the stored weights: records, a table and JSON.

Embeddings are [2·n, width], each of length 1. Sentences i and i + n are paraphrases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.measure.report.table import Column, Table

HEADINGS = ("weights", "kept", "mean cosine", "least", "rank corr.", "finds paraphrase")

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SentenceRow:
    """Results of the sentences for one set of weights, compared with the stored weights.

    weights: the pattern, or the type of dense weights. kept: fraction of each layer's elements, 0 to 1.
    mean_cosine, least_cosine: of the two embeddings of each sentence. rank_correlation: Spearman's, of the similarities
    of all pairs. found: sentences whose nearest other sentence is the paraphrase. sentences: their number.
    """

    weights: str
    kept: float
    mean_cosine: float
    least_cosine: float
    rank_correlation: float
    found: int
    sentences: int


def sentence_row(weights: str, kept: float, embeddings: F32, stored: F32) -> SentenceRow:
    """Compare embeddings [2·n, width] with those by the stored weights. Raises ValueError for other shapes."""
    if embeddings.shape != stored.shape or stored.ndim != 2 or len(stored) % 2:
        raise ValueError(f"embeddings are two arrays [2·n, width], got {embeddings.shape} and {stored.shape}")
    cosines = np.einsum("sw,sw->s", embeddings, stored)
    ranks = [pair_similarities(found).argsort().argsort() for found in (embeddings, stored)]
    correlation: Any = np.corrcoef(np.stack(ranks))
    return SentenceRow(
        weights,
        kept,
        float(cosines.mean()),
        float(cosines.min()),
        float(correlation[0, 1]),
        int(finds_paraphrase(embeddings).sum()),
        len(stored),
    )


def pair_similarities(embeddings: F32) -> F32:
    """Cosine of each pair of different sentences: [2·n · (2·n - 1) / 2]."""
    similarity: F32 = embeddings @ embeddings.T
    return similarity[np.triu_indices(len(embeddings), 1)]


def finds_paraphrase(embeddings: F32) -> NDArray[np.bool_]:
    """Whether the nearest other sentence is the paraphrase: [2·n]."""
    similarity = embeddings @ embeddings.T
    np.fill_diagonal(similarity, -np.inf)
    return similarity.argmax(axis=1) == np.roll(np.arange(len(embeddings)), len(embeddings) // 2)


def in_words(magnitude: SentenceRow, stored: SentenceRow, calibrated: SentenceRow | None = None) -> str:
    """The cost of pruning by the better method, in words. magnitude, calibrated: of one pattern, the latter by Wanda."""
    row, method = (magnitude, "magnitude") if calibrated is None else (calibrated, "Wanda")
    beside = "" if calibrated is None else f", by magnitude {magnitude.mean_cosine:.3f}"
    return (
        f"With {magnitude.weights} weights (by {method}, not retrained), {row.found} of {row.sentences} sentences find their "
        f"paraphrase; with the stored weights, {stored.found}. Embeddings keep a mean cosine of {row.mean_cosine:.3f}{beside}."
    )


def cells(row: SentenceRow) -> tuple[str, ...]:
    """A row as text, in the order of `HEADINGS`."""
    cosines = (f"{number:.3f}" for number in (row.mean_cosine, row.least_cosine, row.rank_correlation))
    return (row.weights, f"{row.kept:.0%}", *cosines, f"{row.found} of {row.sentences}")


def sentences_table(rows: Sequence[SentenceRow], title: str = "") -> Table:
    """The rows as a table."""
    columns = tuple(Column(name, right=name != "weights") for name in HEADINGS)
    return Table(title, columns, [cells(row) for row in rows])
