"""Formats timed on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
import louver.models
from louver.advice.formats import DEFAULT, Format
from louver.measure.advise import bursts, timer
from louver.measure.protocol import Protocol

torch: Any = pytest.importorskip("torch")
QUICK = Protocol(rounds=2, burst_seconds=0.001, graph_seconds=0.001, pause_seconds=0.0, rotation_bytes=4_000_000)


@pytest.mark.parametrize("n", [1, 17, 100])
def test_every_format_has_a_time_unless_it_is_refused(n: int) -> None:
    taken, refused = bursts(torch, DEFAULT, 512, n, 1024, QUICK)
    assert not refused
    assert set(taken) == {each for each in DEFAULT if not each.refusal(512, n, 1024)}
    assert all(len(each) == 2 and min(each) > 1e-6 for each in taken.values())


def test_advice_is_measured_here() -> None:
    advice = louver.advise(1024, 64, 1024, measure=True, formats=["f16", "f16 2:4", "bf16 4:8@128"])
    assert advice.device == torch.cuda.get_device_name()
    assert [row.time.origin for row in advice.rows if row.time is not None] == ["measured"] * 3


def test_a_model_is_measured_by_shape(tmp_path: Path) -> None:
    weights = {f"model.layers.{i}.mlp.up_proj.weight": np.ones((256, 128), np.float16) for i in (0, 1)}
    louver.save(tmp_path / "model.safetensors", weights)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
    found = louver.models.advise(tmp_path, (1, 33), formats=["f16", "s8"], timer=timer(torch))
    total = found.total(Format("f16"), 33)
    assert total is not None and total.origin == "measured"
    assert found.total(Format("s8"), 1) is None and found.drawn == (1, 33)
