"""Calibrated pruning of a folder on a GPU: the bits of the model in memory, one block at a time on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
import louver.torch
from louver.formats.pattern import Pattern
from louver.models.pruning import PruneOptions
from support.model_folders import quantized, saved, tokens_file
from support.tiny_models import ids

transformers: Any = pytest.importorskip("transformers")

TWO_FOUR = PruneOptions(Pattern.parse("2:4"))


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
def test_a_folder_gives_the_bits_of_the_model_in_memory(torch: Any, kind: str, tmp_path: Path) -> None:
    from louver.torch.accuracy.files import Calibration, prune_folder
    from louver.torch.accuracy.matrix import Method
    from louver.torch.accuracy.text import evaluate

    source = saved(torch, transformers, tmp_path / "in", kind)
    text = str(tokens_file(torch, tmp_path / "text.npy"))
    method = Method("sparsegpt", correct=True, reconstruct=6)
    asked = Calibration(method, (text,), judged=(text,), length=24, tune=3)
    done = prune_folder(source, tmp_path / "out", TWO_FOUR, asked, device="cuda")
    load = transformers.AutoModelForCausalLM.from_pretrained
    wanted = load(source).cuda()
    louver.torch.prune_(
        wanted, method="sparsegpt", correct=True, reconstruct=6, tune=3, calibration={"text.npy": ids(torch, 24)}
    )
    state = {name: tensor.cpu() for name, tensor in wanted.state_dict().items()}
    got = load(tmp_path / "out")
    assert [name for name, tensor in got.state_dict().items() if not torch.equal(tensor, state[name])] == []
    expected = evaluate(got.cuda(), ids(torch, 24), load(source).cuda())
    before, after = done.judged["text.npy"]
    assert after.perplexity == pytest.approx(expected.perplexity, rel=1e-3)
    assert after.kl == pytest.approx(expected.kl, rel=0.05) and before.perplexity != after.perplexity


def test_weights_with_scales_keep_their_type(torch: Any, tmp_path: Path) -> None:
    from louver.torch.accuracy.files import Calibration, prune_folder
    from louver.torch.accuracy.matrix import Method

    source = quantized(torch, saved(torch, transformers, tmp_path / "plain", "llama"), tmp_path / "in", (8, 16))
    text = str(tokens_file(torch, tmp_path / "text.npy"))
    method = Method("sparsegpt", correct=True, reconstruct=6)
    names: list[set[str]] = []
    for device in ("cpu", "cuda"):
        out = tmp_path / device
        done = prune_folder(source, out, TWO_FOUR, Calibration(method, (text,), length=24), device=device)
        after = louver.load(out)
        assert {row.dtype for row in done.written.rows} == {"e4m3"}
        assert all(louver.check(np.asarray(after[row.name]), "2:4").ok for row in done.written.rows)
        names.append({row.name for row in done.written.rows})
    assert names[0] == names[1]
