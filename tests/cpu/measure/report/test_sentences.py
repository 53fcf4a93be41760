from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from louver.measure.report.plots import plot_sentences
from louver.measure.report.sentences import (
    F32,
    SentenceRow,
    finds_paraphrase,
    in_words,
    sentence_row,
    sentences_table,
)

ROWS = [
    SentenceRow("dense f16", 1.0, 0.9999, 0.9876, 0.8765, 14, 14),
    SentenceRow("2:4", 0.5, 0.7654, 0.6543, 0.5432, 9, 14),
]


def unit(numbers: np.ndarray) -> F32:
    return (numbers / np.linalg.norm(numbers, axis=1, keepdims=True)).astype(np.float32)


def paraphrases(rng: np.random.Generator, pairs: int, noise: float) -> F32:
    """Embeddings of pairs that differ by some noise."""
    one = rng.standard_normal((pairs, 24))
    return unit(np.concatenate([one, one + noise * rng.standard_normal(one.shape)]))


def test_paraphrases_are_found_where_they_are_nearest(rng: np.random.Generator) -> None:
    embeddings = paraphrases(rng, 7, 0.1)
    assert finds_paraphrase(embeddings).all()
    embeddings[2] = embeddings[3]
    lost = set(np.flatnonzero(~finds_paraphrase(embeddings)))
    assert {2, 3, 9} <= lost <= {2, 3, 9, 10}


def test_the_same_embeddings_lose_nothing(rng: np.random.Generator) -> None:
    stored = paraphrases(rng, 9, 0.1)
    row = sentence_row("f16", 1.0, stored.copy(), stored)
    assert (row.found, row.sentences) == (18, 18)
    assert row.mean_cosine == pytest.approx(1) and row.least_cosine == pytest.approx(1)
    assert row.rank_correlation == pytest.approx(1)


def test_numbers_are_those_of_plain_loops(rng: np.random.Generator) -> None:
    stored, embeddings = paraphrases(rng, 5, 0.5), paraphrases(rng, 5, 0.5)
    row = sentence_row("2:4", 0.5, embeddings, stored)
    cosines = [float(a @ b) for a, b in zip(embeddings, stored, strict=True)]
    assert row.mean_cosine == pytest.approx(np.mean(cosines), abs=1e-6)
    assert row.least_cosine == pytest.approx(min(cosines), abs=1e-6)
    pairs = [(i, j) for i in range(10) for j in range(i + 1, 10)]
    ranks = []
    for found in (embeddings, stored):
        values = [float(found[i] @ found[j]) for i, j in pairs]
        ranks.append([sum(other < value for other in values) for value in values])
    squares = sum((a - b) ** 2 for a, b in zip(*ranks, strict=True))
    assert row.rank_correlation == pytest.approx(1 - 6 * squares / (45 * (45**2 - 1)), abs=1e-6)
    nearest = [max((j for j in range(10) if j != i), key=lambda j: embeddings[i] @ embeddings[j]) for i in range(10)]
    assert row.found == sum(near == (i + 5) % 10 for i, near in enumerate(nearest))


@pytest.mark.parametrize("shape", [(3, 8), (4, 7)])
def test_other_shapes_are_refused(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    stored = rng.standard_normal((shape[0], 8)).astype(np.float32)
    with pytest.raises(ValueError, match=r"two arrays \[2·n, width\], got"):
        sentence_row("2:4", 0.5, np.ones(shape, np.float32), stored)


def test_the_table_fits_eighty_columns_without_folding() -> None:
    lines = list(sentences_table(ROWS, "sentences").lines(80))
    assert len(lines) == 1 + 1 + 1 + len(ROWS), lines
    assert lines[-1].split() == ["2:4", "50%", "0.765", "0.654", "0.543", "9", "of", "14"]


def test_markdown_holds_the_rows() -> None:
    lines = sentences_table(ROWS).markdown().splitlines()
    assert len(lines) == 2 + len(ROWS) and len({line.count("|") for line in lines}) == 1


def test_words_say_what_was_lost() -> None:
    assert "2:4 weights" in in_words(ROWS[1], ROWS[0]) and "9 of 14" in in_words(ROWS[1], ROWS[0])
    assert "with the stored weights, 14. Embeddings keep a mean cosine of 0.765." in in_words(ROWS[1], ROWS[0])
    better = SentenceRow("2:4, Wanda", 0.5, 0.8765, 0.7654, 0.6543, 11, 14)
    said = in_words(ROWS[1], ROWS[0], better)
    assert said.startswith("With 2:4 weights (by Wanda, not retrained), 11 of 14 sentences")
    assert said.endswith("Embeddings keep a mean cosine of 0.876, by magnitude 0.765.")


@pytest.mark.parametrize("count", [1, 4])
def test_the_plot_is_a_png(rng: np.random.Generator, tmp_path: Path, count: int) -> None:
    embeddings = {f"weights {index}": paraphrases(rng, 6, 0.1 + index) for index in range(1 + count)}
    path = plot_sentences(embeddings, tmp_path / "deep" / "plot.png", "similarity")
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def test_a_plot_of_the_stored_weights_alone_is_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"other weights beside the stored ones, got \['stored'\]"):
        plot_sentences({"stored": paraphrases(rng, 3, 0.1)}, tmp_path / "plot.png", "similarity")
