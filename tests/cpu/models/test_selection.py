from __future__ import annotations

import pytest

from louver.models.selection import Selection


@pytest.mark.parametrize(
    ("include", "exclude", "name", "taken"),
    [
        (None, None, "encoder.layer.0.attention.self.query.weight", True),
        (None, None, "embeddings.word_embeddings.weight", False),
        (None, None, "transformer.wte.weight", False),
        (["*.query.*"], None, "encoder.query.weight", True),
        (["*.query.*"], None, "encoder.key.weight", False),
        (["*query*", "*key*"], None, "encoder.key.weight", True),
        (None, ["*.0.*"], "encoder.0.weight", False),
        (None, ["*.0.*"], "embeddings.weight", True),
        (["*embed*"], None, "embeddings.weight", False),
        (["*embed*"], ["none"], "embeddings.weight", True),
        (["*QUERY*"], None, "query", False),
    ],
)
def test_globs_choose(include: list[str] | None, exclude: list[str] | None, name: str, taken: bool) -> None:
    assert Selection.of(include, exclude).takes(name) is taken
