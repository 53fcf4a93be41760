"""`louver.models.analyze` on tiny random models of every architecture that Transformers builds by one rule.

`benchmarks/judge_architectures.py` judges all that it can build, and writes the record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

transformers: Any = pytest.importorskip("transformers", reason="needs transformers and torch: make test-models")

from support.architectures.judge import smallest, truths, verdicts  # noqa: E402

KINDS = (
    "llama", "gpt2", "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "gemma3", "phi3", "mamba", "bloom", "t5", "bart", "bert",
    "switch_transformers", "jetmoe", "xlnet", "whisper", "vit", "clip", "wav2vec2", "rwkv", "gpt_bigcode", "qwen2_vl", "detr",
)  # fmt: skip
"""One or two architectures of each family."""


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("kind", KINDS)
def test_decisions(kind: str, tmp_path: Path) -> None:
    model = smallest(kind)
    model.save_pretrained(tmp_path)
    truth = truths(model, tmp_path)
    with_model, without = verdicts(tmp_path, truth)
    assert with_model.weights and with_model.by_model == with_model.weights, with_model.notes
    assert not with_model.pruned and not with_model.left, with_model
    assert not without.pruned, without
